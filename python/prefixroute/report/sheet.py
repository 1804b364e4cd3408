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


def usd(amount: float) -> str:
    """Return dollars with the digits that matter: ``$0.0068``, ``$0.40``, ``$9.63``, ``$127.4``, ``$3,540``."""
    size = abs(amount)
    if size >= 1_000:  # noqa: PLR2004
        return f"${amount:,.0f}"
    if size >= 1:
        return f"${amount:.1f}" if size >= 100 else f"${amount:.2f}"  # noqa: PLR2004
    if 0 < size < 0.001:  # noqa: PLR2004 - below a tenth of a cent
        return f"${amount:.3g}"
    whole, digits = f"{amount:.4f}".rstrip("0").split(".")
    return f"${whole}.{digits:0<2}"


def percent(share: float, digits: int = 1) -> str:
    """Return a share as a percentage: ``91.6 %``."""
    return f"{100 * share:.{digits}f} %"


def lasting(seconds: float) -> str:
    """Return a time as people say it: ``5 min``, ``1 h``, ``90 s``."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.4g} s"


def assumed(text: str, figures: Sequence[Assumption]) -> str:
    """Return a head, marked where one of the figures behind it is a default."""
    return f"{text} ASSUMED" if any(figure.assumed for figure in figures) else text
