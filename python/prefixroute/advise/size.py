"""How many replicas, and GPUs, a fleet needs to keep its promises, with room for a peak and a failure, under each policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from prefixroute.advise.behind import MOST_PREEMPTIONS
from prefixroute.advise.slo import Reading, Slo, Told, promise_of, worst
from prefixroute.costmodel import Assumption, CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim import Cell, EngineModel, Grid, Scenario
from prefixroute.sim.grid import Source, kept, open_source, seeds_of
from prefixroute.sim.pool import Jobs
from prefixroute.sim.progress import Progress, Work
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import SCHEMA, assumed, assumptions_dict, left_out
from prefixroute.validation import check_float, check_int
from prefixroute.workload import Workload

MOST_REPLICAS = 256
PEAK_UTILIZATION = 0.8
"""Share of what a fleet can carry that its busiest hour may take."""
SPARE_REPLICAS = 1
"""Replicas that may fail without breaking a promise."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a fleet must carry beyond the traffic itself.

    Args:
        utilization: the traffic may take this share of what the fleet can carry: each replica must still keep up with arrivals 1 /
            ``utilization`` times as fast. 1 = no reserve.
        spare: so many replicas may fail: the others must keep the promises at the traffic's own rate.
        preemptions: so many a request are borne at most, at the peak and with replicas lost: a fleet with more has too little
            memory for what it answers. None = not looked at.

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
class Sizing:
    """Fleets by policy for the promises.

    ``equal`` has splits of as many GPUs as each mixed fleet, where these were asked for, see
    :func:`~prefixroute.advise.size_apart`.
    """

    workload: str
    slos: tuple[Slo, ...]
    headroom: Headroom
    fleets: tuple[FleetSize, ...]
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]
    equal: tuple[EqualFleet, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``size --json``."""
        told = {
            "schema": SCHEMA,
            "workload": self.workload,
            "slo": [str(slo) for slo in self.slos],
            "headroom": asdict(self.headroom),
            "assumptions": assumptions_dict(self.assumptions),
            "notes": list(self.notes),
            "fleets": [_told(fleet) for fleet in self.fleets],
        }
        return {**told, "equal": [_told(fleet) for fleet in self.equal]} if self.equal else told

    def to_json(self) -> str:
        """Return the object as text. Same inputs, same bytes."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def _told(fleet: FleetSize | EqualFleet) -> dict[str, Any]:
    """Return a fleet as data; one whose replicas do both says nothing of the kinds."""
    fields = asdict(fleet)
    return {name: value for name, value in fields.items() if name not in {"prefill", "decode"} or value is not None}


def size(
    source: Source,
    slos: Slo | Sequence[Slo],
    policies: Sequence[AnyPolicy],
    *,
    scenario: Scenario | None = None,
    headroom: Headroom | None = None,
    seeds: int | Sequence[int] = 1,
    most: int = MOST_REPLICAS,
    cost: CostModel | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
) -> Sizing:
    """Find the smallest fleet that keeps the promises with headroom, under each policy: doubling, then bisection, timed.

    A fleet of which a replica cannot keep up keeps no promise. A seed that breaks a promise breaks it: the worst counts.

    Args:
        source: a workload whose arrivals are those to plan for, or a function from a seed to one.
        slos: the promises; none = to keep up.
        policies: names or objects.
        scenario: everything else; without an engine it gets the cost model's.
        headroom: what the fleet must carry beyond the traffic; None = :class:`Headroom`.
        seeds: how many, counted from 1, or the seeds themselves.
        most: replicas beyond which no fleet is tried.
        cost: prices and seconds.
        jobs: processes over seeds, see :class:`~prefixroute.sim.grid.Grid`.
        progress: told about what share of the search is done.
        time_is_up: asked before each policy but the first; then the policies that are left are left out, which a note says.

    Raises:
        ConfigError: no policy, or a limit below one.
    """
    cost, chosen, source = cost or CostModel(), seeds_of(seeds), kept(source, jobs=jobs)
    promises = (slos,) if isinstance(slos, Slo) else tuple(slos)
    base, room = scenario or Scenario(), headroom or Headroom()
    base = replace(base, engine=base.engine or EngineModel(cost), promise=promise_of(promises))
    if not policies or most < 1:
        raise ConfigError(f"size needs a policy and at least 1 replica, got {len(policies)} and {most}")
    fast = faster(source, room)
    work = Work(progress, 2 * len(policies))
    fleets: list[FleetSize] = []
    for policy in policies:
        if fleets and time_is_up():
            break
        one = replace(base, policy=policy, label="")

        def tries(traffic: Source, kept_there: tuple[Slo, ...], one: Scenario = one) -> _Tries:
            def run(count: int, told: Progress | None) -> Told:
                grid = Grid(traffic, chosen, cost, jobs, told)
                return worst(grid.run({count: Cell(replace(one, replicas=count), Reading(kept_there))}).runs[count])

            return _Tries(one.policy_name, run, kept_there, room, most=most, progress=work.part(1.0))

        own = tries(source, promises)
        peak = own if room.utilization == 1 else tries(fast, ())
        fleets.append(_fleet(own, peak, room, cost))
    workload = open_source(source, chosen[0])
    assumptions = (*workload.assumptions, *cost.assumptions, *assumed(base))
    missing = [replace(base, policy=policy, label="").policy_name for policy in policies[len(fleets) :]]
    notes = (*workload.notes, *left_out(missing))
    return Sizing(workload.name, promises, room, tuple(fleets), assumptions, notes)


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


class _Tries:
    """Fleets of one policy that were tried on one traffic, each once, and how far the search for the smallest is."""

    def __init__(
        self,
        policy: str,
        run: Callable[[int, Progress | None], Told],
        slos: tuple[Slo, ...],
        room: Headroom,
        *,
        most: int,
        progress: Progress | None,
    ) -> None:
        self.policy, self.most = policy, most
        self._run, self._slos, self._progress = run, slos, progress
        self._most_preempted = room.preemptions
        self._told: dict[int, Told] = {}

    def at(self, count: int, *, left: int = 0) -> Told:
        """Return what a fleet of ``count`` tells. ``left``: runs that will follow if it keeps the promises."""
        if count not in self._told:
            self._told[count] = self._run(count, self._reporting(count, 1 + left))
        return self._told[count]

    def _keeps(self, count: int, left: int) -> bool:
        return self.at(count, left=left).keeps(self._slos, self._most_preempted)

    def smallest(self, least: int = 1) -> int | None:
        """Return the smallest fleet that keeps the promises, from ``least`` on; waiting falls with replicas: bisection finds it."""
        good = least
        while not self._keeps(good, left=max(0, good.bit_length() - 2)):
            if good == self.most:
                return None
            good = min(2 * good, self.most)
        bad = max(good // 2, least - 1)
        while good - bad > 1:
            middle = (good + bad) // 2
            if self._keeps(middle, left=(good - bad).bit_length() - 2):
                good = middle
            else:
                bad = middle
        return good

    def _reporting(self, count: int, left: int) -> Progress | None:
        progress, done = self._progress, len(self._told)
        if progress is None:
            return None
        what = f"{self.policy}: trying {count} replica{'s' * (count > 1)}"
        return lambda share, _: progress((done + share) / (done + left), what)


def _fleet(own: _Tries, peak: _Tries, room: Headroom, cost: CostModel) -> FleetSize:
    """Return the smallest fleet with headroom: enough at the peak, and with so many replicas lost."""
    least = own.smallest()
    at_peak = None if least is None else peak.smallest(least)
    wanted = None if least is None or at_peak is None else max(at_peak, least + room.spare)
    replicas = wanted if wanted is not None and wanted <= own.most else None
    told = own.at(replicas or own.most)
    failure = least is not None and at_peak is not None and room.spare > 0 and least + room.spare >= at_peak
    return FleetSize(
        policy=own.policy,
        replicas=replicas,
        gpus=None if replicas is None else replicas * cost.tensor_parallel,
        usd_per_month=None if replicas is None else cost.usd_per_month(replicas),
        least=least,
        at_peak=at_peak,
        decided_by="failure" if failure else "peak" if room.utilization < 1 else "traffic",
        seconds=told.seconds,
        seconds_one_less=None if replicas in {None, 1} else own.at(replicas - 1).seconds,
        recompute_ratio=told.recompute_ratio,
        busy=told.busy,
        preempted=told.preempted,
        overloaded=told.is_overloaded,
        goodput_per_s=told.goodput_per_s,
    )
