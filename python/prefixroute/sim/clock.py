"""The simulator's clock: a heap of events ordered by time, then by the order in which they were scheduled.

Two events at one instant run in the order of scheduling, whatever they carry, so a run depends on nothing but its
inputs. Times are seconds from the start of the run.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    _Entry = tuple[float, int, Callable[..., None], tuple[object, ...]]


class EventQueue:
    """Callbacks in virtual time. Not thread-safe: a simulation is one thread.

    ``schedule`` costs O(log pending); there is no cancel: an owner that changes its mind schedules again and ignores
    the stale call by a version of its own.
    """

    __slots__ = ("_heap", "_sequence", "now")

    def __init__(self) -> None:
        """Start at time zero with nothing pending."""
        self._heap: list[_Entry] = []
        self._sequence = 0
        self.now = 0.0

    def __len__(self) -> int:
        """Return the number of pending events."""
        return len(self._heap)

    def __call__(self) -> float:
        """Return the time, so that the queue itself serves as the Router's ``clock=``."""
        return self.now

    def schedule(self, at: float, action: Callable[..., None], *arguments: object) -> None:
        """Run ``action(*arguments)`` at second ``at``.

        Raises:
            ValueError: ``at`` lies before the present or is not a finite number: a bug of the caller.
        """
        if not self.now <= at < math.inf:
            message = f"an event must lie in [{self.now}, inf), got {at}"
            raise ValueError(message)
        heapq.heappush(self._heap, (at, self._sequence, action, arguments))
        self._sequence += 1

    def run(self) -> None:
        """Run events until none is left. An event may schedule others."""
        heap, pop = self._heap, heapq.heappop
        while heap:
            self.now, _, action, arguments = pop(heap)
            action(*arguments)
