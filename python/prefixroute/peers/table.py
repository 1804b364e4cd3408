"""Who the peers are, and when each was heard of. What they have in flight is in the compiled :class:`PeerInbox`."""

from __future__ import annotations

from collections.abc import Iterator

from prefixroute.belief import Booked
from prefixroute.hashing import BlockHashes
from prefixroute.peers.wire import PeerInbox

Believed = tuple[BlockHashes, Booked]
"""The blocks of a peer's attempt, and what this router's belief said when it was told of them."""


class Peer:
    """One other router.

    Attributes:
        ident: its number.
        heard: when it was last heard of.
        joined: when it was heard to begin; what it knows others have told it just now.
        newest: its highest sequence.
        cleared: sequence of its latest message that a cache was cleared.
        messages: how many have come.
        believed: what the belief was told of its open attempts, by the sequence of their booking.
    """

    __slots__ = ("believed", "cleared", "heard", "ident", "joined", "messages", "newest")

    def __init__(self, ident: int, now: float) -> None:
        """Know a peer of which nothing was heard before."""
        self.ident, self.heard, self.joined = ident, now, float("-inf")
        self.newest = self.cleared = self.messages = 0
        self.believed: dict[int, Believed] = {}


class Peers:
    """All peers by number; those that fell silent are remembered as empty, so that they expire once.

    Args:
        inbox: what they have in flight.
        most: peers remembered; of more, the one heard of longest ago is forgotten.
    """

    def __init__(self, inbox: PeerInbox, most: int) -> None:
        """Know nobody."""
        self._inbox, self._most = inbox, most
        self.all: dict[int, Peer] = {}

    def __iter__(self) -> Iterator[Peer]:
        """Return the peers."""
        return iter(list(self.all.values()))

    def heard(self, ident: int, newest: int, messages: int, now: float) -> Peer:
        """Return the peer of this number, of which so many messages up to the sequence ``newest`` have come."""
        peer = self.all.get(ident)
        if peer is None:
            if len(self.all) >= self._most:
                oldest = min(self.all.values(), key=lambda peer: peer.heard)
                self._inbox.forget(oldest.ident)
                self.all.pop(oldest.ident, None)
            peer = self.all[ident] = Peer(ident, now)
        peer.heard = now
        peer.messages += messages
        peer.newest = max(peer.newest, newest)
        return peer

    def give_up(self, peer: Peer) -> int:
        """Forget what a peer has in flight; return how many attempts that were. It may come back with a later beat."""
        peer.believed.clear()
        return self._inbox.give_up(peer.ident, peer.newest)

    def open(self, peer: Peer) -> int:
        """Return how many attempts a peer has in flight."""
        return self._inbox.open(peer.ident)
