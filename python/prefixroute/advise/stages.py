"""Progress of work that has several parts: the share of each is known before it begins."""

from __future__ import annotations

from collections.abc import Callable

from prefixroute.sim.tasks import Report


class Stages:
    """Tells a :data:`~prefixroute.sim.tasks.Report` how far parts of known lengths are, one after another.

    Args:
        progress: told the share of all parts together; None = nobody asks.
        total: the length of all parts, in any unit.
    """

    def __init__(self, progress: Report | None, total: float) -> None:
        """Begin before the first part."""
        self._progress, self._total = progress, total
        self._end = 0.0

    def runs(self, length: float) -> Report | None:
        """Begin a part, and end the one before; return what is told the share of this part, and what is being done."""
        progress, begin, total = self._progress, self._end, self._total
        self._end += length
        if progress is None:
            return None
        return lambda share, what: progress(min(1.0, (begin + length * share) / total), what)

    def part(self, what: str, length: float = 1.0) -> Callable[[float], None] | None:
        """Begin a part like :meth:`runs` that does one thing all along; return what is told the share of it."""
        report = self.runs(length)
        if report is None:
            return None
        report(0.0, what)
        return lambda share: report(share, what)
