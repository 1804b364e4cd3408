"""Gateway logs in their plain forms: messages, text and token ids, sessions, and rows that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logs import chat_rows, figures, read, refused, write

from prefixroute.errors import ConfigError
from prefixroute.hashing import hash_blocks
from prefixroute.messages import MEDIA_TOKENS, canonical
from prefixroute.types import Namespace
from prefixroute.workload import FieldMap, Options, read_trace
from prefixroute.workload.readers.gateway import UNANSWERED


def test_messages_share_their_prefix_and_the_answer(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path / "gateway.jsonl", chat_rows()))
    first, other, second = workload.requests()
    assert [first.arrival_s, other.arrival_s, second.arrival_s] == [0, 2, 9.5]
    assert (second.prompt.array[: len(first.context)] == first.context.array).all()
    assert len(first.context) > len(first.prompt)
    shared = int((first.prompt.array[: len(other.prompt)] == other.prompt.array[: len(first.prompt)]).sum())
    assert shared * 16 == pytest.approx(1_120 / 4, abs=30)
    assert first.session == second.session != other.session
    assert workload.inferred_sessions
    assert [600] in figures(workload.notes)


def test_messages_are_hashed_as_the_router_hashes_them(tmp_path: Path) -> None:
    row = {key: value for key, value in chat_rows()[0].items() if key != "response"}
    (request,) = read(write(tmp_path / "g.jsonl", [{**row, "tools": [{"name": "t"}]}]))
    text = canonical(row["messages"], [{"name": "t"}])
    assert request.prompt == hash_blocks(text, 16, Namespace(model="m"))


def test_models_share_nothing(tmp_path: Path) -> None:
    rows = [{**chat_rows()[0], "model": name} for name in ("a", "b")]
    first, second = read(write(tmp_path / "g.jsonl", rows))
    assert not set(first.prompt.array.tolist()) & set(second.prompt.array.tolist())
    assert [first.model, second.model] == ["a", "b"]


def test_tools_come_first_and_media_count_by_digest(tmp_path: Path) -> None:
    row = chat_rows()[1]
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:" + "A" * 200_000}}]}
    other = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:" + "A" * 199_999 + "B"}}]}
    rows = [
        {**row, "tools": [{"name": "search"}]},
        {**row, "messages": [image]},
        {**row, "messages": [image]},
        {**row, "messages": [other]},
    ]
    tools, first, same, changed = read(write(tmp_path / "g.jsonl", rows))
    assert tools.prompt.array[0] != read(write(tmp_path / "p.jsonl", [row]))[0].prompt.array[0]
    assert first.prompt_tokens == pytest.approx(MEDIA_TOKENS, abs=5)
    assert first.prompt == same.prompt != changed.prompt
    media, plain = ({item.name for item in read_trace(tmp_path / name).assumptions} for name in ("g.jsonl", "p.jsonl"))
    assert (media - plain, plain - media) == ({"media_tokens"}, set())


def test_blocks_that_no_index_takes_name_the_file(tmp_path: Path) -> None:
    write(tmp_path / "g.jsonl", [{"time": 1, "prompt": "word " * 40}])
    dense = Options(block_size=65_536, fields=FieldMap(bytes_per_token=256))
    refused(tmp_path / "g.jsonl", dense, match=r"g\.jsonl:1: .*65536.*256 .*262144")
    with pytest.raises(ConfigError, match=r"block_size.* 1 .*65536.*70000"):
        read_trace(tmp_path / "g.jsonl", Options(block_size=70_000))
    rows = [{"timestamp": 0, "input_length": 100_000, "output_length": 1, "hash_ids": [1]}]
    refused(write(tmp_path / "m.jsonl", rows), match=r"m\.jsonl:1: 1 hash_ids.*100000.*65536")


def test_token_ids_are_hashed_as_the_router_hashes_them(tmp_path: Path) -> None:
    ids, answer = list(range(100)), list(range(500, 540))
    row = {"timestamp": 3.0, "model": "m", "token_ids": ids, "output_token_ids": answer, "session_id": "s"}
    (request,) = read(write(tmp_path / "t.jsonl", [row]), Options(block_size=8))
    namespace = Namespace(model="m")
    assert request.prompt == hash_blocks(np.array(ids), 8, namespace)
    assert request.context == hash_blocks(np.array(ids + answer[:-1]), 8, namespace)
    assert (request.prompt_tokens, request.output_tokens, request.session) == (100, 40, "s")


def test_logs_written_at_completion_are_put_in_order(tmp_path: Path) -> None:
    ends = [(40, 30.0), (41, 1.0), (45, 44.0), (50, 2.0)]
    rows = [{"end": end, "took": took, "token_ids": [1] * 40, "session": str(end)} for end, took in ends]
    layout = FieldMap.from_table({"fields": {"end_time": "end", "duration": "took"}, "reorder_s": 60})
    requests = read(write(tmp_path / "done.jsonl", rows), Options(fields=layout))
    assert [request.arrival_s for request in requests] == [0, 9, 39, 47]
    assert [request.session for request in requests] == ["45", "40", "41", "50"]
    refused(tmp_path / "done.jsonl", Options(fields=layout, reorder_s=5), match=r"done\.jsonl:3: time.*\b5 s")


def test_a_row_without_a_prompt_is_told_in_a_short_line(tmp_path: Path) -> None:
    path = tmp_path / "wide.jsonl"
    path.write_text(
        json.dumps({"timestamp": 1, "model": "m", **{f"field_{'x' * 90}_{at}": at for at in range(50)}}) + "\n"
    )
    told = refused(path, Options(format="gateway"), match=r"timestamp, model, field_x+,.*\d+")
    assert len(told) < len(str(path)) + 320


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"messages": {"text": "hello"}}, "messages .*{'text': 'hello'}"),
        ({"messages": ["hello"]}, "message 0 .*'hello'"),
        ({"messages": None}, r"prompt .*timestamp, .*docs/traces\.md"),
        ({"messages": []}, r"prompt .*timestamp, "),
        ({"messages": None, "token_ids": [], "prompt": ""}, r"prompt .*timestamp, "),
        ({"timestamp": None}, r"time .*timestamp, "),
        ({"timestamp": "yesterday"}, r"time .*ISO 8601.*'yesterday'"),
        ({"timestamp": [1]}, r"time .*-2\*\*63 to 2\*\*63.*\[1\]"),
        ({"response": {"usage": {"prompt_tokens": -4}}}, r"prompt_tokens .* 0 .*-4"),
        ({"model": {"name": "m"}}, r"model .*{'name': 'm'}"),
        ({"token_ids": [1, 2, -3]}, "2"),
        ({"token_ids": "abc"}, "token ids .*'abc'"),
        ({"token_ids": [1, "b"]}, ""),
        ({"token_ids": [1] * 20, "output_token_ids": {"a": 1}}, "output token ids .*{'a': 1}"),
        ({"messages": None, "prompt": {"a": 1}}, r"prompt .*{'a': 1}"),
    ],
)
def test_bad_gateway_rows_name_their_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = [*chat_rows(), {**chat_rows()[2], **change}]
    refused(write(tmp_path / "g.jsonl", rows), match=rf"g\.jsonl:4: .*{message}")


def test_sessions_are_inferred_by_extension_and_only_once_each(tmp_path: Path) -> None:
    def row(*ids: int) -> dict[str, Any]:
        return {"timestamp": 0, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": list(ids)}

    path = write(tmp_path / "m.jsonl", [row(0), row(0, 1), row(0, 1, 2), row(0, 1, 3), row(0, 9), row(0, 1, 2, 4)])
    workload = read_trace(path)
    sessions = [request.session for request in workload.requests()]
    assert sessions[0] is None
    assert sessions[1] == sessions[2] == sessions[5]
    assert len({*sessions}) == 4
    assert workload.inferred_sessions
    keyless = read_trace(path, Options(infer_sessions=False))
    assert not keyless.inferred_sessions
    assert {request.session for request in keyless.requests()} == {None}


@pytest.mark.parametrize(
    ("keyed", "inferred", "fewer"),
    [(0, True, 0), (1, True, 1), (2, True, 2), (3, False, 17), (19, False, 1), (20, False, 0)],
)
@pytest.mark.parametrize("empty", [{}, {"session": ""}, {"session": None}], ids=["none", "empty", "null"])
def test_sessions_are_inferred_where_nearly_all_requests_have_no_key(
    tmp_path: Path, keyed: int, inferred: bool, fewer: int, empty: dict[str, Any]
) -> None:
    rows = [{"time": at, "token_ids": [at] * 40, **({"session": "mine"} if at < keyed else empty)} for at in range(20)]
    workload = read_trace(write(tmp_path / "t.jsonl", rows))
    sessions = [request.session for request in workload.requests()]
    assert sessions[:keyed] == ["mine"] * keyed
    assert len(set(sessions[keyed:])) == (20 - keyed if inferred else min(1, 20 - keyed))
    assert workload.inferred_sessions == inferred
    assert [told for told in figures(workload.notes) if 20 in told] == ([[fewer, 20]] if fewer else [])


def test_bytes_a_token_as_given_and_prompts_of_plain_text_or_ids(tmp_path: Path) -> None:
    rows = [
        {"time": 1, "prompt": "word " * 200, "user": 7},
        {"time": 2, "prompt": [1, 2, 3, 4], "completion_tokens": 9.0},
        {"time": 3, "prompt": "word " * 200, "response": {"content": "word " * 40}},
    ]
    workload = read_trace(write(tmp_path / "t.jsonl", rows), Options(fields=FieldMap(bytes_per_token=5.0)))
    text, ids, again = workload.requests()
    assert {item.name: (item.value, item.assumed) for item in workload.assumptions} == {"bytes_per_token": (5.0, False)}
    assert (text.prompt_tokens, text.tenant, text.output_tokens) == (200, "7", 0)
    assert (ids.prompt_tokens, ids.output_tokens) == (4, 9)
    assert again.prompt == text.prompt
    assert again.output_tokens == pytest.approx(44, abs=2)


def test_tool_calls_and_odd_content_are_part_of_the_text(tmp_path: Path) -> None:
    odd = [{"role": "tool", "tool_call_id": "1", "content": {"rows": [1, 2]}}, {"content": ["a", 5]}]
    rows = []
    for name in "fg":
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": name * 80}}]}
        rows.append({"time": 1, "messages": [{"role": "user", "content": "x" * 200}, call, *odd]})
    first, second = read(write(tmp_path / "t.jsonl", rows))
    assert first.prompt.array[0] == second.prompt.array[0]
    assert first.prompt.array[-1] != second.prompt.array[-1]


def test_what_a_log_leaves_out_of_answers_is_said_and_their_length_assumed(tmp_path: Path) -> None:
    said = {"timestamp": 1, "messages": [{"role": "user", "content": "hello " * 40}]}
    answer = {"choices": [{"message": {"role": "assistant", "content": "good day " * 20}}]}
    logs = {
        "neither": [said],
        "lengths": [{**said, "usage": {"prompt_tokens": 60, "completion_tokens": 45}}],
        "answers": [{**said, "response": answer}],
    }
    traces = {name: read_trace(write(tmp_path / f"{name}.jsonl", rows)) for name, rows in logs.items()}
    assumed = {name: {item.name for item in trace.assumptions if item.assumed} for name, trace in traces.items()}
    assert {name for name, figures in assumed.items() if "output_tokens" in figures} == {"neither"}
    assert {name for name, trace in traces.items() if UNANSWERED in trace.notes} == {"neither", "lengths"}
    assert next(traces["answers"].requests()).output_tokens > 0
