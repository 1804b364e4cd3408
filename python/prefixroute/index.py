"""The index: which replica holds how much of a prompt's prefix.

:class:`PrefixIndex` is the compiled class itself; nothing stands between a call and the engine. The other classes are
what its calls give back, and :class:`BatchNumbers` its rule for the numbers of batches.
"""

from __future__ import annotations

from prefixroute._core import (
    Applied,
    BatchNumbers,
    FeedStats,
    IndexStats,
    Insertion,
    PrefixIndex,
    Removed,
    Stored,
)

__all__ = ["Applied", "BatchNumbers", "FeedStats", "IndexStats", "Insertion", "PrefixIndex", "Removed", "Stored"]
