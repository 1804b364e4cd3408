"""What an API planner found, as sections of plain text cells: one form for terminal, page and picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefixroute.costmodel import Assumption


@dataclass(frozen=True, slots=True)
class Section:
    """One table with what is said above it.

    Attributes:
        title: of the table.
        heads: of its columns; the first column is text, the others are numbers unless ``prose``.
        rows: cells, as many as heads.
        lines: sentences above the table.
        bars: (label, value) of a chart of the table, with the unit in ``bar_title``; none for no chart.
        bar_title: what the values are.
        prose: columns that hold sentences.
    """

    title: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()
    bars: tuple[tuple[str, float], ...] = ()
    bar_title: str = ""
    prose: frozenset[int] = frozenset()

    def is_text(self, column: int) -> bool:
        """Return whether a column is aligned to the left."""
        return column == 0 or column in self.prose


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


def assumed(text: str, figures: Sequence[Assumption]) -> str:
    """Return a head, marked where one of the figures behind it is a default."""
    return f"{text} ASSUMED" if any(figure.assumed for figure in figures) else text
