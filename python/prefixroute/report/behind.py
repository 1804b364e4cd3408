"""What figures rest on, in lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prefixroute.costmodel import CALIBRATED, Assumption
from prefixroute.costmodel.assumption import shown


def floor_line(floor: float, assumptions: Iterable[Assumption]) -> str:
    """Return the line that stands below every table of recompute ratios."""
    entries = any((item.name, item.value) == ("cache", "entries") for item in assumptions)
    held = "whole prompts" if entries else "full blocks only"
    return f"floor {100 * floor:.2f} %: one cache of unlimited size, {held}; no routing recomputes less"


def figure(value: float | str) -> str:
    """Return the value of an assumption as people write it: ``300,000``, ``0.5``, ``9.89e+14``."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value == int(value) and 1_000 <= abs(value) < 1e12 else f"{value:.6g}"  # noqa: PLR2004


def speeds_line(assumptions: Sequence[Assumption]) -> str:
    """Return what prices the steps; empty where the calibrated prices of the default do."""
    priced = [item for item in assumptions if item.name == "speeds" and item.value != CALIBRATED]
    return f"Speeds: {priced[0].value} ({priced[0].source})" if priced else ""


def assumed_line(assumptions: Sequence[Assumption]) -> str:
    """Return the figures that nobody gave, in a line; empty where all were given."""
    figures = "; ".join(f"{item.name} = {figure(item.value)} {item.unit}".rstrip() for item in shown(assumptions))
    return f"ASSUMED {figures}" if figures else ""


def remarks(assumptions: Sequence[Assumption], notes: Iterable[str] = ()) -> list[str]:
    """Return a line on how steps are priced if not by default, a line of what nobody gave, and a line for each note."""
    lines = [speeds_line(assumptions), assumed_line(assumptions), *(f"Note: {note}" for note in notes)]
    return [line for line in lines if line]
