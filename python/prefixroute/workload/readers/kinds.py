"""Rows of a log that are no request for a replica.

What they are, so that they are left out and counted, not refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from prefixroute.workload.readers.layouts import OTHER_ROWS

CACHED: Final = "answered by the gateway's cache"
FAILED: Final = "failed"
SPANS: Final = "spans of other kinds"
_CALLS, _CALLED = OTHER_ROWS["calls"], OTHER_ROWS["called"]
_OBSERVATIONS, _OPERATIONS = OTHER_ROWS["observations"], OTHER_ROWS["operations"]
_FAILURES, _STATUS, _ERRORS = OTHER_ROWS["failures"], OTHER_ROWS["status"], OTHER_ROWS["errors"]
_FIRST_FAILURE = 400
"""The first status of HTTP that says a request was not answered."""
_SPAN_ERROR = 2
"""The code of a span's status that OpenTelemetry gives errors."""


def other_kind(row: Mapping[str, Any], follow: Callable[[str], Any]) -> str | None:
    """Return what a row is if it is no request that a replica served; None if it is one, as far as the row says.

    Args:
        row: its fields.
        follow: finds what a path into the row leads to.
    """
    if str(row.get("cache_hit")).lower() == "true":
        return CACHED
    call = _call(row)
    if call is not None:
        return call
    if _is_span(row):
        return SPANS
    return FAILED if _has_failed(row, follow) else None


def _call(row: Mapping[str, Any]) -> str | None:
    """Return what was asked for, if it is not an answer in text.

    Of a gateway's call type, a batch's URL, a span's operation.
    """
    for name in map(row.get, _CALLED):
        if isinstance(name, str):
            for part, kind in _CALLS.items():
                if part in name:
                    return str(kind)
    return None


def _is_span(row: Mapping[str, Any]) -> bool:
    kind = row.get("type")
    if isinstance(kind, str) and "input" in row:
        if "trace_id" in row or "traceId" in row:
            return kind.upper() != "GENERATION"
        if kind in _OBSERVATIONS:  # an export without the ids
            return True
    return row.get("gen_ai.operation.name") in _OPERATIONS


def _has_failed(row: Mapping[str, Any], follow: Callable[[str], Any]) -> bool:
    if any(_is_failure(row.get(name)) for name in _STATUS) or any(follow(path) for path in _ERRORS):
        return True
    return "metadata" in row and _is_failure(follow("metadata.status"))


def _is_failure(value: Any) -> bool:
    if isinstance(value, Mapping):  # of an OpenTelemetry span
        code = value.get("code", value.get("status_code"))
        return code == _SPAN_ERROR or _is_failure(code)
    if isinstance(value, str):
        return value.lower() in _FAILURES or (value.isdecimal() and int(value[:4]) >= _FIRST_FAILURE)
    return type(value) is int and value >= _FIRST_FAILURE
