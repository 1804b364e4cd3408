"""A figure that a result rests on, with its unit and its source, and whether the user gave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHARES = frozenset({"capacity_tokens"})
SECONDS = SHARES | {"gpu", "model", "utilisation", "tensor_parallel", "overhead_s"}
MONEY = SECONDS | {"usd_per_gpu_hour"}
"""Names of the assumptions that figures of each kind rest on."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """One figure behind a result. Tables print ``ASSUMED`` beside those that nobody gave.

    Attributes:
        name: what it is, in snake case, the same in tables and JSON.
        value: the figure.
        unit: its unit, or "" for a pure number or a name.
        source: where the figure is from, with a date where it ages.
        assumed: True where it is a default; False where the user, or the trace itself, said so.
    """

    name: str
    value: float | str
    unit: str
    source: str
    assumed: bool

    def __str__(self) -> str:
        """Return ``name = value unit (source)``, with ``ASSUMED`` in front of the source where it is a default."""
        unit = f" {self.unit}" if self.unit else ""
        value = f"{self.value:.6g}" if isinstance(self.value, float) else self.value
        return f"{self.name} = {value}{unit} ({'ASSUMED, ' if self.assumed else ''}{self.source})"


def on_defaults(names: frozenset[str], assumptions: Sequence[Assumption]) -> bool:
    """Return whether one of the named figures is a default, so that what rests on it is marked ASSUMED."""
    return any(item.assumed and item.name in names for item in assumptions)
