"""Active blocks: those of the requests in flight, each counted once a replica, from booking to the end."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from prefixroute.errors import UnknownReplicaError
from prefixroute.hashing import BlockHashes
from prefixroute.index import PrefixIndex

if TYPE_CHECKING:
    from prefixroute.belief import Blocks
    from prefixroute.routing.ledger import Attempt


_LIFETIME_S = 1.0
"""Seconds on the clock of :class:`ActiveBlocks` for which a block stays that nobody pins."""


class ActiveBlocks:
    """An index of the blocks of requests in flight: a block counts as one however many requests share it.

    A request pins its blocks, and what nobody pins is forgotten at the next end of a request: each end has a time of
    its own, and blocks live for less than the time from one to the next. Kept only for policies that read it: it costs
    about a microsecond at booking and again at the end. Slots are those of the fleet, since both give the lowest free
    one first. Not thread-safe.

    Args:
        block_size: the belief's.
        hash_key: the belief's.
    """

    def __init__(self, block_size: int, hash_key: int) -> None:
        """Start without replicas."""
        self._index = PrefixIndex(block_size=block_size, hash_key=hash_key, ttl_s=_LIFETIME_S)
        self._now = 0.0

    def add_replica(self, name: str) -> None:
        """Register a replica."""
        self._index.add_replica(name)

    def remove_replica(self, name: str) -> None:
        """Forget a replica; nothing happens if it is not known."""
        with suppress(UnknownReplicaError):
            self._index.remove_replica(name)

    def clear(self, name: str) -> None:
        """Forget the requests of a process that is gone."""
        self._index.clear(name)

    def enter(self, name: str, blocks: Blocks) -> None:
        """Count the blocks of a request that is booked."""
        if len(blocks):
            hashes = self._hashes(blocks)
            self._index.insert(name, hashes, None, self._now)
            self._index.pin(name, hashes)

    def leave(self, name: str, blocks: Blocks) -> None:
        """Count the blocks of a request no more."""
        if len(blocks):
            self._index.unpin(name, self._hashes(blocks))
            self._now += 2 * _LIFETIME_S
            self._index.expire(self._now)

    def rebuild(self, names: Iterable[str], attempts: Iterable[Attempt]) -> None:
        """Count anew."""
        for name in names:
            with suppress(UnknownReplicaError):
                self._index.clear(name)
        for attempt in attempts:
            if attempt.member.generation == attempt.generation:
                self.enter(attempt.name, attempt.decision.blocks)

    def tokens(self) -> list[int]:
        """Return the tokens of the active blocks of each replica, by slot."""
        return self._index.held_tokens()

    def hits(self, blocks: Blocks) -> list[int]:
        """Return the leading tokens of a prompt whose blocks are active at each replica, by slot."""
        hits: list[int] = self._index.match(self._hashes(blocks)).tolist()
        return hits

    def _hashes(self, blocks: Blocks) -> BlockHashes:
        """Return a hashed prompt as an index takes it, whatever class the belief has for it."""
        if isinstance(blocks, BlockHashes):
            return blocks
        return BlockHashes(blocks.array, token_count=blocks.token_count, block_size=self._index.block_size)
