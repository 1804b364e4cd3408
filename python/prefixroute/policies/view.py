"""What a policy sees: one light, frozen tuple per decision, and the seeded draws that stand in for chance."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar, get_type_hints

from prefixroute.draws import draw
from prefixroute.types import EMPTY_ATTRS, LoadReport, Namespace

T = TypeVar("T")


class RequestInfo(NamedTuple):
    """What the caller said about a request besides its prompt."""

    session: str | None = None
    key: str | None = None
    namespace: Namespace | None = None
    priority: int = 0
    slo_ttft_s: float | None = None
    max_tokens: int | None = None
    attrs: Mapping[str, object] = EMPTY_ATTRS


class SignalSource(Protocol):
    """What signals are read from: the router's state, and the request that is being decided."""

    @property
    def belief(self) -> Any:
        """The belief."""

    def reports(self) -> list[LoadReport | None]:
        """Return each replica's fresh report."""


class Signal:
    """Marks a field of :class:`View` as gathered on demand, and says how it is read. A new one goes behind the last."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[Any], Any] | None = None) -> None:
        """Read the field by a function of the :class:`SignalSource`; ``None`` = the decision's sight has it."""
        self.read = read


class View(NamedTuple):
    """Everything that one decision may depend on. Frozen; lists are indexed by slot and must not be changed.

    Only the slots in ``slots`` are candidates: an entry of another slot means nothing. Fields marked (n) are gathered
    only if the policy names them in ``signals``, and are ``None`` otherwise.
    """

    slots: tuple[int, ...]
    """Slots that may take the request, ascending, never empty."""
    names: tuple[str | None, ...]
    """Replica names."""
    hashes: tuple[int, ...]
    """64-bit hash of each replica's name, for rendezvous hashing."""
    weights: tuple[float, ...] | None
    """Speed of each replica relative to the others; ``None`` = all equal."""
    decision_id: int
    """Number of this decision."""
    seed: int
    """The router's seed."""
    prompt_tokens: int
    """Length of the prompt in tokens."""
    hits: list[int]
    """Leading prompt tokens that each replica is believed to hold: a multiple of the block size, below the length."""
    loads: Sequence[float]
    """The one load that policies balance (the router's ``load=``), divided by weight and slow-start share."""
    binding: int | None
    """Slot the session is bound to, a candidate or not; -1 = bound, but it has to move; ``None`` = not bound."""
    request: RequestInfo
    """What the caller said."""
    in_flight: Annotated[list[int] | None, Signal()] = None
    """(n) Requests in flight; under ``load="recent"``, this and the next two are those of the recent window."""
    queued: Annotated[list[int] | None, Signal()] = None
    """(n) Uncached prompt tokens of requests that wait for their first token."""
    decoding: Annotated[list[int] | None, Signal()] = None
    """(n) Context tokens of requests past their first token."""
    recent: Annotated[list[int] | None, Signal()] = None
    """(n) How many of the fleet's last ``recent_window`` decisions each replica received."""
    reports: Annotated[list[LoadReport | None] | None, Signal(lambda source: source.reports())] = None
    """(n) Fresh reported load; ``None`` in place of what is stale or was never reported."""
    head: Annotated[int | None, Signal()] = None
    """(n) Hash of the prompt's first ``policy.head_tokens`` tokens (full blocks; fewer if it is shorter), namespace
    included; ``None`` = the prompt has no full block."""
    held: Annotated[list[int] | None, Signal(lambda source: source.belief.held_tokens())] = None
    """(n) Tokens each replica is believed to hold in all."""
    last_miss: Annotated[list[int] | None, Signal()] = None
    """(n) Decision id of the last request each replica took without a hit; -1 = none yet."""
    window_s: Annotated[list[float] | None, Signal()] = None
    """(n) Prefill seconds each replica was given within the router's window."""
    rates: Annotated[list[float | None] | None, Signal()] = None
    """(n) Learned prefill rate of each replica, uncached tokens per second; ``None`` = not yet known."""
    active: Annotated[list[int] | None, Signal()] = None
    """(n) Tokens in the blocks of each replica's requests in flight, from booking on; a block counts once there."""
    active_hits: Annotated[list[int] | None, Signal()] = None
    """(n) Leading prompt tokens whose blocks are among those."""
    shared: Annotated[float | None, Signal()] = None
    """(n) Share, 0 to 1, of the last requests that began something new and left what is known where this prompt does:
    at the end of its longest match. 0 = nobody else does; ``None`` = the prompt does not go on behind a match."""
    kv_at: Annotated[int | None, Signal()] = None
    """(n) Slot of the replica that computes the prompt, in the decision on the decode half of a pair; else ``None``."""

    def draw(self, k: int) -> float:
        """Return the ``k``-th random number of this decision, uniform in [0, 1).

        Args:
            k: which of the draws of this decision, from 0.

        Returns:
            A number from 0 to below 1, the same for the same seed, decision and ``k``.
        """
        return draw(self.seed, self.decision_id, k)

    def of_candidates(self, values: Sequence[T]) -> Sequence[T]:
        """Return the values of the candidate slots, in the order of ``slots``.

        Args:
            values: one for each slot.

        Returns:
            Those of the candidates, in the order of ``slots``.
        """
        slots = self.slots
        return values if len(slots) == len(values) else [values[slot] for slot in slots]

    def without(self, slot: int) -> View:
        """Return the same view with one candidate less.

        Args:
            slot: the candidate that goes.

        Returns:
            An equal view of the others.
        """
        return self._replace(slots=tuple(s for s in self.slots if s != slot))


_MARKS: dict[str, Signal] = {
    name: mark
    for name, hint in get_type_hints(View, include_extras=True).items()
    for mark in getattr(hint, "__metadata__", ())
    if isinstance(mark, Signal)
}
SIGNALS = frozenset(_MARKS)
"""Fields of a view that are gathered only for policies that name them in ``signals``."""
NOT_GATHERED: tuple[None, ...] = (None,) * len(SIGNALS)
"""The signals of a view for a policy that reads none, in the order of their fields."""


Readers = tuple[tuple[int, Callable[[Any], Any]], ...]
"""How signals are read, each with its place among the signals of a view."""
_PLACES = {name: place - len(View._fields) + len(SIGNALS) for place, name in enumerate(View._fields)}


def readers_of(signals: Collection[str]) -> Readers:
    """Return how those of the named signals are read that the sight does not have."""
    return tuple(
        (_PLACES[name], mark.read) for name, mark in _MARKS.items() if name in signals and mark.read is not None
    )


def kept_of(signals: Collection[str]) -> tuple[int, ...]:
    """Return the places among the signals of a view of those that the sight has."""
    return tuple(_PLACES[name] for name, mark in _MARKS.items() if name in signals and mark.read is None)


def gathered(readers: Readers, source: object) -> tuple[Any, ...]:
    """Return the signals of a view with those read that are asked for."""
    values = list(NOT_GATHERED)
    for place, read in readers:
        values[place] = read(source)
    return tuple(values)


def is_candidate(slot: int, slots: tuple[int, ...]) -> bool:
    """Return whether a slot is one of ``slots``.

    They ascend: if all replicas are candidates, slot i is at position i.
    """
    return (0 <= slot < len(slots) and slots[slot] == slot) or slot in slots
