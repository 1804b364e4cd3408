"""How many replicas the advised policy needs: what ``size`` finds for the answer times that the fleet has today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from prefixroute.advise.busiest import Part
from prefixroute.advise.size import MOST_REPLICAS, FleetSize, Headroom, faster, size
from prefixroute.advise.slo import Slo, SloMeter, SloReading, promise_of, worst
from prefixroute.advise.trials import Runs, Trials
from prefixroute.costmodel import CostModel
from prefixroute.sim import Cell, EngineModel, Grid, Scenario
from prefixroute.sim.grid import seeds_of
from prefixroute.sim.pool import Jobs
from prefixroute.sim.progress import Progress, Work

PERCENTILE = 95.0
"""The percentile of each time that a fleet has to keep."""
SLOWER = {"ttft": 1.1, "tpot": 1.5, "e2e": 1.5}
"""How many times as long as on the whole fleet each time may be: a fleet with time to spare loses a millisecond with
each replica less."""
SIZED_REQUESTS = 5_000
"""Requests of the busiest part of a workload that fleets are tried on: a search takes a dozen timed runs for each
seed."""
MOST_TIMES = 4
"""Times the fleet beyond which no larger one is tried."""


@dataclass(frozen=True, slots=True)
class FleetNeed:
    """How many replicas the advised policy needs.

    Attributes:
        policy: the one advised.
        today: the one in use.
        replicas: of the fleet today.
        asked: the times that are looked at.
        slos: what is promised: today's times, or the advised policy's on the whole fleet where these are longer, with
            some slack; empty where today's fleet is overloaded, so that its times grow with the length of the log and
            promise nothing. Then a fleet has to keep up.
        now: what today's policy gives on the whole fleet.
        then: what the advised policy gives on the whole fleet.
        size: the smallest fleet under the advised policy.
        there: what the advised policy gives on that fleet; on the largest that was tried where none is enough.
        alike: whether today's policy keeps the promises on as many replicas, with the same headroom; None where no
            fewer would do.
        saved_usd_per_month: what the replicas that are not needed cost; None where nobody gave the fleet, so that none
            of them is known to be rented.
        headroom: what the fleet must carry beyond the traffic.
        part: what the fleets were tried on.
    """

    policy: str
    today: str
    replicas: int
    asked: tuple[Slo, ...]
    slos: tuple[Slo, ...]
    now: SloReading
    then: SloReading
    size: FleetSize
    there: SloReading
    alike: bool | None
    saved_usd_per_month: float | None
    headroom: Headroom
    part: Part

    @property
    def is_smaller(self) -> bool:
        """Whether fewer replicas would do. Never where the advised policy cannot keep up on all of them."""
        return self.size.replicas is not None and self.size.replicas < self.replicas and not self.then.is_overloaded

    @property
    def is_smaller_today(self) -> bool:
        """Whether fewer replicas would do under today's policy too, another than the advised one."""
        return self.is_smaller and self.policy != self.today and self.alike is True

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        part = {name: getattr(self.part, name) for name in ("requests", "whole", "begins_s", "span_s", "times_mean")}
        return {
            "policy": self.policy,
            "today": self.today,
            "replicas": self.replicas,
            "slo": [str(slo) for slo in self.slos],
            "times": [f"{one.time}_p{one.percentile:g}" for one in self.asked],
            "now": self.now._asdict(),
            "then": self.then._asdict(),
            "size": asdict(self.size),
            "there": self.there._asdict(),
            "whatever_the_routing": self.alike,
            "saved_usd_per_month": self.saved_usd_per_month,
            "headroom": asdict(self.headroom),
            "part": part,
        }


def timed(scenario: Scenario, cost: CostModel) -> Scenario:
    """Return the scenario with an engine, the cost model's if it has none."""
    return scenario if scenario.engine is not None else replace(scenario, engine=EngineModel(cost))


def needed(
    part: Part,
    advised: Scenario,
    today: Scenario,
    *,
    slos: Sequence[Slo] = (),
    headroom: Headroom | None = None,
    cost: CostModel,
    seeds: int | Sequence[int] = 1,
    jobs: Jobs = 1,
    progress: Progress | None = None,
) -> FleetNeed:
    """Return the smallest fleet under the advised policy, with headroom.

    Args:
        part: what is served: the busiest part of the traffic.
        advised: the fleet with the advised policy.
        today: the fleet with the policy in use, whose times are the promise unless ``slos`` has others.
        slos: promises of the user's own.
        headroom: what the fleet must carry beyond the traffic; None = :class:`Headroom`.
        cost: prices and seconds.
        seeds: how many, counted from 1, or the seeds themselves; the worst counts, as in :func:`size`.
        jobs: processes, see :class:`~prefixroute.sim.grid.Grid`.
        progress: told about what share of the search is done.
    """
    fleet, room = replace(timed(advised, cost), warmup=part.warmup), headroom or Headroom()
    before, work = replace(timed(today, cost), warmup=part.warmup), Work(progress, 10.0)
    asked = tuple(slos) or tuple(Slo(PERCENTILE, 1.0, time) for time in SLOWER)

    def told(scenario: Scenario, promises: tuple[Slo, ...]) -> SloReading:
        grid = Grid(part.workload, seeds_of(seeds), cost, jobs, work.part(1.0))
        return worst(grid.run({0: Cell(scenario, SloMeter(promises))}).runs[0])

    now = told(before, asked)
    then = now if before.policy_name == fleet.policy_name else told(fleet, asked)
    promised = asked if slos else () if now.is_overloaded else _as_now(now, then)
    most = min(MOST_REPLICAS, MOST_TIMES * fleet.replicas)
    sizing = size(
        part.workload,
        promised,
        [fleet.policy],
        scenario=fleet,
        headroom=room,
        seeds=seeds,
        most=most,
        cost=cost,
        jobs=jobs,
        progress=work.part(6.0),
    )
    found = replace(sizing.fleets[0], policy=fleet.policy_name)
    alike = None
    if found.replicas is not None and found.replicas < fleet.replicas:
        traffic = (part.workload, faster(part.workload, room))
        promising = replace(before, promise=promise_of(promised))
        runs = Runs(promising, None, traffic, promised, tuple(seeds_of(seeds)), cost, jobs)
        alike = before.policy_name == fleet.policy_name or _is_enough(found.replicas, runs, room, most)
    spared = max(0, fleet.replicas - (found.replicas or fleet.replicas))
    return FleetNeed(
        policy=fleet.policy_name,
        today=before.policy_name,
        replicas=fleet.replicas,
        asked=asked,
        slos=promised,
        now=now,
        then=then,
        size=found,
        there=told(replace(fleet, replicas=found.replicas or most), asked),
        alike=alike,
        saved_usd_per_month=cost.usd_per_month(spared) if advised.is_given("replicas") else None,
        headroom=room,
        part=part,
    )


def _is_enough(count: int, runs: Runs, room: Headroom, most: int) -> bool:
    """Whether so many replicas keep the promises with what the headroom lets fail, and keep up at the peak."""
    trials = Trials.of(runs, room.preemptions, most, (None, None))
    if not trials.keeps((max(1, count - room.spare),)):
        return False
    return room.utilization == 1 or trials.keeps((count,), peak=True)


def _as_now(now: SloReading, then: SloReading) -> tuple[Slo, ...]:
    """Return the times that the whole fleet has as promises, with their slack; a time that nothing has is not promised.

    They are today's, or those under the advised policy where these are longer: it is advised for what it does over all,
    and no number of replicas takes a percentile back that it is worse in.
    """
    whole = zip(SLOWER, now.seconds, now.seconds if then.is_overloaded else then.seconds, strict=True)
    longer = {time: max(each) for time, *each in whole}
    return tuple(Slo(PERCENTILE, SLOWER[time] * seconds, time) for time, seconds in longer.items() if seconds > 0)
