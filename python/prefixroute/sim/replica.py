"""The simulated truth: what one engine process holds in its prefix cache.

:class:`ReplicaCache` follows a paged engine block by block: full blocks only, a shared prefix once, at most all but the
last token of a prompt hit, running requests pinned, least recently used first, the tail of a request before its head.
:class:`EntryCache` keeps whole entries (a conversation, a document), the coarser model that published figures rest on.
"""

from __future__ import annotations

from prefixroute._core import (
    Admitted,
    CacheEvent,
    EntryCache,
    Finished,
    NoRoom,
    ReplicaCache,
    ReplicaStore,
    duplicated_tokens,
)

__all__ = [
    "Admitted",
    "CacheEvent",
    "EntryCache",
    "Finished",
    "NoRoom",
    "ReplicaCache",
    "ReplicaStore",
    "duplicated_tokens",
]
