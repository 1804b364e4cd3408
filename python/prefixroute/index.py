"""The index: which replica holds how much of a prompt's prefix.

:class:`PrefixIndex` is the compiled class itself; nothing stands between a call and the engine. The other classes are
what its calls give back.
"""

from __future__ import annotations

from prefixroute._core import Applied, FeedStats, IndexStats, Insertion, PrefixIndex, Removed, Stored

__all__ = ["Applied", "FeedStats", "IndexStats", "Insertion", "PrefixIndex", "Removed", "Stored"]
