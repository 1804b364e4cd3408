"""The cyclic garbage collector during a run: it would look through every request in flight again and again, for nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

RARELY = 50_000
"""Objects made and kept between two looks of the collector; Python's own figure is 700."""

_lock = Lock()
_before: list[int] = []
"""The first threshold before each run that is going on: the first entry is the host's own."""


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Raise the collector's first threshold to :data:`RARELY`, and put it back when the last run of the process is over.

    Runs make no cycles: what a request leaves is freed when it ends. A collector that is off, or that looks less often
    already, is left alone.
    """
    with _lock:
        first, *others = gc.get_threshold()
        _before.append(first)
        if 0 < first < RARELY:
            gc.set_threshold(RARELY, *others)
    try:
        yield
    finally:
        with _lock:
            if len(_before) == 1:
                gc.set_threshold(_before[0], *gc.get_threshold()[1:])
            _before.pop()
