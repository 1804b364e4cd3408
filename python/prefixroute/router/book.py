"""The load book: what this router has in flight where, exact to the last request, plus what replicas report."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

from prefixroute.validation import check_int

if TYPE_CHECKING:
    from prefixroute.types import LoadReport

RATE_MEMORY = 0.2
"""Weight of the newest observation in a learned prefill rate."""
RATE_MIN_TOKENS = 64
"""Prefills shorter than this say more about overhead than about the rate."""


class LoadBook:
    """Counters by slot. Every booking is undone by the same amounts; none goes below zero.

    Not thread-safe: the router's lock guards it.
    """

    def __init__(self, window: int, fresh_s: float, span_s: float) -> None:
        """Start empty. ``fresh_s``: age at which a report is stale; ``span_s``: length of the prefill window."""
        check_int("recent_window", window, 1)
        self.fresh_s, self.span_s = fresh_s, span_s
        self.counts_recent = True
        """Whether the window of recent bookings is kept: it costs a tenth of a booking, and few look at it."""
        self.in_flight: list[int] = []
        self.queued: list[int] = []
        self.decoding: list[int] = []
        self.recent: list[int] = []
        self.recent_queued: list[int] = []
        self.recent_decoding: list[int] = []
        self.last_miss: list[int] = []
        self.reports: list[LoadReport | None] = []
        self.rates: list[float | None] = []
        self.since_requests: list[int] = []
        self.since_tokens: list[int] = []
        self.prefill_s: list[float] = []
        self._window = window
        self._latest: deque[tuple[int, int, int]] = deque()
        self._spans: deque[tuple[float, int, float]] = deque()

    def reset(self, slot: int) -> None:
        """Make a slot new: a replica has taken it, or has left it."""
        counters = (
            self.in_flight,
            self.queued,
            self.decoding,
            self.recent,
            self.recent_queued,
            self.recent_decoding,
            self.since_requests,
            self.since_tokens,
        )
        while len(self.in_flight) <= slot:
            for ints in counters:
                ints.append(0)
            self.last_miss.append(-1)
            self.reports.append(None)
            self.rates.append(None)
            self.prefill_s.append(0.0)
        for ints in counters:
            ints[slot] = 0
        self.last_miss[slot], self.reports[slot], self.rates[slot], self.prefill_s[slot] = -1, None, None, 0.0
        self._latest = deque(booking for booking in self._latest if booking[0] != slot)
        self._spans = deque(span for span in self._spans if span[1] != slot)

    def book(self, slot: int, uncached: int, context: int, decision_id: int, *, missed: bool) -> None:
        """Count a request that was sent to ``slot``: ``uncached`` tokens to compute of a prompt of ``context``."""
        self.in_flight[slot] += 1
        self.queued[slot] += uncached
        self.since_requests[slot] += 1
        self.since_tokens[slot] += uncached
        if missed:
            self.last_miss[slot] = decision_id
        if self.counts_recent:
            self._count_recent(slot, uncached, context)

    def _count_recent(self, slot: int, uncached: int, context: int) -> None:
        latest = self._latest
        latest.append((slot, uncached, context))
        self.recent[slot] += 1
        self.recent_queued[slot] += uncached
        self.recent_decoding[slot] += context
        if len(latest) > self._window:
            slot, uncached, context = latest.popleft()
            self.recent[slot] -= 1
            self.recent_queued[slot] -= uncached
            self.recent_decoding[slot] -= context

    def start(self, slot: int, uncached: int, context: int) -> None:
        """Move a request from prefill to decode."""
        self.queued[slot] -= uncached
        self.decoding[slot] += context

    def release(self, slot: int, queued: int, decoding: int) -> None:
        """Take a request off the book, with what it still had there."""
        self.in_flight[slot] -= 1
        self.queued[slot] -= queued
        self.decoding[slot] -= decoding

    def unbook(self, slot: int, uncached: int) -> None:
        """Take out of the reports' additions a request that never reached the engine."""
        self.since_requests[slot] = max(0, self.since_requests[slot] - 1)
        self.since_tokens[slot] = max(0, self.since_tokens[slot] - uncached)

    def report(self, slot: int, report: LoadReport) -> bool:
        """Keep a replica's report unless a newer one is known; return whether it was kept."""
        known = self.reports[slot]
        if known is not None and known.at > report.at:
            return False
        self.reports[slot] = report
        self.since_requests[slot] = self.since_tokens[slot] = 0
        return True

    def learn(self, slot: int, computed: int, seconds: float) -> None:
        """Learn a replica's prefill rate: tokens that it computed until a request's first token, and the time it took."""
        if computed < RATE_MIN_TOKENS or not seconds > 0.0:
            return
        rate, known = computed / seconds, self.rates[slot]
        if not rate < inf:
            return
        self.rates[slot] = rate if known is None else known + RATE_MEMORY * (rate - known)

    def spend(self, slot: int, seconds: float, now: float) -> None:
        """Count prefill seconds given to a replica in the window that ends now."""
        self.prefill_s[slot] += seconds
        self._spans.append((now, slot, seconds))

    def window_s(self, now: float) -> list[float]:
        """Return the prefill seconds given to each replica in the last ``span_s`` seconds."""
        spans, oldest = self._spans, now - self.span_s
        while spans and spans[0][0] <= oldest:
            _, slot, seconds = spans.popleft()
            self.prefill_s[slot] = max(0.0, self.prefill_s[slot] - seconds)
        return self.prefill_s[:]

    def fresh(self, now: float) -> list[LoadReport | None]:
        """Return each replica's report, ``None`` where it is stale or absent."""
        reports, oldest = self.reports, now - self.fresh_s
        if reports.count(None) == len(reports):
            return reports[:]
        return [report if report is not None and report.at >= oldest else None for report in reports]
