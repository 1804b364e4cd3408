"""The cyclic garbage collector during a run.

It would look through every request in flight again and again, for nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

RARELY = (50_000, 1_000, 1_000)
"""Objects made and kept between two looks at the new ones, and such looks between two at older ones; Python's own
figures are 700, 10 and 10. What has survived a look is in flight, or kept, and a backlog that grows is gone through
once."""

_lock = Lock()
_before: list[tuple[int, int, int]] = []
"""The thresholds before each run that is going on: the first entry is the host's own."""


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Raise the collector's thresholds to :data:`RARELY`, and put them back when the last run of the process is over.

    Runs make no cycles: what a request leaves is freed when it ends. A collector that is off is left off, and a
    threshold that is higher already is left as it is.
    """
    with _lock:
        own = gc.get_threshold()
        _before.append(own)
        if own[0]:
            gc.set_threshold(*map(max, own, RARELY))
    try:
        yield
    finally:
        with _lock:
            if len(_before) == 1:
                gc.set_threshold(*_before[0])
            _before.pop()
