"""How many replicas to prefill and how many to decode, for the same promises as a fleet in which each does both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from prefixroute.advise.size import MOST_REPLICAS, EqualFleet, FleetSize, Headroom, Sizing, faster, size
from prefixroute.advise.slo import Reading, Slo, Told, promise_of, worst
from prefixroute.costmodel import DEFAULT_LINK, CostModel, Link, find_link
from prefixroute.sim import Cell, EngineModel, Grid, Scenario, Split
from prefixroute.sim.grid import Source, kept, seeds_of
from prefixroute.sim.pool import Jobs
from prefixroute.sim.progress import Progress, Work
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import link_assumed

MOST_EQUAL = 7
"""Ways to share out the replicas of a mixed fleet that are tried."""


@dataclass(frozen=True, slots=True)
class Apart:
    """How split fleets are tried for one policy: on the traffic's own rate, and on that of its peak.

    Args:
        run: runs a split on the traffic, or on the faster one; the worst seed counts.
        slos: the promises.
        room: what the fleet must carry beyond the traffic.
        most: replicas beyond which no fleet is tried.
    """

    run: Callable[[int, int, bool], Told]
    slos: tuple[Slo, ...]
    room: Headroom
    most: int

    def keeps(self, prefill: int, decode: int, *, peak: bool = False) -> bool:
        """Whether a split keeps the promises, or keeps up at the peak."""
        told = self.run(prefill, decode, peak)
        return told.keeps(() if peak else self.slos, self.room.preemptions)

    def smallest(self, least: tuple[int, int] = (1, 1), *, peak: bool = False) -> tuple[int, int] | None:
        """Return the smallest split from ``least`` on; more of either kind never breaks a promise.

        Both kinds grow alike until the promises are kept; then each shrinks by bisection, and one more of the first kind is
        tried in the place of two of the second.
        """
        prefill, decode = least
        while not self.keeps(prefill, decode, peak=peak):
            if prefill + decode >= self.most:
                return None
            prefill, decode = min(2 * prefill, self.most - decode), min(2 * decode, self.most - prefill)
        prefill = _least(least[0], prefill, lambda count: self.keeps(count, decode, peak=peak))
        decode = self._fewest_decode(prefill, least[1], decode, peak=peak)
        while decode - 2 >= least[1] and self.keeps(prefill + 1, decode - 2, peak=peak):
            prefill, decode = prefill + 1, self._fewest_decode(prefill + 1, least[1], decode - 2, peak=peak)
        return prefill, decode

    def _fewest_decode(self, prefill: int, low: int, good: int, *, peak: bool) -> int:
        return _least(low, good, lambda count: self.keeps(prefill, count, peak=peak))


def _least(low: int, good: int, keeps: Callable[[int], bool]) -> int:
    """Return the least count from ``low`` to ``good`` that keeps the promises, which ``good`` does."""
    bad = low - 1
    while good - bad > 1:
        middle = (good + bad) // 2
        if keeps(middle):
            good = middle
        else:
            bad = middle
    return good


def size_apart(
    source: Source,
    slos: Slo | Sequence[Slo],
    policies: Sequence[AnyPolicy],
    *,
    link: str | Link = DEFAULT_LINK,
    scenario: Scenario | None = None,
    headroom: Headroom | None = None,
    seeds: int | Sequence[int] = 1,
    most: int = MOST_REPLICAS,
    cost: CostModel | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
) -> Sizing:
    """Find the smallest mixed fleet and the smallest split one for the same promises, under each policy.

    Split fleets stand behind the mixed ones. Of either kind as many replicas may fail as the headroom says. What splits of as
    many GPUs as the mixed fleet do to the promises is in ``equal``.

    Args:
        source: as for :func:`~prefixroute.advise.size`.
        slos: the promises; none = to keep up.
        policies: names or objects.
        link: what keys and values move over.
        scenario: everything else.
        headroom: what the fleet must carry beyond the traffic; None = :class:`~prefixroute.advise.Headroom`.
        seeds: how many, counted from 1, or the seeds themselves.
        most: replicas beyond which no fleet is tried.
        cost: prices and seconds.
        jobs: processes over seeds.
        progress: told about what share of the search is done.
        time_is_up: asked before each policy but the first, and before each split search.

    Raises:
        ConfigError: no policy, a limit below one, or an unknown link.
    """
    cost, chosen, source = cost or CostModel(), seeds_of(seeds), kept(source, jobs=jobs)
    found_link, room, work = find_link(link), headroom or Headroom(), Work(progress, 3.0)
    base = scenario or Scenario()
    if base.engine is None:
        base = replace(base, engine=EngineModel(cost))
    mixed = size(
        source, slos, policies, scenario=base, headroom=room, seeds=chosen, most=most, cost=cost, jobs=jobs,
        progress=work.part(1.0), time_is_up=time_is_up,
    )  # fmt: skip
    told_of, part = faster(source, room), work.part(2.0)
    fleets, equal = list(mixed.fleets), list[EqualFleet]()
    for number, (policy, fleet) in enumerate(zip(policies, mixed.fleets, strict=False)):
        if number and time_is_up():
            break
        if part is not None:
            part(number / len(mixed.fleets), f"{fleet.policy}: prefill and decode apart")
        one, memory = (
            replace(base, policy=policy, label="", promise=promise_of(mixed.slos)),
            dict[tuple[int, int, bool], Told](),
        )

        def run(
            prefill: int,
            decode: int,
            peak: bool,  # noqa: FBT001
            one: Scenario = one,
            memory: dict[tuple[int, int, bool], Told] = memory,
        ) -> Told:
            key = prefill, decode, peak
            if key not in memory:
                reading = Reading(() if peak else mixed.slos)
                cell = Cell(Split(prefill, decode, found_link).of(one), reading)
                grid = Grid(told_of if peak else source, chosen, cost, jobs)
                memory[key] = worst(grid.run({0: cell}).runs[0])
            return memory[key]

        apart = Apart(run, mixed.slos, room, most)
        fleets.append(_fleet(fleet.policy, apart, cost))
        equal += _equal(fleet, apart, one.policy_name)
    assumptions = (*mixed.assumptions, link_assumed(cost, found_link))
    return replace(mixed, fleets=tuple(fleets), equal=tuple(equal), assumptions=assumptions)


def _fleet(policy: str, apart: Apart, cost: CostModel) -> FleetSize:
    """Return the smallest split fleet with headroom: enough at the peak, and with so many of either kind lost."""
    room, least = apart.room, apart.smallest()
    at_peak = None
    if least is not None:
        at_peak = least if room.utilization == 1 else apart.smallest(least, peak=True)
    wanted = None
    if least is not None and at_peak is not None:
        spared = (least[0] + room.spare, least[1] + room.spare)
        wanted = max(at_peak[0], spared[0]), max(at_peak[1], spared[1])
        wanted = wanted if sum(wanted) <= apart.most else None
    limit = apart.most // 2
    prefill, decode = wanted or (limit, apart.most - limit)
    told = apart.run(prefill, decode, False)  # noqa: FBT003
    lost = [pair for pair in ((prefill - 1, decode), (prefill, decode - 1)) if wanted and min(pair) > 0]
    failure = wanted is not None and room.spare > 0 and least is not None and wanted != at_peak
    count = None if wanted is None else sum(wanted)
    return FleetSize(
        policy=f"{policy}, apart" if wanted is None else f"{policy}, {prefill}+{decode}",
        replicas=count,
        gpus=None if count is None else count * cost.tensor_parallel,
        usd_per_month=None if count is None else cost.usd_per_month(count),
        least=None if least is None else sum(least),
        at_peak=None if at_peak is None else sum(at_peak),
        decided_by="failure" if failure else "peak" if room.utilization < 1 else "traffic",
        seconds=told.seconds,
        seconds_one_less=worst([apart.run(*pair, False) for pair in lost]).seconds if lost else None,  # noqa: FBT003
        recompute_ratio=told.recompute_ratio,
        busy=told.busy,
        preempted=told.preempted,
        overloaded=told.is_overloaded,
        goodput_per_s=told.goodput_per_s,
        prefill=None if wanted is None else prefill,
        decode=None if wanted is None else decode,
    )


def _equal(mixed: FleetSize, apart: Apart, policy: str) -> list[EqualFleet]:
    """Return what splits of as many replicas as a mixed fleet do to the promises, and that fleet first."""
    count = mixed.replicas
    if count is None or count < 2:  # noqa: PLR2004
        return []
    tried = range(1, count)
    if len(tried) > MOST_EQUAL:
        tried_few = [1 + round(at * (count - 2) / (MOST_EQUAL - 1)) for at in range(MOST_EQUAL)]
    else:
        tried_few = list(tried)
    rows = [EqualFleet(policy, count, None, None, mixed.seconds, keeps=True)]
    for prefill in tried_few:
        told = apart.run(prefill, count - prefill, False)  # noqa: FBT003
        keeps = told.keeps(apart.slos, apart.room.preemptions)
        rows.append(EqualFleet(policy, count, prefill, count - prefill, told.seconds, keeps))
    return rows
