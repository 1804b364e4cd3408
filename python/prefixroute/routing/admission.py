"""Admission: which replicas are under their caps."""

from __future__ import annotations

from prefixroute.errors import OverloadedError
from prefixroute.routing.state import RouterState
from prefixroute.types import Caps, LoadReport


def admitted(state: RouterState, slots: tuple[int, ...], now: float) -> tuple[int, ...]:
    """Return the slots under every cap; raise :class:`OverloadedError` if none is."""
    caps, reports = state.config.caps, state.reports(now)
    in_flight, queued = state.live.in_flight, state.live.queued
    under = tuple(slot for slot in slots if _under(caps, in_flight[slot], queued[slot], reports[slot]))
    if under:
        return under
    raise OverloadedError(
        f"all {len(slots)} replicas that may take the request are over their admission caps", caps.retry_after_s
    )


def _under(caps: Caps, in_flight: int, queued: int, report: LoadReport | None) -> bool:
    """Return whether a replica is under every cap; what is not known does not count against it."""
    if caps.in_flight is not None and in_flight >= caps.in_flight:
        return False
    if caps.uncached_tokens is not None and queued >= caps.uncached_tokens:
        return False
    if report is None:
        return True
    known = ((caps.waiting, report.waiting), (caps.running, report.running), (caps.kv_use, report.kv_use))
    return all(cap is None or value is None or value < cap for cap, value in known)
