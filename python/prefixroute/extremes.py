"""The highest and the lowest of a list, how many there are of it and where the first lies: one pass instead of three."""

from __future__ import annotations

from prefixroute._core import highest, lowest

__all__ = ["highest", "lowest"]
