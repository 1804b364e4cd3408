"""The load book: what this router has in flight where, exact to the last request, plus what replicas report."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefixroute.routing.ledger import Attempt
    from prefixroute.types import LoadReport

RATE_MEMORY = 0.2
"""Weight of the newest observation in a learned prefill rate."""
RATE_MIN_TOKENS = 64
"""Prefills shorter than this say more about overhead than about the rate."""
WINDOW, WINDOW_PER_REPLICA = 200, 25
"""Decisions that the recent window counts by default: so many, or so many for each replica if that is more. With 200 over
64 replicas, counts of 3 say nothing and policies herd."""
SERVED_WEIGHT = 0.5
"""What a request counts on ``busy`` that has been served lately; one in flight counts 1."""
MISSED_REPORTS = 2
"""A report counts for so many of the replica's own periods, if that is longer than ``Timing.report_fresh_s``."""
LONGEST_PERIOD_S = 60.0
"""The longest period of reports that is learned: what is older than two minutes is no load."""


class Counts:
    """Requests and tokens by slot."""

    __slots__ = ("decoding", "in_flight", "queued")

    def __init__(self) -> None:
        """Start without slots."""
        self.in_flight: list[int] = []
        self.queued: list[int] = []
        self.decoding: list[int] = []

    def resize(self, slots: int) -> None:
        """Have at least so many slots."""
        for column in (self.in_flight, self.queued, self.decoding):
            column.extend([0] * (slots - len(column)))

    def add(self, slot: int, requests: int, queued: int, decoding: int) -> None:
        """Add to a slot."""
        self.in_flight[slot] += requests
        self.queued[slot] += queued
        self.decoding[slot] += decoding

    def reset(self, slot: int) -> None:
        """Make a slot empty."""
        self.in_flight[slot] = self.queued[slot] = self.decoding[slot] = 0


class LoadBook(Counts):
    """Counters by slot. Every booking is undone by the same amounts; none goes below zero.

    Not thread-safe: the router's lock guards it. :meth:`rebuild` makes it right again after a step that was cut off.

    Attributes:
        recent: the same counters over the recent window of bookings.
        busy: requests in flight, plus a half for each of the fleet's latest served requests.
        last_miss: decision id of the last request that each replica took without a hit; -1 = none yet.
        reports: the newest report of each replica.
        rates: learned prefill rate of each replica in uncached tokens per second; ``None`` = not yet known.
        capacity: tokens of each replica's KV cache.
        since_requests: requests booked since the report.
        since_tokens: uncached tokens booked since the report.
        prefill_s: prefill seconds given to each replica within the last ``span_s`` seconds or a little more.
    """

    __slots__ = (
        "_latest",
        "_own_window",
        "_period",
        "_served",
        "_spans",
        "busy",
        "capacity",
        "counts_recent",
        "counts_served",
        "fresh_s",
        "last_miss",
        "prefill_s",
        "rates",
        "recent",
        "reports",
        "since_requests",
        "since_tokens",
        "span_s",
        "window",
    )

    def __init__(self, window: int | None, fresh_s: float, span_s: float) -> None:
        """Start empty.

        Args:
            window: length of the recent window in bookings; ``None`` = by the number of replicas.
            fresh_s: age in seconds at which a report is stale.
            span_s: length of the prefill window in seconds.
        """
        super().__init__()
        self.fresh_s, self.span_s = fresh_s, span_s
        self._own_window, self.window = window, window or WINDOW
        self.counts_recent = True
        """Whether the window of recent bookings is kept: it costs a tenth of a booking."""
        self.counts_served = True
        """Whether served requests count on ``busy``."""
        self.recent = Counts()
        self.busy: list[float] = []
        self.last_miss: list[int] = []
        self.reports: list[LoadReport | None] = []
        self.rates: list[float | None] = []
        self.capacity: list[int] = []
        self.since_requests: list[int] = []
        self.since_tokens: list[int] = []
        self.prefill_s: list[float] = []
        self._period: list[float] = []
        self._latest: deque[tuple[int, int, int]] = deque()
        self._served: deque[int] = deque()
        self._spans: deque[tuple[float, int, float]] = deque()

    def resize(self, slots: int) -> None:
        """Have at least so many slots."""
        super().resize(slots)
        self.recent.resize(slots)
        missing = slots - len(self.capacity)
        self.last_miss.extend([-1] * (slots - len(self.last_miss)))
        for optional in (self.reports, self.rates):
            optional.extend([None] * (slots - len(optional)))
        for column in (self.since_requests, self.since_tokens):
            column.extend([0] * (slots - len(column)))
        for numbers in (self.busy, self.prefill_s, self._period):
            numbers.extend([0.0] * (slots - len(numbers)))
        self.capacity.extend([0] * missing)
        self.window = self._own_window or max(WINDOW, WINDOW_PER_REPLICA * slots)

    def reset(self, slot: int) -> None:
        """Make a slot new: a replica has taken it, or has left it."""
        self.resize(slot + 1)
        super().reset(slot)
        self.recent.reset(slot)
        self.since_requests[slot] = self.since_tokens[slot] = 0
        self.last_miss[slot], self.reports[slot], self.rates[slot] = -1, None, None
        self.busy[slot] = self.prefill_s[slot] = self._period[slot] = 0.0
        self._latest = deque(booking for booking in tuple(self._latest) if booking[0] != slot)
        self._served = deque(served for served in tuple(self._served) if served != slot)
        self._spans = deque(span for span in tuple(self._spans) if span[1] != slot)

    def rebuild(self, attempts: Iterable[Attempt]) -> None:
        """Count anew what is in flight and what the windows hold."""
        slots = len(self.in_flight)
        self.resize(slots)
        live, recent, prefill_s = Counts(), Counts(), [0.0] * slots
        live.resize(slots)
        recent.resize(slots)
        for attempt in attempts:
            if attempt.alive:
                live.add(attempt.slot, 1, attempt.queued, attempt.decoding)
        for slot, uncached, context in tuple(self._latest):
            recent.add(slot, 1, uncached, context)
        for _, slot, seconds in tuple(self._spans):
            prefill_s[slot] += seconds
        self.in_flight, self.queued, self.decoding = live.in_flight, live.queued, live.decoding
        self.recent, self.prefill_s = recent, prefill_s
        self.busy = [float(requests) for requests in live.in_flight]
        for slot in tuple(self._served):
            self.busy[slot] += SERVED_WEIGHT

    def book(self, slot: int, uncached: int, context: int, decision_id: int, *, missed: bool) -> int:
        """Count a request that was sent to ``slot``: ``uncached`` tokens to compute of a prompt of ``context``.

        Returns:
            All uncached tokens that wait there now.
        """
        self.in_flight[slot] += 1
        self.busy[slot] += 1.0
        self.queued[slot] += uncached
        ahead = self.queued[slot]
        self.since_requests[slot] += 1
        self.since_tokens[slot] += uncached
        if missed:
            self.last_miss[slot] = decision_id
        if self.counts_recent:
            latest, recent = self._latest, self.recent
            latest.append((slot, uncached, context))
            recent.in_flight[slot] += 1
            recent.queued[slot] += uncached
            recent.decoding[slot] += context
            while len(latest) > self.window:
                slot, uncached, context = latest.popleft()
                recent.in_flight[slot] -= 1
                recent.queued[slot] -= uncached
                recent.decoding[slot] -= context
        return ahead

    def start(self, slot: int, uncached: int, context: int) -> None:
        """Move a request from prefill to decode."""
        self.queued[slot] -= uncached
        self.decoding[slot] += context

    def release(self, slot: int, queued: int, decoding: int) -> None:
        """Take a request off the book, with what it still had there."""
        self.in_flight[slot] -= 1
        self.busy[slot] -= 1.0
        self.queued[slot] -= queued
        self.decoding[slot] -= decoding

    def serve(self, slot: int) -> None:
        """Count a request that has been served: it counts a half for as long as it is among the latest."""
        served = self._served
        served.append(slot)
        self.busy[slot] += SERVED_WEIGHT
        while len(served) > self.window:
            self.busy[served.popleft()] -= SERVED_WEIGHT

    def unbook(self, slot: int, uncached: int) -> None:
        """Take out of the reports' additions a request that never reached the engine."""
        self.since_requests[slot] = max(0, self.since_requests[slot] - 1)
        self.since_tokens[slot] = max(0, self.since_tokens[slot] - uncached)

    def report(self, slot: int, report: LoadReport) -> bool:
        """Keep a replica's report unless a newer one is known; return whether it was kept."""
        known = self.reports[slot]
        if known is not None:
            if known.at > report.at:
                return False
            if report.at > known.at:
                self._period[slot] = min(report.at - known.at, LONGEST_PERIOD_S)
        self.since_requests[slot] = self.since_tokens[slot] = 0
        self.reports[slot] = report
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
        spent, oldest = self.prefill_s[:], now - self.span_s
        for at, slot, seconds in tuple(self._spans):
            if at > oldest:
                break
            spent[slot] = max(0.0, spent[slot] - seconds)
        return spent

    def sweep(self, now: float) -> None:
        """Forget the prefill seconds that have left the window."""
        spans, oldest = self._spans, now - self.span_s
        while spans and spans[0][0] <= oldest:
            _, slot, seconds = spans.popleft()
            self.prefill_s[slot] = max(0.0, self.prefill_s[slot] - seconds)

    def fresh(self, now: float) -> list[LoadReport | None]:
        """Return each replica's report, ``None`` where it is stale or absent."""
        reports = self.reports
        if reports.count(None) == len(reports):
            return reports[:]
        return [report if self.is_fresh(slot, now) else None for slot, report in enumerate(reports)]

    def is_fresh(self, slot: int, now: float) -> bool:
        """Return whether a replica has a report that still counts."""
        report = self.reports[slot]
        return report is not None and now - report.at <= max(self.fresh_s, MISSED_REPORTS * self._period[slot])

    def has_lapsed(self, slot: int, now: float) -> bool:
        """Return whether a replica has reported, and its last report is too old to count."""
        return self.reports[slot] is not None and not self.is_fresh(slot, now)
