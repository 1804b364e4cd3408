"""A study on the terminal: the table, the floor, and what was assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from prefixroute.cli.console import say
from prefixroute.costmodel import Assumption
from prefixroute.report.study import Study
from prefixroute.report.table import Column, columns, floor_line, remarks

ORDERED_NOTE = "Requests are served one after another, without a clock: TTFT is prefill time alone, without queueing."
DISPENSABLE = ("p90 ms", "p50 ms", "spread", "requests / s", "queue mean ms", "p99 ms", "unlimited %", "busy %")
"""Columns that a narrow terminal does without, the first first."""


def show(study: Study, console: Console) -> None:
    """Print the table of ``study`` with its floor, assumptions and notes."""
    table, left_out = _fitting(study, console)
    console.print(table)
    if study.floor is not None:
        say(f"  {floor_line(study.floor, study.assumptions)}\n", console)
    if left_out:
        say(f"  The terminal is too narrow for {', '.join(left_out)}.", console)
    show_assumptions(study.assumptions, study.notes, console)


def show_assumptions(assumptions: Sequence[Assumption], notes: Iterable[str], console: Console) -> None:
    """Print the figures that nobody gave, and the notes."""
    for line in remarks(assumptions, notes):
        say(f"  {line}", console)


def _fitting(study: Study, console: Console) -> tuple[Table, list[str]]:
    """Return the widest table that fits the console, and the titles of the columns left out for it."""
    shown, left_out = list(columns(study.rows)), []
    table = _table(study, shown)
    unbound = console.options.update(max_width=10 * console.width)  # else no width is above the console's
    for title in DISPENSABLE:
        if console.measure(table, options=unbound).maximum <= console.width:
            break
        if any(column.title == title for column in shown):
            shown = [column for column in shown if column.title != title]
            left_out.append(title)
            table = _table(study, shown)
    return table, left_out


def _table(study: Study, shown: Sequence[Column]) -> Table:
    seeds = study.rows[0]["seeds"]
    title = f"{study.workload}: {study.rows[0]['requests']:,} requests, {seeds} seed{'s' * (seeds > 1)}, cache {study.cache}"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in shown:
        # One word a line: the heads must not be what makes the table wide.
        head = column.title.replace(" requests", "\nrequests").replace(" ms", "\nms").replace(" %", "\n%")
        mark = "\nASSUMED" if column.assumed(study.assumptions) else ""
        table.add_column(head + mark, justify="left" if column.text else "right", no_wrap=True)
    last = study.rows[0]["replicas"]
    for row in study.rows:
        if row["replicas"] != last:
            table.add_section()
            last = row["replicas"]
        table.add_row(*(column.cell(row) for column in shown))
    return table
