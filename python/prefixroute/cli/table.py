"""Tables on a terminal, and what stands around them: what was assumed above, notes below, the verdict and the next command last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from prefixroute.cli.console import say
from prefixroute.costmodel import Assumption
from prefixroute.report.behind import assumed_line, speeds_line
from prefixroute.report.table import Table

UNTIMED_NOTE = (
    "Untimed: requests are served one after another, without a clock. TTFT is prefill time alone, without queueing."
)
DISPENSABLE = (
    "volatile $", "unknown $", "first sight $", "elsewhere $", "evicted $",
    "p90 difference", "p50 difference", "mean difference", "p90 ms", "p50 ms", "spread", "requests / s", "queue mean ms", "p99 ms",
    "unlimited %", "busy %", "$ busiest", "p99 difference", "difference, $", "difference, points",
)  # fmt: skip
"""Columns that a narrow terminal does without, the first first."""


def show(table: Table, console: Console) -> None:
    """Print a table, without the columns for which the console is too narrow; a line says which."""
    shown, left_out = _fitting(table, console)
    if table.title:
        say(table.title, console, style="bold")
    console.print(shown)
    if table.footer:
        say(f"  {table.footer}", console)
    if left_out:
        say(f"  The terminal is too narrow for {', '.join(left_out)}.", console)


def show_assumed(assumptions: Sequence[Assumption], console: Console) -> None:
    """Print how steps are priced if not by default, and in a line what nobody gave, if there is anything."""
    for line in filter(None, (speeds_line(assumptions), assumed_line(assumptions))):
        say(f"  {line}", console)


def show_notes(notes: Iterable[str], console: Console) -> None:
    """Print notes, a line each."""
    for note in notes:
        say(f"  Note: {note}", console)


def show_end(verdict: Iterable[str], following: str, console: Console) -> None:
    """Print the verdict, and the command to type next."""
    say("", console)
    for line in verdict:
        say(f"  {line}", console)
    say(f"  Next: {following}", console)


def _fitting(table: Table, console: Console) -> tuple[RichTable, list[str]]:
    """Return the widest table that fits the console, and the titles of the columns left out for it."""
    shown, left_out = drawn(table), list[str]()
    unbound = console.options.update(max_width=10 * console.width)  # else no width is above the console's
    for title in DISPENSABLE:
        if console.measure(shown, options=unbound).maximum <= console.width:
            break
        if any(head.title == title for head in table.heads):
            left_out.append(title)
            shown = drawn(table.without(left_out))
    return shown, left_out


def drawn(table: Table, *, wraps: bool = False) -> RichTable:
    """Return a table as the terminal shows it. ``wraps``: cells of sentences, which may take several lines."""
    headed = any(head.title for head in table.heads)
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_header=headed)
    for head in table.heads:
        title = (head.title if wraps else _stacked(head.title)) + "\nASSUMED" * head.assumed
        side: Literal["left", "right"] = "left" if head.text else "right"
        if wraps:
            shown.add_column(title, justify=side, overflow="fold")
        else:
            shown.add_column(title, justify=side, no_wrap=not head.title.startswith("verdict"))
    for at, row in enumerate(table.rows):
        if at in table.sections:
            shown.add_section()
        shown.add_row(*row)
    return shown


def _stacked(title: str) -> str:
    """Return a head of one word a line: heads must not be what makes a table wide."""
    for unit in (" requests", " ms", " %", " difference", " reserve", " one lost"):
        title = title.replace(unit, f"\n{unit.strip()}")
    return title
