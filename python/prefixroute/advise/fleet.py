"""Would a smaller fleet do? What ``size`` finds for the promise that the fleet keeps today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prefixroute.advise.advice import Finding
from prefixroute.advise.findings import SOONER
from prefixroute.advise.size import Fleet, Reading, Slo, Told, size
from prefixroute.advise.times import duration
from prefixroute.costmodel import CostModel
from prefixroute.sim import Cell, EngineModel, Grid, Scenario
from prefixroute.sim.grid import seeds_of
from prefixroute.sim.progress import Progress
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.workload import Workload

PERCENTILE = 95.0
"""The percentile of TTFT that a smaller fleet has to keep."""
SIZED_REQUESTS = 10_000
"""Requests, the first of the workload, that fleets are tried on: a search takes several runs in time."""


def in_time(scenario: Scenario, cost: CostModel) -> Scenario:
    """Return the scenario with an engine, the cost model's if it has none."""
    return scenario if scenario.engine is not None else replace(scenario, engine=EngineModel(cost))


def read(
    workload: Workload,
    scenario: Scenario,
    cost: CostModel,
    seeds: int | Sequence[int] = 1,
    progress: Progress | None = None,
) -> Told:
    """Return what runs in time on the first :data:`SIZED_REQUESTS` tell of the percentile: the worst of the seeds."""
    head, timed = workload.head(SIZED_REQUESTS), in_time(scenario, cost)
    results = Grid(head, seeds_of(seeds), cost, progress=progress).run({0: Cell(timed, Reading(PERCENTILE))})
    worst: Told = max(results.runs[0])
    return worst


def smaller_fleet(
    workload: Workload,
    advised: Scenario,
    today: AnyPolicy,
    *,
    cost: CostModel,
    seeds: int | Sequence[int] = 1,
    progress: Progress | None = None,
) -> Finding:
    """Return the smallest fleet under the advised policy that answers as soon as the whole one does under today's.

    Within a tenth: on a fleet with time to spare, one replica less costs a millisecond and is no loss.

    Args:
        workload: what is served; the first :data:`SIZED_REQUESTS` are.
        advised: the fleet with the advised policy.
        today: the policy in use, whose percentile of TTFT is the promise.
        cost: prices and seconds.
        seeds: how many, counted from 1, or the seeds themselves; the worst counts, as in :func:`size`.
        progress: told about what share of the search is done.
    """
    head, advised = workload.head(SIZED_REQUESTS), in_time(advised, cost)
    before = replace(advised, policy=today, label="")
    now, then = (read(workload, one, cost, seeds, progress) for one in (before, advised))
    promise = Slo(PERCENTILE, (1 + SOONER) * max(now.ttft_s, 1e-9))
    sizing = size(
        head,
        promise,
        [advised.policy],
        scenario=advised,
        seeds=seeds,
        most=advised.replicas,
        cost=cost,
        progress=progress,
    )
    fleet = sizing.fleets[0]
    enough = fleet.replicas
    alike = None
    if enough is not None and enough < advised.replicas:
        alike = read(workload, replace(before, replicas=enough), cost, seeds).ttft_s <= promise.seconds
    told = _sentence(fleet, advised, before, now) + _reason(before, enough, alike=alike)
    if then.is_overloaded:
        told = (
            f"{advised.replicas} replicas cannot keep up: in time, requests come faster than they are served with "
            f"{advised.policy_name}, and 95 % of them have their first token only within {_told(then.ttft_s)}."
        )
    return Finding(
        "fleet-size",
        "warning" if then.is_overloaded else "note",
        told + _looked_at(workload, cost, advised.replicas, fleet),
        {
            "replicas": enough,
            "whatever_the_routing": alike,
            "ttft_p95_s": fleet.ttft_s,
            "ttft_p95_one_less_s": fleet.ttft_one_less_s,
            "ttft_p95_one_replica_s": fleet.ttft_one_s,
            "ttft_p95_today_s": now.ttft_s,
            "ttft_p95_advised_s": then.ttft_s,
            "overloaded": then.is_overloaded,
            "requests": SIZED_REQUESTS
            if workload.request_count is None
            else min(SIZED_REQUESTS, workload.request_count),
        },
    )


def _sentence(fleet: Fleet, advised: Scenario, before: Scenario, now: Told) -> str:
    count, policy = advised.replicas, advised.policy_name
    today = f"{_told(now.ttft_s)} of {count} with {before.policy_name}"
    if fleet.replicas is None:
        return (
            f"All {count} replicas are needed: with {policy}, they take {_told(fleet.ttft_s)} to the first token of 95 % of "
            f"the requests, more than a tenth above the {today}."
        )
    enough = (
        f"All {count} replicas are needed"
        if fleet.replicas == count
        else f"{fleet.replicas} of the {count} replicas would do"
    )
    less = "" if fleet.ttft_one_less_s is None else f"; {fleet.replicas - 1} would take {_told(fleet.ttft_one_less_s)}"
    single = "" if fleet.replicas <= 2 else f", one alone {_told(fleet.ttft_one_s)}"  # noqa: PLR2004 - said already
    return (
        f"{enough}: with {policy}, 95 % of the requests have their first token within {_told(fleet.ttft_s)}, and a tenth "
        f"more than the {today} is allowed{less}{single}."
    )


def _reason(before: Scenario, enough: int | None, *, alike: bool | None) -> str:
    """Return whether routing is why fewer replicas would do; nothing where they would not."""
    if alike is None:
        return ""
    if enough == 1:
        return " One replica needs no router, and round robin on it does the same: routing is not the reason."
    if alike:
        return f" {before.policy_name} on {enough} does it too: routing is not the reason."
    return f" {before.policy_name} on {enough} does not: routing is the reason."


def _looked_at(workload: Workload, cost: CostModel, count: int, fleet: Fleet) -> str:
    spared = count - (fleet.replicas or count)
    saved = f" That is ${cost.usd_per_month(spared):,.0f} a month less." if spared else ""
    whole = workload.request_count is not None and workload.request_count <= SIZED_REQUESTS
    basis = "the whole trace" if whole else f"the first {SIZED_REQUESTS:,} requests"
    if spared:
        saved += f" {'It' if fleet.replicas == 1 else 'They'} would be busy {100 * (fleet.busy or 0.0):.0f} % of the time, with none to spare for a failure."
    return f"{saved} Simulated in time on {basis}; see `prefixroute size` for another promise."


def _told(seconds: float | None) -> str:
    return "nothing" if seconds is None else duration(seconds)
