"""The canonical form of conversations: alike in the forms of three APIs, and without what engines do not render."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from prefixroute.errors import TokensError
from prefixroute.messages import DROPPED, MEDIA_MARK, MEDIA_TOKENS, CanonicalForm, answer_messages, canonical, segment
from prefixroute.router import Router

SYSTEM, ASK, SAID, RESULT, NEXT = (
    "You build things. ",
    "Please read f.py",
    "I shall read it.",
    "line 1\nline 2",
    "And now?",
)
THOUGHT, ARGUMENTS, SCHEMA = "The user wants a file.", {"path": "f.py", "from": 1}, {"type": "object", "properties": {}}
PNG = "iVBORw0KGgo="

CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": [
            {"type": "text", "text": ASK},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "auto"}}]},
        {"role": "assistant", "content": SAID, "reasoning_content": THOUGHT, "refusal": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "f.py", "from": 1}'}}]},
        {"role": "tool", "tool_call_id": "c1", "name": "read", "content": RESULT},
        {"role": "user", "content": NEXT},
    ],
    "tools": [{"type": "function", "function": {"name": "read", "description": "d", "parameters": SCHEMA}}],
}  # fmt: skip
MARK = {"cache_control": {"type": "ephemeral"}}
ANTHROPIC: dict[str, Any] = {
    "system": [{"type": "text", "text": SYSTEM, **MARK}],
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": ASK},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"},
            {"type": "text", "text": SAID, "citations": None},
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": ARGUMENTS}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": RESULT, **MARK}],
             "is_error": False, **MARK},
            {"type": "text", "text": NEXT}], **MARK},
    ],
    "tools": [{"name": "read", "description": "d", "input_schema": SCHEMA, **MARK}],
}  # fmt: skip
RESPONSES: dict[str, Any] = {
    "instructions": SYSTEM,
    "input": [
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": ASK},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": THOUGHT}], "status": "completed"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": SAID, "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": json.dumps(ARGUMENTS)},
        {"type": "function_call_output", "call_id": "c1", "output": RESULT},
        {"role": "user", "content": NEXT},
    ],
    "tools": [{"type": "function", "name": "read", "description": "d", "parameters": SCHEMA, "strict": True}],
}  # fmt: skip


def test_one_conversation_has_one_text_in_the_forms_of_three_apis() -> None:
    form = CanonicalForm()
    text = form(CHAT)
    assert form(ANTHROPIC) == text
    assert form(RESPONSES) == text
    for said in (SYSTEM, ASK, THOUGHT, SAID, RESULT, NEXT):
        assert said in text


def test_a_router_matches_one_conversation_whatever_its_form() -> None:
    bodies = [
        {**body, key: list(body[key])}
        for body, key in ((CHAT, "messages"), (ANTHROPIC, "messages"), (RESPONSES, "input"))
    ]
    router = Router(["a"], prompt_kind="messages")
    router.route(bodies[0]).finish()
    tokens = router.choose(bodies[0]).prompt_tokens
    assert {router.choose(body).hit_tokens for body in bodies} == {(tokens - 1) // 16 * 16}


def test_each_turn_extends_the_turn_before() -> None:
    for body, key in ((CHAT, "messages"), (ANTHROPIC, "messages"), (RESPONSES, "input")):
        texts = [CanonicalForm()({**body, key: body[key][:count]}) for count in range(1, len(body[key]) + 1)]
        assert all(longer.startswith(shorter) for shorter, longer in itertools.pairwise(texts))


@pytest.mark.parametrize(
    "output",
    [
        SAID,
        {"content": SAID},
        {"role": "assistant", "content": SAID, "annotations": []},
        [{"type": "text", "text": SAID}],
        [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": SAID}]}],
    ],
)
def test_an_answer_in_any_form_is_what_the_next_prompt_repeats(output: Any) -> None:
    assert CanonicalForm().answer(output) == segment({"role": "assistant", "content": SAID})
    router = Router(["a"], prompt_kind="messages")
    asked = {"role": "user", "content": ASK * 20}
    router.route([asked]).finish(output=output)
    whole = [asked, {"role": "assistant", "content": SAID}]
    assert router.choose([*whole, {"role": "user", "content": NEXT * 9}]).hit_tokens == len(canonical(whole)) // 64 * 16


def test_no_answer_is_no_message() -> None:
    assert answer_messages("") == answer_messages([]) == []


def test_where_a_mark_stands_changes_nothing() -> None:
    def at(marked: int) -> dict[str, Any]:
        turns = ANTHROPIC["messages"]
        parts = [
            {"role": "user", "content": [{"type": "text", "text": str(k)} | (MARK if k == marked else {})]}
            for k in range(4)
        ]
        return {"messages": [*turns, *parts]}

    assert len({CanonicalForm()(at(marked)) for marked in range(5)}) == 1


def test_the_list_of_dropped_fields_is_the_callers_to_change() -> None:
    renamed = json.loads(json.dumps(CHAT).replace('"c1"', '"c2"'))
    ids = CanonicalForm(dropped=DROPPED - {"id", "tool_call_id"})
    assert CanonicalForm()(renamed) == CanonicalForm()(CHAT)
    assert ids(renamed) != ids(CHAT)
    silent = CanonicalForm(dropped=DROPPED | {"reasoning_content", "mood"})
    assert THOUGHT not in silent(CHAT)
    assert canonical([{"role": "user", "content": "x", "mood": "good"}]) != canonical(
        [{"role": "user", "content": "x"}]
    )
    assert silent([{"role": "user", "content": "x", "mood": "good"}]) == silent([{"role": "user", "content": "x"}])


def test_names_inside_of_arguments_and_schemas_are_content() -> None:
    def call(inner: str) -> str:
        return segment({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"id": inner}}}]})

    def tool(inner: str) -> str:
        return canonical([], [{"name": "f", "input_schema": {"properties": {"id": {"type": inner}}}}])

    assert call("1") != call("2")
    assert tool("string") != tool("number")


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_result", "tool_use_id": "t", "content": "x" * 9_000},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x" * 9_000}]},
        {"type": "tool_use", "id": "t", "name": "write", "input": {"text": "x" * 9_000}},
        {"type": "thinking", "thinking": "x" * 9_000, "signature": "s"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x" * 9_000}},
        {"type": "search_result", "source": "a", "title": "b", "content": [{"type": "text", "text": "x" * 9_000}]},
        {"text": "x" * 9_000},
    ],
)
def test_text_inside_of_any_part_counts_in_full(part: dict[str, Any]) -> None:
    assert 9_000 <= len(segment({"role": "user", "content": [part]})) < 9_200


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 99_999}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 99_999}},
        {"type": "input_image", "image_url": "https://example.org/" + "a" * 999},
        {"type": "image", "image": "file:///" + "a" * 999},
        {"image": "file:///" + "a" * 999},
        {"type": "input_audio", "input_audio": {"data": "A" * 99_999, "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64," + "A" * 9_999, "filename": "f.pdf"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 9_999}},
        {"type": "redacted_thinking", "data": "A" * 9_999},
    ],
)
def test_media_are_digests_of_a_fixed_length(part: dict[str, Any]) -> None:
    text = segment({"role": "user", "content": [part]})
    assert MEDIA_MARK in text
    assert len(text) == pytest.approx(4 * MEDIA_TOKENS, abs=8)
    changed = json.loads(json.dumps(part).replace("A" * 99, "B" * 99).replace("a" * 99, "b" * 99))
    assert text != segment({"role": "user", "content": [changed]})


def test_the_same_image_with_another_detail_is_another_image() -> None:
    def ask(detail: str) -> str:
        return segment(
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u", "detail": detail}}]}
        )

    assert ask("low") != ask("high")


def nested(levels: int) -> Any:
    inner: Any = "x"
    for _ in range(levels):
        inner = [inner]
    return inner


def cyclic() -> dict[str, Any]:
    message: dict[str, Any] = {"role": "user"}
    message["content"] = [message]
    return message


CYCLIC_LIST: list[Any] = []
CYCLIC_LIST.append(CYCLIC_LIST)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": nested(2_000)},
        {"role": "user", "content": [{"type": "tool_result", "content": nested(970)}], "more": nested(1_500)},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": nested(3_000)}}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[" * 3_000 + "]" * 3_000}}]},
        nested(2_000),
        cyclic(),
        CYCLIC_LIST,
        {"role": "user", "content": [{"type": "odd", 1: 2, "b": 3}]},
        {"role": "user", (1, 2): "x", "content": "x"},
        {"role": "user", "content": [{"type": "odd", "x": object()}]},
        {"role": "user", "content": [{"type": "image", "data": "\ud83d"}]},
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_has_no_text_is_a_tokens_error(message: Any) -> None:
    with pytest.raises(TokensError, match=r"^(message 1|the answer) "):
        canonical([{"role": "user", "content": "x"}, message])
    with pytest.raises(TokensError):
        Router(["a"], prompt_kind="messages").choose([message])


@pytest.mark.parametrize(
    "tools", [nested(3_000), CYCLIC_LIST, [{1: 2, "a": 3}], [{"x": object()}]], ids=["deep", "cyclic", "keys", "object"]
)
def test_tools_that_have_no_text_are_a_tokens_error(tools: Any) -> None:
    with pytest.raises(TokensError, match="tools"):
        canonical([], tools)


def test_the_system_prompt_is_named_by_its_errors() -> None:
    with pytest.raises(TokensError, match=r"system prompt .*JSON"):
        canonical([], system=CYCLIC_LIST)


@pytest.mark.parametrize("text", ["\x1c", "\x1e", "\x1f", "\x1b"])
def test_no_text_imitates_a_frame(text: str) -> None:
    framed, plain = (canonical([{"role": "user", "content": content}]) for content in (f"a{text}b", "ab"))
    assert framed != plain
    assert framed.count(text) == plain.count(text) + 2 * (text == "\x1b")
