"""The commit feed of one router: it tells peers what the router books, and the router what they book."""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixroute.errors import PeerError
from prefixroute.hashing import PeerChains
from prefixroute.peers import wire
from prefixroute.peers.names import replica_mark
from prefixroute.peers.publisher import Publisher
from prefixroute.peers.receiver import Receiver
from prefixroute.peers.registers import Registers
from prefixroute.peers.table import Peer, Peers
from prefixroute.peers.wire import Kind
from prefixroute.routing import membership
from prefixroute.validation import check_callable, check_int

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefixroute.hashing import PeerRings
    from prefixroute.routing import RouterState
    from prefixroute.routing.ledger import Attempt

_LOG = logging.getLogger("prefixroute")
BEAT_S = 1.0
"""Seconds between two beats: what a lost message leaves wrong at most."""
REPEATED_BEATS = 5
"""Beats after which a router tells its registers again."""
MAX_PEERS = 1_024
CHAIN_BLOCKS = 1 << 20
"""Blocks of prompts that the feed remembers to have carried: about 11 MB."""
SNAPSHOT_CHAINS, SNAPSHOT_SESSIONS = 1_024, 8_192
"""Latest chains and bindings that a late peer is told of. The rest comes with the requests that use it."""
SNAPSHOT_AGAIN_S = 5.0
"""Seconds between two snapshots at least, whoever asks."""


class PeerFeed:
    """The feed of one router, made by :meth:`Router.peer_feed`. Every method is called with the router's lock held.

    Args:
        state: the router's.
        send: takes each frame, in order. Called with the lock held, so it must not block; what it raises is counted.
        change: makes a change of the fleet, in shadows too.
        ident: number of this router; ``None`` = random. Of two routers with one number neither hears the other.
        first_sequence: number of the first message; ``None`` = microseconds since 1970: more than an earlier life of a router
            of this number has sent, which sends fewer than one a microsecond.
        loads: counts load in place of the frames.
    """

    def __init__(
        self,
        state: RouterState,
        send: Callable[[bytes], object],
        change: Callable[[Callable[[RouterState], object]], object],
        *,
        ident: int | None = None,
        first_sequence: int | None = None,
        loads: PeerRings | None = None,
    ) -> None:
        """Listen to the steps of a router's ledger."""
        check_callable("send", send)
        if ident is not None:
            check_int("the number of a peer", ident, 1, 2**64 - 1)
        if first_sequence is not None:
            check_int("first_sequence", first_sequence, 1, 2**63)
        self._state, self._silent_s = state, state.config.timing.peer_s
        key, size = state.belief.hash_key, state.belief.block_size
        self.ident = secrets.randbits(63) + 1 if ident is None else ident
        self.fingerprint = wire.fingerprint(size, key)
        chains, peers = PeerChains(size, CHAIN_BLOCKS), Peers(state, MAX_PEERS, counts_load=loads is None)
        first = max(1, time.time_ns() // 1_000) if first_sequence is None else first_sequence
        self._publisher = Publisher(
            state, send, chains, ident=self.ident, first_sequence=first, fingerprint=self.fingerprint
        )
        self._receiver = Receiver(state, chains, peers.table, self._publisher)
        self._registers = Registers(state, change, self._receiver.named)
        self._chains, self._peers = chains, peers
        self._beats, self._beat_at, self._snapshot_at = 0, float("-inf"), float("-inf")
        self._snapshot_due, self._ask_again_at = False, float("inf")
        self._hedged: set[int] = set()
        self._loads, self._seen_version = loads, -1
        self.expired = 0

    # -- what the router does ------------------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """Begin: ask the peers for what they know, and tell what is in flight, which ends that of an earlier life."""
        self._state.listener = self
        self._registers.look(self._publisher, now)
        self._publisher.tell(Kind.HELLO, b"")
        self._beat(now)
        self._ask_again_at = now + self._silent_s

    def close(self) -> None:
        """End: tell the peers that nothing more comes, and forget what they have in flight."""
        self._publisher.tell(Kind.LEFT, b"")
        self.abandon()

    def abandon(self) -> None:
        """End without a word: another process goes on with this feed."""
        if self._state.listener is self:
            self._state.listener = None
        for peer in self._peers:
            self._peers.give_up(peer)

    def booked(self, attempt: Attempt, *, bound: bool, earlier: Attempt | None, hedge: bool) -> None:
        """Tell of an attempt that is booked, see :class:`~prefixroute.routing.ledger.Listener`."""
        if earlier is not None and (hedge or earlier.number in self._hedged):
            self._hedged |= {attempt.number, earlier.number}
        name = wire.NO_SESSION
        if bound:
            name = self._state.ledger.session_name(attempt.decision.view.request.session)
        self._publisher.booked(attempt, name)
        if attempt.prefill is not None:  # it decodes from its beginning
            self._publisher.started(attempt)

    def started(self, attempt: Attempt, now: float) -> None:
        """Tell of a first token, which may have decided a hedge."""
        self._publisher.started(attempt)
        self._rebind(attempt, now)

    def finished(self, attempt: Attempt, held: Any, now: float) -> None:
        """Tell of an answer that is complete, and of what the replica then holds."""
        self._rebind(attempt, now)
        self._publisher.ended(attempt, held, finished=True)

    def given_up(self, attempt: Attempt) -> None:
        """Tell of an end without an answer."""
        self._publisher.ended(attempt, None, finished=False)

    def _rebind(self, attempt: Attempt, now: float) -> None:
        """Tell that the session of an attempt is bound to its replica only now, if it has won a hedge."""
        if attempt.number not in self._hedged:
            return
        self._hedged.discard(attempt.number)
        session = attempt.decision.view.request.session
        if session and self._state.ledger.bound(session, now) == attempt.slot:
            self.bound(session, attempt.slot)

    def bound(self, session: str, slot: int) -> None:
        """Tell that the host has bound a session."""
        name = self._state.ledger.session_name(session)
        self._publisher.bound([(name, self._state.fleet.by_slot[slot], 0.0)])

    def forgot(self, session: str | None) -> None:
        """Tell that the host has dropped the binding of a session, or with ``None`` those of all."""
        name = wire.NO_SESSION if session is None else self._state.ledger.session_name(session)
        self._publisher.bound([(name, None, 0.0)])

    def cleared(self, name: str | None) -> None:
        """Tell that a replica was cleared, or with ``None`` that the weights have changed."""
        self._publisher.cleared(name)

    def look(self, now: float) -> None:
        """Tell of what the host has changed in the fleet."""
        self._registers.look(self._publisher, now)

    @property
    def registers(self) -> Registers:
        """State and incarnation of each replica as all routers know them."""
        return self._registers

    def refresh(self) -> None:
        """Take in the peers' loads, where the transport has them."""
        loads, fleet = self._loads, self._state.fleet
        if loads is None:
            return
        if fleet.now.version != self._seen_version:
            self._seen_version = fleet.now.version
            loads.see([(*replica_mark(m), m.slot, m.generation) for m in list(fleet.members.values())])
        loads.refresh()

    def tick(self, now: float) -> None:
        """Once a second or oftener: beat, and give up what silent peers have in flight."""
        for peer in self._peers:
            if now - peer.heard > self._silent_s and self._peers.open(peer):
                count = self._peers.give_up(peer)
                self.expired += count
                _LOG.warning("peer %016x is silent: %d requests of it are no longer counted", peer.ident, count)
        self.look(now)
        if now > self._ask_again_at:  # who should have sent a snapshot may have been dead
            self._ask_again_at = float("inf")
            self._publisher.tell(Kind.HELLO, b"")
        if now - self._beat_at >= BEAT_S:
            self._beat(now)
            self._snapshot(now)

    def _beat(self, now: float) -> None:
        self._beat_at = now
        self._publisher.beat()
        self._hedged.intersection_update(self._publisher.open)
        self._beats += 1
        if self._beats % REPEATED_BEATS == 0:
            self._repeat(now)

    def _repeat(self, now: float) -> None:
        """Tell this router's own registers again; the elder of those that live also those whose author is gone."""
        living = {peer.ident for peer in self.living(now)}
        is_elder = not any(ident < self.ident for ident in living)
        self._registers.repeat(self._publisher, now, living if is_elder else None)

    # -- what peers say ------------------------------------------------------------------------------------------

    def apply(self, data: bytes, now: float) -> bool:
        """Take in a frame.

        Returns:
            Whether it was of a peer; one of this router itself changes nothing.

        Raises:
            PeerError: it is no frame of a peer that hashes as this router does.
        """
        frame = wire.read(data, self.fingerprint)
        kind, ident, sequence, body = frame
        peer = self._peers.all.get(ident)
        if peer is None:
            if ident == self.ident:
                return False
            peer = self._peers.add(ident, now)
        peer.heard = now
        peer.messages += 1
        peer.newest = max(peer.newest, sequence)
        read = self._receiver.readers.get(kind)
        if read is not None:
            self._receiver.apply(read, peer, sequence, body, now)
        else:
            self._apply_rare(peer, frame, now)
        return True

    def _apply_rare(self, peer: Peer, frame: wire.Frame, now: float) -> None:
        """Take in what is no step of a request."""
        kind, length = frame.kind, len(frame.body)
        if wire.FIXED.get(kind, length) != length:
            raise PeerError(
                f"a peer's frame of kind {kind} must have {wire.FIXED[kind]} bytes behind its header, got {length}"
            )
        if kind == Kind.FLEET:
            self._registers.hear(frame.body, now)
        elif kind == Kind.CLEARED:
            self._clear(peer, frame)
        elif kind == Kind.HELLO:
            self._welcome(peer, now)
        elif kind == Kind.LEFT:  # a beat of nothing in flight: a late one does not end the peer's next life
            self._receiver.apply(self._receiver.readers[Kind.BEAT], peer, frame.sequence, b"", now)
            if frame.sequence == peer.newest:
                peer.heard = float("-inf")
        elif kind == Kind.WELCOME:
            self._ask_again_at = float("inf")
        else:
            raise PeerError(f"a peer's frame must be of a kind from 1 to {len(Kind)}, got {kind}")

    def _clear(self, peer: Peer, frame: wire.Frame) -> None:
        if frame.sequence <= peer.cleared:
            return
        peer.cleared = frame.sequence
        mark = int.from_bytes(frame.body, "little")
        if not mark:
            self._registers.silently(membership.new_epoch)
            return
        member = self._receiver.named(mark)
        if member is not None:
            name = member.name
            self._registers.silently(lambda state: membership.clear(state, name))

    def _welcome(self, newcomer: Peer, now: float) -> None:
        """Tell a peer that has just begun what is in flight here; the elder of those that live also what all know."""
        self._beat(now)
        self._registers.repeat(self._publisher, now)
        living = [peer.ident for peer in self.living(now) if peer is not newcomer]
        if not any(ident < self.ident for ident in living):
            self._snapshot_due = True
            self._snapshot(now)

    def _snapshot(self, now: float) -> None:
        """Tell what all routers know, if somebody waits for it and it was not told just now."""
        if self._snapshot_due and now - self._snapshot_at >= SNAPSHOT_AGAIN_S:
            self._snapshot_at, self._snapshot_due = now, False
            self._publisher.tell(Kind.WELCOME, b"")
            self._registers.repeat(self._publisher, now, ())
            self._tell_bindings(now)
            self._tell_belief()

    def _tell_bindings(self, now: float) -> None:
        by_slot, told = self._state.fleet.by_slot, []
        for name, slot, generation, seen in reversed(self._state.ledger.newest_sessions(SNAPSHOT_SESSIONS)):
            member = by_slot[slot]
            if member is not None and member.generation == generation:
                told.append((name, member, max(0.0, now - seen)))
        self._publisher.bound(told)

    def _tell_belief(self) -> None:
        belief, size = self._state.belief, self._state.belief.block_size
        out = np.zeros(max(1, self._state.width, len(self._state.fleet.by_slot)), np.uint32)
        members = [member for member in self._state.fleet.members.values() if not member.replica.events]
        for blocks in reversed(self._chains.newest(SNAPSHOT_CHAINS)):
            belief.hash_and_match(blocks, out)
            for member in members:
                count = int(out[member.slot]) // size
                if count:
                    self._publisher.held(member, blocks.head(count))

    # -- looking at it -------------------------------------------------------------------------------------------

    def living(self, now: float) -> list[Peer]:
        """Return the peers that were heard of lately."""
        return [peer for peer in self._peers if now - peer.heard <= self._silent_s]

    def stats(self, now: float) -> dict[str, Any]:
        """Return counters and gauges as plain data."""
        living = self.living(now)
        return {
            "ident": f"{self.ident:016x}",
            "living": len(living),
            "in_flight": sum(self._peers.open(peer) for peer in living),
            "heard_s": min((now - peer.heard for peer in living), default=None),
            "expired": self.expired,
            "received": sum(peer.messages for peer in self._peers),
            "sent": dict(self._publisher.counts),
            "trouble": dict(self._receiver.counts),
            "chain_blocks": len(self._chains),
        }
