"""What to do about a log whose rows nobody knows: the field map that would read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixroute.workload.readers.lines import json_in
from prefixroute.workload.readers.row import is_date

_DEEPEST = 5
_EPOCHS_FROM = 1e9
_NAMED = ("prompt", "query", "question", "text", "message", "input", "content")
"""What the name of a prompt's field has in it."""


def field_map_for(fields: Mapping[str, Any]) -> str:
    """Return what an error says about the field map for rows like this.

    The paths that look right, or those that are needed.
    """
    found: dict[str, str] = {}
    for path, value in _leaves(fields, ""):
        kind = _kind(path, value)
        if kind is not None:
            found.setdefault(kind, path)
    if "messages" in found:
        found.pop("prompt", None)
    lines = [f'{kind} = "{path}"' for kind, path in found.items()]
    missing = (
        [] if {"messages", "prompt", "token_ids"} & found.keys() else ['messages = "PATH" (or prompt, or token_ids)']
    )
    return "; a field map may read it: [fields] " + ", ".join([*lines, *missing])


def _leaves(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str) and (parsed := json_in(value)) is not None:
        value = parsed
    yield path, value
    if isinstance(value, Mapping) and depth < _DEEPEST:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name), depth + 1)


def _kind(path: str, value: Any) -> str | None:
    if isinstance(value, list) and value:
        if all(isinstance(one, Mapping) and ("role" in one or "content" in one) for one in value):
            return "messages"
        if all(type(one) is int for one in value):
            return "token_ids"
    if isinstance(value, str):
        if is_date(value):
            return "time"
        return "prompt" if any(name in path.lower().split(".")[-1] for name in _NAMED) else None
    return "time" if type(value) in {int, float} and value >= _EPOCHS_FROM else None
