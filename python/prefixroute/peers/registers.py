"""Registers: the state and the incarnation of each replica, shared by all routers. The last change counts.

A register has a version that every change raises above all that are known; of two equal versions that of the higher router
number counts. So routers agree in the end, whatever is lost on the way, as long as registers are told again now and then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from prefixroute.errors import PeerError
from prefixroute.peers import wire
from prefixroute.peers.names import mark_of
from prefixroute.peers.wire import Kind
from prefixroute.routing import membership
from prefixroute.routing.fleet import ACTIVE, DRAINING, SUSPENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prefixroute.peers.publisher import Publisher
    from prefixroute.routing import RouterState
    from prefixroute.routing.fleet import Member
    from prefixroute.types import Replica

STATES = (ACTIVE, DRAINING, SUSPENDED)
MAX_REGISTERS = 4_096
"""Registers kept, those of replicas that this router does not know yet included."""
ENDLESS = -1.0
"""Seconds left of a suspension that only a call ends."""


class Told(NamedTuple):
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

    def __init__(self, state: RouterState, change: Callable[[Callable[[RouterState], object]], object]) -> None:
        """Take the fleet as it is. ``change``: makes a change of the fleet, in shadows too."""
        self._state, self._change = state, change
        self._told: dict[int, Told] = {}
        self._seen: dict[str, tuple[str, float | None, str]] = {}
        self._given: dict[str, str] = {}
        self._version = self._looked = 0
        self._applies = False

    def look(self, publisher: Publisher, now: float) -> None:
        """Tell of what the host has changed since the last look."""
        fleet = self._state.fleet
        if fleet.now.version == self._looked or self._applies:
            return
        self._looked = fleet.now.version
        for name, member in list(fleet.members.items()):
            is_now, seen = self._of(member), self._seen.get(name)
            self._seen[name] = is_now
            if seen is None:
                self._given.setdefault(name, member.replica.incarnation)
                told = self._told.get(mark_of(name))
                if told is not None:
                    self._apply(member, told, now)
            elif seen != is_now and not self._ended_by_itself(seen, is_now, now):
                self._version += 1
                self._told[mark_of(name)] = told = Told(self._version, publisher.ident, *is_now)
                self._tell(publisher, mark_of(name), told, now)
        for name in [name for name in self._seen if name not in fleet.members]:
            self._seen.pop(name, None)
            self._given.pop(name, None)

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

    @staticmethod
    def _tell(publisher: Publisher, replica: int, told: Told, now: float) -> None:
        left = ENDLESS if told.until is None else max(0.0, told.until - now)
        body = wire.FLEET.pack(replica, told.version, STATES.index(told.state), left)
        publisher.tell(Kind.FLEET, body + told.incarnation.encode("utf-8", "surrogatepass"))

    def repeat(self, publisher: Publisher, now: float) -> None:
        """Tell again what this router has changed itself: a message may have been lost, a peer may be new."""
        for replica, told in list(self._told.items()):
            if told.peer == publisher.ident:
                self._tell(publisher, replica, told, now)

    def hear(self, peer: int, body: bytes, now: float) -> None:
        """Take in a register.

        Raises:
            PeerError: it is none.
        """
        if len(body) < wire.FLEET.size:
            raise PeerError(f"a register must have at least {wire.FLEET.size} bytes, got {len(body)}")
        replica, version, state, left = wire.FLEET.unpack_from(body)
        text = body[wire.FLEET.size :]
        if state >= len(STATES) or not left < wire.MAX_SECONDS or len(text) > wire.MAX_TEXT_BYTES:
            raise PeerError(
                f"a register must have a state up to {len(STATES) - 1} and a finite time, got {state}, {left}"
            )
        try:
            incarnation = text.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise PeerError(f"an incarnation must be UTF-8: {error}") from error
        known = self._told.get(replica)
        if known is not None and (known.version, known.peer) > (version, peer):
            return
        if known is None and len(self._told) >= MAX_REGISTERS:
            return
        self._version = max(self._version, version)
        until = now + left if left >= 0.0 and STATES[state] == SUSPENDED else None
        self._told[replica] = told = Told(version, peer, STATES[state], until, incarnation)
        members = self._state.fleet.members
        member = next((member for name, member in list(members.items()) if mark_of(name) == replica), None)
        repeated = known is not None and (known.version, known.peer) == (version, peer)
        if member is not None and not (repeated and member.state == told.state):
            self._apply(member, told, now)

    def _apply(self, member: Member, told: Told, now: float) -> None:
        """Make a member what a register says."""
        name, incarnation = member.name, told.incarnation
        self._applies = True
        try:
            if member.replica.incarnation != incarnation:
                changed = replace(member.replica, incarnation=incarnation)
                self._change(lambda state: membership.change(state, name, changed, now))
            if told.until is not None and told.until > now:
                until = told.until
                if (member.state, member.resume_at) != (SUSPENDED, until):
                    self._change(lambda state: membership.suspend_until(state, name, until))
            elif told.until is None and (member.state != told.state or member.resume_at is not None):
                self._change(lambda state: membership.set_state(state, name, told.state, now))
            self._seen[name] = self._of(member)
        finally:
            self._applies = False

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
