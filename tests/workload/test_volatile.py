"""A date or an id near the start of prompts is found, and what fixing it would give is a workload like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.advise import advise
from prefixroute.workload import Workload, floor, read_trace
from prefixroute.workload.readers.volatile import HEAD_CHARACTERS, mask

RULES = "You are the assistant of a railway. Answer politely and briefly. " * 60


def _figures(number: int) -> dict[str, int]:
    return {"number": number, "hour": number % 24, "day": number % 9 + 1, "day2": number % 28 + 1}


def trace_of(folder: Path, head: str, more: Callable[[int], str] = lambda _: "") -> Workload:
    """Write a log of 40 requests whose system prompts begin with ``head``, formatted with the request's number."""
    rows = []
    for number in range(40):
        system = {"role": "system", "content": head.format(**_figures(number)) + more(number) + RULES}
        rows.append({"timestamp": number, "messages": [system, {"role": "user", "content": f"ticket of {number}?"}]})
    (folder / "log.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return read_trace(folder / "log.jsonl")


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("Now: 2026-11-29T10:00:{number:02}Z. ", "date"),
        ("Today is {number} November 2026. ", "date"),
        ("Today is November {number}, 2026. ", "date"),
        ("It is {hour}:{number:02} PM. ", "time"),
        ("Request 5f0c1d2e-0000-4000-8000-0000000000{number:02}. ", "id"),
        ("Trace 00ab00ab00ab00ab{number:02}. ", "id"),
        ("Epoch 17900000{number:02}. ", "number"),
        ("Sunday, October 09, 2025 {hour:02}:{number:02}. ", "time"),
        ("It is Sunday, October {number:02}, 2025. ", "date"),
        ("req-{number:05} ", "id"),
        ("Request 1{number:02}: ", "id"),
        ("Request #{number}. ", "id"),
        ("trace_id=ab{number} ", "id"),
        ('{{"session_id": "x{number}"}} ', "id"),
        ("Conversation id: {number}f. ", "id"),
        ("Version 2.1. Rule 17. [Request {number}] ", "id"),
        ("Heute ist der 05.{number:02}.2026. ", "date"),
        ("Today: 2026/{hour}/{number:02}. ", "date"),
        ("Now: 2026010{day}T12{number:02}Z. ", "date"),
        ("01ARZ3NDEKTSV4RRFFQ69G5F{number:02} ", "id"),
        ("chat_01arz3ndektsv4rrffq69g5f{number:02}. ", "id"),
    ],
)
def test_what_changes_near_the_start_is_found_and_its_price_told(tmp_path: Path, head: str, kind: str) -> None:
    trace = trace_of(tmp_path, head)
    assert trace.volatile is not None
    assert trace.volatile.kind == kind
    assert trace.volatile.tokens < 12
    assert "nothing behind it is shared" in " ".join(trace.notes)
    assert trace.volatile.share == 1
    assert floor(trace) > 0.95
    assert floor(trace.volatile.masked) < 0.05
    assert floor(trace.head(10).volatile.masked) < 0.15  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "head",
    [
        "Build of 202601{day2:02}. ",
        "Today is January {day2}. ",
        "Today is Monday, Jan. {day2}. ",
        "Today is the {day2}th of January 2026. ",
        "Today is the {day2}th of May. ",
    ],
)
def test_a_day_of_the_month_that_changes_is_found(tmp_path: Path, head: str) -> None:
    trace = trace_of(tmp_path, head)
    assert trace.volatile is not None
    assert trace.volatile.kind == "date"
    assert trace.volatile.tokens < 12
    assert floor(trace) > 0.65
    assert floor(trace.volatile.masked) < 0.05


def test_a_tenth_of_the_prompts_is_enough(tmp_path: Path) -> None:
    """One of several applications behind one gateway writes the date; the others are none the worse."""
    for every, found in ((2, True), (8, True), (20, False)):
        trace = trace_of(tmp_path, "", lambda at, every=every: f"Request {at}: " if at % every == 0 else "Hello. ")
        assert (trace.volatile is not None) == found
        assert ("nothing behind it is shared" in " ".join(trace.notes)) == found
        if trace.volatile is not None:
            assert trace.volatile.share == 1 / every
            assert floor(trace.volatile.masked) < floor(trace) - 0.5 / every


def test_a_value_that_half_of_those_prompts_have_does_not_change(tmp_path: Path) -> None:
    def head(number: int) -> str:
        return f"Now: 2026-11-{10 + (number if number % 16 == 0 else 0):02}. " if number % 4 == 0 else "Hello. "

    assert trace_of(tmp_path, "", head).volatile is None


@pytest.mark.parametrize(
    "head",
    [
        "",
        "Version 2026-11-29. ",
        "Build 00ab00ab00ab00ab00. ",
        "Version 2.1 of the rules. ",
        "Rule 17: see request 12, session 3. ",
        "req-00017 ",
        "Rules of 05.01.2026, in force since 2026/01/05, of January 5 and the 5th of March, 20260105. ",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV. ",
        "Version 2026.01.05. ",
    ],
)
def test_what_never_changes_is_no_fault(tmp_path: Path, head: str) -> None:
    assert trace_of(tmp_path, head).volatile is None


def test_what_users_write_behind_a_shared_head_is_no_fault_of_the_prompt(tmp_path: Path) -> None:
    rows = []
    for number in range(40):
        said = (
            f"Dear assistant, my name is {chr(97 + number % 26) * 9}; my order of {number % 28 + 1} May 2026 is late."
        )
        messages = [{"role": "system", "content": RULES}, {"role": "user", "content": said}]
        rows.append({"timestamp": number, "messages": messages})
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    assert "nothing behind it is shared" not in " ".join(read_trace(tmp_path / "log.jsonl").notes)


def test_dates_that_some_users_write_are_not_even_looked_at(tmp_path: Path) -> None:
    def said(number: int) -> str:
        return f"{chr(97 + number) * 9}, " + (f"since {number % 28 + 1} May 2026. " if number % 3 == 0 else "hello. ")

    assert trace_of(tmp_path, "", said).volatile is None


@given(st.text())
def test_masking_is_done_once_and_leaves_no_digits_of_a_date(text: str) -> None:
    once = mask(f"{text} 2026-11-29 10:15 ")
    assert mask(once) == once or len(once) > HEAD_CHARACTERS
    assert "2026-11-29" not in once


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("req-00017 go", "<id> go"),
        ("Request 17: go", "<id>: go"),
        ("trace_id=ab12, go", "<id>, go"),
        ('{"request_id": "7f"}', '{"<id>"}'),
        ("request 17 May 2026", "request <date>"),
        ("see request 17, of session 3 in conversation 9.", "see request 17, of session 3 in conversation 9."),
        ("request 2026-11-29 10:15", "request <date>"),
        ("message: 10:15", "message: <time>"),
        ("version 2.1, rule 17, section 3.4", "version 2.1, rule 17, section 3.4"),
        ("request 3.5 GB, 12 requests", "request 3.5 GB, 12 requests"),
        ("on 05.01.2026 or 2026/01/05 or 2026.1.5", "on <date> or <date> or <date>"),
        ("at 2026/01/05 12:00:01, at 20260105T1200Z, 20260105120000", "at <date>, at <date>, <date>"),
        (
            "January 5, Jan. 5th; 5 Jan, Monday, 5 January; 5th of January 2026",
            "<date>, <date>; <date>, <date>; <date>",
        ),
        ("of May 5 and 5 May", "of <date> and <date>"),
        ("message: 5th of January, request 2026/01/05 10:15", "message: <date>, request <date>"),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV, chat_01ARZ3NDEKTSV4RRFFQ69G5FAV", "<id>, chat_<id>"),
        ("you may 5 times decide 2; 12 may follow; market 5", "you may 5 times decide 2; 12 may follow; market 5"),
        ("January 2026, May 2.5, march 40, section 5.1.2.3", "January 2026, May 2.5, march 40, section 5.1.2.3"),
        ("10.1.2026.7, 1.2.3, 20261345, 12345678", "10.1.2026.7, 1.2.3, 20261345, 12345678"),
        (
            "01ARZ3NDEKTSV4RRFFQ69G5FAVX 01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "01ARZ3NDEKTSV4RRFFQ69G5FAVX 01ARZ3NDEKTSV4RRFFQ69G5FAU",
        ),
        ("a request of yours; the message: hello", "a request of yours; the message: hello"),
    ],
)
def test_what_is_masked(text: str, masked: str) -> None:
    assert mask(text) == masked


def test_the_rest_of_a_long_prompt_is_left_alone() -> None:
    text = "x" * HEAD_CHARACTERS + " 2026-11-29"
    assert mask(text) == text


def test_the_advisor_names_it_first(tmp_path: Path) -> None:
    advice = advise(trace_of(tmp_path, "Now: 2026-11-29T10:00:{number:02}Z. "))
    first = advice.findings[0]
    assert (first.kind, first.severity) == ("volatile-head", "fix first")
    assert float(first.evidence["floor"] or 0) > 0.95
    assert float(first.evidence["floor_if_fixed"] or 1) < 0.05
    assert not [finding for finding in advise(trace_of(tmp_path, "")).findings if finding.kind == "volatile-head"]
