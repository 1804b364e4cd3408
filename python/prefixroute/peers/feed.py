"""The commit feed of one router: it tells peers what the router books, and the router what they book."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from prefixroute.hashing import BlockHashes
from prefixroute.peers.names import described, mark_of, process_mark
from prefixroute.peers.receiver import Receiver
from prefixroute.peers.registers import Registers
from prefixroute.peers.seal import seal_of
from prefixroute.peers.table import Peer, Peers
from prefixroute.peers.wire import PeerChains, PeerInbox, PeerOutbox, PeerRing, PeerRings
from prefixroute.routing import RouterState, membership
from prefixroute.routing.fleet import Member
from prefixroute.routing.ledger import Attempt
from prefixroute.validation import check_callable, check_int

_LOG = logging.getLogger("prefixroute")
BEAT_S, BEAT_AGAIN_S = 1.0, 0.1
"""Seconds between two beats: what a lost message leaves wrong at most; and at least, however many newcomers ask."""
REPEATED_BEATS = 5
"""Beats after which a router tells its registers again."""
MAX_PEERS = 1_024
CHAIN_BLOCKS = 1 << 20
"""Blocks of prompts that the feed remembers to have carried: about 11 MB."""
SNAPSHOT_CHAINS, SNAPSHOT_BLOCKS, SNAPSHOT_SESSIONS = 1_024, 1 << 20, 8_192
"""Latest chains, blocks of them, and latest bindings, that a late peer is told of. The rest comes with the requests
that use it."""
SNAPSHOT_PART_BLOCKS, SNAPSHOT_PART_CHAINS = 1 << 15, 64
"""Blocks and chains of a snapshot that are told at once, with the router's lock held: a few milliseconds."""
SNAPSHOT_AGAIN_S = 5.0
"""Seconds between two snapshots at least, whoever asks."""
NO_SESSION = bytes(16)
"""The name of no session; in a message of bindings that of all."""


def _tell_unsent(error: Exception) -> None:
    _LOG.warning("a message to the peers could not be sent: %s; further ones are only counted", error)


class PeerFeed:
    """The feed of one router, made by :meth:`Router.peer_feed`. Every method is called with the router's lock held.

    Args:
        state: the router's.
        send: takes each frame at once, in order. Called with the lock held, so it must not block; what it raises is
            counted.
            ``None`` = frames gather until :meth:`take` is called.
        change: makes a change of the fleet, in shadows too.
        ident: number of this router; ``None`` = random. Of two routers with one number neither hears the other.
        first_sequence: number of the first message; ``None`` = microseconds since 1970: more than an earlier life of a
            router of this number has sent, which sends fewer than one a microsecond.
        secret: what frames are sealed with, see :func:`~prefixroute.peers.seal.seal_of`.
        loads: counts load in place of the frames.

    Attributes:
        booked: tells of an attempt that is booked, see :class:`~prefixroute.routing.ledger.Listener`.
        started: tells of a first token.
        finished: tells of an answer that is complete.
        given_up: tells of an end without one.
        take: returns the frames that wait. Needs no lock.
    """

    booked: Callable[[Attempt, str | None, float, Attempt | None, bool], None]
    started: Callable[[Attempt, float], None]
    finished: Callable[[Attempt, Any, float], None]
    given_up: Callable[[Attempt], None]

    def __init__(  # each by name
        self,
        state: RouterState,
        send: Callable[[bytes], object] | None,
        change: Callable[[Callable[[RouterState], object]], object],
        *,
        ident: int | None = None,
        first_sequence: int | None = None,
        secret: str | bytes | None = None,
        loads: PeerRings | None = None,
    ) -> None:
        """Listen to the steps of a router's ledger."""
        if send is not None:
            check_callable("send", send)
        if ident is not None:
            check_int("the number of a peer", ident, 1, 2**64 - 1)
        if first_sequence is not None:
            check_int("first_sequence", first_sequence, 1, 2**62)
        self._state, self._silent_s = state, state.config.timing.peer_s
        size, ledger = state.belief.block_size, state.ledger
        self.ident = secrets.randbits(63) + 1 if ident is None else ident
        first = max(1, time.time_ns() // 1_000) if first_sequence is None else first_sequence
        seal, chains = seal_of(size, state.belief.hash_key, secret), PeerChains(size, CHAIN_BLOCKS)
        inbox = PeerInbox(ledger, chains, seal, counts=loads is None)
        outbox = PeerOutbox(
            ledger, chains, seal, described, ident=self.ident, first_sequence=first, send=send, failed=_tell_unsent
        )
        self._receiver = Receiver(state, chains, inbox, outbox, ident=self.ident, rare=self._apply_rare, loads=loads)
        self.registers = Registers(state, change, self._receiver.named, outbox, self.ident)
        self._chains, self._inbox, self._outbox, self._peers = chains, inbox, outbox, Peers(inbox, MAX_PEERS)
        self.booked, self.started = outbox.booked, outbox.started
        self.finished, self.given_up = outbox.finished, outbox.given_up
        self.take = outbox.take
        self._beats, self._beat_at, self._snapshot_at = 0, float("-inf"), float("-inf")
        self._snapshot_due, self._ask_again_at = False, float("inf")
        self._snapshot: Iterator[None] | None = None
        self._loads, self._now = loads, float("-inf")
        self.expired = 0

    def show_in(self, ring: PeerRing) -> None:
        """Show this router's loads in a ring, too."""
        self._outbox.show_in(ring)

    # -- what the router does ------------------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """Begin: ask the peers for what they know, and tell what is in flight, which ends that of an earlier life."""
        self._state.listener = self
        self.registers.look(now)
        self._outbox.hello()
        self._beat(now)
        self._ask_again_at = now + self._silent_s

    def close(self) -> None:
        """End: tell the peers that nothing more comes, and forget what they have in flight."""
        self._outbox.left()
        self.abandon()

    def abandon(self) -> None:
        """End without a word: another process goes on with this feed."""
        if self._state.listener is self:
            self._state.listener = None
        for peer in self._peers:
            self._peers.give_up(peer)

    def bound(self, session: str, slot: int) -> None:
        """Tell that the host has bound a session."""
        member = self._state.fleet.by_slot[slot]
        if member is not None:
            self._outbox.bound([(self._state.ledger.session_name(session), process_mark(member), 0.0)])

    def forgot(self, session: str | None) -> None:
        """Tell that the host has dropped the binding of a session, or with ``None`` those of all."""
        name = NO_SESSION if session is None else self._state.ledger.session_name(session)
        self._outbox.bound([(name, 0, 0.0)])

    def cleared(self, name: str | None) -> None:
        """Tell that a replica was cleared, or with ``None`` that the weights have changed."""
        self._outbox.cleared(0 if name is None else mark_of(name))

    def look(self, now: float) -> None:
        """Tell of what the host has changed in the fleet."""
        self._receiver.see()
        self.registers.look(now)

    def refresh(self) -> None:
        """Take in the peers' loads, where the transport has them."""
        if self._loads is not None:
            self._receiver.see()
            self._loads.refresh()

    def tick(self, now: float) -> None:
        """Once a second or oftener: beat, and give up what silent peers have in flight."""
        if now < self._now:
            self._go_back(self._now - now)
        self._now = now
        for peer in self._peers:
            if now - peer.heard > self._silent_s and self._peers.open(peer):
                count = self._peers.give_up(peer)
                self.expired += count
                _LOG.warning("peer %016x is silent: %d requests of it are no longer counted", peer.ident, count)
        self.look(now)
        if now > self._ask_again_at:  # who should have sent a snapshot may have been dead
            self._ask_again_at = float("inf")
            self._outbox.hello()
        if now - self._beat_at >= BEAT_S:
            self._beat(now)
            self._begin_snapshot(now)
        self.go_on()

    def _go_back(self, seconds: float) -> None:
        """Note all times as they were before the clock went back by so much: nothing waits until it has caught up."""
        for peer in self._peers:
            peer.heard -= seconds
            peer.joined -= seconds
        self._beat_at -= seconds
        self._snapshot_at -= seconds
        self._ask_again_at -= seconds

    def _beat(self, now: float) -> None:
        self._beat_at = now
        self._outbox.beat()
        self._beats += 1
        if self._beats % REPEATED_BEATS == 0:
            self._repeat(now)

    def _repeat(self, now: float) -> None:
        """Tell this router's own registers again; the elder of those that live also those whose author is gone."""
        living = {peer.ident for peer in self.living(now)}
        is_elder = not any(ident < self.ident for ident in living)
        self.registers.repeat(now, living if is_elder else None)

    # -- what peers say ------------------------------------------------------------------------------------------

    def apply(self, data: bytes, now: float) -> bool:
        """Take in a frame.

        Returns:
            Whether it was news of a peer: one of this router itself, or one that has come before, changes nothing.

        Raises:
            PeerError: it is no frame of a peer that hashes as this router does and has its secret; nothing has changed.
        """
        frame = self._inbox.read(data, self.ident)
        if frame is None:
            return False
        self._receiver.apply(self._peers.heard(frame.peer, frame.newest, len(frame), now), frame, now)
        return True

    def _apply_rare(self, peer: Peer, work: tuple[Any, ...], now: float) -> None:
        """Take in what is no step of a request."""
        kind, *fields = work
        if kind == "fleet":
            self.registers.hear(work[1:], now)
        elif kind == "cleared":
            self._clear(peer, *fields)
        elif kind == "hello":
            self._welcome(peer, now)
        elif kind == "welcome":
            self._ask_again_at = float("inf")
        elif fields[0] == peer.newest:  # it has left; a late farewell does not end its next life
            peer.believed.clear()
            peer.heard = peer.joined = float("-inf")

    def _clear(self, peer: Peer, sequence: int, mark: int) -> None:
        if sequence <= peer.cleared:
            return
        peer.cleared = sequence
        if not mark:
            self.registers.silently(membership.new_epoch)
            return
        member = self._receiver.named(mark)
        if member is not None and not member.replica.events:  # else its own events say so
            name = member.name
            self.registers.silently(lambda state: membership.clear(state, name))

    def _welcome(self, newcomer: Peer, now: float) -> None:
        """Tell a peer that has just begun what is in flight here; the elder of those that live also what all know."""
        if now - self._beat_at >= BEAT_AGAIN_S:  # else the next beat tells it
            self._beat(now)
            self.registers.repeat(now)
        if newcomer.joined == float("-inf"):
            newcomer.joined = now
        knows = len(self._chains) or self._state.ledger.sessions or len(self.registers)
        others = [peer for peer in self.living(now) if peer is not newcomer]
        if knows:  # those that have just begun know less
            others = [peer for peer in others if now - peer.joined > self._silent_s]
        if not any(peer.ident < self.ident for peer in others):
            self._snapshot_due = True
            self._begin_snapshot(now)
            self.go_on()

    def _begin_snapshot(self, now: float) -> None:
        """Begin to tell what all routers know, if somebody waits for it and it was not told just now."""
        if self._snapshot_due and now - self._snapshot_at >= SNAPSHOT_AGAIN_S:
            self._snapshot_at, self._snapshot_due = now, False
            self._outbox.welcome()
            self.registers.repeat(now, ())
            self._tell_bindings(now)
            self._snapshot = self._tell_belief()

    @property
    def goes_on(self) -> bool:
        """Whether a part of a snapshot waits for :meth:`go_on`."""
        return self._snapshot is not None

    def go_on(self) -> None:
        """Tell the next part of a snapshot, if there is one."""
        if self._snapshot is not None and next(self._snapshot, self) is self:
            self._snapshot = None

    def _tell_bindings(self, now: float) -> None:
        by_slot, told = self._state.fleet.by_slot, []
        marks = [0 if member is None else process_mark(member) for member in by_slot]
        for name, slot, generation, seen in reversed(self._state.ledger.newest_sessions(SNAPSHOT_SESSIONS)):
            member = by_slot[slot]
            if member is not None and member.generation == generation:
                told.append((name, marks[slot], max(0.0, now - seen)))
        self._outbox.bound(told)

    def _tell_belief(self) -> Iterator[None]:
        """Tell the latest chains and who holds them, a part at a time, what was used last at last."""
        carried = PeerChains(self._state.belief.block_size, CHAIN_BLOCKS)
        chains = told = 0
        for chain in reversed(self._chains.newest(SNAPSHOT_CHAINS, SNAPSHOT_BLOCKS)):
            if chains == SNAPSHOT_PART_CHAINS or len(carried) - told > SNAPSHOT_PART_BLOCKS:
                chains, told = 0, len(carried)
                yield
            chains += 1
            holders = self._holders(chain)
            if holders:
                self._outbox.chain(chain, carried)
            for member, count in holders:
                self._outbox.held(process_mark(member), chain if count == len(chain) else chain.head(count))
        yield

    def _holders(self, chain: BlockHashes) -> list[tuple[Member, int]]:
        """Return who is believed to hold how many blocks of a chain; engines that tell every router are left out."""
        state = self._state
        out = np.zeros(max(1, state.width, len(state.fleet.by_slot)), np.uint32)
        state.belief.hash_and_match(chain, out)
        members = [member for member in state.fleet.members.values() if not member.replica.events]
        held = [(member, int(out[member.slot]) // state.belief.block_size) for member in members]
        return [(member, count) for member, count in held if count]

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
            "sent": self._outbox.counts(),
            "trouble": {
                **self._receiver.counts,
                "unknown_replica": self._inbox.strangers,
                "repeated": self._inbox.repeated,
            },
            "chain_blocks": len(self._chains),
            "registers": len(self.registers),
        }
