"""Seconds as people read them: in milliseconds, seconds or hours, whichever is of their size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple


class Unit(NamedTuple):
    """A unit of time: its name, and how many of it make a second."""

    name: str
    per_second: float

    def figure(self, seconds: float) -> str:
        """Return a time in this unit, without its name: one decimal for milliseconds, two for longer ones."""
        return f"{self.per_second * seconds:,.{1 if self.name == 'ms' else 2}f}"


MILLISECONDS, SECONDS, HOURS = Unit("ms", 1e3), Unit("s", 1.0), Unit("h", 1 / 3_600)


def unit_of(seconds: Iterable[float]) -> Unit:
    """Return the unit in which the smallest of these shows; what is 0 or not finite does not count."""
    smallest = min((abs(one) for one in seconds if one and math.isfinite(one)), default=0.0)
    return MILLISECONDS if smallest < 1 else SECONDS if smallest < 3_600 else HOURS  # noqa: PLR2004


def duration(seconds: float) -> str:
    """Return a time with its unit: ``43 ms``, ``4.3 ms``, ``0.4 ms``, ``1.50 s``, ``7.11 h``."""
    unit = unit_of([seconds])
    value = seconds * unit.per_second
    if unit is MILLISECONDS:
        return f"{value:.2g} ms" if value < 10 else f"{value:.0f} ms"  # noqa: PLR2004
    return f"{value:,.2f} {unit.name}" if value < 100 else f"{value:,.0f} {unit.name}"  # noqa: PLR2004
