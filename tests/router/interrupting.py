"""Acting before a chosen line of the package, as a signal handler might: ``sys.settrace`` stands for the signal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import prefixroute

PACKAGE = str(Path(prefixroute.__file__).parent) + os.sep
"""Nothing else is traced: the interpreter may crash if its own or the test's lines raise while an object is freed."""


def at_line(number: int, act: Callable[[], None]) -> Callable[[FrameType, str, Any], Any]:
    """Return a tracer that acts once, before the line with this number of all that the package runs."""
    seen = 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == number:
                act()
        return local

    return lambda frame, _, __: local if frame.f_code.co_filename.startswith(PACKAGE) else None


def lines(call: Callable[[], object]) -> int:
    """Return how many lines of the package a call runs."""
    count = 0

    def act() -> None:
        nonlocal count

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    sys.settrace(lambda frame, _, __: local if frame.f_code.co_filename.startswith(PACKAGE) else None)
    try:
        call()
    finally:
        sys.settrace(None)
    return count
