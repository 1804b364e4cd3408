"""The ledger: load, requests in flight, sessions, shared heads and counters of one router.

:class:`Ledger` is the compiled class itself. Each of its calls is one step: a signal handler or a finalizer runs before
it or behind it, never within. What a step asks of the belief and of shadows is returned, see
:func:`prefixroute.routing.steps.carry_out`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from prefixroute._core import DURATIONS_S, ZERO_STREAK, Attempt, Lease, Ledger, LoadCounts

if TYPE_CHECKING:
    from prefixroute.routing.fleet import Process

Effects = list[tuple[Attempt, bool, tuple["Follower", ...]]] | None
"""What the ends of attempts ask for: each with whether its predicted blocks have to be taken back, and what follows its
request if that is over. ``None`` = nothing."""
NONE_TRIED: frozenset[Process] = frozenset()
"""Processes that a first attempt has tried: one object for all, since an empty set takes 216 bytes."""
LEAST_BEGINNINGS = 32
"""Beginnings under which a share says too little for a warning."""
HERD_SHARE = 0.5
"""Share of the last beginnings from which on a head at few replicas is worth a warning."""


class Follower(Protocol):
    """What follows a request to its end, such as the same request in a shadow."""

    def finish(self, output: Any, now: float) -> None:
        """The request has ended normally."""

    def abort(self) -> None:
        """The request has ended without an answer."""


class Listener(Protocol):
    """What hears of each step of requests, with the router's lock held, such as a commit feed."""

    booked: Callable[[Attempt, str | None, float, Attempt | None, bool], None]
    """An attempt is booked: it, its session, the time, an earlier attempt of its request, and whether that one goes
    on."""
    started: Callable[[Attempt, float], None]
    """An attempt has had its first token, at a time."""
    finished: Callable[[Attempt, Any, float], None]
    """An attempt is complete; its replica then holds these blocks, ``None`` = nothing is known of that; at a time."""
    given_up: Callable[[Attempt], None]
    """An attempt has ended without an answer."""

    def bound(self, session: str, slot: int) -> None:
        """The host has bound a session."""

    def forgot(self, session: str | None) -> None:
        """The host has dropped the binding of a session, or with ``None`` those of all."""

    def refresh(self) -> None:
        """A decision is going to be made."""

    def tick(self, now: float) -> None:
        """A second has passed."""


class CommonHead(NamedTuple):
    """A beginning that prompts share.

    Attributes:
        tokens: its length.
        share: share of the last beginnings that branched behind it.
        holders: candidates that held it when a prompt last branched there.
        replicas: candidates that there were.
        beginnings: beginnings that the share is of.
    """

    tokens: int
    share: float
    holders: int
    replicas: int
    beginnings: int

    @property
    def herds(self) -> bool:
        """Whether it is so common, and at so few replicas, that who follows it sends most of the traffic there."""
        return (
            self.beginnings >= LEAST_BEGINNINGS
            and self.share >= HERD_SHARE
            and 2 * self.holders < self.share * self.replicas
        )


__all__ = [
    "DURATIONS_S",
    "HERD_SHARE",
    "LEAST_BEGINNINGS",
    "NONE_TRIED",
    "ZERO_STREAK",
    "Attempt",
    "CommonHead",
    "Effects",
    "Follower",
    "Lease",
    "Ledger",
    "Listener",
    "LoadCounts",
]  # fmt: skip
