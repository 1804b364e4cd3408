"""Active blocks: those of the requests in flight, each counted once a replica, from booking to the end."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from prefixroute.errors import UnknownReplicaError
from prefixroute.index import PrefixIndex

if TYPE_CHECKING:
    from prefixroute.belief import Blocks
    from prefixroute.routing.ledger import Attempt


class ActiveBlocks:
    """An index of the blocks of requests in flight: a block counts as one however many requests share it.

    Kept only for policies that read it: it costs about 0.1 us a block at booking and again at the end. Slots are those
    of the fleet, since both give the lowest free one first. Not thread-safe.
    """

    def __init__(self, block_size: int) -> None:
        """Start without replicas."""
        self._index = PrefixIndex(block_size=block_size)

    def add_replica(self, name: str) -> None:
        """Register a replica."""
        self._index.add_replica(name)

    def remove_replica(self, name: str) -> None:
        """Forget a replica; nothing happens if it is not known."""
        with suppress(UnknownReplicaError):
            self._index.remove_replica(name)

    def clear(self, name: str) -> None:
        """Forget the requests of a process that is gone."""
        self._index.apply_cleared(name)

    def enter(self, name: str, blocks: Blocks) -> None:
        """Count the blocks of a request that is booked."""
        if len(blocks):
            self._index.apply_stored_hashes(name, blocks.array)

    def leave(self, name: str, blocks: Blocks) -> None:
        """Count the blocks of a request no more."""
        if len(blocks):
            self._index.apply_removed(name, blocks.array)

    def rebuild(self, names: Iterable[str], attempts: Iterable[Attempt]) -> None:
        """Count anew."""
        for name in names:
            with suppress(UnknownReplicaError):
                self._index.apply_cleared(name)
        for attempt in attempts:
            if attempt.member.generation == attempt.generation:
                self.enter(attempt.name, attempt.decision.blocks)

    def tokens(self) -> list[int]:
        """Return the tokens of the active blocks of each replica, by slot."""
        return self._index.held_tokens()

    def hits(self, blocks: Blocks) -> list[int]:
        """Return the leading tokens of a prompt whose blocks are active at each replica, by slot."""
        hits: list[int] = self._index.match_hashes(blocks.array).tolist()
        return hits
