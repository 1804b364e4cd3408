"""Progress of work that has several parts: the length of each is known, about, before it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[float, str], None]
"""Told the share of the work that is done, 0 to 1, and what is being done."""


class Work:
    """Tells a :data:`Progress` how far parts of known lengths are, one after another. The share never goes back.

    Args:
        progress: told the share of all parts together; None = nobody asks.
        total: the length of all parts, in any unit. Rather too long than too short: work that ends early is no
            surprise.
    """

    def __init__(self, progress: Progress | None, total: float) -> None:
        """Begin before the first part."""
        self._progress, self._total = progress, total
        self._end = self._share = 0.0

    def part(self, length: float) -> Progress | None:
        """Begin a part, and end the one before; return what is told the share of this part, and what is being done."""
        progress, begin = self._progress, self._end
        self._end += length
        if progress is None:
            return None

        def told(share: float, what: str) -> None:
            done = (begin + length * min(1.0, share)) / self._total if self._total else 1.0
            self._share = max(self._share, min(1.0, done))
            progress(self._share, what)

        return told
