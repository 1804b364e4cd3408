"""A study on the terminal: the table, the floor, and what was assumed."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from prefixroute.costmodel import Assumption
from prefixroute.report.study import Study
from prefixroute.report.table import columns, figure, floor_line

UNSHOWN = frozenset({"cache", "observe", "load", "bandwidth_utilisation"})
"""Settings rather than figures, and figures that no column of an ordered run rests on. The JSON has all of them."""


def show(study: Study, console: Console) -> None:
    """Print the table of ``study`` with its floor, assumptions and notes."""
    console.print(_table(study))
    if study.floor is not None:
        console.print(f"  {floor_line(study.floor)}\n", markup=False)
    show_assumptions(study.assumptions, study.notes, console)


def show_assumptions(assumptions: Iterable[Assumption], notes: Iterable[str], console: Console) -> None:
    """Print the figures that nobody gave, and the notes."""
    assumed = {item.name: item for item in assumptions if item.assumed and item.name not in UNSHOWN}
    if "capacity_tokens" in assumed:
        assumed.pop("memory_share", None)  # only a capacity worked out from the GPU's memory rests on it
    if assumed:
        figures = (f"{item.name} = {figure(item.value)} {item.unit}".rstrip() for item in assumed.values())
        console.print(f"  ASSUMED {'; '.join(figures)}", markup=False)
    for note in notes:
        console.print(f"  Note: {note}", markup=False)


def _table(study: Study) -> Table:
    title = (
        f"{study.workload}: {study.rows[0]['requests']:,} requests, {study.rows[0]['seeds']} seeds, cache {study.cache}"
    )
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    shown = columns(study.rows)
    for column in shown:
        mark = "\nASSUMED" if column.assumed(study.assumptions) else ""
        table.add_column(column.title + mark, justify="left" if column.text else "right", no_wrap=True)
    last = study.rows[0]["replicas"]
    for row in study.rows:
        if row["replicas"] != last:
            table.add_section()
            last = row["replicas"]
        table.add_row(*(column.cell(row) for column in shown))
    return table
