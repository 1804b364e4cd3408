"""What a router tells its peers: each step of its ledger as a frame, sent at once, and once a second a beat."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from prefixroute.hashing import BlockHashes
from prefixroute.peers import wire
from prefixroute.peers.names import mark_of, replica_mark
from prefixroute.peers.wire import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prefixroute.hashing import PeerChains
    from prefixroute.routing import RouterState
    from prefixroute.routing.fleet import Member
    from prefixroute.routing.ledger import Attempt

_LOG = logging.getLogger("prefixroute")
NO_CHAIN = (0, 0, b"")


class Publisher:
    """Numbers, packs and sends the frames of one router. Called with the router's lock held.

    What ``send`` raises is counted and logged once, and changes nothing for the request.
    """

    def __init__(
        self,
        state: RouterState,
        send: Callable[[bytes], object],
        chains: PeerChains,
        *,
        ident: int,
        first_sequence: int,
        fingerprint: int,
    ) -> None:
        """Send by ``send``, as the router of number ``ident``, messages numbered from ``first_sequence``."""
        self.state, self.send, self.chains = state, send, chains
        self.ident, self.fingerprint, self.sequence = ident, fingerprint, first_sequence - 1
        self.open: dict[int, tuple[int, Attempt]] = {}
        """Open attempts that were told of, with the sequence of that message, by their number."""
        self.counts: Counter[str] = Counter()
        self._failed = False

    def tell(self, kind: Kind, body: bytes) -> None:
        """Send a frame."""
        self.sequence += 1
        data = wire.frame(kind, self.fingerprint, self.ident, self.sequence, body)
        self.counts[kind.name.lower()] += 1
        try:
            self.send(data)
        except Exception as error:  # noqa: BLE001  # whatever the transport does, the request goes on
            self.counts["unsent"] += 1
            if not self._failed:
                self._failed = True
                _LOG.warning("a message to the peers could not be sent: %s; further ones are only counted", error)

    def _chain(self, member: Member, blocks: Any) -> tuple[int, int, bytes]:
        """Return the part of a chain that has to be sent; nothing where the engine's own events tell every router."""
        if not isinstance(blocks, BlockHashes) or member.replica.events or not len(blocks):
            return NO_CHAIN
        return self.chains.carry(blocks)

    def booked(self, attempt: Attempt, session: bytes) -> None:
        """Tell of an attempt that is booked. ``session``: its name, if it is now bound to the replica."""
        member = attempt.member
        known, parent, rest = self._chain(member, attempt.decision.blocks)
        replica, incarnation = replica_mark(member)
        context = attempt.prompt_tokens
        body = wire.BOOKED.pack(replica, incarnation, session, context - attempt.hit, context, known, parent)
        self.open[attempt.number] = self.sequence + 1, attempt
        self.tell(Kind.BOOKED, body + rest)

    def started(self, attempt: Attempt) -> None:
        """Tell of a first token."""
        told = self.open.get(attempt.number)
        if told is not None:
            self.tell(Kind.STARTED, wire.STARTED.pack(told[0]))

    def ended(self, attempt: Attempt, held: Any, *, finished: bool) -> None:
        """Tell of an end, and of the blocks that the replica then holds; ``None`` = nothing is known of them."""
        told = self.open.pop(attempt.number, None)
        if told is None:
            return
        how = wire.FINISHED if finished else wire.ABORTED if attempt.started else wire.RETRACTED
        known, parent, rest = self._chain(attempt.member, held)
        self.tell(Kind.ENDED, wire.ENDED.pack(told[0], how, known, parent) + rest)

    def beat(self) -> None:
        """Tell of all that is in flight, that which an exception has kept from being told included."""
        rows = []
        for number, (_, attempt) in list(self.open.items()):
            if not attempt.open:
                self.open.pop(number, None)
        for attempt in self.state.ledger.attempts:
            if attempt.number not in self.open:
                self.booked(attempt, wire.NO_SESSION)
        for sequence, attempt in list(self.open.values()):
            replica, incarnation = replica_mark(attempt.member)
            context = attempt.prompt_tokens
            decodes = attempt.started or attempt.prefill is not None
            row = sequence, replica, incarnation, context - attempt.hit, context, decodes
            rows.append(wire.OPEN.pack(*row))
        self.tell(Kind.BEAT, b"".join(rows))

    def bound(self, bindings: Iterable[tuple[bytes, Member | None, float]]) -> None:
        """Tell of bindings: the session's name, its replica (``None`` = no longer any), seconds since it was used."""
        rows = []
        for session, member, age in bindings:
            replica, incarnation = (0, 0) if member is None else replica_mark(member)
            rows.append(wire.BOUND.pack(session, replica, incarnation, age))
        if rows:
            self.tell(Kind.BOUND, b"".join(rows))

    def held(self, member: Member, blocks: BlockHashes) -> None:
        """Tell of blocks that a replica is believed to hold."""
        known, parent, rest = self._chain(member, blocks)
        if known or rest:
            replica, incarnation = replica_mark(member)
            self.tell(Kind.HELD, wire.HELD.pack(replica, incarnation, known, parent) + rest)

    def cleared(self, name: str | None) -> None:
        """Tell that a replica's cache was cleared, or with ``None`` that the weights have changed everywhere."""
        self.tell(Kind.CLEARED, wire.CLEARED.pack(0 if name is None else mark_of(name)))

    def missing(self, peer: int, known: int, parent: int) -> None:
        """Ask a peer for a chain that one of its messages goes on behind."""
        self.tell(Kind.MISSING, wire.MISSING.pack(peer, known, parent))

    def chain(self, blocks: BlockHashes) -> None:
        """Send a chain as a whole."""
        self.tell(Kind.CHAIN, blocks.array.tobytes())
