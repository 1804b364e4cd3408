"""Whatever a file holds, a reader yields well-formed requests or raises ``TraceError`` with file and line."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.errors import TraceError
from prefixroute.workload import Options, read_trace

ROWS: dict[str, dict[str, Any]] = {
    "mooncake": {"timestamp": 5, "input_length": 1300, "output_length": 5, "hash_ids": [0, 1, 2]},
    "bailian": {
        "chat_id": 7, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 40, "output_length": 8,
        "type": "text", "turn": 1, "hash_ids": [1, 2, 3],
    },
    "recorded-sessions": {
        "session": "a", "tool_tokens": 100, "system_tokens": 60,
        "requests": [
            {"t": 0, "m": 0, "in": 200, "out": 5, "keep": 0, "add": [[1, 3]]},
            {"t": 5, "m": 0, "in": 400, "out": 5, "keep": 2, "add": [[9, 2]], "agent": 0},
        ],
    },
    "gateway": {
        "timestamp": 1.76e9, "model": "m", "session_id": "s", "user": "u",
        "messages": [{"role": "system", "content": "x" * 99}, {"role": "user", "content": [{"type": "text", "text": "y"}]}],
        "tools": [{"name": "t"}],
        "response": {"choices": [{"message": {"content": "z"}}],
                     "usage": {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 16}}},
    },
    "litellm": {
        "startTime": "2026-08-06T14:30:00+00:00", "call_type": "acompletion", "cache_hit": "False", "messages": {},
        "metadata": '{"status": "success"}', "api_base": "http://10.0.0.1", "session_id": "s", "prompt_tokens": 30,
        "proxy_server_request": {"messages": [{"role": "user", "content": "x" * 99}]}, "status": "success",
        "response": {"choices": [{"message": {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}]},
    },
    "anthropic": {
        "timestamp": 1.76e9, "request": {
            "system": [{"type": "text", "text": "x" * 99, "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "t", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "y"}, {"type": "tool_use", "name": "t", "input": {"a": 1}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "y"}]},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}]}]},
        "response": [
            {"type": "message_start", "message": {"usage": {"input_tokens": 30}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "z"}},
            {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}}],
    },
    "responses": {
        "created_at": 1.76e9, "request": {
            "instructions": "x" * 99, "input": [{"type": "function_call_output", "call_id": "1", "output": "y"}],
            "previous_response_id": "resp_0"},
        "response": {"id": "resp_1", "output": [{"type": "message", "content": [{"type": "output_text", "text": "z"}]}],
                     "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 16}}},
    },
    "chunks": {
        "time": 5, "prompt": "x" * 99, "response": [
            {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "z", "tool_calls": [
                {"index": 0, "function": {"name": "f", "arguments": "{}"}}]}}]},
            {"choices": [], "usage": {"prompt_tokens": 30}}],
    },
    "otel": {
        "startTimeUnixNano": "1790000000000000000", "spanId": "1", "status": {"code": 1}, "events": [{"attributes": {"a": 1}}],
        "attributes": [{"key": "gen_ai.input.messages", "value": {"stringValue": '[{"role": "user", "parts": []}]'}},
                       {"key": "gen_ai.prompt.0.content", "value": {"stringValue": "x"}},
                       {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "30"}}],
    },
    "export": {"resourceSpans": [{"scopeSpans": [{"spans": [
        {"startTimeUnixNano": "1790000000000000000", "attributes": {"gen_ai.prompt": "x", "gen_ai.prompt.0.content": "y"}}]}]}]},
    "aiperf": {"data": [{"session_id": "a", "payloads": [{"messages": [{"role": "user", "content": "x"}]}]}]},
    "turns": {"session_id": "a", "turns": [{"text": "x" * 70}, {"text": "y", "timestamp": 5}]},
    "conversations": {"id": "a", "model": "m", "conversations": [{"from": "human", "value": "x" * 70}, {"from": "gpt", "value": "y"}]},
    "wildchat": {"conversation_hash": "a", "timestamp": "2026-11-29T10:00:00Z", "conversation": [
        {"role": "user", "content": "x" * 70, "timestamp": None}, {"role": "assistant", "content": "y", "timestamp": 5}]},
    "vllm-bench": {"request_rate": 4.0, "input_lens": [100, 20], "output_lens": [5, 6], "errors": ["", ""], "start_times": [1, 2]},
    "delta": {"session_id": "a", "message_mode": "delta", "timestamp": 5, "delay": 3, "input_length": 1300, "output_length": 5,
              "hash_ids": [0, 1, 2]},
    "masked": {"t": 1.5, "in": 40, "out": 2, "blocks": "AQAAAAAAAAACAAAAAAAAAA==", "replica": "r",
               "masked": {"blocks": "AQAAAAAAAAACAAAAAAAAAA==", "full": 2}},
    "tokens": {"time": 3, "token_ids": [1, 2, 3], "output_token_ids": [4], "output_tokens": 1},
    "private": {"t": 1.5, "in": 40, "out": 2, "blocks": "AQAAAAAAAAACAAAAAAAAAA==", "session": "s", "cached": 16},
}  # fmt: skip
HEADER = {"prefixroute_trace": 1, "block_size": 16, "window": 4}
VOLATILE = {"kind": "id", "tokens": 3, "length": 2, "gain": 9, "share": 0.5}
FORMATS = {"delta": "mooncake", "wildchat": "conversations", "masked": "private"}
"""Formats of rows that are not named by their format; the others are those of a gateway."""
NAMED = {"mooncake", "bailian", "recorded-sessions", "conversations", "vllm-bench", "private"}

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-1, 9), max_size=3),
    st.dictionaries(st.sampled_from(["a", "content", "text", "type", "usage"]), st.integers(-1, 9), max_size=2),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def changed(row: dict[str, Any], place: tuple[Any, ...], value: Any, *, drop: bool) -> Any:
    row = copy.deepcopy(row)
    if not place:
        return value
    holder: Any = row
    for key in place[:-1]:
        holder = holder[key]
    if drop:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return row


@pytest.mark.parametrize("name", ROWS)
@given(data=st.data())
def test_any_change_of_a_row(name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    good = ROWS[name]
    row: Any = copy.deepcopy(good)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places(row)))
        row = changed(row, place, data.draw(values), drop=data.draw(st.booleans()) if place else False)
        if not isinstance(row, dict):
            break
    header = {"private": [HEADER], "masked": [HEADER | {"volatile": VOLATILE}]}.get(name, [])
    lines = [*header, good, row]
    path = tmp_path_factory.mktemp("fuzz") / "t.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    read_or_refused(path, Options(format=FORMATS.get(name, name if name in NAMED else "gateway")))


@given(text=st.text(max_size=60), header=st.sampled_from(["", "TIMESTAMP,ContextTokens,GeneratedTokens\n"]))
def test_any_text(text: str, header: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    path.write_text(header + text, encoding="utf-8", errors="surrogatepass")
    read_or_refused(path)


@given(data=st.binary(max_size=200), gzipped=st.booleans())
def test_any_bytes(*, data: bytes, gzipped: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.jsonl"
    path.write_bytes(b"\x1f\x8b\x08" + data if gzipped else data)
    read_or_refused(path)


def read_or_refused(path: Path, options: Options | None = None) -> None:
    try:
        workload = read_trace(path, options)
    except TraceError as error:
        assert str(path) in str(error)  # noqa: PT017 - both outcomes are right
        return
    last = 0.0
    for request in workload.requests():
        assert request.arrival_s >= last
        last = request.arrival_s
        assert request.prompt_tokens >= 1
        assert request.output_tokens >= 0
        assert len(request.prompt) * workload.block_size <= request.prompt.token_count
        for prompt, context in ((request.prompt, request.context), request.masked or (request.prompt, request.context)):
            assert (context.array[: len(prompt)] == prompt.array).all()
