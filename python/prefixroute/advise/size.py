"""How many replicas and GPUs keep the promises under each policy, with room for a peak and a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from prefixroute.advise.behind import MOST_PREEMPTIONS
from prefixroute.advise.slo import Slo, promise_of, worst
from prefixroute.advise.trials import MIXED, Fleet, Runs, Trials
from prefixroute.costmodel import Assumption, CostModel, Link, find_link
from prefixroute.document import SCHEMA, ResultDocument
from prefixroute.errors import ConfigError
from prefixroute.sim import EngineModel, Scenario
from prefixroute.sim.grid import Source, kept, open_source, seeds_of
from prefixroute.sim.pool import Jobs
from prefixroute.sim.progress import Progress, Work
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import assumed, assumptions_dict, left_out, link_assumed
from prefixroute.validation import check_float, check_int
from prefixroute.workload import Workload

MOST_REPLICAS = 256
PEAK_UTILIZATION = 0.8
"""Share of what a fleet can carry that its busiest hour may take."""
SPARE_REPLICAS = 1
"""Replicas that may fail without breaking a promise."""
MOST_EQUAL = 7
"""Ways to share out the replicas of a mixed fleet that are tried."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a fleet must carry beyond the traffic itself.

    Args:
        utilization: the traffic may take this share of what the fleet can carry: each replica must still keep up with
            arrivals 1 / ``utilization`` times as fast. 1 = no reserve.
        spare: so many replicas may fail: the others must keep the promises at the traffic's own rate.
        preemptions: so many a request are borne at most, at the peak and with replicas lost: a fleet with more has too
            little memory for what it answers. None = not looked at.

    Raises:
        ConfigError: a share outside of (0, 1], or a negative count.
    """

    utilization: float = PEAK_UTILIZATION
    spare: int = SPARE_REPLICAS
    preemptions: float | None = MOST_PREEMPTIONS

    def __post_init__(self) -> None:
        """Check each."""
        if self.preemptions is not None:
            check_float("headroom's preemptions", self.preemptions, 0)
        check_float("headroom's utilization", self.utilization, 0, 1, above=True)
        check_int("headroom's spare replicas", self.spare, 0)


NO_HEADROOM = Headroom(1.0, 0, None)


@dataclass(frozen=True, slots=True)
class FleetSize:
    """The smallest fleet that keeps the promises under a policy, with headroom; None where none up to the limit does.

    Attributes:
        policy: its name.
        replicas: to buy.
        gpus: of these.
        usd_per_month: what they cost.
        least: replicas that keep the promises at the traffic's own rate, with nothing to spare.
        at_peak: replicas that keep up with arrivals as fast as the headroom demands.
        decided_by: what of the two asks for the most: ``failure`` or ``peak``; ``traffic`` without headroom.
        seconds: each promised percentile at that size (at the limit, where none does).
        seconds_one_less: the same with one replica lost; None at one, and where no fleet was enough.
        recompute_ratio: at that size.
        busy: share of the time in which replicas have work, at that size.
        preempted: preemptions a request, at that size.
        overloaded: at the limit requests still come faster than they are served, at one replica at least.
        goodput_per_s: requests a second that keep every promise, at that size; None without promises.
        prefill: of ``replicas``, those that only prefill; None where each does both.
        decode: those that only decode.
    """

    policy: str
    replicas: int | None
    gpus: int | None
    usd_per_month: float | None
    least: int | None
    at_peak: int | None
    decided_by: str
    seconds: tuple[float, ...]
    seconds_one_less: tuple[float, ...] | None
    recompute_ratio: float
    busy: float
    preempted: float
    overloaded: bool
    goodput_per_s: float | None = None
    prefill: int | None = None
    decode: int | None = None


@dataclass(frozen=True, slots=True)
class EqualFleet:
    """What a fleet of as many GPUs as the mixed fleet to buy does to the promises, at the traffic's own rate.

    Attributes:
        policy: the mixed fleet's.
        replicas: of either fleet.
        prefill: replicas that only prefill; None = the mixed fleet itself.
        decode: replicas that only decode.
        seconds: each promised percentile.
        keeps: no promise is broken, and each replica keeps up.
    """

    policy: str
    replicas: int
    prefill: int | None
    decode: int | None
    seconds: tuple[float, ...]
    keeps: bool


@dataclass(frozen=True, slots=True)
class Sizing(ResultDocument):
    """Fleets by policy for the promises.

    ``equal`` has splits of as many GPUs as each mixed fleet, where :func:`size` was given a link.
    """

    workload: str
    slos: tuple[Slo, ...]
    headroom: Headroom
    fleets: tuple[FleetSize, ...]
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]
    equal: tuple[EqualFleet, ...] = ()

    @property
    def smallest(self) -> tuple[FleetSize, ...]:
        """The fleets of the fewest replicas, the least recompute first, to a tenth of a percent.

        Where a fleet whose replicas do both is as small as one that prefills and decodes apart, only the former.
        """
        enough = [one for one in self.fleets if one.replicas is not None]
        if not enough:
            return ()
        fewest = min((one.replicas, one.prefill is not None) for one in enough)
        alike = [one for one in enough if (one.replicas, one.prefill is not None) == fewest]
        return tuple(sorted(alike, key=lambda one: round(one.recompute_ratio, 3)))

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``size --json``."""
        told = {
            "schema": SCHEMA,
            "workload": self.workload,
            "slo": [str(slo) for slo in self.slos],
            "headroom": asdict(self.headroom),
            "assumptions": assumptions_dict(self.assumptions),
            "notes": list(self.notes),
            "smallest": [fleet.policy for fleet in self.smallest],
            "fleets": [_told(fleet) for fleet in self.fleets],
        }
        return {**told, "equal": [_told(fleet) for fleet in self.equal]} if self.equal else told


def _told(fleet: FleetSize | EqualFleet) -> dict[str, Any]:
    """Return a fleet as data; one whose replicas do both says nothing of the kinds."""
    fields = asdict(fleet)
    return {name: value for name, value in fields.items() if name not in {"prefill", "decode"} or value is not None}


def size(
    source: Source,
    slos: Slo | Sequence[Slo],
    policies: Sequence[AnyPolicy],
    *,
    link: str | Link | None = None,
    scenario: Scenario | None = None,
    headroom: Headroom | None = None,
    seeds: int | Sequence[int] = 1,
    most: int = MOST_REPLICAS,
    cost: CostModel | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
) -> Sizing:
    """Find the smallest fleet that keeps the promises with headroom, under each policy.

    Doubling, then bisection, timed.

    A fleet of which a replica cannot keep up keeps no promise. A seed that breaks a promise breaks it: the worst
    counts.

    Args:
        source: a workload whose arrivals are those to plan for, or a function from a seed to one.
        slos: the promises; none = to keep up.
        policies: names or objects.
        link: size fleets that prefill and decode apart too, and what keys and values move over; None = do not. These
            stand behind the mixed ones. Of either kind as many replicas may fail as the headroom says.
        scenario: everything else; without an engine it gets the cost model's.
        headroom: what the fleet must carry beyond the traffic; None = :class:`Headroom`.
        seeds: how many, counted from 1, or the seeds themselves.
        most: replicas beyond which no fleet is tried.
        cost: prices and seconds.
        jobs: processes over seeds, see :class:`~prefixroute.sim.grid.Grid`.
        progress: told about what share of the search is done.
        time_is_up: asked before each search but the first; then those that are left are left out, which a note says.

    Returns:
        The smallest fleet of each policy, or that none of up to ``most`` replicas keeps the promises.

    Raises:
        ConfigError: no policy, a limit below one, or an unknown link.
    """
    cost, chosen, source = cost or CostModel(), tuple(seeds_of(seeds)), kept(source, jobs=jobs)
    promises = (slos,) if isinstance(slos, Slo) else tuple(slos)
    base, room = scenario or Scenario(), headroom or Headroom()
    base = replace(base, engine=base.engine or EngineModel(cost), promise=promise_of(promises))
    if not policies or most < 1:
        raise ConfigError(f"size needs a policy and at least 1 replica, got {len(policies)} and {most}")
    links = [None] if link is None else [None, find_link(link)]
    sought = [(replace(base, policy=policy, label=""), over) for over in links for policy in policies]
    traffic, work = (source, faster(source, room)), Work(progress, 2 * len(sought))
    tried: list[Trials] = []
    fleets: list[FleetSize] = []
    for one, over in sought:
        if tried and time_is_up():
            break
        runs = Runs(one, over, traffic, promises, chosen, cost, jobs)
        tried.append(Trials.of(runs, room.preemptions, most, (work.part(1.0), work.part(1.0))))
        fleets.append(_fleet(tried[-1], room, cost))
    workload, count = open_source(source, chosen[0]), len(policies)
    missing = [f"{one.policy_name}{', apart' * (over is not None)}" for one, over in sought[len(tried) :]]
    return Sizing(
        workload=workload.name,
        slos=promises,
        headroom=room,
        fleets=tuple(fleets),
        assumptions=(
            *workload.assumptions,
            *cost.assumptions,
            *assumed(base),
            *(link_assumed(cost, over) for over in links if over is not None),
        ),
        notes=(*workload.notes, *left_out(missing)),
        equal=tuple(row for mixed, apart in zip(fleets, tried[count:], strict=False) for row in _equal(mixed, apart)),
    )


def faster(source: Source, room: Headroom) -> Source:
    """Return a source whose requests come as fast as the headroom demands."""
    return source if room.utilization == 1 else _Faster(source, 1 / room.utilization)


@dataclass(frozen=True, slots=True)
class _Faster:
    """A source with its arrivals so many times as fast. Picklable if the source is."""

    source: Source
    speed: float

    def __call__(self, seed: int) -> Workload:
        return open_source(self.source, seed).scaled(self.speed)


def _fleet(trials: Trials, room: Headroom, cost: CostModel) -> FleetSize:
    """Return the smallest fleet with headroom: enough at the peak, and with so many replicas of any kind lost."""
    least = trials.smallest()
    at_peak = least if least is None or room.utilization == 1 else trials.smallest(least, peak=True)
    wanted, failure = None, False
    if least is not None and at_peak is not None:
        spared = tuple(count + room.spare for count in least)
        fleet = tuple(map(max, at_peak, spared))
        wanted = fleet if sum(fleet) <= trials.most else None
        failure = room.spare > 0 and sum(spared) >= sum(at_peak)
    told = trials.at(wanted or _limit(trials))
    lost = [trials.at(fewer) for fewer in _one_less(wanted or ()) if min(fewer) > 0]
    return FleetSize(
        policy=trials.policy if trials.kinds == MIXED else f"{trials.policy}, {_shared_out(wanted)}",
        replicas=None if wanted is None else sum(wanted),
        gpus=None if wanted is None else sum(wanted) * cost.tensor_parallel,
        usd_per_month=None if wanted is None else cost.usd_per_month(sum(wanted)),
        least=None if least is None else sum(least),
        at_peak=None if at_peak is None else sum(at_peak),
        decided_by="failure" if failure else "peak" if room.utilization < 1 else "traffic",
        seconds=told.seconds,
        seconds_one_less=worst(lost).seconds if lost else None,
        recompute_ratio=told.recompute_ratio,
        busy=told.busy,
        preempted=told.preempted,
        overloaded=told.is_overloaded,
        goodput_per_s=told.goodput_per_s,
        prefill=None if wanted is None or trials.kinds == MIXED else wanted[0],
        decode=None if wanted is None or trials.kinds == MIXED else wanted[1],
    )


def _limit(trials: Trials) -> Fleet:
    """Return the largest fleet that may be tried, with kinds alike."""
    return (trials.most,) if trials.kinds == MIXED else (trials.most // 2, trials.most - trials.most // 2)


def _one_less(fleet: Fleet) -> list[Fleet]:
    """Return what is left of a fleet where one replica fails, of each kind."""
    return [tuple(count - (at == kind) for at, count in enumerate(fleet)) for kind in range(len(fleet))]


def _shared_out(fleet: Fleet | None) -> str:
    return "apart" if fleet is None else "+".join(map(str, fleet))


def prefill_counts(replicas: int) -> list[int]:
    """Return how many replicas only prefill, in each split of two or more that is tried: :data:`MOST_EQUAL` at most."""
    if replicas - 1 <= MOST_EQUAL:
        return list(range(1, replicas))
    return [1 + round(at * (replicas - 2) / (MOST_EQUAL - 1)) for at in range(MOST_EQUAL)]


def _equal(mixed: FleetSize, apart: Trials) -> list[EqualFleet]:
    """Return what splits of as many replicas as a mixed fleet do to the promises, and that fleet first."""
    count = mixed.replicas
    if count is None or count < 2:  # noqa: PLR2004
        return []
    rows = [EqualFleet(apart.policy, count, None, None, mixed.seconds, keeps=True)]
    for prefill in prefill_counts(count):
        fleet = prefill, count - prefill
        rows.append(EqualFleet(apart.policy, count, *fleet, apart.at(fleet).seconds, apart.keeps(fleet)))
    return rows
