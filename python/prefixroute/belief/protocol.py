"""What the router asks of a belief, every method of it required."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from prefixroute.index import IndexStats
from prefixroute.types import Namespace


class Blocks(Protocol):
    """A prompt, hashed: what :class:`prefixroute.BlockHashes` offers the router."""

    @property
    def array(self) -> NDArray[np.uint64]:
        """Chained block hashes of the full blocks."""

    @property
    def token_count(self) -> int:
        """Length of the prompt in tokens."""

    def __len__(self) -> int:
        """Return the number of full blocks."""

    def hash_at(self, block: int, /) -> int:
        """Return the hash of one block.

        Args:
            block: its number, from 0.
        """

    def head(self, blocks: int) -> Blocks:
        """Return the first blocks of the prompt.

        Args:
            blocks: how many.
        """


class Booked(Protocol):
    """What an insert did."""

    @property
    def held_before(self) -> int:
        """Leading blocks of the prompt that were held before."""


class Heard(Protocol):
    """What a batch of events did."""

    @property
    def tiered(self) -> bool:
        """Whether some store spoke of a medium other than the GPU."""

    @property
    def adapters(self) -> Sequence[str]:
        """Adapters whose blocks were stored, each once."""


@runtime_checkable
class Belief(Protocol):
    """What each replica holds, as far as the router knows.

    Slots are small integers given out by :meth:`add_replica`; the lowest free slot is given first. Sizes and capacities
    are tokens, times are seconds on the router's clock, which only moves forward. The router calls with its own lock
    held, so an implementation for tests or simulation need not be thread-safe. A name that is not registered raises
    :class:`~prefixroute.errors.UnknownReplicaError`.
    """

    @property
    def block_size(self) -> int:
        """Tokens in a block."""

    @property
    def hash_key(self) -> int:
        """Key of the content hashes of prompts."""

    def add_replica(self, name: str, capacity_tokens: int | None = None, *, reuse_reports: bool = False) -> int:
        """Register a replica that holds nothing; return its slot.

        With ``reuse_reports`` its engine reports the reuse of a block in the shape of a store event.

        Args:
            name: of the replica, not known yet.
            capacity_tokens: KV cache in tokens; ``None`` = unlimited.
            reuse_reports: the replica reports each use of a block as stored.

        Returns:
            The slot, the lowest that is free.
        """

    def check_room(self, replicas: int) -> object:
        """Raise :class:`~prefixroute.errors.ConfigError` unless there is room for so many replicas.

        Args:
            replicas: how many there will be.

        Returns:
            A value that callers ignore.
        """

    def remove_replica(self, name: str) -> object:
        """Forget a replica and all that it holds.

        Args:
            name: of the replica.

        Returns:
            A value that callers ignore.
        """

    def clear(self, name: str | None = None) -> object:
        """Forget what one replica holds, or all.

        Args:
            name: of the replica; ``None`` = all.

        Returns:
            A value that callers ignore.
        """

    def new_epoch(self) -> object:
        """Forget what all replicas hold: the weights have changed."""

    def set_capacity(self, name: str, tokens: int | None) -> object:
        """Change the capacity of a replica; ``None`` = unlimited.

        Args:
            name: of the replica.
            tokens: KV cache in tokens; ``None`` = unlimited.

        Returns:
            A value that callers ignore.
        """

    def hash_and_match(self, prompt: Any, out: NDArray[np.uint32], namespace: Namespace | None = None) -> Blocks:
        """Hash a prompt and write to ``out``, one entry per slot, the leading tokens held; change nothing.

        Args:
            prompt: token ids, or hashes in blocks of :attr:`block_size`.
            out: an entry for each slot, which is overwritten.
            namespace: what else must be equal for blocks to be shared.

        Returns:
            The hashes of the prompt's full blocks.
        """

    def match_media(self, prompt: Any, namespace: Namespace | None = None) -> NDArray[np.uint32]:
        """Return the leading tokens held by the best medium of each block, shape ``[slots, 3]``: GPU, CPU, disk.

        Args:
            prompt: as for :meth:`hash_and_match`.
            namespace: as for :meth:`hash_and_match`.
        """

    def insert(self, name: str, prompt: Any, namespace: Namespace | None = None, now: float = 0.0) -> Booked:
        """Believe that the replica holds these blocks; make them its most recently used.

        At a replica that sends events the belief is provisional: it ends unless its events confirm it in time.

        Args:
            name: of the replica.
            prompt: as for :meth:`hash_and_match`.
            namespace: as for :meth:`hash_and_match`.
            now: time in seconds, on the clock of :meth:`expire`.

        Returns:
            What :meth:`retract` needs to take it back.
        """

    def retract(self, name: str, hashes: Any, insertion: Any, /) -> object:
        """Take back the blocks that this insert created and nobody touched since.

        Args:
            name: of the replica.
            hashes: that were inserted.
            insertion: what :meth:`insert` has returned.

        Returns:
            A value that callers ignore.
        """

    def expire(self, now: float) -> object:
        """Drop what is past its lifetime.

        Args:
            now: time in seconds; it does not go back.

        Returns:
            A value that callers ignore.
        """

    def held_tokens(self) -> list[int]:
        """Return the tokens that each replica holds, one entry per slot."""

    def unmatched_event_blocks(self) -> list[int]:
        """Return the blocks that each replica has reported since a prompt last matched one there, by slot."""

    def crowded_blocks(self) -> list[int]:
        """Return the blocks of each replica that have more copies than requests can have made, one entry per slot."""

    def stats(self) -> IndexStats:
        """Return state and counters; what an implementation does not count is zero."""

    def expect_events(self, name: str) -> object:
        """Count a replica as one that sends events, though none has come yet.

        Args:
            name: of the replica.

        Returns:
            A value that callers ignore.
        """

    def apply(self, name: str, payload: bytes, *, sequence: int | None = None, now: float = 0.0) -> Heard:
        """Apply an engine's batch of KV events, as bytes.

        Args:
            name: of the replica.
            payload: the batch, as the engine has published it.
            sequence: number of the batch; ``None`` = not known.
            now: time in seconds.

        Returns:
            What the batch says of its engine.
        """

    def apply_stored(
        self,
        name: str,
        block_hashes: Any,
        *,
        parent: Any = None,
        token_ids: Any,
        namespace: Namespace | None = None,
        medium: Any = None,
        now: float = 0.0,
    ) -> object:
        """Apply an engine's event that blocks were stored: its own hashes behind ``parent``, with their token ids.

        Args:
            name: of the replica.
            block_hashes: the engine's own names of the blocks, in order.
            parent: the name of the block before them; ``None`` = they begin a prompt.
            token_ids: of all these blocks.
            namespace: what else must be equal for blocks to be shared.
            medium: where they are stored; ``None`` = in GPU memory.
            now: time in seconds.

        Returns:
            Counters of what has changed.
        """

    def apply_stored_hashes(
        self, name: str, block_hashes: Any, *, parent: Any = None, medium: Any = None, now: float = 0.0
    ) -> object:
        """Apply the same from a replica whose block hashes are the belief's own chained ones.

        Args:
            name: of the replica.
            block_hashes: chained hashes of the blocks, in order.
            parent: hash of the block before them; ``None`` = they begin a prompt.
            medium: where they are stored; ``None`` = in GPU memory.
            now: time in seconds.

        Returns:
            Counters of what has changed.
        """

    def apply_removed(self, name: str, block_hashes: Any, *, medium: Any = None) -> object:
        """Apply an engine's event that one copy of each of these blocks was removed from a medium.

        Args:
            name: of the replica.
            block_hashes: the engine's own names of the blocks.
            medium: from where they were removed; ``None`` = from GPU memory.

        Returns:
            Counters of what has changed.
        """

    def apply_cleared(self, name: str) -> object:
        """Apply an engine's event that its cache was reset.

        Args:
            name: of the replica.

        Returns:
            A value that callers ignore.
        """
