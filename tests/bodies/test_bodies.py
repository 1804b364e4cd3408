"""What is read out of requests' bodies: the prompt and its kind, and the conversation."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.bodies import MAX_READ_BYTES, EventCutter, SessionKeys, prompt_of, session_of
from prefixroute.errors import ConfigError, TokensError
from prefixroute.messages import CanonicalForm
from prefixroute.validation import shown

UUID = "0b8c9f0e-1f2a-4c3d-9e8f-001122334455"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT = {
    "model": "m",
    "stream": True,
    "messages": [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Rain in Paris?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "rain", "arguments": '{"city": "Paris"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "no"},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": [{"type": "text", "text": "And Rome?"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "rain", "description": "Tell.", "parameters": SCHEMA}}],
}
ANTHROPIC = {
    "model": "claude",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Answer briefly.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "Rain in Paris?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "rain", "input": {"city": "Paris"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "no"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
        {"role": "user", "content": "And Rome?"},
    ],
    "tools": [{"name": "rain", "description": "Tell.", "input_schema": SCHEMA}],
}
RESPONSES = {
    "model": "m",
    "instructions": "Answer briefly.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Rain in Paris?"}]},
        {"type": "function_call", "call_id": "c1", "name": "rain", "arguments": '{"city":"Paris"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "no"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "No."}]},
        {"type": "message", "role": "user", "content": "And Rome?"},
    ],
    "tools": [{"type": "function", "name": "rain", "description": "Tell.", "parameters": SCHEMA}],
}
FORMS = {"/v1/chat/completions": CHAT, "/v1/messages": ANTHROPIC, "/v1/responses": RESPONSES}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("path", FORMS)
def test_one_conversation_is_one_prompt_in_all_forms(path: str, *, named: bool) -> None:
    form = CanonicalForm()
    prompt, kind = prompt_of(FORMS[path], path + "?beta=true" if named else None)
    assert kind == "messages"
    assert form(prompt) == form(prompt_of(CHAT)[0])


def test_the_callers_list_may_grow() -> None:
    messages = [{"role": "user", "content": "hi"}]
    prompt, _ = prompt_of({"messages": messages})
    messages.append({"role": "assistant", "content": "hello"})
    assert prompt == {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("body", "path", "prompt", "kind"),
    [
        ({"prompt": "Once upon"}, "/v1/completions", "Once upon", "text"),
        ({"prompt": ["Once", "Twice"]}, None, "Once", "text"),
        ({"prompt": [1, 2, 3]}, None, [1, 2, 3], "tokens"),
        ({"prompt": [[1, 2], [3]]}, None, [1, 2], "tokens"),
        ({"text": "Once"}, "/generate", "Once", "text"),
        ({"input_ids": [[7, 8]]}, "/generate", [7, 8], "tokens"),
        ({"token_ids": [7, 8]}, "/inference/v1/generate", [7, 8], "tokens"),
        ({"input": "hi", "text": {"format": {}}}, None, {"input": "hi"}, "messages"),
        ({"input": "hi"}, "/v1/responses", {"input": "hi"}, "messages"),
        ({"messages": ["m"], "functions": ["f"]}, None, {"messages": ["m"], "tools": ["f"]}, "messages"),
        ({"messages": ["m"], "prompt": "p"}, "/v1/completions", "p", "text"),
        ({"messages": ["m"]}, "/v1/messages/count_tokens", {"messages": ["m"]}, "messages"),
    ],
)
def test_prompts_and_their_kinds(body: dict[str, Any], path: str | None, prompt: Any, kind: str) -> None:
    assert prompt_of(body, path) == (prompt, kind)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (["m"], None),
        (None, None),
        ({}, None),
        ({"model": "m"}, "/v1/models"),
        ({"messages": []}, None),
        ({"messages": {"role": "user"}}, None),
        ({"messages": ["m"]}, "/v1/completions"),
        ({"prompt": []}, None),
        ({"prompt": 7}, None),
        ({"prompt": [1.5]}, None),
    ],
)
def test_a_body_without_a_prompt_is_refused(body: Any, path: str | None) -> None:
    with pytest.raises(TokensError):
        prompt_of(body, path)


@pytest.mark.parametrize(
    ("headers", "body", "session"),
    [
        ({"X-Session-Id": "a", "session-id": "b"}, {"prompt_cache_key": "c"}, "a"),
        ({"X-Claude-Code-Session-Id": "b"}, None, "b"),
        ({"session-id": " b "}, {}, "b"),
        ({"X-Session-Id": "  "}, {"prompt_cache_key": "c"}, "c"),
        ({"authorization": "Bearer s"}, {"user": "u", "previous_response_id": "r"}, None),
        (None, {"conversation": {"id": "c"}}, "c"),
        (None, {"conversation": "c"}, "c"),
        (None, {"metadata": {"session_id": "m"}}, "m"),
        (None, {"metadata": {"user_id": f"user_abc_account__session_{UUID}"}}, UUID),
        (None, {"metadata": {"user_id": f'{{"device_id":"d","session_id":"{UUID}"}}'}}, UUID),
        (None, {"metadata": {"user_id": "alice"}}, None),
        (None, {"metadata": "m", "prompt_cache_key": 7}, None),
        (None, None, None),
    ],
)
def test_sessions_as_clients_name_them(headers: Any, body: Any, session: str | None) -> None:
    assert session_of(headers, body) == session


def test_every_key_of_the_table_has_a_source() -> None:
    table = tomllib.loads(files("prefixroute.bodies").joinpath("sessions.toml").read_text())
    for one in (*table["header"], *table["body"]):
        assert one["sent_by"]
        assert one["source"].startswith(("https://", "none: "))


@pytest.mark.parametrize("wrong", ["x-mine", [1], 3, [None]])
@pytest.mark.parametrize("where", ["headers", "fields"])
def test_session_keys_are_strings(where: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=where):
        SessionKeys.of(**{where: wrong})


def test_keys_of_ones_own_take_the_place_of_known_ones() -> None:
    keys = SessionKeys.of(headers=["X-Mine"])
    assert session_of({"x-mine": "a", "x-session-id": "b"}, {}, keys) == "a"
    assert (
        session_of({"x-session-id": "b"}, {"prompt_cache_key": "c"}, keys) == "c"
    )  # the fields are still the known ones
    assert session_of({}, {"a": {"b": "d"}, "prompt_cache_key": "c"}, SessionKeys.of(fields=["a.b"])) == "d"
    assert session_of({"x-session-id": "b"}, {"prompt_cache_key": "c"}, SessionKeys.of([], [])) is None


def deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "body",
    [{"prompt": deep(100_000)}, {"prompt": {"x": "y" * 10**7}}, {"prompt": b"x" * 10**7}, {"text": [1.5] * 10**5},
     {f"key {number}": 1 for number in range(10**5)}, {"k" * 10**6: 1}, {}],
)  # fmt: skip
def test_a_refusal_shows_little_of_a_body_of_any_size_and_depth(body: Any) -> None:
    with pytest.raises(TokensError) as caught:
        prompt_of(body)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("path", [b"/v1/completions", 5, ["/v1/completions"]])
def test_a_path_is_a_string(path: Any) -> None:
    with pytest.raises(ConfigError, match=rf"path .*str.* {re.escape(shown(path))}"):
        prompt_of(CHAT, path)


@pytest.mark.parametrize("odd", [None, 5, ["a"], b"a"])
def test_names_and_values_of_headers_that_are_no_strings_are_ignored(odd: Any) -> None:
    assert session_of({"x-session-id": odd, "X-Conversation-Id": odd}) is None
    assert session_of({None: "a", 5: "b", b"x-session-id": "c", "X-Session-Id": "d"}) == "d"  # type: ignore[dict-item]


@pytest.mark.parametrize("wrong", [[("x-session-id", "a")], "x-session-id", 5])
def test_headers_are_a_mapping(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=rf"headers .*{re.escape(shown(wrong))}"):
        session_of(wrong)
    with pytest.raises(ConfigError, match=rf"keys .*SessionKeys.*{re.escape(shown(wrong))}"):
        session_of({}, {}, wrong)


@given(st.lists(st.sampled_from([b"data: x", b"\n", b"\r", b"\r\n", b"\n\n"]), max_size=12), st.data())
def test_events_are_the_same_wherever_a_stream_is_cut(pieces: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(pieces)
    at = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    cutter = EventCutter()
    found = [event for low, high in pairwise([0, *at, len(stream)]) for event in cutter.cut(stream[low:high])]
    whole = EventCutter()
    assert b"".join(found) + cutter.rest() == stream
    stripped = ([event.strip() for event in events] for events in (found, whole.cut(stream)))
    said, expected = (list(filter(None, events)) for events in stripped)
    assert said == expected


def test_an_event_above_the_bound_comes_in_pieces() -> None:
    cutter = EventCutter()
    given_out = b"".join(event for _ in range(100) for event in cutter.cut(b"x" * 64_000))
    assert len(given_out) > 6_400_000 - MAX_READ_BYTES - 64_000
    assert len(cutter.rest()) <= MAX_READ_BYTES
