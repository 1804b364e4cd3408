"""How many replicas, and GPUs, a fleet needs to keep a promise on TTFT, under each policy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from prefixroute.costmodel import Assumption, CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim import EngineModel, Run, Scenario
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import SCHEMA, assumed, assumptions_dict, seeds_of
from prefixroute.sim.tasks import RunTask, Source, open_source, run_tasks

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
        """Read ``ttft_p95=1.5s`` or ``ttft_p99=800ms``.

        Raises:
            ConfigError: the text has another form.
        """
        match = re.fullmatch(r"ttft_p(\d+(?:\.\d+)?)=(\d+(?:\.\d+)?)(ms|s)", text.strip())
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

    ``ttft_s`` is the percentile in question at that size, ``ttft_one_less_s`` with one replica less (None at one).
    """

    policy: str
    replicas: int | None
    gpus: int | None
    usd_per_month: float | None
    ttft_s: float | None
    ttft_one_less_s: float | None
    recompute_ratio: float | None
    busy: float | None


@dataclass(frozen=True, slots=True)
class Sizing:
    """Fleets by policy for one promise."""

    workload: str
    slo: Slo
    fleets: tuple[Fleet, ...]
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
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
        return json.dumps(self.as_dict(), indent=2, allow_nan=False) + "\n"


class _Told(NamedTuple):
    """What a run, or the worst of several, tells about a promise."""

    ttft_s: float
    recompute_ratio: float
    busy: float


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads a run; an object so that other processes can have it."""

    percentile: float

    def __call__(self, run: Run) -> _Told:
        log = run.log
        ttft = log.column("first_token") - log.column("arrival")
        value = float(np.percentile(ttft, self.percentile)) if len(ttft) else 0.0
        return _Told(value, run.outcome.recompute_ratio, run.outcome.busy or 0.0)


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

    Raises:
        ConfigError: no policy, or a limit below one.
    """
    cost, chosen = cost or CostModel(), seeds_of(seeds)
    base = scenario or Scenario()
    if base.engine is None:
        base = replace(base, engine=EngineModel(cost))
    if not policies or most < 1:
        raise ConfigError(f"size needs a policy and at least 1 replica, got {len(policies)} and {most}")
    reading = _Reading(slo.percentile)
    fleets = []
    for policy in policies:
        one = replace(base, policy=policy)

        def told(count: int, one: Scenario = one) -> _Told:
            tasks = [RunTask(source, replace(one, replicas=count, seed=seed), cost, reading) for seed in chosen]
            results: list[_Told] = list(run_tasks(tasks, jobs))
            return max(results)

        fleets.append(_smallest(one.policy_name, lru_cache(None)(told), slo, most, cost))
    workload = open_source(source, chosen[0])
    assumptions = (*workload.assumptions, *cost.assumptions, *assumed(base))
    return Sizing(workload.name, slo, tuple(fleets), assumptions, workload.notes)


def _smallest(name: str, told: Callable[[int], _Told], slo: Slo, most: int, cost: CostModel) -> Fleet:
    """Return the smallest fleet that keeps the promise; waiting falls with replicas, so bisection finds it."""
    good = 1
    while told(good).ttft_s > slo.seconds:
        if good == most:
            return Fleet(name, None, None, None, None, told(most).ttft_s, None, None)
        good = min(2 * good, most)
    bad = good // 2
    while good - bad > 1:
        middle = (good + bad) // 2
        if told(middle).ttft_s > slo.seconds:
            bad = middle
        else:
            good = middle
    found, less = told(good), told(good - 1).ttft_s if good > 1 else None
    month = cost.usd_per_month(good)
    gpus = good * cost.tensor_parallel
    return Fleet(name, good, gpus, month, found.ttft_s, less, found.recompute_ratio, found.busy)
