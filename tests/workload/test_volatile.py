"""Text near the start of prompts that changes is found by comparing prompts, and what fixing it would give is a workload."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import figures, private_of, write

from prefixroute.advise import advise, profile
from prefixroute.advise.affected import affected
from prefixroute.lint import lint, read_entries
from prefixroute.plan import place_breakpoints
from prefixroute.providers import find_model
from prefixroute.volatile import HEAD_CHARACTERS, LONGEST, Changes, Mask
from prefixroute.workload import Workload, convert, floor, read_trace

RULES = "You are the assistant of a railway. Answer politely and briefly. " * 60
WORDS = " ".join(f"w{number * number * 7_919 % 3_001:04d}" for number in range(700))


def trace_of(folder: Path, head: Callable[[int], str], rules: str = RULES) -> Workload:
    """Write a log of 40 requests whose system prompts begin with ``head`` of the request's number."""
    rows = []
    for number in range(40):
        system = {"role": "system", "content": head(number) + rules}
        rows.append({"timestamp": number, "messages": [system, {"role": "user", "content": f"ticket of {number}?"}]})
    return read_trace(write(folder / "log.jsonl", rows))


def digits(number: int, count: int) -> str:
    """Return hexadecimal digits that look drawn."""
    return hashlib.shake_128(str(number).encode()).hexdigest(count)[:count]


HEADS: dict[str, Callable[[int], str]] = {
    "nonce": lambda number: f"nonce {digits(number, 8)}. ",
    "commit": lambda number: f"On commit {digits(number, 7)} ",
    "folder": lambda number: f"Work in /tmp/tmp{digits(number, 8)}/work: ",
    "base64": lambda number: f"Token {base64.b64encode(digits(number, 60).encode()).decode()}. ",
    "counter": lambda number: f"This is request {number} of today. ",
    "cch": lambda number: f"cch={digits(number, 5)}; " + "The rules that follow hold. " * 20,
    "timestamp": lambda number: f"Now: 2026-11-29T10:00:{number:02}Z. ",
    "date": lambda number: f"Sunday, October {number % 28 + 1:02}, 2025 {number % 24:02}:{number:02}. ",
    "uuid": lambda number: f"Request 5f0c1d2e-0000-4000-8000-0000000000{number:02}. ",
    "epoch": lambda number: f"Epoch 17900000{number:02}. ",
    "json": lambda number: f'{{"session_id": "x{number}"}} ',
    "ulid": lambda number: f"chat_01arz3ndektsv4rrffq69g5f{number:02}. ",
    "words": lambda number: f"The word of the day is {WORDS[7 * number : 7 * number + 5]} and no other. ",
    "twice": lambda number: f"id {digits(number, 6)}. {WORDS[:900]} at {number:02}:00. ",
}


@pytest.mark.parametrize("rules", [RULES, WORDS], ids=["repeating", "words"])
@pytest.mark.parametrize("kind", HEADS)
def test_what_changes_near_the_start_is_found_and_its_price_told(tmp_path: Path, kind: str, rules: str) -> None:
    trace = trace_of(tmp_path, HEADS[kind], rules)
    volatile, masked = trace.volatile, trace.masked
    assert volatile is not None
    assert masked is not None
    assert volatile.share > 0.8
    assert volatile.tokens < 12 or kind == "twice"
    assert 0 < volatile.length < 25
    assert volatile.gain > 100
    percent, *_, gain = next(
        told for told in figures(trace.notes) if len(told) == len(("share", "length", "tokens", "gain"))
    )
    assert (percent, gain) == (round(100 * volatile.share), volatile.gain)
    assert floor(trace) > 0.5
    assert floor(masked) < 0.06
    first = trace.head(10).masked
    assert first is not None
    assert floor(first) < 0.15


@pytest.mark.parametrize(
    "head",
    [
        "",
        "Version 2026-11-29. ",
        "Build 00ab00ab00ab00ab00. ",
        "Rule 17: see request 12, session 3. ",
        "req-00017 ",
        "Rules of 05.01.2026, in force since 2026/01/05, of January 5 and the 5th of March, 20260105. ",
    ],
)
def test_what_never_changes_is_no_fault(tmp_path: Path, head: str) -> None:
    trace = trace_of(tmp_path, lambda _: head)
    assert trace.volatile is None
    assert trace.masked is None


def test_a_tenth_of_the_prompts_is_enough(tmp_path: Path) -> None:
    """One of several applications behind one gateway writes a number; the others are none the worse."""
    for every, found in ((2, True), (6, True), (20, False)):
        trace = trace_of(tmp_path, lambda at, every=every: f"Request {at}: " if at % every == 0 else "Hello. ")  # type: ignore[misc]
        assert (trace.volatile is not None) == found
        if trace.volatile is not None:
            assert trace.volatile.share == pytest.approx(1 / every, abs=0.05)
            assert trace.masked is not None
            assert floor(trace.masked) < floor(trace) - 0.5 / every


def test_a_value_that_most_of_those_prompts_have_does_not_change(tmp_path: Path) -> None:
    def head(number: int) -> str:
        return f"Now: 2026-11-{10 + (number if number % 16 == 0 else 0):02}. " if number % 4 == 0 else "Hello. "

    assert trace_of(tmp_path, head).volatile is None


def test_several_prompts_with_a_changing_text_each_are_all_masked(tmp_path: Path) -> None:
    def head(number: int) -> str:
        return f"{'ABC'[number % 3] * 30} of {digits(number, 8)}: {'xyz'[number % 3] * 60} "

    trace = trace_of(tmp_path, head)
    assert trace.masked is not None
    assert floor(trace) > 0.95
    assert floor(trace.masked) < 0.1


def test_what_users_write_behind_a_shared_head_is_no_fault_of_the_prompt(tmp_path: Path) -> None:
    rows = []
    for number in range(40):
        said = f"Dear assistant, I am {chr(97 + number % 26) * 9}; my order of {number % 28 + 1} May 2026 is late."
        messages = [{"role": "system", "content": RULES}, {"role": "user", "content": said}]
        rows.append({"timestamp": number, "messages": messages})
    assert read_trace(write(tmp_path / "log.jsonl", rows)).volatile is None


def test_short_messages_before_equal_answers_are_messages(tmp_path: Path) -> None:
    rows = []
    for number in range(40):
        texts = {"system": RULES, "user": f"is it {number}?", "assistant": WORDS}
        messages = [{"role": role, "content": text} for role, text in texts.items()]
        rows.append({"timestamp": number, "messages": [*messages, {"role": "user", "content": "thanks"}]})
    assert read_trace(write(tmp_path / "log.jsonl", rows)).volatile is None


@pytest.mark.parametrize("detail", [False, True])
def test_media_are_content_and_no_volatile_text(tmp_path: Path, *, detail: bool) -> None:
    rows = []
    for number in range(40):
        url = {"url": f"data:image/png;base64,{digits(0 if detail else number, 400)}"}
        image = {"type": "image_url", "image_url": url | ({"detail": f"{number} dots"} if detail else {})}
        content = [image, {"type": "text", "text": RULES}]
        rows.append({"timestamp": number, "messages": [{"role": "user", "content": content}]})
    assert read_trace(write(tmp_path / "log.jsonl", rows)).volatile is None


def test_the_example_quotes_the_log_and_leaves_the_house_nowhere(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, lambda number: f"SECRET nonce {digits(number, 8)}. ")
    assert trace.volatile is not None
    assert "SECRET nonce" in trace.volatile.example
    assert "SECRET" not in json.dumps(trace.volatile.to_dict()) + repr(trace) + "".join(trace.notes)


def test_a_private_trace_keeps_what_is_volatile_and_what_fixing_it_gives(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, HEADS["nonce"])
    convert(trace, tmp_path / "private.jsonl.gz", secrets.token_bytes(16))
    private = read_trace(tmp_path / "private.jsonl.gz")
    assert private.volatile == trace.volatile
    assert (private.head_tokens, floor(private)) == (trace.head_tokens, floor(trace))
    assert private.masked is not None
    assert trace.masked is not None
    assert floor(private.masked) == floor(trace.masked)
    convert(private, tmp_path / "again.jsonl", bytes(16))
    assert read_trace(tmp_path / "again.jsonl").volatile == trace.volatile


def test_the_advisor_says_the_same_of_a_log_and_of_its_private_trace(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, HEADS["timestamp"])
    for one in (trace, private_of(trace, tmp_path)):
        first = advise(one).findings[0]
        assert (first.kind, first.severity) == ("volatile-head", "fix first")
        assert float(first.evidence["floor"] or 0) > 0.95
        assert float(first.evidence["floor_if_fixed"] or 1) < 0.05
    plain = advise(trace_of(tmp_path, lambda _: "")).findings
    assert not [finding for finding in plain if finding.kind == "volatile-head"]


def groups_of(path: Path) -> Workload:
    """Three applications in one log, a hundred prompts each: no changing text, a time, and an id."""
    rows = []
    for number in range(300):
        head = (
            "You are the billing assistant. " * 60,
            f"Now: 2026-11-29T10:{number % 60:02}:{number * 7 % 60:02}Z. You are the travel assistant. {'Be brief. ' * 120}",
            f"Request {number * 7_919:08x}. You are the coding agent. {'Write tests. ' * 120}",
        )[number % 3]
        messages = [{"role": "system", "content": head}, {"role": "user", "content": f"question {number * 31}. " * 20}]
        keys = {
            "session_id": f"s{number}",
            "model": "abc"[number % 3],
            "tenant": f"t{number % 5}",
            "user": f"u{number % 7}",
        }
        rows.append({"timestamp": number, "messages": messages, **keys})
    return read_trace(write(path / "groups.jsonl", rows))


def test_it_is_said_which_prompts_have_it_of_a_log_and_of_its_private_trace(tmp_path: Path) -> None:
    trace = groups_of(tmp_path)
    private = private_of(trace, tmp_path)
    own, other = affected(trace), affected(private)
    for at, (one, again) in enumerate(zip(own, other, strict=True)):
        assert (one.model, one.session, one.first_request, one.tenant) == ("bc"[at], f"s{at + 1}", at + 2, None)
        assert (one.prompts, one.share_of_group, one.share_of_affected) == (100, 1.0, 0.5)
        assert (again.model, again.prompts, again.head_tokens) == (one.model, one.prompts, one.head_tokens)
        assert one.head_tokens > 250
    assert len({one.head for one in (*own, *other)}) == 4
    first = next(one for one in advise(private).findings if one.kind == "volatile-head")
    assert (first.evidence["model"], first.evidence["prompts"], first.evidence["groups"]) == ("b", 100, 2)
    assert affected(trace_of(tmp_path, lambda _: "")) == ()


def test_the_hottest_tenant_and_user_are_named_in_a_private_trace_too(tmp_path: Path) -> None:
    trace = groups_of(tmp_path)
    for one in (trace, private_of(trace, tmp_path)):
        found = {hot.kind: hot for hot in profile(one).hottest}
        assert {"tenant", "user"} <= found.keys()
        assert found["tenant"].requests == pytest.approx(0.2)
        assert found["user"].requests == pytest.approx(1 / 7, abs=0.01)
    assert found["user"].name not in {f"u{number}" for number in range(7)}


heads = st.lists(st.text(st.sampled_from("ab 1.\x1e"), max_size=400), min_size=2, max_size=9)


@given(heads, st.text(st.sampled_from("ab 1."), min_size=300, max_size=400))
def test_a_mask_takes_out_nothing_else(starts: list[str], rules: str) -> None:
    changes = Changes()
    texts = [f"begin {start} {rules}" for start in starts]
    for text in texts:
        changes.add(text)
    span, mask = changes.result()
    assert (span is None) == (not mask)
    for text in texts:
        masked = mask(text)
        assert len(text) - len(mask.rules) * LONGEST <= len(masked) <= len(text)
        assert mask(text) == masked
    assert [Mask(mask.rules)(text) for text in texts] == [mask(text) for text in texts]


def test_the_rest_of_a_long_prompt_is_left_alone() -> None:
    mask = Mask([("now ", " then", False)])
    rest = "x" * (HEAD_CHARACTERS + LONGEST) + " now 17 then"
    assert mask(f"now 17 then {rest}") == f"now  then {rest}"


@pytest.mark.parametrize("kind", HEADS)
def test_readers_lint_and_plan_have_one_finder(tmp_path: Path, kind: str) -> None:
    """A log, and the request bodies in it: the same text, of the same kind and length, at the same place."""
    trace = trace_of(tmp_path, HEADS[kind], WORDS)
    bodies = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    change = place_breakpoints(bodies, find_model("claude-sonnet-5-5")).changes[0]
    report = lint(trace, entries=read_entries(tmp_path / "log.jsonl"))
    found = next(one.evidence for one in report.findings if one.rule.name == "volatile-head")
    assert trace.volatile is not None
    assert found["kind"] == change.kind
    assert (found["where"], change.where) == ("messages[0].content[0]",) * 2
    assert found["lost_tokens"] == change.lost_tokens
    if kind != "twice":  # where the more frequent of two texts is not the more expensive one
        assert change.lost_tokens == pytest.approx(trace.volatile.gain, abs=3)
        assert change.kind == trace.volatile.kind
        assert change.tokens == pytest.approx(trace.volatile.tokens, abs=3)


def test_kinds_say_what_a_text_looks_like(tmp_path: Path) -> None:
    for kind, said in (("timestamp", "date"), ("counter", "number"), ("nonce", "id"), ("words", "text")):
        found = trace_of(tmp_path, HEADS[kind]).volatile
        assert found is not None
        assert found.kind == said


def test_behind_long_tools_it_is_found_too(tmp_path: Path) -> None:
    """Coding agents send 40 kB of tools in front of the system prompt."""
    tools = [{"name": f"tool_{n}", "description": f"Part {n} of what it does. " * 40} for n in range(40)]
    rows = [
        {
            "timestamp": number,
            "tools": tools,
            "system": f"Today is 2026-11-29 10:{number:02}. {RULES}",
            "messages": [{"role": "user", "content": f"ticket of {number}?"}],
        }
        for number in range(40)
    ]
    trace = read_trace(write(tmp_path / "log.jsonl", rows))
    assert trace.volatile is not None
    assert trace.volatile.tokens > 10_000
    assert trace.masked is not None
    assert floor(trace.masked) < 0.1 < floor(trace)
    (change,) = place_breakpoints(rows, find_model("claude-sonnet-5-5")).changes
    assert (change.where, change.character) == ("system[0]", len("Today is 2026-11-29 "))
