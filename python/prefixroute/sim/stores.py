"""The truth of one replica: a cache of blocks, perhaps over tiers, or of whole entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from prefixroute.errors import ConfigError
from prefixroute.sim.replica import CacheEvent, EntryCache, ReplicaStore
from prefixroute.validation import check_float, check_int
from prefixroute.workload import CacheEntry, Request


@dataclass(frozen=True, slots=True)
class Tier:
    """A memory below the GPU's that keeps blocks after the GPU has let go of them.

    A tier is inclusive: it holds the most recently used blocks of the replica, those on the GPU too. What it holds and
    the GPU does not is loaded before prefill, which then skips it.

    Args:
        medium: what results call it, for example ``CPU``.
        capacity_tokens: tokens it holds.
        load_s_per_token: seconds to bring one token's KV cache to the GPU: bytes a token / bytes a second.
    """

    medium: str
    capacity_tokens: int
    load_s_per_token: float

    def __post_init__(self) -> None:
        """Check the figures."""
        check_int(f"capacity_tokens of tier {self.medium}", self.capacity_tokens, 1)
        check_float(f"load_s_per_token of tier {self.medium}", self.load_s_per_token, 0)


class Store(Protocol):
    """What a replica holds in truth."""

    @property
    def held_tokens(self) -> int:
        """Tokens held on the GPU."""

    def hit(self, request: Request) -> int:
        """Return the leading prompt tokens that need no prefill now; change nothing."""

    def serve(self, request: Request) -> int:
        """Serve a request from start to finish with nothing in between; return its hit tokens."""

    def take_events(self) -> list[CacheEvent]:
        """Return what was stored and removed since the last call, oldest first."""


class BlockStore:
    """A cache of blocks with vLLM's rules, over tiers if there are any.

    :attr:`cache` is the compiled store, from which a :class:`~prefixroute.sim.engine.Cluster` serves requests too. A
    request larger than the whole cache is computed without being kept, and counted in ``cache.oversized``.
    """

    __slots__ = ("cache",)

    def __init__(
        self, capacity_tokens: int | None, block_size: int, tiers: Sequence[Tier] = (), *, record_events: bool = False
    ) -> None:
        """Start empty."""
        below = [(tier.capacity_tokens, tier.load_s_per_token) for tier in tiers]
        self.cache = ReplicaStore(capacity_tokens, block_size, tiers=below, record_events=record_events)

    @property
    def held_tokens(self) -> int:
        """Tokens held on the GPU."""
        return self.cache.cached_tokens

    def hit(self, request: Request) -> int:
        """Return the leading tokens on the GPU."""
        return self.cache.hit(request.prompt)

    def serve(self, request: Request) -> int:
        """Serve a request at once; tokens loaded from a tier count as hit."""
        return self.cache.serve(request.prompt, request.context)

    def take_events(self) -> list[CacheEvent]:
        """Return what changed on the GPU."""
        return self.cache.take_events()


class EntryStore:
    """The reference article's cache: whole entries, least recently used out first."""

    __slots__ = ("cache",)

    def __init__(self, capacity_tokens: int | None) -> None:
        """Start empty."""
        self.cache = EntryCache(capacity_tokens)

    @property
    def held_tokens(self) -> int:
        """Tokens held, the shared head included."""
        return self.cache.cached_tokens

    def hit(self, request: Request) -> int:
        """Return the entry's cached tokens, else those of the shared head."""
        entry = _entry_of(request)
        return self.cache.hit(entry.id, request.prompt_tokens, entry.shared_tokens)

    def serve(self, request: Request) -> int:
        """Serve a request; return the cached tokens."""
        entry = _entry_of(request)
        return self.cache.serve(entry.id, request.prompt_tokens, entry.held_tokens, entry.shared_tokens)

    def take_events(self) -> list[CacheEvent]:
        """Return nothing: whole entries are the coarse model of no engine."""
        return []


def _entry_of(request: Request) -> CacheEntry:
    if request.entry is None:
        raise ConfigError("cache 'entries' needs a workload made of entries (chat or documents): use cache 'blocks'")
    return request.entry
