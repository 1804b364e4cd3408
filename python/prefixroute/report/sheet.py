"""What an API planner found, as sections of plain text cells: one form for terminal, page and picture."""

from __future__ import annotations

from dataclasses import dataclass

from prefixroute.costmodel import Assumption
from prefixroute.report.table import Table


@dataclass(frozen=True, slots=True)
class Section:
    """One table with what is said above it.

    Attributes:
        title: of the section.
        table: without a title of its own.
        lines: sentences above the table.
        bars: (label, value) of a chart of the table, with the unit in ``bar_title``; none for no chart.
        bar_title: what the values are.
    """

    title: str
    table: Table
    lines: tuple[str, ...] = ()
    bars: tuple[tuple[str, float], ...] = ()
    bar_title: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """Sections under one title, what they rest on, and notes."""

    title: str
    sections: tuple[Section, ...]
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()


def lasting(seconds: float) -> str:
    """Return a time as people say it: ``5 min``, ``1 h``, ``90 s``."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.4g} s"
