"""What a router makes of its peers' frames: load on its book, blocks in its belief, bindings. Nothing counts as its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from struct import error as StructError  # noqa: N812  # the class has no other name
from typing import TYPE_CHECKING

from prefixroute.errors import ConfigError, PeerError
from prefixroute.limits import MAX_BLOCKS
from prefixroute.peers import wire
from prefixroute.peers.missing import MissingChains, Part
from prefixroute.peers.names import mark_of, replica_mark
from prefixroute.peers.table import Believed, Peer
from prefixroute.peers.wire import Kind

if TYPE_CHECKING:
    from prefixroute.hashing import PeerChains
    from prefixroute.peers.publisher import Publisher
    from prefixroute.routing import RouterState
    from prefixroute.routing.fleet import Member
    from prefixroute.routing.ledger import PeerTable

UNKNOWN = 0, -1
"""Slot and generation of a process that this router does not know."""
PAST = 2
"""A booking that has ended, or is older than what its peer has said since."""
Reader = Callable[[Peer, int, bytes, float], None]
"""Takes in a peer's frame: the peer, the sequence, the body, the time."""


class Receiver:
    """Applies frames to a router's state. Called with the router's lock held, each time within a step."""

    def __init__(self, state: RouterState, chains: PeerChains, table: PeerTable, publisher: Publisher) -> None:
        """Apply to a state. ``table``: what peers have in flight."""
        self.state, self.chains, self.table, self.publisher = state, chains, table, publisher
        self.counts: Counter[str] = Counter()
        self._members: dict[int, Member] = {}
        self._version = -1
        self._missing_chains = MissingChains()
        self.readers: dict[int, Reader] = {
            Kind.BOOKED: self._booked,
            Kind.STARTED: self._started,
            Kind.ENDED: self._ended,
            Kind.BEAT: self._beat,
            Kind.BOUND: self._bound,
            Kind.HELD: self._held,
            Kind.MISSING: self._missing,
            Kind.CHAIN: self._chain,
        }

    @staticmethod
    def apply(read: Reader, peer: Peer, sequence: int, body: bytes, now: float) -> None:
        """Take in a frame by its reader, one of :attr:`readers`.

        Raises:
            PeerError: its body is none.
        """
        try:
            read(peer, sequence, body, now)
        except (StructError, ConfigError) as error:
            raise PeerError(f"a peer's frame does not hold what it should: {error}") from error

    def named(self, replica: int) -> Member | None:
        """Return the member with this mark."""
        fleet = self.state.fleet
        if fleet.now.version != self._version:
            self._members = {mark_of(name): member for name, member in list(fleet.members.items())}
            self._version = fleet.now.version
        return self._members.get(replica)

    def member(self, replica: int, incarnation: int) -> Member | None:
        """Return the member with these marks, if it is the same process here."""
        member = self.named(replica)
        if member is None or replica_mark(member)[1] != incarnation:
            self.counts["unknown_replica"] += 1
            return None
        return member

    def _booked(self, peer: Peer, sequence: int, body: bytes, now: float) -> None:
        replica, incarnation, session, uncached, context, known, parent = wire.BOOKED.unpack_from(body)
        _check(uncached, context, known, body, wire.BOOKED.size)
        member = self.member(replica, incarnation)
        slot, generation = UNKNOWN if member is None else (member.slot, member.generation)
        booked = self.table.book(peer.ident, sequence, slot, generation, uncached, context)
        if member is None or (booked and (booked == PAST or sequence in peer.believed)):
            return
        if session != wire.NO_SESSION:
            self.state.ledger.learn_session(session, slot, generation, now)
        rest = body[wire.BOOKED.size :]
        if known or rest:
            believed = self._believe(peer, member, Part(known, parent, rest), now)
            if believed is not None:
                peer.believed[sequence] = believed

    def _believe(self, peer: Peer, member: Member, part: Part, now: float) -> Believed | None:
        """Believe that a replica holds the chain that a part ends; ask for the chain before it if that is missing."""
        if member.replica.events:
            return None  # the engine tells every router itself
        blocks = self.chains.extend(*part)
        if blocks is not None:
            return blocks, self.state.belief.insert(member.name, blocks, None, now)
        self.counts["missing_chain"] += 1
        self._missing_chains.wait(part, member)
        if self._missing_chains.is_due(part.known, part.parent, now):
            self.publisher.missing(peer.ident, part.known, part.parent)
        return None

    def _ended(self, peer: Peer, sequence: int, body: bytes, now: float) -> None:
        number, how, known, parent = wire.ENDED.unpack_from(body)
        _check(0, 0, known, body, wire.ENDED.size)
        was = self.table.end(peer.ident, sequence, number, how == wire.RETRACTED)
        believed, rest = peer.believed.pop(number, None), body[wire.ENDED.size :]
        member = None if was is None or was == UNKNOWN else self.state.fleet.by_slot[was[0]]
        if was is None or member is None or member.generation != was[1]:
            if rest:
                self.chains.extend(known, parent, rest)  # a later message may go on behind it
        elif how == wire.RETRACTED:
            if believed is not None:
                self.state.belief.retract(member.name, *believed)
        elif known or rest:
            self._believe(peer, member, Part(known, parent, rest), now)

    def _started(self, peer: Peer, sequence: int, body: bytes, _now: float) -> None:
        (number,) = wire.STARTED.unpack(body)
        self.table.start(peer.ident, sequence, number)

    def _beat(self, peer: Peer, sequence: int, body: bytes, _now: float) -> None:
        rows = []
        for number, replica, incarnation, uncached, context, started in wire.rows(wire.OPEN, body):
            member = self.member(replica, incarnation)
            slot, generation = UNKNOWN if member is None else (member.slot, member.generation)
            rows.append((number, slot, generation, min(uncached, context), context, bool(started)))
        if self.table.beat(peer.ident, sequence, rows) and peer.believed:
            listed = {number for number, *_ in rows}
            for number in [number for number in peer.believed if number < sequence and number not in listed]:
                peer.believed.pop(number, None)

    def _bound(self, _peer: Peer, _sequence: int, body: bytes, now: float) -> None:
        ledger = self.state.ledger
        for session, replica, incarnation, age in wire.rows(wire.BOUND, body):
            if replica and age >= 0.0:  # NaN is refused as well
                member = self.member(replica, incarnation)
                if member is not None:
                    ledger.learn_session(session, member.slot, member.generation, now - age)
            elif session == wire.NO_SESSION:
                ledger.forget_sessions()
            else:
                ledger.forget_name(session)

    def _held(self, peer: Peer, _sequence: int, body: bytes, now: float) -> None:
        replica, incarnation, known, parent = wire.HELD.unpack_from(body)
        _check(0, 0, known, body, wire.HELD.size)
        member = self.member(replica, incarnation)
        if member is not None:
            self._believe(peer, member, Part(known, parent, body[wire.HELD.size :]), now)

    def _missing(self, _peer: Peer, _sequence: int, body: bytes, now: float) -> None:
        asked, known, parent = wire.MISSING.unpack(body)
        if asked == self.publisher.ident and self._missing_chains.is_due(known, parent, now):
            blocks = self.chains.chain(parent, known)
            if blocks is not None:
                self.publisher.chain(blocks)

    def _chain(self, _peer: Peer, _sequence: int, body: bytes, now: float) -> None:
        if len(body) > 8 * MAX_BLOCKS:
            raise PeerError(f"a chain must have at most {MAX_BLOCKS:,} blocks, got {len(body) // 8:,}")
        blocks = self.chains.extend(0, 0, body)
        if blocks is None or not len(blocks):
            return
        known, last = len(blocks), int(blocks.array[-1])
        for waiting in self._missing_chains.take(known, last):
            if waiting.member.generation == waiting.generation:
                whole = self.chains.extend(known, last, waiting.rest)
                if whole is not None:
                    self.state.belief.insert(waiting.member.name, whole, None, now)


def _check(uncached: int, context: int, known: int, body: bytes, fixed: int) -> None:
    """Raise :class:`PeerError` for a prompt that cannot be."""
    blocks = known + (len(body) - fixed) // 8
    if uncached > context or blocks > MAX_BLOCKS:
        raise PeerError(
            f"a peer's prompt must have at most {MAX_BLOCKS:,} blocks and no more uncached tokens than it has, got "
            f"{blocks:,} blocks, {uncached:,} of {context:,} tokens"
        )
