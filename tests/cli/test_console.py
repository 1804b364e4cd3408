"""Progress on stderr: a bar on a terminal, elsewhere a line each ten seconds with what is left; nothing if quiet."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from prefixroute.cli import console
from prefixroute.cli.table import show
from prefixroute.report.table import Column, Table

Prefixroute = Callable[..., Any]
LONG = {
    "simulate": ["--replicas", "2"],
    "compare": ["--replicas", "2"],
    "advise": ["--replicas", "2"],
    "backtest": ["--policies", "session"],
    "size": ["--slo", "ttft_p95=9s", "--policies", "session"],
    "trace": [],
}


def figures(text: str) -> list[int]:
    """Return the numbers of a line: a share of the work, and times in hours, minutes and seconds."""
    return [int(digits) for digits in re.findall(r"\d+", text)]


def test_lines_come_every_ten_seconds_and_say_what_is_left() -> None:
    written: list[str] = []
    times = iter((0.0, 4.0, 10.0, 19.9, 150.0, 7_400.0))
    lines = console.Lines(written.append, clock=lambda: next(times))
    for share in (0.1, 0.25, 0.5, 0.5, 0.9):
        lines(share, "a run")
    assert [figures(line) for line in written] == [[25, 10, 30], [50, 2, 30], [90, 2, 3]]
    assert all(line.endswith(": a run") for line in written)


def test_an_estimate_that_no_line_showed_does_not_hold_later_ones_down() -> None:
    written: list[str] = []
    times = iter((0.0, 1.0, 10.0, 21.0))
    lines = console.Lines(written.append, clock=lambda: next(times))
    for share in (0.5, 0.2, 0.7):
        lines(share, "a run")
    assert [figures(line) for line in written] == [[20, 10, 40], [70, 21, 9]]


def test_the_time_left_only_falls_and_waits_for_a_first_part() -> None:
    left = console.TimeLeft(0.0)
    assert left(0.01, 1.0) == ""
    moments = ((0.1, 10.0), (0.1, 20.0), (0.5, 40.0), (0.6, 300.0), (0.9, 310.0))
    shown = [left(share, now) for share, now in moments]
    assert shown[1] == shown[3] == ""
    assert [figures(text) for text in shown] == [[1, 30], [], [40], [], [34]]


@pytest.mark.parametrize(("seconds", "text"), [(40.4, "40 s"), (200, "3 min 20 s"), (7_500, "2 h 05 min")])
def test_a_stretch_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert console.lasting(seconds) == text
    assert text in console.TimeLeft(0.0)(0.5, seconds)


def test_the_time_left_never_stands_still_while_work_slows_down() -> None:
    left = console.TimeLeft(0.0)
    shown = [left(1 - 0.9 * 0.99**n, 10.0 * (n + 1)) for n in range(40)]
    assert figures(shown[0]) == [1, 30]
    assert shown[1:] == [""] * 39


def test_a_deadline_is_reached_once_and_without_one_there_is_always_time() -> None:
    now = [0.0]
    up = console.deadline(5.0, clock=lambda: now[0])
    assert not up()
    now[0] = 5.0
    assert up()
    assert not console.deadline(None)()


@pytest.mark.parametrize("command", LONG)
def test_every_long_command_says_how_far_it_is_unless_quiet(
    prefixroute: Prefixroute, log: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY_S", 0.0)
    shown = prefixroute(command, log, *LONG[command])
    assert shown.code == 0
    lines = shown.err.splitlines()
    assert any(f"reading {log.name}" in line for line in lines)
    if command != "trace":
        shares = [int(line.partition(" %")[0]) for line in lines]
        assert len(shares) >= 2
        assert shares == sorted(shares)
        assert shares[-1] >= 60
    quiet = prefixroute(command, log, *LONG[command], "--quiet")
    assert (quiet.out, quiet.err) == (shown.out, "")


def test_size_and_backtest_say_what_is_tried(
    prefixroute: Prefixroute, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY_S", 0.0)
    sized = prefixroute("size", log, "--slo", "ttft_p95=5ms", "--policies", "session", "--most", 4)
    tried = [line.rpartition("session: ")[2] for line in sized.lines("session: ")]
    assert {1, 4} <= {count for line in tried for count in figures(line)}
    tested = prefixroute("backtest", log, "--replicas", 2, "--policies", "session")
    assert tested.lines(": round-robin ", " 2, seed 0")
    assert tested.lines(": session ", " 2, seed 0", "unlimited")


@pytest.mark.parametrize("command", ["size", "backtest"])
def test_a_terminal_gets_a_bar(log: Path, command: str) -> None:
    """The same bar as everywhere: what is being run, the bar, the time gone and the time left."""
    ours, theirs = pty.openpty()
    arguments = [sys.executable, "-c", "from prefixroute.cli import main; main()", command, str(log), *LONG[command]]
    done = subprocess.run(
        [*arguments, "--json"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    drawn = os.read(ours, 65_536).decode()
    os.close(ours)
    assert "session" in drawn
    assert "0:00:00" in drawn
    assert json.loads(done.stdout)["schema"] == 1


@pytest.mark.parametrize("command", ["policies", "lint"])
def test_tables_in_a_pipe_are_as_wide_as_columns_says(
    prefixroute: Prefixroute, log: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    arguments = {"policies": ("policies",), "lint": ("lint", log, "--fail-on", "never", "--quiet")}[command]
    wide = prefixroute(*arguments).out
    monkeypatch.setenv("COLUMNS", "90")
    narrow = prefixroute(*arguments).out

    def widest(text: str) -> int:
        return max(len(line) for line in text.splitlines() if "─" in line)

    assert widest(narrow) <= 90 < widest(wide) <= console.WIDE


def test_a_caption_goes_with_its_column() -> None:
    columns = [
        Column("policy", str, text=True),
        Column("kept %", lambda _: 1.0),
        *(Column(f"figure {at}", lambda _: 1.0, meaning=f"MEANING-{at}") for at in range(12)),
    ]
    table = Table.of("", columns, ["session"], lines=("OF-ALL",))
    for width in (40, 70, 100, 250):
        console = Console(width=width, record=True, file=io.StringIO())
        show(table, console)
        text = console.export_text()
        heads, _, below = text.partition("session")
        for at in range(12):
            assert (f"MEANING-{at}" in " ".join(below.replace(";", " ").split()).split()) is (
                f"figure {at} " in f"{heads} "
            )
        assert "OF-ALL" in below
    assert table.captions[0].split("; ") == [f"MEANING-{at}" for at in range(12)]
