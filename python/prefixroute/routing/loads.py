"""The load signals: each a function of the router's state, the time and the candidates, one number per slot.

All policies of a router balance the same one, chosen by ``Router(load=...)``: that choice is worth more than the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from prefixroute.columns import ASSUMED_TOKENS_PER_S, start_seconds
from prefixroute.routing.ledger import Ledger
from prefixroute.types import LoadReport

if TYPE_CHECKING:
    from prefixroute.routing.state import RouterState

# every signal takes the same arguments


def _reported_requests(state: RouterState, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return reported waiting + running requests, plus what was booked since the report."""
    since = state.ledger.since_requests

    def value(slot: int, report: LoadReport) -> float | None:
        if report.waiting is None or report.running is None:
            return None
        return report.waiting + report.running + since[slot]

    return _reported(state, now, slots, value, state.live.in_flight)


def _reported_tokens(state: RouterState, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return reported waiting tokens, plus what was booked since the report."""
    since = state.ledger.since_tokens

    def value(slot: int, report: LoadReport) -> float | None:
        return None if report.waiting_tokens is None else report.waiting_tokens + since[slot]

    return _reported(state, now, slots, value, state.live.queued)


def _kv_use(state: RouterState, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return the reported share of the KV cache in use, plus the share that the tokens booked since the report take."""
    live, since, capacities = state.live, state.ledger.since_tokens, state.fleet.capacities()

    def value(slot: int, report: LoadReport) -> float | None:
        if report.kv_use is None:
            return None
        return report.kv_use + (since[slot] / capacities[slot] if capacities[slot] else 0.0)

    if not any(report is not None and report.kv_use is not None for report in state.reports(now)):
        return live.in_flight  # no share is known anywhere: requests are compared
    held = zip(live.queued, live.decoding, capacities, strict=True)
    own = [(queued + decoding) / capacity if capacity else 0.0 for queued, decoding, capacity in held]
    return _reported(state, now, slots, value, own)


def _seconds(state: RouterState, now: float, slots: Sequence[int]) -> Sequence[float]:
    """Return the estimated seconds until a new request starts (SMG's least_load)."""
    queued = state.live.queued

    def value(slot: int, report: LoadReport) -> float | None:
        return start_seconds(report.waiting_tokens, report.waiting, report.kv_use, report.tokens_per_s, queued[slot])

    return _reported(state, now, slots, value, [tokens / ASSUMED_TOKENS_PER_S for tokens in queued])


def _reported(
    state: RouterState,
    now: float,
    slots: Sequence[int],
    value: Callable[[int, LoadReport], float | None],
    own: Sequence[float],
) -> list[float]:
    """Return ``value`` of each slot's fresh report; of a replica without one, what this router has there, plus a guess.

    The guess at what others have there is the median over the replicas that report of what they report beyond this
    router's ``own``: unknown is not zero. A replica that falls silent changes nothing in how the others are seen.
    """
    values, reports = list(own), state.reports(now)
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


BOOKED = Ledger.LOADS
"""Load signals that the router's own book has, by name.

- ``requests``: requests in flight, plus a half for each of the fleet's last ``recent_window`` served requests. Requests
  in flight alone are zero almost everywhere while load is light: whatever is hot then herds at its holder.
- ``in_flight``: requests in flight. ``recent``: how many of the fleet's last ``recent_window`` bookings each replica
  received.
- ``uncached_tokens``: prompt tokens that wait to be computed: uncached tokens of requests before their first token.
- ``tokens``: the same, plus context tokens in decode.
"""
REPORTED: dict[str, Callable[[RouterState, float, Sequence[int]], Sequence[float]]] = {
    "reported_requests": _reported_requests,
    "reported_tokens": _reported_tokens,
    "kv_use": _kv_use,
    "seconds": _seconds,
}
"""Load signals that rest on reports, by name. A replica without a fresh report counts as what this router has there
plus the median of what others have at the replicas that report."""
LOADS = (*BOOKED, *REPORTED)
"""Names of all load signals."""
DEFAULT_LOAD = "requests"
"""The signal that a router balances unless told otherwise."""


def balanced(state: RouterState, now: float, pool: Sequence[int]) -> Sequence[float]:
    """Return the load signal of a router by slot. ``pool``: the slots that share the work."""
    if state.booked_load is not None:
        return state.ledger.balanced(state.booked_load)
    return REPORTED[state.config.load](state, now, pool)
