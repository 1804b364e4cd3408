"""What a router makes of its peers' frames: the compiled inbox counts load and bindings, this believes blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from prefixroute.hashing import BlockHashes
from prefixroute.peers.missing import MissingChains
from prefixroute.peers.names import mark_of, process_mark
from prefixroute.peers.table import Believed, Peer
from prefixroute.peers.wire import PeerChains, PeerFrame, PeerInbox, PeerOutbox, PeerRings
from prefixroute.routing import RouterState
from prefixroute.routing.fleet import Member

Held = tuple[int, int, "BlockHashes | None", int, int, bytes]
"""What a message says that a process holds: slot, generation, the chain (``None`` = that which it goes on behind is not
known here), blocks of that one, hash of the last of those, and the other hashes as little-endian bytes, if there is no
chain."""


class Receiver:
    """Applies frames to a router's state. Called with the router's lock held, each time within a step.

    Args:
        state: the router's.
        chains: the chains that the feed has carried.
        inbox: counts what peers have in flight.
        outbox: asks for chains that are missing.
        ident: number of this router.
        rare: takes what is no step of a request: the peer, the work of the inbox, the time.
        loads: counts load in place of the inbox; ``None`` = the inbox does.
    """

    def __init__(
        self,
        state: RouterState,
        chains: PeerChains,
        inbox: PeerInbox,
        outbox: PeerOutbox,
        *,
        ident: int,
        rare: Callable[[Peer, tuple[Any, ...], float], None],
        loads: PeerRings | None = None,
    ) -> None:
        self._state, self._chains, self._inbox, self._outbox = state, chains, inbox, outbox
        self._ident, self._rare, self._loads = ident, rare, loads
        self.counts: Counter[str] = Counter(missing_chain=0)
        self._members: dict[int, Member] = {}
        self._version = -1
        self._missing_chains = MissingChains()
        self._works: dict[str, Callable[..., object]] = {
            "booked": self._booked,
            "retracted": self._retracted,
            "ended": self._ended,
            "beat": self._beat,
            "held": self._believe,
            "missing": self._missing,
            "chain": self._chain,
        }

    def see(self) -> None:
        """Tell the compiled parts which processes there are, if the fleet has changed."""
        fleet = self._state.fleet
        if fleet.now.version == self._version:
            return
        self._version = fleet.now.version
        members = list(fleet.members.values())
        self._members = {mark_of(member.name): member for member in members}
        processes = [(process_mark(member), member.slot, member.generation) for member in members]
        self._inbox.see(processes)
        self._outbox.forget_places()
        if self._loads is not None:
            self._loads.see(processes)

    def named(self, replica: int) -> Member | None:
        """Return the member whose name has this mark."""
        self.see()
        return self._members.get(replica)

    def apply(self, peer: Peer, frame: PeerFrame, now: float) -> None:
        """Take in the messages of a frame, each as far as the one before has left the fleet."""
        inbox, fleet, works = self._inbox, self._state.fleet, self._works
        while True:
            if fleet.now.version != self._version:
                self.see()
            work = inbox.apply(frame, now)
            if work is None:
                return
            do = works.get(work[0])
            if do is None:
                self._rare(peer, work, now)
            else:
                do(peer, now, *work[1:])

    def _believe(self, peer: Peer, now: float, held: Held) -> Believed | None:
        """Believe that a replica holds a chain; ask for what it goes on behind if that is missing."""
        slot, generation, blocks, known, parent, rest = held
        member = self._state.fleet.by_slot[slot]
        if member is None or member.generation != generation or member.replica.events:
            return None  # it is gone, or tells every router itself
        if blocks is not None:
            return blocks, self._state.belief.insert(member.name, blocks, None, now)
        self.counts["missing_chain"] += 1
        self._missing_chains.wait(known, parent, rest, member)
        if self._missing_chains.is_due(known, parent, now):
            self._outbox.missing(peer.ident, known, parent)
        return None

    def _booked(self, peer: Peer, now: float, attempt: int, held: Held) -> None:
        if attempt not in peer.believed:
            believed = self._believe(peer, now, held)
            if believed is not None:
                peer.believed[attempt] = believed

    def _retracted(self, peer: Peer, _now: float, attempt: int, slot: int) -> None:
        believed, member = peer.believed.pop(attempt, None), self._state.fleet.by_slot[slot]
        if believed is not None and member is not None:
            self._state.belief.retract(member.name, *believed)

    def _ended(self, peer: Peer, now: float, attempt: int, held: Held | None) -> None:
        peer.believed.pop(attempt, None)
        if held is not None:
            self._believe(peer, now, held)

    def _beat(self, peer: Peer, _now: float, sequence: int) -> None:
        if peer.believed:
            is_open = self._inbox.is_open
            for attempt in [each for each in peer.believed if each < sequence and not is_open(peer.ident, each)]:
                peer.believed.pop(attempt, None)

    def _missing(self, _peer: Peer, now: float, asked: int, known: int, parent: int) -> None:
        if asked == self._ident and self._missing_chains.is_due(known, parent, now):
            blocks = self._chains.chain(parent, known)
            if blocks is not None:
                self._outbox.chain(blocks)

    def _chain(self, _peer: Peer, now: float, known: int, last: int) -> None:
        for waiting in self._missing_chains.take(known, last):
            if waiting.member.generation == waiting.generation:
                whole = self._chains.extend(known, last, waiting.rest)
                if whole is not None:
                    self._state.belief.insert(waiting.member.name, whole, None, now)
