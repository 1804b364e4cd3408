"""The belief: what the router thinks each replica holds. A protocol, so that any index can stand behind the router."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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

    def head(self, blocks: int) -> Blocks:
        """Return the first blocks of the prompt."""


class Booked(Protocol):
    """What an insert did."""

    @property
    def held_before(self) -> int:
        """Leading tokens of the prompt that were held before."""


class Belief(Protocol):
    """The part of :class:`prefixroute.index.PrefixIndex` that the router calls.

    Slots are small integers given out by :meth:`add_replica` and reused after removal. The router calls with its own
    lock held, so an implementation for tests or simulation need not be thread-safe.

    Optional, used if present: ``held_tokens()`` (tokens held, by slot), ``new_epoch()`` (void all in O(1); else
    ``clear()``), ``expire(now)`` (drop what is past its lifetime), ``stats()`` (with ``asdict()``, for metrics),
    ``match_media(blocks)`` (tokens held by slot and medium, for ``tier_credits`` and metrics).
    """

    @property
    def block_size(self) -> int:
        """Tokens in a block."""

    def add_replica(self, name: str, capacity_tokens: int | None = None) -> int:
        """Register a replica that holds nothing; return its slot."""

    def remove_replica(self, name: str) -> object:
        """Forget a replica and all that it holds."""

    def clear(self, name: str | None = None) -> object:
        """Forget what one replica holds, or all."""

    def set_capacity(self, name: str, tokens: int | None) -> object:
        """Change the capacity of a replica."""

    def hash_and_match(self, prompt: Any, out: NDArray[np.uint32], namespace: Namespace | None = None) -> Blocks:
        """Hash a prompt and write to ``out``, one entry per slot, the leading tokens held; change nothing."""

    def insert(self, name: str, prompt: Any, namespace: Namespace | None = None, now: float = 0.0) -> Booked:
        """Believe that the replica holds these blocks; make them its most recently used."""

    def retract(self, name: str, hashes: Any, insertion: Any, /) -> object:
        """Take back the blocks that this insert created and nobody touched since."""
