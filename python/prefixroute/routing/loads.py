"""The load signals: each a function of the load book, the time and the candidates, one number per slot.

All policies of a router balance the same one, chosen by ``Router(load=...)``: that choice is worth more than the rule.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from prefixroute.policies.spread import ASSUMED_TOKENS_PER_S, start_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prefixroute.routing.book import LoadBook
    from prefixroute.types import LoadReport


def _in_flight(book: LoadBook, now: float, slots: Sequence[int]) -> list[int]:  # noqa: ARG001
    """Return requests in flight."""
    return book.in_flight[:]


def _recent(book: LoadBook, now: float, slots: Sequence[int]) -> list[int]:  # noqa: ARG001
    """Return how many of the fleet's last ``recent_window`` bookings each replica received."""
    return book.recent.in_flight[:]


def _requests(book: LoadBook, now: float, slots: Sequence[int]) -> list[float]:  # noqa: ARG001
    """Return requests in flight, plus a half for each of the fleet's last ``recent_window`` served requests.

    Requests in flight alone are zero almost everywhere while load is light: whatever is hot then herds at its holder.
    """
    return book.busy[:]


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

    return _reported(book, now, slots, value, book.in_flight)


def _reported_tokens(book: LoadBook, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return reported waiting tokens, plus what was booked since the report."""

    def value(slot: int, report: LoadReport) -> float | None:
        return None if report.waiting_tokens is None else report.waiting_tokens + book.since_tokens[slot]

    return _reported(book, now, slots, value, book.queued)


def _kv_use(book: LoadBook, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return the reported share of the KV cache in use, plus the share that the tokens booked since the report take."""

    def value(slot: int, report: LoadReport) -> float | None:
        if report.kv_use is None:
            return None
        return report.kv_use + (book.since_tokens[slot] / book.capacity[slot] if book.capacity[slot] else 0.0)

    if not any(report is not None and report.kv_use is not None for report in book.fresh(now)):
        return book.in_flight[:]  # no share is known anywhere: requests are compared
    held = zip(book.queued, book.decoding, book.capacity, strict=True)
    own = [(queued + decoding) / capacity if capacity else 0.0 for queued, decoding, capacity in held]
    return _reported(book, now, slots, value, own)


def _seconds(book: LoadBook, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return the estimated seconds until a new request starts (SMG's least_load)."""

    def value(slot: int, report: LoadReport) -> float | None:
        return start_seconds(report, book.queued[slot])

    return _reported(book, now, slots, value, [queued / ASSUMED_TOKENS_PER_S for queued in book.queued])


def _reported(
    book: LoadBook,
    now: float,
    slots: Sequence[int],
    value: Callable[[int, LoadReport], float | None],
    own: Sequence[float],
) -> list[float]:
    """Return ``value`` of each slot's fresh report; of a replica without one, what this router has there, plus a guess.

    The guess at what others have there is the median over the replicas that report of what they report beyond this
    router's ``own``: unknown is not zero. A replica that falls silent changes nothing in how the others are seen.
    """
    values, reports = list(own), book.fresh(now)
    foreign: list[float] = []
    silent: list[int] = []
    for slot in slots:
        report = reports[slot]
        reported = None if report is None else value(slot, report)
        if reported is None:
            silent.append(slot)
        else:
            values[slot] = reported
            foreign.append(reported - own[slot])
    if foreign and silent:
        guess = max(0.0, median(foreign))
        for slot in silent:
            values[slot] += guess
    return values


LOADS: dict[str, Callable[[LoadBook, float, Sequence[int]], Sequence[float]]] = {
    "requests": _requests,
    "in_flight": _in_flight,
    "recent": _recent,
    "uncached_tokens": _uncached_tokens,
    "tokens": _tokens,
    "reported_requests": _reported_requests,
    "reported_tokens": _reported_tokens,
    "kv_use": _kv_use,
    "seconds": _seconds,
}
"""Load signals by name. In those that rest on reports, a replica without a fresh report counts as what this router has there
plus the median of what others have at the replicas that report."""
REPORTED = frozenset({"reported_requests", "reported_tokens", "kv_use", "seconds"})
"""Load signals that rest on reports."""
