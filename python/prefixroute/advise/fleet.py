"""Would a smaller fleet do? What ``size`` finds for the promise that the fleet keeps today."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from prefixroute.advise.advice import Finding
from prefixroute.advise.findings import SOONER
from prefixroute.advise.size import Fleet, Reading, Slo, Told, size
from prefixroute.costmodel import CostModel
from prefixroute.sim import EngineModel, Scenario
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.tasks import Report, RunTask
from prefixroute.workload import Workload

PERCENTILE = 95.0
"""The percentile of TTFT that a smaller fleet has to keep."""
SIZED_REQUESTS = 10_000
"""Requests, the first of the workload, that fleets are tried on: a search takes several runs in time."""


def in_time(scenario: Scenario, cost: CostModel) -> Scenario:
    """Return the scenario with an engine, the cost model's if it has none."""
    return scenario if scenario.engine is not None else replace(scenario, engine=EngineModel(cost))


def smaller_fleet(
    workload: Workload, advised: Scenario, today: AnyPolicy, *, cost: CostModel, progress: Report | None = None
) -> Finding:
    """Return the smallest fleet under the advised policy that answers as soon as the whole one does under today's.

    Within a tenth: on a fleet with time to spare, one replica less costs a millisecond and is no loss.

    Args:
        workload: what is served; the first :data:`SIZED_REQUESTS` are.
        advised: the fleet with the advised policy.
        today: the policy in use, whose percentile of TTFT is the promise.
        cost: prices and seconds.
        progress: told about what share of the search is done.
    """
    head, advised = workload.head(SIZED_REQUESTS), in_time(advised, cost)
    before = replace(advised, policy=today, label="")
    now: Told = RunTask(head, before, cost, Reading(PERCENTILE)).run(_first(progress, before))
    promise = Slo(PERCENTILE, (1 + SOONER) * max(now.ttft_s, 1e-9))
    sizing = size(
        head, promise, [advised.policy], scenario=advised, most=advised.replicas, cost=cost, progress=progress
    )
    fleet = sizing.fleets[0]
    return Finding(
        "fleet-size",
        "note",
        _sentence(fleet, advised, before, now) + _looked_at(workload, cost, advised.replicas, fleet),
        {
            "replicas": fleet.replicas,
            "ttft_p95_s": fleet.ttft_s,
            "ttft_p95_one_less_s": fleet.ttft_one_less_s,
            "ttft_p95_one_replica_s": fleet.ttft_one_s,
            "ttft_p95_today_s": now.ttft_s,
            "requests": SIZED_REQUESTS
            if workload.request_count is None
            else min(SIZED_REQUESTS, workload.request_count),
        },
    )


def _first(progress: Report | None, before: Scenario) -> Callable[[int], None] | None:
    if progress is None:
        return None
    return lambda done: progress(0.0, f"{before.policy_name} on {before.replicas} in time, {done:,} requests")


def _sentence(fleet: Fleet, advised: Scenario, before: Scenario, now: Told) -> str:
    count, policy = advised.replicas, advised.policy_name
    today = f"{_seconds(now.ttft_s)} of {count} with {before.policy_name}"
    if fleet.replicas is None:
        return (
            f"All {count} replicas are needed: with {policy} they take {_seconds(fleet.ttft_s)} to the first token of 95 % of "
            f"the requests, more than a tenth above the {today}."
        )
    enough = (
        f"All {count} replicas are needed"
        if fleet.replicas == count
        else f"{fleet.replicas} of the {count} replicas would do"
    )
    less = (
        "" if fleet.ttft_one_less_s is None else f"; {fleet.replicas - 1} would take {_seconds(fleet.ttft_one_less_s)}"
    )
    single = "" if fleet.replicas <= 2 else f", one alone {_seconds(fleet.ttft_one_s)}"  # noqa: PLR2004 - said already
    return (
        f"{enough}: with {policy} 95 % of the requests have their first token within {_seconds(fleet.ttft_s)}, and a tenth "
        f"more than the {today} is allowed{less}{single}."
    )


def _looked_at(workload: Workload, cost: CostModel, count: int, fleet: Fleet) -> str:
    spared = count - (fleet.replicas or count)
    saved = f" ${cost.usd_per_month(spared):,.0f} a month less." if spared else ""
    whole = workload.request_count is not None and workload.request_count <= SIZED_REQUESTS
    basis = "the whole trace" if whole else f"the first {SIZED_REQUESTS:,} requests"
    return f"{saved} Simulated in time on {basis}; see `prefixroute size` for another promise."


def _seconds(seconds: float | None) -> str:
    return "nothing" if seconds is None else f"{seconds:,.2f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"
