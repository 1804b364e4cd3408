"""Marks in a request's body: where a caller wants a cached prefix to end. They are no content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MARKS = ("cache_control", "prompt_cache_breakpoint")
"""Fields that mark a breakpoint."""


def is_marked(block: Any) -> bool:
    """Return whether a block, or a whole body, carries a mark."""
    return isinstance(block, Mapping) and any(block.get(mark) for mark in MARKS)


def unmarked(value: Any) -> Any:
    """Return JSON without the marks in it."""
    if isinstance(value, Mapping):
        return {name: unmarked(inner) for name, inner in value.items() if name not in MARKS}
    return [unmarked(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def listed(value: Any) -> list[Any]:
    """Return a list of what may stand alone or in a list; nothing for None."""
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
