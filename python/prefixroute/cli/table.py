"""A result on a terminal: what was assumed above, tables, notes, the verdict and the next command last."""

from __future__ import annotations

from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from prefixroute.cli.console import WIDE, say
from prefixroute.report.behind import remarks
from prefixroute.report.sheet import Sheet
from prefixroute.report.table import Table

DISPENSABLE = (
    "volatile $", "unknown $", "first sight $", "elsewhere $", "evicted $",
    "p90 difference", "p50 difference", "mean difference", "p90 ms", "p50 ms", "spread", "requests / s",
    "queue mean ms", "p99 ms", "unlimited %", "busy %", "$ busiest", "p99 difference", "difference, $",
    "difference, points",
)  # fmt: skip
"""Columns that a narrow terminal does without, the first first."""
WORDS = 40
"""Columns that words take at most where a terminal is too narrow for more."""


def show_sheet(sheet: Sheet, console: Console) -> None:
    """Print a result."""
    for line in remarks(sheet.assumptions):
        say(f"  {line}", console)
    for table in sheet.tables:
        show(table, console)
    for note in remarks((), sheet.notes):
        say(f"  {note}", console)
    following = [f"Next: {sheet.following}"] if sheet.following else []
    ending = [*(sheet.verdict or [f"{sheet.title}."] * len(following)), *following]
    for line in ("", *(f"  {line}" for line in ending)) if ending else ():
        say(line, console)


def show(table: Table, console: Console) -> None:
    """Print a table, without the columns for which the console is too narrow; a line says which."""
    left_out: list[str] = []
    captions = table.captions
    if table.title:
        say(table.title, console, style="bold")
    if table.wraps and table.rows:
        console.print(_drawn(table), width=min(WIDE, console.width))
    elif table.rows:
        shown, left_out = _fitting(table, console)
        captions = table.without(left_out).captions
        console.print(shown)
    told = [f"The terminal is too narrow for {'; '.join(left_out)}."] if left_out else []
    for line in (*captions, *told):
        say(f"  {line}", console)
    if captions:
        say("", console)


def _fitting(table: Table, console: Console) -> tuple[RichTable, list[str]]:
    """Return the widest table that fits the console, and the titles of the columns left out for it.

    First go the dispensable ones, until every cell has its line. Then words take several lines, and the last figures
    go.
    """
    shown, left_out = _drawn(table), list[str]()
    unbound = console.options.update(max_width=10 * console.width)  # else no width is above the console's
    figures = [head.title for head in table.heads[2:] if not head.text and head.title not in DISPENSABLE]
    later: list[tuple[str, int | None]] = [(title, WORDS) for title in ("", *reversed(figures))]
    for title, words in (*((title, None) for title in DISPENSABLE), *later):
        if console.measure(shown, options=unbound).maximum <= console.width:
            break
        if title and any(head.title == title for head in table.heads):
            left_out.append(title)
        shown = _drawn(table.without(left_out), words)
    return shown, left_out


def _drawn(table: Table, words: int | None = None) -> RichTable:
    """Return a table as the terminal shows it; words, of so many columns at most, may take several lines."""
    headed = any(head.title for head in table.heads)
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_header=headed)
    for head in table.heads:
        title = (head.title if table.wraps else _stacked(head.title)) + "\nASSUMED" * head.assumed
        side: Literal["left", "right"] = "left" if head.text else "right"
        widest, kept = words if head.text else None, not (table.wraps or head.text)
        shown.add_column(title, justify=side, overflow="fold", no_wrap=kept, max_width=widest)
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
