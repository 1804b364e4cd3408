"""Waiting in tests: for what happens, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(happens: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Return the first true answer; fail where none comes for so long."""
    end = time.monotonic() + seconds
    while not (found := happens()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)
    return found
