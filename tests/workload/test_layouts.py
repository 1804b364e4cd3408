"""Logs as gateways, engines and exporters write them.

Each is read without a field map, and says the same as a plain log.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from logs import Rows, read, refused, write

from prefixroute.errors import TraceError
from prefixroute.workload import FieldMap, Options, Workload, measure, read_trace
from prefixroute.workload.readers.chains import OUTSIDE
from prefixroute.workload.readers.kinds import CACHED, FAILED, SPANS
from prefixroute.workload.readers.record import BURST
from prefixroute.workload.readers.requests import IMPLAUSIBLE

SYSTEM = "You help with trains. " + " ".join(f"w{at * 37 % 301:04d}" for at in range(90))
STARTED_S = 1_790_000_000


class Turn(NamedTuple):
    """One request: of a chat, its turn, the messages so far and the answer."""

    number: int
    chat: int
    messages: Rows
    answer: str

    @property
    def date(self) -> str:
        return f"2026-08-06T14:30:{4 * self.number:02d}"

    @property
    def usage(self) -> dict[str, Any]:
        """What OpenAI's API would bill at 3.5 characters a token."""
        tokens = sum(len(message["content"]) for message in self.messages) * 2 // 7
        cached = 0 if len(self.messages) == 2 else tokens // 2
        answered = len(self.answer) * 2 // 7
        return {
            "prompt_tokens": tokens,
            "completion_tokens": answered,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    @property
    def response(self) -> dict[str, Any]:
        return {"choices": [{"message": {"role": "assistant", "content": self.answer}}], "usage": self.usage}


def conversation() -> list[Turn]:
    """Return 3 chats of 3 turns, in turns."""
    said: dict[int, Rows] = {chat: [{"role": "system", "content": SYSTEM}] for chat in range(3)}
    turns = []
    for number in range(9):
        chat = number % 3
        question = {"role": "user", "content": f"question {number} of chat {chat}: " + f"where is train {number}? " * 8}
        messages = [*said[chat], question]
        answer = f"train {number} of chat {chat} stands in station {number * 7}. " * 6
        turns.append(Turn(number, chat, messages, answer))
        said[chat] = [*messages, {"role": "assistant", "content": answer}]
    return turns


TURNS = conversation()


def plain(turn: Turn) -> dict[str, Any]:
    return {
        "timestamp": STARTED_S + 4 * turn.number,
        "session_id": f"s{turn.chat}",
        "messages": turn.messages,
        "response": turn.response,
    }


def litellm(turn: Turn) -> dict[str, Any]:
    return {
        "request_id": f"chatcmpl-{turn.number}", "call_type": "acompletion", "cache_hit": "False", "status": "success",
        "startTime": f"{turn.date}+00:00", "endTime": f"{turn.date}.5+00:00", "session_id": f"s{turn.chat}", "user": "u",
        "prompt_tokens": turn.usage["prompt_tokens"], "completion_tokens": turn.usage["completion_tokens"],
        "metadata": {"status": "success", "usage_object": turn.usage}, "messages": {}, "request_tags": [],
        "response": {"choices": turn.response["choices"]}, "proxy_server_request": {"messages": turn.messages},
    }  # fmt: skip


def strings(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as a CSV export has it: with the JSON columns as texts."""
    return {key: json.dumps(value) if isinstance(value, list | dict) else value for key, value in row.items()}


def langfuse(turn: Turn) -> dict[str, Any]:
    cached = turn.usage["prompt_tokens_details"]["cached_tokens"]
    usage = {
        "input": turn.usage["prompt_tokens"] - cached,
        "input_cached_tokens": cached,
        "output": turn.usage["completion_tokens"],
    }
    return {
        "id": f"o{turn.number}", "trace_id": f"t{turn.number}", "type": "GENERATION", "start_time": turn.date.replace("T", " "),
        "session_id": f"s{turn.chat}", "input": json.dumps(turn.messages), "usage_details": usage,
        "output": json.dumps({"role": "assistant", "content": turn.answer}),
    }  # fmt: skip


def helicone(turn: Turn) -> dict[str, Any]:
    return {
        "request_id": "r", "request_created_at": f"{turn.date}Z", "request_body": json.dumps({"messages": turn.messages}),
        "response_body": json.dumps(turn.response), "request_user_id": "u", "delay_ms": 4000, "response_status": 200,
        "request_properties": {"Helicone-Session-Id": f"s{turn.chat}"}, "prompt_tokens": turn.usage["prompt_tokens"],
    }  # fmt: skip


def responses_usage(turn: Turn) -> dict[str, Any]:
    details = {"input_tokens_details": turn.usage["prompt_tokens_details"]}
    return {"input_tokens": turn.usage["prompt_tokens"], "output_tokens": turn.usage["completion_tokens"], **details}


def items(turn: Turn) -> list[dict[str, Any]]:
    return [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": turn.answer, "annotations": []}],
        }
    ]


def responses(turn: Turn) -> dict[str, Any]:
    said = turn.messages[1:]
    response = {"id": f"resp_{turn.number}", "output": items(turn), "usage": responses_usage(turn)}
    body = {"instructions": SYSTEM, "input": said[0]["content"] if len(said) == 1 else said}
    return {"created_at": STARTED_S + 4 * turn.number, "request": body, "response": response}


def chained(turn: Turn) -> dict[str, Any]:
    row = responses(turn)
    row["request"]["input"] = [
        {"role": "user", "content": [{"type": "input_text", "text": turn.messages[-1]["content"]}]}
    ]
    if turn.number > 2:
        row["request"]["previous_response_id"] = f"resp_{turn.number - 3}"
    return row


def anthropic(turn: Turn) -> dict[str, Any]:
    """Return a row of the Messages API; the mark moves with each turn."""
    mark = {"cache_control": {"type": "ephemeral"}}
    said = [{"role": one["role"], "content": [{"type": "text", "text": one["content"]}]} for one in turn.messages[1:]]
    said[-1]["content"][0] |= mark
    cached = turn.usage["prompt_tokens_details"]["cached_tokens"]
    usage = {"input_tokens": 10, "cache_read_input_tokens": cached, "output_tokens": turn.usage["completion_tokens"],
             "cache_creation_input_tokens": turn.usage["prompt_tokens"] - cached - 10}  # fmt: skip
    return {
        "timestamp": STARTED_S + 4 * turn.number, "session_id": f"s{turn.chat}",
        "request": {"system": [{"type": "text", "text": SYSTEM, **mark}], "messages": said},
        "response": {"role": "assistant", "content": [{"type": "text", "text": turn.answer}], "usage": usage},
    }  # fmt: skip


def chunks(turn: Turn) -> list[dict[str, Any]]:
    words = turn.answer.split(" ")
    parts = [
        {"choices": [{"index": 0, "delta": {"content": f"{word} "}}], "object": "chat.completion.chunk"}
        for word in words[:-1]
    ]
    return [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        *parts,
        {"choices": [], "usage": turn.usage},
    ]


def events(turn: Turn) -> list[dict[str, Any]]:
    body = anthropic(turn)["response"]
    start = {"id": "m", "role": "assistant", "content": [], "usage": {**body["usage"], "output_tokens": 1}}
    half = len(turn.answer) // 2
    deltas = [{"type": "text_delta", "text": text} for text in (turn.answer[:half], turn.answer[half:])]
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end"},
            "usage": {"output_tokens": body["usage"]["output_tokens"]},
        },
    ]


def sent(rows: list[dict[str, Any]]) -> str:
    return "".join(f"data: {json.dumps(row)}\n\n" for row in rows) + "data: [DONE]\n\n"


def parts(messages: Rows) -> str:
    """Return messages as OpenTelemetry's conventions have them."""
    return json.dumps(
        [{"role": one["role"], "parts": [{"type": "text", "content": one["content"]}]} for one in messages]
    )


def span(turn: Turn) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.conversation.id": f"s{turn.chat}", "gen_ai.input.messages": parts(turn.messages),
        "gen_ai.output.messages": parts([{"role": "assistant", "content": turn.answer}]),
        "gen_ai.usage.input_tokens": turn.usage["prompt_tokens"], "gen_ai.usage.output_tokens": turn.usage["completion_tokens"],
        "gen_ai.usage.cache_read.input_tokens": turn.usage["prompt_tokens_details"]["cached_tokens"],
        "gen_ai.usage.cache_creation.input_tokens": turn.usage["prompt_tokens"] // 2,
    }  # fmt: skip
    started = str((STARTED_S + 4 * turn.number) * 10**9)
    return {
        "name": "chat m",
        "traceId": "0" * 32,
        "spanId": "1" * 16,
        "startTimeUnixNano": started,
        "attributes": attributes,
    }


def typed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a span with its attributes as OTLP has them."""
    kinds = {str: "stringValue", int: "intValue"}
    found = [{"key": key, "value": {kinds[type(value)]: str(value)}} for key, value in row["attributes"].items()]
    return {**row, "attributes": found}


def numbered(turn: Turn) -> dict[str, Any]:
    """Return a span of the conventions before."""
    row = span(turn)
    own = {key: value for key, value in row["attributes"].items() if "messages" not in key}
    for side, messages in (("prompt", turn.messages), ("completion", [{"role": "assistant", "content": turn.answer}])):
        for at, message in enumerate(messages):
            own |= {f"gen_ai.{side}.{at}.{name}": value for name, value in message.items()}
    return {**row, "attributes": own}


def batch(turn: Turn) -> dict[str, Any]:
    return {
        "custom_id": f"r{turn.number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": turn.messages},
    }


LAYOUTS: dict[str, Callable[[Turn], dict[str, Any]]] = {
    "plain": plain,
    "litellm": litellm,
    "litellm-strings": lambda turn: strings(litellm(turn)),
    "langfuse": langfuse,
    "helicone": helicone,
    "responses": responses,
    "responses-chained": chained,
    "anthropic": anthropic,
    "chunks": lambda turn: {**plain(turn), "response": chunks(turn)},
    "chunks-as-text": lambda turn: {**plain(turn), "response": json.dumps(chunks(turn))},
    "chunks-inside": lambda turn: {**plain(turn), "response": {"chunks": chunks(turn)}},
    "events": lambda turn: {**anthropic(turn), "response": events(turn)},
    "events-as-text": lambda turn: {**anthropic(turn), "response": sent(events(turn))},
    "sent-chunks": lambda turn: {**plain(turn), "response": None, "response_body": sent(chunks(turn))},
    "otel": span,
    "otel-typed": lambda turn: typed(span(turn)),
    "otel-numbered": numbered,
    "json-at-the-end": lambda turn: {**plain(turn), "messages": json.dumps(turn.messages)},
}


def told(workload: Workload) -> dict[str, object]:
    """Return the statistics that do not rest on times."""
    found = measure(workload).to_dict()
    return {
        key: value
        for key, value in found.items()
        if not {"span_s", "instants"} & {key} and not key.endswith("_s") and key != "workload"
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return told(read_trace(write(tmp_path_factory.mktemp("plain") / "plain.jsonl", [plain(turn) for turn in TURNS])))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_says_what_the_plain_log_says(tmp_path: Path, layout: str, expected: dict[str, object]) -> None:
    rows = [LAYOUTS[layout](turn) for turn in TURNS]
    workload = read_trace(write(tmp_path / f"{layout}.jsonl", rows))
    found = told(workload)
    assert found == expected
    assert found["sessions"] == 3
    assert [request.prompt_tokens for request in workload.requests()] == [turn.usage["prompt_tokens"] for turn in TURNS]
    hits = [turn.usage["prompt_tokens_details"]["cached_tokens"] for turn in TURNS]
    assert [request.reported_hit_tokens for request in workload.requests()] == hits
    assert not workload.skipped


def test_observations_of_an_export_without_ids_are_told_apart(tmp_path: Path) -> None:
    """A table of Langfuse need not have the column of trace ids.

    The kinds of its rows still say what is no generation.
    """
    said = [{"role": "user", "content": "hello " * 30}]
    kinds = ("GENERATION", "SPAN", "GENERATION", "TOOL")
    rows = [{"type": kind, "start_time": f"2026-08-06 14:30:0{at}", "input": said} for at, kind in enumerate(kinds)]
    workload = read_trace(write(tmp_path / "log.jsonl", rows))
    assert measure(workload).requests == 2
    assert workload.left_out == {SPANS: 2}


def test_spans_of_one_export_are_requests_of_their_own(tmp_path: Path, expected: dict[str, object]) -> None:
    spans = [typed(span(turn)) for turn in TURNS]
    tool = {**spans[0], "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}]}
    exports = [{"resourceSpans": [{"scopeSpans": [{"spans": [tool, *spans[at : at + 3]]}]}]} for at in (0, 3, 6)]
    workload = read_trace(write(tmp_path / "export.jsonl", exports))
    assert told(workload) == expected
    assert workload.left_out == {SPANS: 3}


def test_a_batch_is_one_burst(tmp_path: Path, expected: dict[str, object]) -> None:
    workload = read_trace(write(tmp_path / "batch.jsonl", [batch(turn) for turn in TURNS]))
    requests = list(workload.requests())
    assert [request.arrival_s for request in requests] == [0.0] * 9
    assert len({request.session for request in requests}) == expected["sessions"]
    assert BURST in workload.notes
    rows = [{"prompt": "".join(message["content"] for message in turn.messages)} for turn in TURNS]
    assert read_trace(write(tmp_path / "custom.jsonl", rows)).request_count == 9


@pytest.mark.parametrize(
    ("make", "other", "kind"),
    [
        (litellm, {"cache_hit": "True"}, CACHED),
        (litellm, {"cache_hit": True}, CACHED),
        (litellm, {"status": "failure", "response": {}}, FAILED),
        (litellm, {"metadata": json.dumps({"status": "failure"})}, FAILED),
        (litellm, {"call_type": "aembedding", "proxy_server_request": {"input": ["a", "b"]}}, "embeddings"),
        (litellm, {"call_type": "arerank", "proxy_server_request": {"query": "a"}}, "rerankings"),
        (langfuse, {"type": "SPAN", "input": '{"q": "x"}', "output": ""}, SPANS),
        (langfuse, {"type": "EVENT", "input": None}, SPANS),
        (langfuse, {"level": "ERROR"}, FAILED),
        (helicone, {"response_status": 429, "response_body": '{"error": {"code": 429}}'}, FAILED),
        (plain, {"status_code": 500, "response": None}, FAILED),
        (plain, {"response": {"error": {"message": "no"}}}, FAILED),
        (batch, {"url": "/v1/embeddings", "body": {"input": "a"}}, "embeddings"),
        (span, {"status": {"code": 2}}, FAILED),
        (span, {"attributes": {"gen_ai.operation.name": "embeddings"}}, "embeddings"),
        (span, {"attributes": {"http.method": "POST"}}, SPANS),
    ],
)  # fmt: skip
def test_rows_of_another_kind_are_left_out_and_counted(
    tmp_path: Path, make: Callable[[Turn], dict[str, Any]], other: dict[str, Any], kind: str
) -> None:
    """However many they are, and where a file begins with them too."""
    rows = [{**make(TURNS[0]), **other} for _ in range(12)] + [make(turn) for turn in TURNS]
    workload = read_trace(write(tmp_path / "log.jsonl", rows))
    assert workload.request_count == 9
    streamed = read_trace(tmp_path / "log.jsonl", check=False)
    assert streamed.left_out == {}
    measure(streamed)
    assert streamed.told().left_out == workload.left_out == {kind: 12}
    assert f"12 {kind}" in workload.notes[-1]
    refused(write(tmp_path / "none.jsonl", rows[:12]), match=rf"none\.jsonl: .*10,000 .*12 {kind}")


def test_a_chain_that_begins_outside_of_the_log_is_counted(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path / "chained.jsonl", [chained(turn) for turn in TURNS[3:]]))
    assert workload.remarks == {OUTSIDE: 3}
    assert workload.notes[-1] == f"3 {OUTSIDE}"
    assert workload.request_count == 6


def test_prompts_under_different_salts_share_nothing(tmp_path: Path) -> None:
    rows = [{"time": at, "prompt": "word " * 400, "cache_salt": f"salt {at % 4}"} for at in range(8)]
    assert measure(read_trace(write(tmp_path / "salts.jsonl", rows))).floor == pytest.approx(0.5, abs=0.01)
    assert measure(read_trace(write(tmp_path / "one.jsonl", [{**row, "cache_salt": ""} for row in rows]))).floor < 0.14


def test_a_value_that_is_a_text_or_a_list_and_one_that_is_empty_first(tmp_path: Path) -> None:
    """What a field map can say.

    JSON at the end of a path, an empty object at the first, a text in place of messages.
    """
    asked = "where is the train? " * 20
    forms: list[Any] = [asked, [{"role": "user", "content": asked}], json.dumps([{"role": "user", "content": asked}]),
                        json.dumps({"messages": [{"role": "user", "content": asked}]})]  # fmt: skip
    rows = [
        {"at": at, "first": empty, "then": form}
        for at, (empty, form) in enumerate(zip([{}, [], "{}", ""], forms, strict=True))
    ]
    layout = FieldMap.from_table({"time_unit": "s", "fields": {"time": "at", "messages": ["first", "then"]}})
    requests = read(write(tmp_path / "forms.jsonl", rows), Options(fields=layout))
    assert len({request.prompt.array.tobytes() for request in requests}) == 1


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        ({"prompt_tokens": 37}, 1_500),  # the written cache tokens alone
        ({"prompt_tokens": 49_240}, 1_000),
        ({"input_tokens": 12, "cache_creation_input_tokens": 25}, 1_500),
    ],
)
def test_reported_tokens_that_fit_no_text_are_not_used_and_counted(
    tmp_path: Path, usage: dict[str, int], words: int
) -> None:
    rows = [{"time": at, "prompt": f"{at} " + "train " * words, "usage": usage} for at in range(20)]
    workload = read_trace(write(tmp_path / "log.jsonl", rows))
    assert workload.remarks == {IMPLAUSIBLE: 20}
    (rate,) = [item for item in workload.assumptions if item.name == "bytes_per_token"]
    assert (rate.value, rate.assumed) == (4.0, True)
    assert next(workload.requests()).prompt_tokens == pytest.approx(6 * words / 4, rel=0.01)


def test_a_row_far_from_its_neighbours_is_not_believed(tmp_path: Path) -> None:
    rows = [{"time": at, "prompt": f"{at} " + "train " * 1_000, "usage": {"prompt_tokens": 1_500}} for at in range(40)]
    rows[7]["usage"] = {"prompt_tokens": 760, "prompt_tokens_details": {"cached_tokens": 700}}
    rows[8]["usage"] = {"prompt_tokens": 3_900}
    workload = read_trace(write(tmp_path / "log.jsonl", rows))
    requests = list(workload.requests())
    assert [requests[at].prompt_tokens for at in (6, 7, 9)] == [1_500, 760, 1_500]
    assert requests[8].prompt_tokens == pytest.approx(1_500, rel=0.02)
    assert workload.remarks == {IMPLAUSIBLE: 1}


@pytest.mark.parametrize("noise", [1.0, 1.1])
def test_prompts_have_the_tokens_that_were_billed_and_share_what_they_share(tmp_path: Path, noise: float) -> None:
    """Whatever the rate of each prompt, an extended prompt hits all blocks of the one before."""
    rows, said = [], "begin. "
    for at in range(30):
        said += f"sentence {at} of a long talk about trains and stations. " * (1 + at % 3)
        tokens = round(len(said) / (3.6 * (noise if at % 2 else 1)))
        rows.append({"time": at, "session": "s", "prompt": said, "usage": {"prompt_tokens": tokens}})
    requests = read(write(tmp_path / "log.jsonl", rows))
    assert [request.prompt_tokens for request in requests] == [row["usage"]["prompt_tokens"] for row in rows]
    for earlier, later in itertools.pairwise(requests):
        assert len(earlier.prompt) == earlier.prompt_tokens // 16
        shared = min(len(earlier.prompt), len(later.prompt))
        assert (later.prompt.array[:shared] == earlier.prompt.array[:shared]).all()


UNKNOWN = {
    "when": "2026-11-29T10:00:00Z",
    "http": {"payload": json.dumps({"chat": [{"role": "user", "content": "x"}]})},
}


def test_a_log_of_no_known_layout_gets_the_field_map_that_reads_it(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", [UNKNOWN])
    with pytest.raises(TraceError) as error:
        read_trace(path)
    layout = tmp_path / "map.toml"
    layout.write_text("[fields]\n" + str(error.value).partition("[fields] ")[2].replace(", ", "\n"))
    fields = FieldMap.read(layout)
    assert (fields.paths["time"], fields.paths["messages"]) == (("when",), ("http.payload.chat",))
    assert read_trace(path, Options(fields=fields)).request_count == 1


@pytest.mark.parametrize(
    "name",
    [
        "litellm_spend",
        "litellm_spend_strings",
        "langfuse_observations",
        "helicone",
        "openai_responses",
        "openai_responses_chained",
    ],
)
def test_exports_of_one_traffic_say_the_same(name: str, logs_dir: Path) -> None:
    def figures(path: Path) -> dict[str, object]:
        found = told(read_trace(path))
        return {key: value for key, value in found.items() if key != "losses" and not key.startswith("reported")}

    assert figures(logs_dir / f"{name}.jsonl") == figures(logs_dir / "plain.jsonl")


def test_marks_that_move_change_no_hash(logs_dir: Path) -> None:
    marked, text = (
        measure(read_trace(logs_dir / f"anthropic_{name}.jsonl")) for name in ("rolling_markers", "same_as_plain_text")
    )
    assert marked.floor == pytest.approx(text.floor, abs=0.005)
    assert marked.prompt_lengths.mean == pytest.approx(text.prompt_lengths.mean, rel=0.11)  # the braces of JSON
    assert measure(read_trace(logs_dir / "openai_batch.jsonl")).sessions == 3
