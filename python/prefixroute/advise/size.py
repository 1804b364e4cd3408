"""How many replicas, and GPUs, a fleet needs to keep a promise on TTFT, under each policy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from prefixroute.costmodel import Assumption, CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim import Cell, EngineModel, Grid, Row, Run, Scenario
from prefixroute.sim.grid import Source, kept, open_source, seeds_of
from prefixroute.sim.progress import Progress, Work
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import SCHEMA, assumed, assumptions_dict

MOST_REPLICAS = 256


@dataclass(frozen=True, slots=True)
class Slo:
    """A promise: this percentile of TTFT is at most so many seconds."""

    percentile: float
    seconds: float

    def __post_init__(self) -> None:
        """Check both figures."""
        if not 0 < self.percentile < 100:  # noqa: PLR2004
            raise ConfigError(f"an SLO's percentile must be above 0 and below 100, got {self.percentile:g}")
        if not 0 < self.seconds < float("inf"):
            raise ConfigError(f"an SLO's TTFT must be a finite number of seconds above 0, got {self.seconds:g}")

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Read ``ttft_p95=1.5s``, ``ttft_p99=800ms``, or ``ttft_p95=1.5``, which is seconds.

        Raises:
            ConfigError: the text has another form.
        """
        match = re.fullmatch(r"ttft_p(\d+(?:\.\d+)?)=(\d+(?:\.\d+)?)(ms|s|)", text.strip())
        if match is None:
            raise ConfigError(f"an SLO looks like ttft_p95=1.5s or ttft_p99=800ms, got {text!r}")
        percentile, value, unit = match.groups()
        return cls(float(percentile), float(value) / (1_000 if unit == "ms" else 1))

    def __str__(self) -> str:
        """Return the form that :meth:`parse` reads."""
        return f"ttft_p{self.percentile:g}={self.seconds:g}s"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The smallest fleet that keeps the promise under a policy; None where none up to the limit does.

    ``ttft_s`` is the percentile in question at that size, ``ttft_one_less_s`` with one replica less (None at one),
    ``ttft_one_s`` with a single one.
    """

    policy: str
    replicas: int | None
    gpus: int | None
    usd_per_month: float | None
    ttft_s: float | None
    ttft_one_less_s: float | None
    recompute_ratio: float | None
    busy: float | None
    ttft_one_s: float


@dataclass(frozen=True, slots=True)
class Sizing:
    """Fleets by policy for one promise."""

    workload: str
    slo: Slo
    fleets: tuple[Fleet, ...]
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``size --json``."""
        return {
            "schema": SCHEMA,
            "workload": self.workload,
            "slo": str(self.slo),
            "assumptions": assumptions_dict(self.assumptions),
            "notes": list(self.notes),
            "fleets": [asdict(fleet) for fleet in self.fleets],
        }

    def to_json(self) -> str:
        """Return the object as text. Same inputs, same bytes."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


class Told(NamedTuple):
    """What a run, or the worst of several, tells about a promise."""

    ttft_s: float
    recompute_ratio: float
    busy: float
    is_overloaded: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads a percentile of a run; an object so that other processes can have it."""

    percentile: float

    def __call__(self, run: Run) -> Told:
        """Read it."""
        log = run.log
        ttft = log.column("first_token") - log.column("arrival")
        value = float(np.percentile(ttft, self.percentile)) if len(ttft) else 0.0
        return Told(value, run.outcome.recompute_ratio, run.outcome.busy or 0.0, Row.over([run.outcome]).is_overloaded)


def size(
    source: Source,
    slo: Slo,
    policies: Sequence[AnyPolicy],
    *,
    scenario: Scenario | None = None,
    seeds: int | Sequence[int] = 1,
    most: int = MOST_REPLICAS,
    cost: CostModel | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Sizing:
    """Find the smallest fleet that keeps a promise, under each policy: doubling, then bisection, in time mode.

    A seed that breaks the promise breaks it: the worst of the seeds counts.

    Args:
        source: a workload whose arrivals are those to plan for, or a function from a seed to one.
        slo: the promise.
        policies: names or objects.
        scenario: everything else; without an engine it gets the cost model's.
        seeds: how many, counted from 1, or the seeds themselves.
        most: replicas beyond which no fleet is tried.
        cost: prices and seconds.
        jobs: processes over seeds.
        progress: told about what share of the search is done, and which fleet is being tried.

    Raises:
        ConfigError: no policy, or a limit below one.
    """
    cost, chosen, source = cost or CostModel(), seeds_of(seeds), kept(source, sent=jobs > 1)
    base = scenario or Scenario()
    if base.engine is None:
        base = replace(base, engine=EngineModel(cost))
    if not policies or most < 1:
        raise ConfigError(f"size needs a policy and at least 1 replica, got {len(policies)} and {most}")
    reading = Reading(slo.percentile)
    work = Work(progress, len(policies))
    fleets = []
    for policy in policies:
        one = replace(base, policy=policy, label="")

        def run(count: int, told: Progress | None, one: Scenario = one) -> Told:
            grid = Grid(source, chosen, cost, jobs, told)
            results = grid.run({count: Cell(replace(one, replicas=count), reading)})
            found: Told = max(results.runs[count])
            return found

        fleets.append(_smallest(_Tries(one.policy_name, run, work.part(1.0)), slo, most, cost))
    workload = open_source(source, chosen[0])
    assumptions = (*workload.assumptions, *cost.assumptions, *assumed(base))
    return Sizing(workload.name, slo, tuple(fleets), assumptions, workload.notes)


class _Tries:
    """Fleets of one policy that were tried, each once, and how far the search for the smallest is."""

    def __init__(self, policy: str, run: Callable[[int, Progress | None], Told], progress: Progress | None) -> None:
        self.policy = policy
        self._run, self._progress = run, progress
        self._told: dict[int, Told] = {}
        self._share = 0.0

    def at(self, count: int, *, left: int = 0) -> Told:
        """Return what a fleet of ``count`` tells. ``left``: runs that will follow if it keeps the promise."""
        if count not in self._told:
            self._told[count] = self._run(count, self._reporting(count, 1 + left))
        return self._told[count]

    def _reporting(self, count: int, left: int) -> Progress | None:
        progress, done = self._progress, len(self._told)
        if progress is None:
            return None

        def told(share: float, _: str = "") -> None:
            # A fleet that is too small makes the search longer: the share then waits, and does not go back.
            self._share = max(self._share, (done + share) / (done + left))
            progress(self._share, f"{self.policy}: trying {count} replica{'s' * (count > 1)}")

        told(0.0)
        return told


def _smallest(tries: _Tries, slo: Slo, most: int, cost: CostModel) -> Fleet:
    """Return the smallest fleet that keeps the promise; waiting falls with replicas, so bisection finds it."""
    good = 1
    while tries.at(good, left=max(0, good.bit_length() - 2)).ttft_s > slo.seconds:
        if good == most:
            return Fleet(tries.policy, None, None, None, tries.at(most).ttft_s, None, None, None, tries.at(1).ttft_s)
        good = min(2 * good, most)
    bad = good // 2
    while good - bad > 1:
        middle = (good + bad) // 2
        if tries.at(middle, left=(good - bad).bit_length() - 2).ttft_s > slo.seconds:
            bad = middle
        else:
            good = middle
    found, less = tries.at(good), tries.at(good - 1).ttft_s if good > 1 else None
    gpus, month = good * cost.tensor_parallel, cost.usd_per_month(good)
    one = tries.at(1).ttft_s
    return Fleet(tries.policy, good, gpus, month, found.ttft_s, less, found.recompute_ratio, found.busy, one)
