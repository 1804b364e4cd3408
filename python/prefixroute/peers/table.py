"""Who the peers are, and when each was heard of. What they have in flight is the compiled :class:`PeerTable`'s."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prefixroute.routing.ledger import PeerTable

if TYPE_CHECKING:
    from prefixroute.belief import Booked
    from prefixroute.hashing import BlockHashes
    from prefixroute.routing import RouterState

Believed = tuple["BlockHashes", "Booked"]
"""The blocks of a peer's attempt, and what this router's belief said when it was told of them."""


class Peer:
    """One other router.

    Attributes:
        ident: its number.
        heard: when it was last heard of.
        newest: its highest sequence.
        cleared: sequence of its latest message that a cache was cleared.
        messages: how many have come.
        believed: what the belief was told of its open attempts, by the sequence of their booking.
    """

    __slots__ = ("believed", "cleared", "heard", "ident", "messages", "newest")

    def __init__(self, ident: int, now: float) -> None:
        """Know a peer of which nothing was heard before."""
        self.ident, self.heard = ident, now
        self.newest = self.cleared = self.messages = 0
        self.believed: dict[int, Believed] = {}


class Peers:
    """All peers by number; those that fell silent are remembered as empty, so that they expire once."""

    def __init__(self, state: RouterState, most: int, *, counts_load: bool) -> None:
        """Know nobody.

        Args:
            state: the router's, on whose load book peers' attempts are counted.
            most: peers remembered; of more, the one heard of longest ago is forgotten.
            counts_load: whether they are counted.
        """
        self._most = most
        self.table = PeerTable(state.ledger, counts=counts_load)
        self.all: dict[int, Peer] = {}

    def __iter__(self) -> Iterator[Peer]:
        """Return the peers."""
        return iter(list(self.all.values()))

    def add(self, ident: int, now: float) -> Peer:
        """Know one more peer."""
        if len(self.all) >= self._most:
            oldest = min(self.all.values(), key=lambda peer: peer.heard)
            self.table.forget(oldest.ident)
            self.all.pop(oldest.ident, None)
        peer = self.all[ident] = Peer(ident, now)
        return peer

    def give_up(self, peer: Peer) -> int:
        """Forget what a peer has in flight; return how many attempts that were. It may come back with a later beat."""
        peer.believed.clear()
        return self.table.give_up(peer.ident, peer.newest)

    def open(self, peer: Peer) -> int:
        """Return how many attempts a peer has in flight."""
        return self.table.open(peer.ident)
