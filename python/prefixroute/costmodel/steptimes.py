"""Tables of step times: measured, or worked out by another model, and looked up as fast as any other price."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from prefixroute._core import StepPrices

Axis = tuple[float, ...]
Points = tuple[Axis, Axis, Axis]
"""The points of two axes, two or more each and ascending, and the seconds at each pair of them, row by row."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of the steps of one model on one replica, as tables with straight lines between their points.

    Attributes:
        name: what tables call the source.
        source: where the times are from, with a version or a date.
        prefill: of a step that computes (row) tokens of one prompt behind (column) cached ones.
        decode: of a step in which (row) requests decode behind (column) tokens each.
        beside: what these add to a step with prompt tokens.
        step_s: what each further prompt in a step saves: the part of a step that does not depend on its tokens.

    Raises:
        ConfigError: an axis does not ascend, or seconds are missing, negative or no numbers.
    """

    name: str
    source: str
    prefill: Points
    decode: Points
    beside: Points
    step_s: float = 0.0

    def __post_init__(self) -> None:
        """Check the tables."""
        _ = self.prices

    @cached_property
    def prices(self) -> StepPrices:
        """The prices of steps, for :class:`~prefixroute.costmodel.CostModel` and the simulated engine."""
        return StepPrices.grid(self.prefill, self.decode, self.beside, self.step_s)

    def __getstate__(self) -> dict[str, object]:
        """Pickle the tables; prices are worked out again."""
        return {name: value for name, value in self.__dict__.items() if name != "prices"}
