"""Headers on their way through: what goes on, and what ends here."""

from __future__ import annotations

import math
import time
from email.utils import parsedate_to_datetime
from typing import TypeAlias

RawHeaders: TypeAlias = list[tuple[bytes, bytes]]

RANK = b"x-data-parallel-rank"
"""The header by which an engine's rank is chosen, which is ours to do."""
REQUEST_ID = b"x-request-id"
"""The header of a request's id, which we pass on or make up."""
HOP_BY_HOP = frozenset(
    {b"accept-encoding", b"connection", b"content-length", b"date", b"expect", b"host", b"keep-alive"}
    | {b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"server", b"te", b"trailer"}
    | {b"transfer-encoding", b"upgrade"}
)
"""Headers that concern one connection, not the message (RFC 9110, 7.6.1), and those that each side sets itself."""


def end_to_end(headers: RawHeaders, *dropped: bytes) -> RawHeaders:
    """Return the headers that a proxy passes on.

    Left out are those of one connection, by their own name or named by ``Connection``, and those ``dropped`` (lower
    case).
    """
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    gone = HOP_BY_HOP | named | set(dropped)
    return [(name, value) for name, value in headers if name.lower() not in gone]


def header_text(value: bytes) -> str:
    """Return a header's bytes as text that is written as the same bytes again.

    What is no UTF-8 is taken for Latin-1.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def retry_after_s(value: str | None) -> float | None:
    """Return the seconds that a ``Retry-After`` header says, ``None`` where it says nothing.

    Args:
        value: a number of seconds or a date (RFC 9110, 10.2.3).
    """
    if value is None:
        return None
    value = value.strip()
    if value.isdecimal():
        return float(value[:9])
    try:
        at = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, at - time.time())


def retry_after(seconds: float) -> tuple[bytes, bytes]:
    """Return the header that says to come back after so many seconds."""
    return b"retry-after", str(max(1, math.ceil(seconds))).encode()
