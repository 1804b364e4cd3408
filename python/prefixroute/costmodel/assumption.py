"""A figure that a result rests on, with its unit and its source, and whether the user gave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WITHOUT_CLOCK, WITH_CLOCK = "untimed", "timed"
"""Values of the assumption ``clock``: whether a run had no clock or one."""
GIVEN = "given by the user"
"""Source of what is no default."""
LEFT_BY_WEIGHTS = "what the GPU's memory leaves beside the model"
"""Source of a ``capacity_tokens`` that was worked out and not given."""

RUN = frozenset({"clock"})
"""Names of the assumptions that every figure of a run rests on: in order none but that, in time all of
:data:`TIMED`."""
SHARES = RUN | {"capacity_tokens", "sessions_per_hour", "bytes_per_token", "media_tokens", "output_tokens"}
READS = frozenset({"bandwidth_utilization", "weight_bytes"})
"""What seconds rest on where reading the weights takes time: everywhere but in prefill by the article's formula."""
SECONDS = SHARES | READS | {"gpu", "model", "model_note", "utilization", "tensor_parallel", "overhead_s"}
MONEY = SECONDS | {"usd_per_gpu_hour"}
"""Names of the assumptions that figures of each kind rest on."""
TIMED = SECONDS | {"kv_bytes", "chunk_tokens", "max_running", "requests_per_day", "link"}
"""What a run in time adds: how long steps take and what goes into them, and when requests come."""
CAPACITY = frozenset({"gpu", "model", "model_note", "tensor_parallel", "memory_share", "weight_bytes", "kv_bytes"})
"""What a capacity rests on that was worked out."""
SETTINGS = frozenset({"cache", "observe", "load", "front"})
"""Settings of a simulation rather than figures: only the JSON has them."""


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

    @classmethod
    def of(cls, name: str, value: float | str, unit: str, source: str, *, given: bool) -> Assumption:
        """Return a figure that the user has given, or that is a default from ``source``.

        Args:
            name: of the figure.
            value: of the figure.
            unit: of the value; empty = it has none.
            source: of the default, with its date.
            given: the user has given the figure.
        """
        return cls(name, value, unit, GIVEN if given else source, assumed=not given)

    def __str__(self) -> str:
        """Return ``name = value unit (source)``, with ``ASSUMED`` in front of the source where it is a default."""
        unit = f" {self.unit}" if self.unit else ""
        value = f"{self.value:.6g}" if isinstance(self.value, float) else self.value
        return f"{self.name} = {value}{unit} ({'ASSUMED, ' if self.assumed else ''}{self.source})"


def on_defaults(names: frozenset[str], assumptions: Sequence[Assumption]) -> bool:
    """Return whether one of the named figures is a default or rests on one, so that it is marked ASSUMED."""
    return bool(defaults(names, assumptions))


def defaults(names: frozenset[str], assumptions: Sequence[Assumption]) -> list[Assumption]:
    """Return the defaults among the named figures and what these rest on, in the order of ``assumptions``."""
    behind = set(names)
    if any(item.name == "speeds" and item.value == "article" for item in assumptions):
        behind -= READS
    for item in assumptions:
        if item.name in names & RUN and item.value == WITH_CLOCK:
            behind |= TIMED
    for item in assumptions:
        if item.name == "capacity_tokens" and item.name in behind and item.source == LEFT_BY_WEIGHTS:
            behind |= CAPACITY
    return [item for item in _open(assumptions) if item.name in behind]


def shown(assumptions: Sequence[Assumption]) -> list[Assumption]:
    """Return the defaults that a table lists.

    All but settings, and figures that only other runs than this one rest on.
    """
    needed = {item.name for item in defaults(MONEY, assumptions)}
    sometimes = READS | (TIMED - MONEY) | (CAPACITY - MONEY)
    hidden = SETTINGS | (sometimes - needed)
    return [item for item in _open(assumptions) if item.name not in hidden]


def _open(assumptions: Sequence[Assumption]) -> list[Assumption]:
    """Return the defaults, less a capacity that was worked out of figures that were all given.

    It rests on nothing assumed.
    """
    settled = {item.name for item in assumptions if not item.assumed}
    worked_out = CAPACITY - {"model_note"} <= settled and not any(item.name == "model_note" for item in assumptions)
    return [
        item
        for item in assumptions
        if item.assumed and not (worked_out and item.name == "capacity_tokens" and item.source == LEFT_BY_WEIGHTS)
    ]
