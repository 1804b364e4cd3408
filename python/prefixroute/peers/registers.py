"""Registers: the state and the incarnation of each replica, shared by all routers. The last change counts.

A register has a version that every change raises above all that are known; of two equal versions that of the higher
router number counts. So routers agree in the end, whatever is lost on the way, as long as registers are told again now
and then: by the router that made the change, and when that is gone by the elder of those that live.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import NamedTuple

from prefixroute.peers.names import mark_of
from prefixroute.peers.wire import MAX_PEER_VERSION, PeerOutbox
from prefixroute.routing import RouterState, membership
from prefixroute.routing.fleet import ACTIVE, DRAINING, SUSPENDED, Member
from prefixroute.types import Replica

STATES = (ACTIVE, DRAINING, SUSPENDED)
MAX_ABSENT, ABSENT_S = 1_024, 60.0
"""Registers kept of replicas that have left or are not known here yet, and seconds for which they are kept."""
ENDLESS = -1.0
"""Seconds left of a suspension that only a call ends."""


Heard = tuple[int, int, int, int, float, str]
"""A register as a peer tells it: mark of the replica's name, version, author, place of the state in :data:`STATES`,
seconds that a suspension has left (below zero: no end), and the incarnation."""


class Register(NamedTuple):
    """What a register says.

    Attributes:
        version: raised by every change.
        peer: the router that made the change.
        state: of :data:`STATES`.
        until: when a suspension ends, on this router's clock; ``None`` = when it is resumed.
        incarnation: of the replica.
    """

    version: int
    peer: int
    state: str
    until: float | None
    incarnation: str


class Registers:
    """Tells peers of changes of the fleet that its host makes, and makes those that peers tell of."""

    def __init__(
        self,
        state: RouterState,
        change: Callable[[Callable[[RouterState], object]], object],
        named: Callable[[int], Member | None],
        outbox: PeerOutbox,
        ident: int,
    ) -> None:
        """Take the fleet as it is.

        Args:
            state: the router's.
            change: makes a change of the fleet, in shadows too.
            named: returns the member with a mark.
            outbox: tells registers.
            ident: number of the router.
        """
        self._state, self._change, self._named = state, change, named
        self._outbox, self._ident = outbox, ident
        self._told: dict[int, Register] = {}
        self._absent: dict[int, float] = {}
        self._seen: dict[str, tuple[str, float | None, str]] = {}
        self._given: dict[str, str] = {}
        self._version = self._looked = 0
        self._applies = False

    def look(self, now: float) -> None:
        """Tell of what the host has changed since the last look."""
        fleet = self._state.fleet
        if fleet.now.version == self._looked or self._applies:
            return
        self._looked = fleet.now.version
        for name, member in list(fleet.members.items()):
            is_now, seen = self._of(member), self._seen.get(name)
            self._seen[name] = is_now
            if seen is None:
                self._absent.pop(mark_of(name), None)
                self._given.setdefault(name, member.replica.incarnation)
                told = self._told.get(mark_of(name))
                if told is not None:
                    self._apply(member, told, now)
            elif seen != is_now and not self._ended_by_itself(seen, is_now, now):
                self._version = min(self._version + 1, MAX_PEER_VERSION)
                self._told[mark_of(name)] = told = Register(self._version, self._ident, *is_now)
                self._tell(mark_of(name), told, now)
        for name in [name for name in self._seen if name not in fleet.members]:
            self._seen.pop(name, None)
            self._given.pop(name, None)
            if mark_of(name) in self._told:
                self._miss(mark_of(name), now)

    def __len__(self) -> int:
        """Return how many registers are kept."""
        return len(self._told)

    def _miss(self, replica: int, now: float) -> None:
        """Keep the register of a replica that is not here for a while; of too many the one missed longest goes."""
        self._absent.pop(replica, None)
        self._absent[replica] = now
        if len(self._absent) > MAX_ABSENT:
            self._forget(next(iter(self._absent)))

    def _forget(self, replica: int) -> None:
        self._absent.pop(replica, None)
        if self._named(replica) is None:
            self._told.pop(replica, None)

    def _sweep(self, now: float) -> None:
        """Forget the registers of replicas that left long ago, and miss those that no look has seen leave."""
        for replica in [replica for replica, since in self._absent.items() if now - since > ABSENT_S]:
            self._forget(replica)
        for replica in [replica for replica in self._told if replica not in self._absent]:
            if self._named(replica) is None:
                self._miss(replica, now)

    @staticmethod
    def _of(member: Member) -> tuple[str, float | None, str]:
        return member.state, member.resume_at, member.replica.incarnation

    @staticmethod
    def _ended_by_itself(
        before: tuple[str, float | None, str], after: tuple[str, float | None, str], now: float
    ) -> bool:
        """Return whether all that changed is that a suspension has ended, which every router notices for itself."""
        state, until, incarnation = before
        return state == SUSPENDED and until is not None and until <= now and after == (ACTIVE, None, incarnation)

    def _tell(self, replica: int, told: Register, now: float) -> None:
        left = ENDLESS if told.until is None else max(0.0, told.until - now)
        text = told.incarnation.encode("utf-8", "surrogatepass")
        self._outbox.register(replica, told.version, told.peer, STATES.index(told.state), left, text)

    def repeat(self, now: float, others: Container[int] | None = None) -> None:
        """Tell registers of replicas that are here again: a message may have been lost, a peer may be new.

        Args:
            now: time on the router's clock, in seconds.
            others: routers that tell of their own changes themselves; ``None`` = all but this one.
        """
        self._sweep(now)
        for replica, told in list(self._told.items()):
            is_ours = told.peer == self._ident or (others is not None and told.peer not in others)
            if is_ours and replica not in self._absent:  # else routers would remind each other of it for ever
                self._tell(replica, told, now)

    def hear(self, register: Heard, now: float) -> None:
        """Take in a register that a peer tells, at a time on the router's clock."""
        replica, version, peer, state, left, incarnation = register
        known = self._told.get(replica)
        if known is not None and (known.version, known.peer) > (version, peer):
            return
        self._version = max(self._version, version)
        until = now + left if left >= 0.0 and STATES[state] == SUSPENDED else None
        self._told[replica] = told = Register(version, peer, STATES[state], until, incarnation)
        member = self._named(replica)
        if member is None:
            self._miss(replica, now)
        else:
            self._absent.pop(replica, None)
        repeated = known is not None and (known.version, known.peer) == (version, peer)
        if member is not None and not (repeated and member.state == told.state):
            self._apply(member, told, now)

    def _apply(self, member: Member, told: Register, now: float) -> None:
        """Make a member what a register says."""
        name, until = member.name, told.until
        if member.replica.incarnation != told.incarnation:
            changed = replace(member.replica, incarnation=told.incarnation)
            self.silently(lambda state: membership.change(state, name, changed, now))
        if until is not None and until > now:
            if (member.state, member.resume_at) != (SUSPENDED, until):
                self.silently(lambda state: membership.suspend_until(state, name, until))
        elif until is None and (member.state != told.state or member.resume_at is not None):
            self.silently(lambda state: membership.set_state(state, name, told.state, now))
        self._seen[name] = self._of(member)

    def silently(self, change: Callable[[RouterState], object]) -> None:
        """Make a change that a peer has made, and tell nobody."""
        self._applies = True
        try:
            self._change(change)
        finally:
            self._applies = False

    def reconcile(self, wanted: Mapping[str, Replica | None]) -> dict[str, Replica | None]:
        """Return replicas as a host lists them, without incarnations that a peer knows to be gone.

        Discovery of one process may lag behind that of another: what its host says again is no news.
        """
        found: dict[str, Replica | None] = {}
        for name, described in wanted.items():
            found[name] = described
            if described is None or name not in self._state.fleet.members:
                continue
            told, is_news = self._told.get(mark_of(name)), described.incarnation != self._given.get(name)
            if is_news or told is None:
                self._given[name] = described.incarnation
            else:
                found[name] = replace(described, incarnation=told.incarnation)
        return found
