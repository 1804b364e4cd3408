"""Untimed simulation: requests one after another, each served before the next is routed.

There is no time but their order.
"""

from __future__ import annotations

from collections.abc import Iterable

from prefixroute.sim.fleet import Progress, SimulatedFleet
from prefixroute.sim.front import Front
from prefixroute.sim.request_log import RequestLog
from prefixroute.sim.scenario import Scenario
from prefixroute.workload import Request

PROGRESS_EVERY = 1_000


class UntimedRun:
    """One untimed run. The Router's clock shows the arrival of the request being served."""

    def __init__(self, scenario: Scenario, block_size: int) -> None:
        """Set up empty replicas and the routers before them."""
        self.fleet = SimulatedFleet(scenario, block_size)
        self.log = RequestLog(timed=False)
        self._now = 0.0
        self._warmup = scenario.warmup
        self._front = Front(scenario, block_size, self.fleet.stores, lambda: self._now, _later)

    def run(self, requests: Iterable[Request], progress: Progress | None = None) -> None:
        """Serve the requests."""
        front, log, stores, numbers = self._front, self.log, self.fleet.stores, self.fleet.numbers
        warmup, watches, changes = self._warmup, front.watches, self.fleet.changes
        for count, request in enumerate(requests):
            while changes and changes[-1].at <= count:
                self.fleet.change(changes.pop(), drain=front.drain, die=self._die, begin=front.add)
            self._now = now = request.arrival_s
            ticket = front.route(request, now)
            name = ticket.attempt.name
            store = stores[name]
            hit = store.serve(request)
            ticket.finish(output=request.context, reported_hit_tokens=hit, now=now)
            if watches:
                front.observed(name, store, store.take_events(), now)
            if count >= warmup:
                log.served(count, numbers[name], request, hit)
            if progress is not None and count % PROGRESS_EVERY == 0:
                progress(count)

    def _die(self, name: str) -> None:
        self._front.remove(name)
        self.fleet.remove(name)


def _later(*_: object) -> None:
    raise AssertionError("late events need a timed simulation")  # a Scenario without an engine refuses delays
