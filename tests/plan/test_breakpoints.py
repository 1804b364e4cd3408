"""Breakpoints: at stable boundaries, four at most, within the look-back; changing texts named with their place."""

from __future__ import annotations

from typing import Any

import pytest

from prefixroute import ConfigError
from prefixroute.plan import place_breakpoints
from prefixroute.plan.breakpoints import ROLLING
from prefixroute.plan.prompts import Prompt
from prefixroute.providers import find_model

SONNET = find_model("claude-sonnet-5-5")
TOOLS = [{"name": f"tool_{n}", "description": "What it does. " * 100} for n in range(3)]
RULES = "The rules of the house. " * 300
FILES = {name: f"File {name}. " + f"Line of {name}. " * 400 for name in "ab"}


def body(*messages: str, system: list[str] | None = None, tools: list[dict[str, Any]] = TOOLS) -> dict[str, Any]:
    turns = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(messages)]
    parts = [{"type": "text", "text": text} for text in (system or [RULES])]
    return {"model": "claude-sonnet-5-5", "tools": tools, "system": parts, "messages": turns}


def test_marks_stand_where_prompts_part_ways() -> None:
    questions = [body(f"Question {n}?", system=[RULES, FILES["ab"[n % 2]]]) for n in range(8)]
    placed = place_breakpoints(questions, SONNET)
    assert [mark.where for mark in placed.marks] == ["system[0]", "system[1]"]
    assert placed.marks[1].tokens > placed.marks[0].tokens
    assert placed.reused_as_marked is None
    # All but the first prompt read tools and rules; all but the first of each file read the file too.
    assert placed.reused_tokens == pytest.approx(6 * placed.marks[1].tokens + placed.marks[0].tokens, rel=0.01)


def test_a_conversation_takes_a_mark_that_moves_with_it() -> None:
    turns = ["Hello. " * 200, "Hi. " * 200, "More. " * 200, "Yes. " * 200, "And? " * 200]
    placed = place_breakpoints([body(*turns[:n]) for n in (1, 3, 5)], SONNET)
    assert [mark.where for mark in placed.marks] == [ROLLING]
    assert placed.rolling_blocks is None


def test_a_turn_of_more_blocks_than_the_look_back_needs_marks_on_the_way() -> None:
    first, second = body("Go."), body("Go.")
    calls = [{"type": "tool_use", "id": str(n), "name": "tool_0", "input": {"n": n}} for n in range(12)]
    results = [{"type": "tool_result", "tool_use_id": str(n), "content": "Found it. " * 100} for n in range(12)]
    second["messages"] += [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    placed = place_breakpoints([first, second], SONNET)
    assert placed.longest_turn_blocks == 24
    assert placed.rolling_blocks == 15
    assert ROLLING not in [mark.where for mark in placed.marks]  # the last prompt's end is 24 blocks away: out of reach


def test_at_most_four_marks() -> None:
    layers = [f"Layer {n}. " + f"Text of layer {n}. " * 300 for n in range(7)]
    prompts = [body("Why?", system=layers[:depth]) for depth in range(1, 8) for _ in range(3)]
    assert len(place_breakpoints(prompts, SONNET).marks) <= 4


def test_marks_that_prompts_carry_are_priced_too() -> None:
    marked = [body(f"Question {n}?") for n in range(4)]
    for one in marked:
        one["system"][0]["cache_control"] = {"type": "ephemeral"}
    placed = place_breakpoints(marked, SONNET)
    assert placed.reused_as_marked == placed.reused_tokens > 0
    for one in marked:
        del one["system"][0]["cache_control"]
        one["tools"] = [{**TOOLS[0], "cache_control": {"type": "ephemeral"}}, *TOOLS[1:]]
    worse = place_breakpoints(marked, SONNET)
    assert worse.reused_as_marked is not None
    assert worse.reused_as_marked < worse.reused_tokens


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2026-11-30", "2026-12-01", "2026-12-02"], "date"),
        (["09:41", "10:05", "11:59"], "date"),
        (["req-8f3a91c2", "req-11b0aa93", "req-77d1e0f4"], "id"),
        (["123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174001"], "id"),
        (["17", "18", "19"], "number"),
        (["Anna", "Berta", "Clara"], "text"),
    ],
)
def test_a_change_in_the_head_is_named_with_its_place(texts: list[str], kind: str) -> None:
    head = "You are helpful. Now it is "
    placed = place_breakpoints([body("Why?", system=[head + text + ". " + RULES]) for text in texts], SONNET)
    (change,) = placed.changes
    assert (change.where, change.kind, change.character) == ("system[0]", kind, len(head))
    assert change.tokens == pytest.approx(sum(len(str(tool)) for tool in TOOLS) / 4 + len(head) / 4, rel=0.05)
    assert change.lost_tokens == pytest.approx(len(RULES) / 4, rel=0.01)
    assert change.share == 1
    assert texts[1] in change.examples[0]


def test_a_change_with_nothing_shared_behind_it_is_none() -> None:
    assert place_breakpoints([body(f"What is {n}?") for n in range(5)], SONNET).changes == ()


def test_short_prompts_have_no_marks() -> None:
    assert place_breakpoints([body(f"{n}?", system=["Be brief."], tools=[]) for n in range(5)], SONNET).marks == ()


def test_all_forms_of_a_body_are_read() -> None:
    chat = Prompt.of([{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]}])
    assert [block.where for block in chat.blocks] == ["messages[0].content[0]", "messages[1].content[0]"]
    responses = Prompt.of({"instructions": "s", "input": "u"})
    assert [block.where for block in responses.blocks] == ["instructions[0]", "input[0]"]
    items = Prompt.of({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]})
    assert [block.where for block in items.blocks] == ["input[0]"]
    calls = Prompt.of([{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}])
    assert len(calls.blocks) == 1


@pytest.mark.parametrize(
    "bodies", [[], [3], [{}], [{"model": "x"}], ["text"], [{"messages": 3}], [{"messages": [None]}], [[1, 2]]]
)
def test_mistakes(bodies: list[Any]) -> None:
    with pytest.raises(ConfigError):
        place_breakpoints(bodies, SONNET)
