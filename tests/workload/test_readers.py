"""Every format by a file of its own making: what is read, what is inferred and said, what is refused and where."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixroute.errors import ConfigError, TraceError
from prefixroute.hashing import hash_blocks
from prefixroute.messages import MEDIA_TOKENS, canonical
from prefixroute.types import Namespace
from prefixroute.workload import FieldMap, Options, Request, chat, convert, floor, read_arrivals, read_trace

Rows = list[dict[str, Any]]


def write(path: Path, rows: Rows) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def read(path: Path, options: Options | None = None) -> list[Request]:
    return list(read_trace(path, options).requests())


BAILIAN: Rows = [
    {"chat_id": 7, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 40, "output_length": 8, "type": "text",
     "turn": 1, "hash_ids": [1, 2, 3]},
    {"chat_id": 8, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 32, "output_length": 8, "type": "search",
     "turn": 1, "hash_ids": [1, 4]},
    {"chat_id": 9, "parent_chat_id": 7, "timestamp": 70, "input_length": 64, "output_length": 8, "type": "text",
     "turn": 2, "hash_ids": [1, 2, 5, 6]},
    {"chat_id": 11, "parent_chat_id": 9, "timestamp": 90, "input_length": 64, "output_length": 8, "type": "text",
     "turn": 3, "hash_ids": [1, 2, 5, 6]},
]  # fmt: skip


def test_bailian_turns_share_the_session_of_their_root(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path / "qwen_traceA_blksz_16.jsonl", BAILIAN))
    requests = list(workload.requests())
    assert workload.block_size == 16
    assert [request.session for request in requests] == ["7", "8", "7", "7"]
    assert [request.arrival_s for request in requests] == [0, 0, 8.5, 28.5]
    assert [len(request.prompt) for request in requests] == [2, 2, 4, 4]
    assert requests[1].attrs == {"type": "search"}
    assert requests[3].prompt == requests[2].prompt
    assert workload.notes == ()


def test_block_size_follows_the_ids(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 1000, "output_length": 1, "hash_ids": list(range(16))}]
    assert read_trace(write(tmp_path / "t.jsonl", rows)).block_size == 64
    rows[0]["hash_ids"] = list(range(17))
    with pytest.raises(TraceError, match=r"t\.jsonl:1: 17 hash_ids for 1000 tokens fit no block size"):
        read_trace(write(tmp_path / "t.jsonl", rows))
    assert read_trace(tmp_path / "t.jsonl", Options(block_size=60)).block_size == 60


WEKA: Rows = [
    {"session": "a", "tool_tokens": 100, "system_tokens": 60, "requests": [
        {"t": 0, "m": 0, "in": 200, "out": 5, "keep": 0, "add": [[1, 3]]},
        {"t": 5000, "m": 0, "in": 400, "out": 5, "keep": 2, "add": [[9, 2], [30, 2]]},
        {"t": 2000, "m": 1, "in": 130, "out": 5, "keep": 0, "add": [[50, 2]], "agent": 1},
        {"t": 3000, "m": 1, "in": 260, "out": 5, "keep": 2, "add": [[52, 2]], "agent": 1}]},
    {"session": "b", "tool_tokens": 100, "system_tokens": 60, "requests": [
        {"t": 0, "m": 0, "in": 200, "out": 5, "keep": 0, "add": [[1, 3]]}]},
]  # fmt: skip


def test_recorded_sessions_expand_by_agent_and_merge_in_time(tmp_path: Path) -> None:
    path = write(tmp_path / "weka.jsonl", WEKA)
    workload = read_trace(path, Options(sessions_per_hour=1e-3))
    first, sub, sub_next, second, other = workload.requests()
    assert workload.block_size == 64
    assert [len(request.prompt) for request in (first, sub, sub_next, second, other)] == [3, 2, 4, 6, 3]
    assert (second.prompt.array[:2] == first.prompt.array[:2]).all()
    assert (sub_next.prompt.array[:2] == sub.prompt.array).all()
    assert [first.attrs, sub.attrs] == [{}, {"agent": "1"}]
    assert [sub.model, first.model] == ["haiku-4-5", "opus-4-5"]
    assert [sub.arrival_s - first.arrival_s, second.arrival_s - first.arrival_s] == pytest.approx([2, 5])
    assert first.session == sub.session == "a"
    assert not set(first.prompt.array.tolist()) & set(other.prompt.array.tolist())
    assert any("nothing is shared between sessions" in note for note in workload.notes)
    assert [item.assumed for item in workload.assumptions] == [False]


def test_sharing_of_system_prompts_is_an_assumption_and_said(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path / "weka.jsonl", WEKA), Options(share_system=True, sessions_per_hour=1e-3))
    requests = list(workload.requests())
    assert (requests[0].prompt.array[:2] == requests[-1].prompt.array[:2]).all()
    assert requests[0].prompt.array[2] != requests[-1].prompt.array[2]
    assert any("an assumption" in note for note in workload.notes)


def test_starts_of_sessions_are_drawn_by_seed(tmp_path: Path) -> None:
    path = write(tmp_path / "weka.jsonl", [{**WEKA[1], "session": str(at)} for at in range(200)])
    times = {seed: [request.arrival_s for request in read(path, Options(seed=seed))] for seed in (1, 2)}
    assert times[1] == [request.arrival_s for request in read(path, Options(seed=1))]
    assert times[1] != times[2]
    assert times[1][-1] == pytest.approx(200 * 60, rel=0.25)


def test_lmcache_ids_are_global(tmp_path: Path) -> None:
    session = {"agent_kind": "x", "requests": [{"t": 0, "in": 40, "out": 1, "keep": 0, "add": [[4, 2]]}]}
    first, second = read(write(tmp_path / "l.jsonl", [{"session": "a", **session}, {"session": "b", **session}]))
    assert first.prompt == second.prompt
    assert first.prompt.block_size == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keep": 9}, r"requests\[0\] keeps 9 blocks of the 0 before"),
        ({"add": [[1]]}, r"requests\[0\].add must hold \[first id, count\] pairs, got \[1\]"),
        ({"add": [[-1, 2]]}, r"got \[-1, 2\]"),
        ({"add": [[1, 10**12]]}, r"got \[1, 1000000000000\]"),
        ({"add": [[1, 9]]}, "9 blocks, where its tokens and the longest prompt allow 2"),
        ({"in": 2**53, "add": [[1, 2**52]]}, f"{2**52} blocks, where its tokens and the longest prompt allow {2**22}"),
        ({"in": 2**30, "add": [[1, 2**21]] * 3}, f"{3 * 2**21} blocks, where"),
        ({"in": 0}, "in must be a whole number, 1 or more, got 0"),
        ({"t": "now"}, r"t must be a number, -2\*\*63 to 2\*\*63, got 'now'"),
    ],
)
def test_bad_sessions_name_their_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = {"t": 0, "in": 40, "out": 1, "keep": 0, "add": [[4, 2]]}
    rows = [{"session": "a", "requests": [good]}, {"session": "b", "requests": [{**good, **change}]}]
    with pytest.raises(TraceError, match=rf"s\.jsonl:2: .*{message}"):
        read_trace(write(tmp_path / "s.jsonl", rows))


def test_lengths_only(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    )
    workload = read_trace(path)
    first, second = workload.requests()
    assert (first.prompt_tokens, first.output_tokens, len(first.prompt)) == (4808, 10, 300)
    assert second.arrival_s == pytest.approx(0.052, abs=1e-6)
    assert floor(workload) == 1
    assert first.session is None
    assert "says nothing about prefixes" in workload.notes[0]
    assert [request.prompt for request in workload.requests()] == [first.prompt, second.prompt]
    assert read_arrivals(path).recorded_s == pytest.approx([0, 0.052], abs=1e-6)


def test_burstgpt_columns(tmp_path: Path) -> None:
    header = ["Timestamp", "Session ID", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"]
    with (tmp_path / "burst.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([header, [5, 3, "ChatGPT", 472, 18, 490, "Conversation log"]])
    (request,) = read(tmp_path / "burst.csv")
    assert (request.prompt_tokens, request.output_tokens, request.model, request.session) == (472, 18, "ChatGPT", "3")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2023-11-16 18:17:04,x,8", "ContextTokens must be a whole number, 1 to 10000000, got 'x'"),
        ("2023-11-16 18:17:04,-4,8", "ContextTokens must be a whole number, 1 to 10000000, got '-4'"),
        ("soon,4,8", "TIMESTAMP must be a number or ISO 8601, got 'soon'"),
        ("2023-11-16 18:17:04,4", "GeneratedTokens must be a whole number"),
        ("2023-11-16 18:17:01,4,8", "time goes back"),
    ],
)
def test_bad_cells_name_their_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,2\n{line}\n")
    with pytest.raises(TraceError, match=rf"a\.csv:3: .*{message}"):
        read_trace(path)


def chat_rows() -> Rows:
    """Two conversations behind one system prompt, the second turn of the first extending the first turn."""
    system = {"role": "system", "content": "You answer in one sentence. " * 40}
    hello = {"role": "user", "content": "What is a prefix cache? " * 20}
    answer = {"role": "assistant", "content": "A memory of computed keys and values. " * 10}
    more = {"role": "user", "content": "And where is it kept? " * 20}
    return [
        {"timestamp": 1_760_000_000, "model": "m", "messages": [system, hello],
         "response": {"choices": [{"message": answer}], "usage": {"prompt_tokens": 400, "completion_tokens": 90,
                                                                   "prompt_tokens_details": {"cached_tokens": 0}}}},
        {"timestamp": 1_760_000_002, "model": "m", "messages": [system, more], "response": {}},
        {"timestamp": 1_760_000_009.5, "model": "m", "messages": [system, hello, answer, more], "response": {
            "usage": {"prompt_tokens": 600, "prompt_tokens_details": {"cached_tokens": 480}}}},
    ]  # fmt: skip


def test_messages_share_their_prefix_and_the_answer(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path / "gateway.jsonl", chat_rows()))
    first, other, second = workload.requests()
    assert [first.arrival_s, other.arrival_s, second.arrival_s] == [0, 2, 9.5]
    assert (second.prompt.array[: len(first.context)] == first.context.array).all()
    assert len(first.context) > len(first.prompt)
    shared = int((first.prompt.array[: len(other.prompt)] == other.prompt.array[: len(first.prompt)]).sum())
    assert shared * 16 == pytest.approx(1_120 / 4, abs=30)
    assert first.session == second.session != other.session
    assert any("sessions are inferred" in note for note in workload.notes)
    assert any("window of 600 s" in note for note in workload.notes)


def test_bytes_a_token_are_measured_and_reported_hits_scaled(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path / "gateway.jsonl", chat_rows()))
    assumed = {item.name: item for item in workload.assumptions}
    assert not assumed["bytes_per_token"].assumed
    requests = list(workload.requests())
    assert sum(request.prompt_tokens for request in (requests[0], requests[2])) == pytest.approx(1_000, rel=0.04)
    assert [request.reported_hit_tokens for request in requests][:2] == [0, None]
    assert requests[2].reported_hit_tokens == round(480 * requests[2].prompt_tokens / 600)
    rows = [{key: value for key, value in row.items() if key != "response"} for row in chat_rows()]
    unknown = read_trace(write(tmp_path / "bare.jsonl", rows))
    assert {item.name: (item.value, item.assumed) for item in unknown.assumptions}["bytes_per_token"] == (4.0, True)


FIELDS = """
time_unit = "ms"
reorder_s = 30

[fields]
time = "ts"
messages = "http.request.body.messages"
model = ["http.request.body.model", "model"]
session = "http.request.headers.x-chat"
output = "http.response.body.choices.0.message"
prompt_tokens = "billing.gen_ai.usage.input_tokens"
cached_tokens = "billing.cached"
"""


def test_a_field_map_reads_through_nested_bodies(tmp_path: Path) -> None:
    rows = [
        {
            "ts": row["timestamp"] * 1_000,
            "billing": {"gen_ai.usage.input_tokens": 300 + 200 * at, "cached": 16 * at},
            "http": {
                "request": {
                    "headers": {"x-chat": f"chat-{at % 2}"},
                    "body": json.dumps({"model": "m", "messages": row["messages"]}),
                },
                "response": {"body": json.dumps({"choices": row["response"].get("choices", [])})},
            },
        }
        for at, row in enumerate(chat_rows())
    ]
    (tmp_path / "map.toml").write_text(FIELDS)
    options = Options(fields=FieldMap.read(tmp_path / "map.toml"))
    mapped = read(write(tmp_path / "log.jsonl", rows), options)
    plain = read(write(tmp_path / "plain.jsonl", chat_rows()))
    assert [request.session for request in mapped] == ["chat-0", "chat-1", "chat-0"]
    assert [request.arrival_s for request in mapped] == [0, 2, 9.5]
    assert mapped[0].reported_hit_tokens == 0
    assert (mapped[2].prompt.array[: len(mapped[0].context)] == mapped[0].context.array).all()
    assert len(plain) == len(mapped)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 1", "unknown colour; known are block_size"),
        ("[fields]\nprice = 'x'", r"\[fields\] may name time, "),
        ("[fields]\ntime = 3", "fields.time must be a path or a list of paths, got 3"),
        ("time_unit = 'days'", "time_unit must be one of s, ms, us, ns, got 'days'"),
        ("block_size = 0", "block_size must be a whole number, 1 to 65536, got 0"),
        ("bytes_per_token = true", "bytes_per_token must be a number, 0.25 to 256, got True"),
        ("bytes_per_token = inf", "bytes_per_token must be a number, 0.25 to 256, got inf"),
        ("bytes_per_token = 1e300", "bytes_per_token must be a number, 0.25 to 256, got 1e\\+300"),
        ("block_size = 65_537", "block_size must be a whole number, 1 to 65536, got 65537"),
        ("cached_apart = 1", "cached_apart must be true or false, got 1"),
        ("block_size = 8.5", "block_size must be a whole number, 1 to 65536, got 8.5"),
        ("reorder_s = nan", "reorder_s must be a number, 0 to 1000000000, got nan"),
        ("time_unit = ['s']", r"time_unit must be one of s, ms, us, ns, got \['s'\]"),
        ("duration_unit = {}", "duration_unit must be one of s, ms, us, ns, got {}"),
        ("fields = 3", r"\[fields\] may name time, .*, got 3"),
        ("= 3", "cannot read a field map"),
    ],
)
def test_bad_field_maps_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        FieldMap.read(tmp_path / "map.toml")


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
    assert {item.name for item in read_trace(tmp_path / "g.jsonl").assumptions} == {
        "bytes_per_token",
        "media_tokens",
        "output_tokens",
    }
    assert {item.name for item in read_trace(tmp_path / "p.jsonl").assumptions} == {"bytes_per_token", "output_tokens"}


def test_anthropic_usage_counts_cached_tokens_apart(tmp_path: Path) -> None:
    row = {
        "time": "2026-11-29T10:00:00Z",
        "body": {"model": "c", "system": "Be brief. " * 100, "messages": [{"role": "user", "content": "Hello there"}]},
        "response": {"content": [{"type": "text", "text": "Hi"}], "usage": {
            "input_tokens": 20, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30, "output_tokens": 3}},
    }  # fmt: skip
    (request,) = read(write(tmp_path / "g.jsonl", [row]))
    assert request.reported_hit_tokens == round(200 * request.prompt_tokens / 250)
    assert request.output_tokens == 3


ANTHROPIC = {"input_tokens": 45, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 155}
"""1,200 tokens in all, of which 1,000 were cached."""
CACHE = {"cache_read_input_tokens": 1000, "cache_creation_input_tokens": 155}
LITELLM = {"prompt_tokens": 1200, "prompt_tokens_details": {"cached_tokens": 1000}, **CACHE}


@pytest.mark.parametrize(
    ("usage", "layout"),
    [
        (ANTHROPIC, {}),
        ({"prompt_tokens": 1200, "cache_read_input_tokens": 1000}, {}),
        ({"prompt_tokens": 1200, "prompt_tokens_details": {"cached_tokens": 1000}}, {}),
        ({"in": 200, "read": 1000}, {"cached_apart": True}),
        ({"in": 1200, "read": 1000}, {"cached_apart": False}),
        ({"in": 1200, "read": 1000}, {}),
        # LiteLLM names the counts of both APIs side by side.
        (LITELLM, {}),
        (LITELLM | {"prompt_tokens_details": None}, {}),
        (LITELLM, {"cached_apart": False}),
        ({"prompt_tokens": 45} | CACHE, {"cached_apart": True}),
        ({"input_tokens": 1200} | CACHE, {"cached_apart": False}),
        ({"input_tokens": 1200, "input_tokens_details": {"cached_tokens": 1000}}, {}),
        ({"input_tokens": 1200, "input_tokens_details": {"cached_tokens": 1000}} | CACHE, {}),
        ({"in": 45, "read": 1000, "written": 155}, {"cached_apart": True}),
        ({"in": 1200, "read": 1000, "written": 155}, {"cached_apart": False}),
        ({"in": 1200, "read": 1000, "written": 155}, {}),
    ],
)
def test_cached_tokens_count_once_whether_or_not_the_prompts_have_them(
    tmp_path: Path, usage: dict[str, Any], layout: dict[str, Any]
) -> None:
    mapped = {"prompt_tokens": "in", "cached_tokens": "read", "cache_write_tokens": "written"}
    fields = {name: f"usage.{path}" for name, path in mapped.items() if path in usage}
    row = {"time": 1, "prompt": "word " * 960, "usage": usage}
    options = Options(fields=FieldMap.from_table({**layout, "fields": fields}) if layout or fields else None)
    (request,) = read(write(tmp_path / "g.jsonl", [row]), options)
    assert (request.prompt_tokens, request.reported_hit_tokens) == (1200, 1000)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 0}}, 2000),
        ({"prompt_tokens": 2000, "cache_read_input_tokens": 0}, 2000),
        ({"prompt_tokens": 2000}, 2000),
        ({"input_tokens": 100}, 2000),
        ({"input_tokens": 100, "cache_read_input_tokens": 0}, 2000),
        ({"input_tokens": 2000, "input_tokens_details": {"cached_tokens": 0}}, 2000),
    ],
)
def test_tokens_written_to_a_cache_count_once(tmp_path: Path, usage: dict[str, Any], tokens: int) -> None:
    row = {"time": 1, "prompt": "word " * 1600, "usage": {**usage, "cache_creation_input_tokens": 1900}}
    workload = read_trace(write(tmp_path / "g.jsonl", [row]))
    assert [request.prompt_tokens for request in workload.requests()] == [tokens]


TEXT, IDS = {"prompt": "word " * 80}, {"token_ids": [1] * 100}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**TEXT, "usage": {"in": 45, "read": 1000}}, "0 to the prompt's 45, got 1000; where .*: cached_apart = true"),
        ({**IDS, "usage": {"in": 100, "read": 101}}, "0 to the prompt's 100, got 101"),
        ({**IDS, "usage": {"read": 101}}, "0 to the prompt's 100, got 101"),
        ({**TEXT, "usage": {"read": 401}}, "0 to the prompt's 400, got 401"),
    ],
)
def test_more_cached_tokens_than_the_prompt_has_are_a_bad_line(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    layout = FieldMap.from_table({"fields": {"prompt_tokens": "usage.in", "cached_tokens": "usage.read"}})
    path = write(tmp_path / "g.jsonl", [{"time": 1, **TEXT}] * 20 + [{"time": 1, **row}])
    with pytest.raises(TraceError, match=rf"g\.jsonl:21: cached_tokens must be a whole number, {message}"):
        read_trace(path, Options(fields=layout))
    assert read_trace(path, Options(fields=layout, skip_bad_lines=True)).request_count == 20


def test_blocks_that_no_index_takes_name_the_file(tmp_path: Path) -> None:
    rows = [{"time": 1, "prompt": "word " * 40_000, "usage": {"prompt_tokens": 10}}]
    with pytest.raises(
        TraceError, match=r"g\.jsonl:1: a block of 16 tokens at 2e\+04 bytes a token must have 262144 bytes"
    ):
        read_trace(write(tmp_path / "g.jsonl", rows))
    with pytest.raises(ConfigError, match="block_size must be at least 1 and at most 65536, got 70000"):
        read_trace(tmp_path / "g.jsonl", Options(block_size=70_000))
    rows = [{"timestamp": 0, "input_length": 100_000, "output_length": 1, "hash_ids": [1]}]
    with pytest.raises(TraceError, match=r"m\.jsonl:1: 1 hash_ids for 100000 tokens fit no block size .* up to 65536"):
        read_trace(write(tmp_path / "m.jsonl", rows))


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
    with pytest.raises(TraceError, match=r"done\.jsonl:3: time goes back .*; rows may be 5 s out of order"):
        read_trace(tmp_path / "done.jsonl", Options(fields=layout, reorder_s=5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"messages": "hello"}, "messages must be a list, got 'hello'"),
        ({"messages": ["hello"]}, "message 0 must be a mapping with a role, got 'hello'"),
        (
            {"messages": None},
            "no prompt: looked for token_ids, messages, prompt, as in messages, .*; a field map names another",
        ),
        ({"messages": []}, "the prompt is empty"),
        ({"timestamp": None}, "no time: looked for timestamp, time"),
        ({"timestamp": "yesterday"}, "time must be a number or ISO 8601, got 'yesterday'"),
        ({"timestamp": [1]}, r"time must be a number, -2\*\*63 to 2\*\*63, got \[1\]"),
        ({"response": {"usage": {"prompt_tokens": -4}}}, "prompt_tokens must be a whole number, 0 or more, got -4"),
        ({"model": {"name": "m"}}, "model must be text, got {'name': 'm'}"),
        ({"token_ids": [1, 2, -3]}, "2"),
        ({"token_ids": "abc"}, "token ids must be a list, got 'abc'"),
        ({"token_ids": [1, "b"]}, ""),
        ({"token_ids": [1] * 20, "output_token_ids": {}}, "output token ids must be a list"),
        ({"messages": None, "prompt": {"a": 1}}, "prompt must be text or a list of token ids"),
    ],
)
def test_bad_gateway_rows_name_their_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = [*chat_rows(), {**chat_rows()[2], **change}]
    with pytest.raises(TraceError, match=rf"g\.jsonl:4: .*{message}"):
        read_trace(write(tmp_path / "g.jsonl", rows))


def test_sessions_are_inferred_by_extension_and_only_once_each(tmp_path: Path) -> None:
    def row(*ids: int) -> dict[str, Any]:
        return {"timestamp": 0, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": list(ids)}

    path = write(tmp_path / "m.jsonl", [row(0), row(0, 1), row(0, 1, 2), row(0, 1, 3), row(0, 9), row(0, 1, 2, 4)])
    workload = read_trace(path)
    sessions = [request.session for request in workload.requests()]
    assert sessions[0] is None
    assert sessions[1] == sessions[2] == sessions[5]
    assert len({*sessions}) == 4
    assert "sessions are inferred" in workload.notes[-1]
    assert {request.session for request in read(path, Options(infer_sessions=False))} == {None}


@pytest.mark.parametrize("early", [False, True])
def test_paths_are_tried_in_the_order_given_in_every_row(tmp_path: Path, *, early: bool) -> None:
    """A row where only a later path leads to something changes nothing for the rows behind it."""
    rows = [{"ts": at, "created": 5, "chat": "a", "sid": f"u{at}", "token_ids": [1] * 40} for at in range(10, 14)]
    if early:
        rows.insert(0, {"created": 9, "chat": "", "sid": "z", "token_ids": [1] * 40})
    layout = FieldMap.from_table({"fields": {"time": ["ts", "created"], "session": ["chat", "sid"]}})
    requests = read(write(tmp_path / "t.jsonl", rows), Options(fields=layout))
    assert [request.session for request in requests] == ["z"] * early + ["a"] * 4
    assert requests[-1].arrival_s == 3 + early


@pytest.mark.parametrize(
    ("keyed", "inferred", "note"),
    [
        (0, True, None),
        (1, True, "1 of the first 20 requests have a session key, which they keep"),
        (2, True, "2 of the first 20 requests have a session key"),
        (3, False, "17 of the first 20 requests carry no session key"),
        (19, False, "1 of the first 20 requests carry no session key"),
        (20, False, None),
    ],
)
@pytest.mark.parametrize("empty", [{}, {"session": ""}, {"session": None}], ids=["none", "empty", "null"])
def test_sessions_are_inferred_where_nearly_all_requests_have_no_key(
    tmp_path: Path, keyed: int, inferred: bool, note: str | None, empty: dict[str, Any]
) -> None:
    rows = [{"time": at, "token_ids": [at] * 40, **({"session": "mine"} if at < keyed else empty)} for at in range(20)]
    workload = read_trace(write(tmp_path / "t.jsonl", rows))
    sessions = [request.session for request in workload.requests()]
    assert sessions[:keyed] == ["mine"] * keyed
    assert len(set(sessions[keyed:])) == (20 - keyed if inferred else min(1, 20 - keyed))
    said = " ".join(workload.notes)
    assert ("are inferred, a prompt" in said) == inferred
    assert ("no session key: sessions are inferred" in said) == (keyed == 0)
    assert ("session key" in said.replace("no session key: ", "")) == (note is not None)
    assert note is None or note in said


def test_a_named_format_is_taken_at_its_word(tmp_path: Path) -> None:
    path = write(tmp_path / "b.jsonl", BAILIAN)
    assert read_trace(path, Options(format="mooncake")).block_size == 16
    with pytest.raises(ConfigError, match=r"trace format must be one of private, bailian, .* got 'csv'"):
        read_trace(path, Options(format="csv"))
    with pytest.raises(TraceError, match=r"b\.jsonl:1: .*columns of no known layout"):
        read_trace(path, Options(format="lengths"))


@pytest.mark.parametrize(
    "lines", [[json.dumps({"time": 1, "token_ids": [1]})], ["TIMESTAMP,ContextTokens,GeneratedTokens", "1,2,3"]]
)
def test_a_byte_order_mark_is_no_text(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "t").write_text("\n".join(lines), encoding="utf-8-sig")
    assert len(read(tmp_path / "t")) == 1


@pytest.mark.parametrize("line", [b"\n", b"", b"  \n", b"\r\n\n"])
def test_a_byte_order_mark_may_stand_before_a_blank_line(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbf" + line + b'{"time": 1, "token_ids": [1]}\n')
    assert len(read(tmp_path / "t")) == 1


CUT = "cut \ud83d"
"""What is left of a text that was cut inside of a pair of surrogates."""


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": CUT, "usage": {"prompt_tokens": 3}},
        {"prompt": f"{CUT}\ude00 \ude00\ud83d"},
        {"messages": [{"role": CUT, "content": CUT, "name": CUT}], "tools": [{"name": CUT}], "system": CUT},
        {"messages": [{"role": "user", "content": [{"type": "image", "data": CUT}, {"type": "text", "text": CUT}]}]},
        {"prompt": "x", "content": [{"type": "tool_use", "input": {CUT: CUT}}]},
        {"prompt": "x", "output_text": CUT},
        {"prompt": "x", "choices": [{"message": {"content": CUT, "tool_calls": [{"id": CUT}]}}]},
        {"prompt": "x", "session": CUT, "tenant": CUT, "model": CUT},
        {"body": json.dumps({"prompt": CUT, "model": CUT}), "session": f"{CUT}\\"},
        {"prompt": "x", CUT: CUT},
    ],
    ids=str,
)
def test_half_a_character_is_read_as_a_replacement_character(tmp_path: Path, row: dict[str, Any]) -> None:
    written = json.dumps(row)
    whole = re.sub("[\ud800-\udfff]", "\ufffd", json.dumps(json.loads(written), ensure_ascii=False))
    if "body" in row:
        whole = written.replace("ud83d", "ufffd")
    found = []
    for name, text in (("cut", written), ("whole", whole)):
        line = f'{{"time": 1, {text[1:]}'
        (tmp_path / name).write_text(line, encoding="utf-8")
        workload = read_trace(tmp_path / name)
        convert(workload, tmp_path / f"{name}.jsonl", bytes(16))
        found.append((list(workload.sampled(1.0).requests()), (tmp_path / f"{name}.jsonl").read_bytes()))
    assert found[0] == found[1]
    for request in found[0][0]:
        for text in (request.session, request.tenant, request.model):
            assert text is None or text.encode()


@pytest.mark.parametrize("layout", ["weka", "lmcache"])
def test_half_a_character_in_the_name_of_a_recorded_session(tmp_path: Path, layout: str) -> None:
    requests = [{"t": 0, "in": 64, "out": 1, "keep": 0, "add": [[5, 1]]}]
    row = {"session": CUT, "requests": requests} | ({"tool_tokens": 0, "system_tokens": 0} if layout == "weka" else {})
    (request,) = read(write(tmp_path / "r.jsonl", [row]))
    assert request.session == "cut \ufffd"


@pytest.mark.parametrize("fields", [{"model": {CUT: CUT}}, {CUT: 1}])
def test_half_a_character_in_what_is_wrong_names_its_line(tmp_path: Path, fields: dict[str, Any]) -> None:
    row = {"time": 1, "prompt": "x"} | fields if "model" in fields else fields
    with pytest.raises(TraceError, match=r"g\.jsonl:1: ") as error:
        read_trace(write(tmp_path / "g.jsonl", [row]))
    assert str(error.value).encode()


def test_a_private_trace_has_no_half_a_character_either(tmp_path: Path) -> None:
    header = {"prefixroute_trace": 1, "block_size": 16, "window": 9, "notes": [CUT]}
    row = {"t": 0, "in": 5, "out": 1, "session": CUT, "tenant": CUT, "model": CUT}
    workload = read_trace(write(tmp_path / "p.jsonl", [header, row]))
    (request,) = workload.requests()
    assert {*workload.notes, request.session, request.tenant, request.model} == {"cut \ufffd"}


def test_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1,20,3\n")
    assert len(read(path)) == 1


def test_nothing_known(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match=r"x\.csv:1: neither JSON nor a known CSV header: 'a,b'"):
        read_trace(tmp_path / "x.csv")


@pytest.mark.parametrize("name", ["gateway", "tokens", "bailian", "azure"])
def test_gzip_of_every_format(tmp_path: Path, name: str) -> None:
    texts: dict[str, Callable[[], str]] = {
        "gateway": lambda: write(tmp_path / "x", chat_rows()).read_text(),
        "tokens": lambda: '{"time": 1, "token_ids": [1, 2, 3]}\n',
        "bailian": lambda: write(tmp_path / "x", BAILIAN).read_text(),
        "azure": lambda: "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,2\n",
    }
    text = texts[name]()
    (tmp_path / "plain").write_text(text)
    (tmp_path / "zipped").write_bytes(gzip.compress(text.encode()))
    assert read(tmp_path / "plain") == read(tmp_path / "zipped")


def test_files_of_a_rotated_log_are_one_trace(tmp_path: Path) -> None:
    rows = chat_rows()
    whole = read(write(tmp_path / "whole.jsonl", rows))
    parts = [write(tmp_path / f"{at}.jsonl", [row]) for at, row in enumerate(rows)]
    workload = read_trace(parts)
    joined = list(workload.requests())
    assert workload.name == "0.jsonl and 2 more"
    assert [request.arrival_s for request in joined] == [request.arrival_s for request in whole]
    assert [request.session for request in joined] == [request.session for request in whole]
    # The first file alone settles how many bytes a token has.
    assert (joined[2].prompt.array[: len(joined[0].context)] == joined[0].context.array).all()
    with pytest.raises(TraceError, match=r"1\.jsonl:1: time goes back"):
        read_trace(parts[::-1], Options(reorder_s=0))
    with pytest.raises(ConfigError, match="one file or more, got none"):
        read_trace([])


def test_private_traces_with_other_blocks_do_not_join(tmp_path: Path) -> None:
    for size in (16, 32):
        convert(chat(1, requests=20, block_size=size), tmp_path / f"{size}.jsonl", bytes(16))
    with pytest.raises(TraceError, match=r"32\.jsonl:1: the file has blocks of 32 tokens, not 16"):
        read_trace([tmp_path / "16.jsonl", tmp_path / "32.jsonl"])


def test_a_checked_trace_is_parsed_once_and_a_streamed_one_is_not_held(tmp_path: Path) -> None:
    path = write(tmp_path / "g.jsonl", chat_rows())
    checked, streamed = read_trace(path), read_trace(path, check=False)
    assert (checked.request_count, streamed.request_count) == (3, None)
    assert list(streamed.requests()) == list(checked.requests())
    path.unlink()
    assert len(list(checked.requests())) == 3
    with pytest.raises(TraceError, match=r"g\.jsonl: cannot be read"):
        next(streamed.requests())


@pytest.mark.parametrize("scale", [1, 1e3, 1e6, 1e9], ids=["s", "ms", "us", "ns"])
def test_the_unit_of_epoch_times_is_guessed_from_their_size(tmp_path: Path, scale: float) -> None:
    rows = [{"time": (1_790_000_000 + second) * scale, "token_ids": [1]} for second in (0, 4)]
    assert [request.arrival_s for request in read(write(tmp_path / "t.jsonl", rows))] == [0, 4]


@pytest.mark.parametrize(
    ("name", "unit", "scale"),
    [
        ("received_ms", None, 1e3),
        ("ms", None, 1e3),
        ("clock.endedMs", None, 1e3),
        ("at_us", None, 1e6),
        ("at_ns", None, 1e9),
        ("at_s", None, 1),
        ("received_ms", "s", 1),
        ("items", None, 1),
    ],
)
def test_the_unit_of_a_time_is_told_by_the_map_then_by_its_name(
    tmp_path: Path, name: str, unit: str | None, scale: float
) -> None:
    rows = [{name: second * scale, "took_ms": 500, "token_ids": [1]} for second in (2, 8)]
    layout = FieldMap(paths={**FieldMap().paths, "end_time": (name,), "duration": ("took_ms",)}, time_unit=unit)
    workload = read_trace(write(tmp_path / "t.jsonl", rows), Options(fields=layout))
    assert [request.arrival_s for request in workload.requests()] == [0, 6]
    assert ("taken as seconds" in " ".join(workload.notes)) == (name == "items")


def test_milliseconds_in_a_usual_place_need_no_map(tmp_path: Path) -> None:
    rows = [{"timestamp_ms": at, "token_ids": [1]} for at in (0, 1500)]
    assert [request.arrival_s for request in read(write(tmp_path / "t.jsonl", rows))] == [0, 1.5]


@pytest.mark.parametrize(
    ("when", "note"),
    [
        (0, 'too small for a date and are taken as seconds.* say so in a field map: time_unit = "ms"'),
        ("12.5", "taken as seconds"),
        ("2026-11-29T10:00:00", "times name no zone and are taken as UTC"),
        ("2026-11-29T10:00:00Z", None),
        (1_790_000_000, None),
        (1_790_000_000_000, None),
    ],
)
def test_what_is_assumed_of_times_is_said(tmp_path: Path, when: float | str, note: str | None) -> None:
    path = write(tmp_path / "t.jsonl", [{"time": when, "token_ids": [1]}])
    notes = [said for said in read_trace(path).notes if said.startswith("times")]
    assert len(notes) == (note is not None)
    assert note is None or re.search(note, notes[0])


def test_times_as_text(tmp_path: Path) -> None:
    times = ["2026-11-29T10:00:00+01:00", "2026-11-29T09:00:02Z", "2026-11-29 09:00:03.5", "1795943404.25"]
    rows = [{"time": time, "token_ids": [1]} for time in times]
    assert [request.arrival_s for request in read(write(tmp_path / "t.jsonl", rows))][:3] == [0, 2, 3.5]


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
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}
    tail = [call, {"role": "tool", "tool_call_id": "1", "content": {"rows": [1, 2]}}, {"content": ["a", 5]}]
    base = {"time": 1, "messages": [{"role": "user", "content": "x" * 200}, *tail]}
    other = {
        **base,
        "messages": [base["messages"][0], {**call, "tool_calls": [{"id": "1", "function": {"name": "g"}}]}, *tail[1:]],
    }
    first, second = read(write(tmp_path / "t.jsonl", [base, other]))
    assert first.prompt.array[0] == second.prompt.array[0]
    assert first.prompt.array[-1] != second.prompt.array[-1]


def test_a_body_that_is_no_json_has_no_fields(tmp_path: Path) -> None:
    rows = [{"time": 1, "request_body": "{broken", "prompt": "hello there"}]
    (request,) = read(write(tmp_path / "t.jsonl", rows))
    assert request.prompt_tokens == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"end": 5, "took": -1, "token_ids": [1]}, r"duration must be a number, 0 to 2\*\*63, got -1"),
        ({"end": "x", "took": 1, "token_ids": [1]}, "time must be a number or ISO 8601, got 'x'"),
    ],
)
def test_bad_ends_and_durations(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    layout = FieldMap.from_table({"fields": {"end_time": "end", "duration": "took"}})
    with pytest.raises(TraceError, match=rf"t\.jsonl:1: {message}"):
        read_trace(write(tmp_path / "t.jsonl", [row]), Options(fields=layout))


_VAST = [10**400, -(10**400), 1e300, float("nan"), float("inf"), 2.0**64]


@pytest.mark.parametrize("value", _VAST, ids=["whole", "negative", "float", "nan", "inf", "more"])
@pytest.mark.parametrize("field", ["time", "end", "took"])
def test_times_beyond_all_measure_are_refused(tmp_path: Path, field: str, value: float) -> None:
    layout = FieldMap.from_table({"fields": {"end_time": "end", "duration": "took"}})
    row = {"time": 1, "token_ids": [1]} if field == "time" else {"end": 1, "took": 1, "token_ids": [1]}
    path = write(tmp_path / "t.jsonl", [row, {**row, field: value}])
    with pytest.raises(TraceError, match=r"t\.jsonl:2: (time|duration) must be a number, .* to 2\*\*63, got"):
        read_trace(path, Options(fields=layout))


def test_times_without_a_zone_are_the_same_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The night that clocks go back in Berlin has an hour twice, the night that they go forward lacks one."""
    path = tmp_path / "a.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-10-29 01:59:00,500,6\n2023-10-29 02:30:00,500,6\n2023-10-29 03:10:00,500,6\n"
    )
    for zone in ("Europe/Berlin", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert [request.arrival_s for request in read(path)] == [0, 31 * 60, 71 * 60]
    assert "times name no zone and are taken as UTC" in read_trace(path).notes
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e300", "9" * 400])
def test_times_of_a_table_beyond_all_measure_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"Timestamp,Request tokens,Response tokens\n1,5,5\n{text},5,5\n")
    with pytest.raises(TraceError, match=r"a\.csv:3: Timestamp must be a number, -2\*\*63 to 2\*\*63, got"):
        read_trace(path)


def test_options_that_do_not_fit_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "weka.jsonl", WEKA)
    with pytest.raises(TraceError, match=r"weka\.jsonl:1: the file has blocks of 64 tokens, got 16"):
        read_trace(path, Options(block_size=16))
    with pytest.raises(ConfigError, match="reorder_s must be a finite number of seconds, 0 or more, got -1"):
        read_trace(path, Options(reorder_s=-1))
    with pytest.raises(TraceError, match="a session must have a name"):
        read_trace(write(tmp_path / "w.jsonl", [{**WEKA[1], "session": ""}]))


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
    noted = {name for name, trace in traces.items() if "answers are not in the log" in " ".join(trace.notes)}
    assert noted == {"neither", "lengths"}
    assert next(traces["answers"].requests()).output_tokens > 0


def test_a_field_that_the_map_names_and_no_row_has_is_said(tmp_path: Path) -> None:
    log, fields = tmp_path / "log.jsonl", tmp_path / "map.toml"
    log.write_text("\n".join(json.dumps({"t": 10 + at, "prompt": f"{at} " * 60, "latency": 2}) for at in range(5)))
    for path, said in (("latency", ()), ("latencyy", ("latencyy",))):
        fields.write_text(f'time_unit = "s"\n[fields]\nend_time = "t"\nduration = "{path}"\n')
        notes = read_trace(log, Options(fields=FieldMap.read(fields))).notes
        told = [note for note in notes if "where the field map says" in note]
        assert [note.rpartition(": ")[2] for note in told] == list(said)
        assert all(note.startswith("none of the first 5 requests has duration") for note in told)


@pytest.mark.parametrize(
    ("block_size", "shared", "blocks"), [(1_536, 6_144, 4), (2_096, 1_900, 0), (2_096, 2_100, 1), (2_096, 4_300, 2)]
)
def test_blocks_of_engines_for_hybrid_models(tmp_path: Path, block_size: int, shared: int, blocks: int) -> None:
    prompts = [list(range(9_000)), [*range(shared), *range(20_000, 20_000 + 9_000 - shared)]]
    rows = [{"time": at, "token_ids": ids, "usage": {"prompt_tokens": 9_000}} for at, ids in enumerate(prompts)]
    workload = read_trace(write(tmp_path / "g.jsonl", rows), Options(block_size=block_size))
    first, second = (request.prompt for request in workload.requests())
    assert np.count_nonzero(first.array == second.array) == blocks
