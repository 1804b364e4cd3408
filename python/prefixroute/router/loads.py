"""The load signals: each a function of the load book, the time and the replicas that count, one number per slot.

All policies of a router balance the same one, chosen by ``Router(load=...)``: that choice is worth more than the rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixroute.policies.spread import start_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prefixroute.router.book import LoadBook
    from prefixroute.types import LoadReport


def _in_flight(book: LoadBook, now: float, slots: Sequence[int]) -> list[int]:  # noqa: ARG001
    """Return requests in flight."""
    return book.in_flight[:]


def _recent(book: LoadBook, now: float, slots: Sequence[int]) -> list[int]:  # noqa: ARG001
    """Return how many of the fleet's last ``recent_window`` bookings each replica received."""
    return book.recent[:]


def _uncached_tokens(book: LoadBook, now: float, slots: Sequence[int]) -> list[int]:  # noqa: ARG001
    """Return prompt tokens that wait to be computed: uncached tokens of requests before their first token."""
    return book.queued[:]


def _tokens(book: LoadBook, now: float, slots: Sequence[int]) -> list[int]:  # noqa: ARG001
    """Return uncached tokens that wait, plus context tokens in decode."""
    return [queued + decoding for queued, decoding in zip(book.queued, book.decoding, strict=True)]


def _reported_requests(book: LoadBook, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return reported waiting + running requests, plus what was booked since the report."""

    def value(slot: int, report: LoadReport) -> float | None:
        if report.waiting is None or report.running is None:
            return None
        return report.waiting + report.running + book.since_requests[slot]

    return _reported(book, now, slots, value) or book.in_flight[:]


def _reported_tokens(book: LoadBook, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return reported waiting tokens, plus what was booked since the report."""

    def value(slot: int, report: LoadReport) -> float | None:
        return None if report.waiting_tokens is None else report.waiting_tokens + book.since_tokens[slot]

    return _reported(book, now, slots, value) or book.queued[:]


def _kv_use(book: LoadBook, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return the reported share of the KV cache in use."""
    return _reported(book, now, slots, lambda _, report: report.kv_use) or book.in_flight[:]


def _seconds(book: LoadBook, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return the estimated seconds until a new request starts (SMG's least_load)."""
    return _reported(book, now, slots, lambda slot, report: start_seconds(report, book.queued[slot])) or book.queued[:]


def _reported(
    book: LoadBook, now: float, slots: Sequence[int], value: Callable[[int, LoadReport], float | None]
) -> list[float] | None:
    """Return ``value`` of each slot's fresh report, or ``None`` unless all of ``slots`` have one: unknown is not zero."""
    values, reports = [0.0] * len(book.in_flight), book.fresh(now)
    for slot in slots:
        report = reports[slot]
        known = None if report is None else value(slot, report)
        if known is None:
            return None
        values[slot] = known
    return values


LOADS: dict[str, Callable[[LoadBook, float, Sequence[int]], Sequence[float]]] = {
    "in_flight": _in_flight,
    "recent": _recent,
    "uncached_tokens": _uncached_tokens,
    "tokens": _tokens,
    "reported_requests": _reported_requests,
    "reported_tokens": _reported_tokens,
    "kv_use": _kv_use,
    "seconds": _seconds,
}
"""Load signals by name. Those that rest on reports fall back to the router's own book unless every replica has reported."""
