"""One figure of ours beside the same figure of an implementation that nobody here wrote, and the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

EXACT = 5e-5
"""Relative difference that is none."""
RECORDED = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True)
class Comparison:
    """A figure, twice.

    Attributes:
        study: the module of this package that compares it.
        quantity: what is compared, on what.
        source: whose figure it is beside ours, with its version.
        independent: their figure.
        ours: our figure.
        unit: the unit of both; ``%`` where both are shares, whose difference is in points.
        date: the day on which they were compared, as ``2026-11-30``; empty until it is recorded.
    """

    study: str
    quantity: str
    source: str
    independent: float
    ours: float
    unit: str
    date: str = ""

    @property
    def difference(self) -> str:
        """How far ours is from theirs: in points of a share, by count, else relative."""
        if self.unit == "%":
            return f"{self.ours - self.independent:+.3f} pp"
        if abs(self.ours - self.independent) <= EXACT * abs(self.independent):
            return "0"
        if not self.independent:
            return f"{self.ours:+g}"
        return f"{100 * (self.ours / self.independent - 1):+.1f} %"

    @property
    def command(self) -> str:
        """The command that compares it again."""
        return f"make accuracy STUDY={self.study}"


def recorded() -> list[Comparison]:
    """Return the comparisons that were made last."""
    return [Comparison(**row) for row in json.loads(RECORDED.read_text(encoding="utf-8"))]


def record(found: Iterable[Comparison], date: str) -> None:
    """Keep comparisons that were made on a day, in place of those of the same studies."""
    new = [replace(one, date=date) for one in found]
    studies = {one.study for one in new}
    kept = [one for one in recorded() if one.study not in studies] if RECORDED.exists() else []
    rows = sorted([*kept, *new], key=lambda one: one.study)
    text = ",\n".join(json.dumps(asdict(row)) for row in rows)
    RECORDED.write_text(f"[\n{text}\n]\n", encoding="utf-8")
