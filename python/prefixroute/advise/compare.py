"""Policies side by side: the same requests, the same load signal, and intervals of the differences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from prefixroute.advise.bootstrap import Interval
from prefixroute.advise.sample import Measure, Pairs, Sample
from prefixroute.costmodel import Assumption, CostModel
from prefixroute.errors import ConfigError
from prefixroute.policies import Policy
from prefixroute.sim import Row, Scenario
from prefixroute.sim.sweep import SCHEMA, assumed, assumptions_dict, seeds_of
from prefixroute.sim.tasks import FloorTask, Report, RunTask, Source, is_fixed, open_source, run_tasks

METRICS = ("recompute_ratio", "ttft_mean_s", "usd_per_million_requests")
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a policy is from the reference: its value less the reference's, with 95 % intervals.

    ``verdict`` speaks of the decisive metric: ``reference``, ``better``, ``worse``, or ``tie`` (inside the noise).
    """

    policy: str
    verdict: str
    recompute_ratio: Interval
    ttft_mean_s: Interval
    usd_per_million_requests: Interval

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "policy": self.policy,
            "verdict": self.verdict,
            **{name: getattr(self, name).as_dict() for name in METRICS},
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows of several policies and their differences from the best.

    Attributes:
        workload: name of the workload.
        metric: the decisive one; lower is better.
        rows: one for each policy, in the order given.
        reference: the policy with the lowest value of the metric.
        differences: of every policy from the reference, in the order given.
        winner: the reference, if every other policy is worse beyond the noise; else None.
        clusters: sessions that the intervals are made of.
    """

    workload: str
    metric: str
    rows: tuple[Row, ...]
    reference: str
    differences: tuple[Difference, ...]
    winner: str | None
    clusters: int
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]

    @property
    def leaders(self) -> list[str]:
        """The reference and every policy that the noise does not tell from it."""
        return [one.policy for one in self.differences if one.verdict in ("reference", "tie")]

    def row(self, policy: str) -> Row:
        """Return the row of a policy."""
        return next(row for row in self.rows if row.policy == policy)

    def difference(self, policy: str) -> Difference:
        """Return the difference of a policy from the reference."""
        return next(one for one in self.differences if one.policy == policy)

    def as_dict(self) -> dict[str, Any]:
        """Return the object of ``compare --json``."""
        return {
            "schema": SCHEMA,
            "workload": self.workload,
            "metric": self.metric,
            "reference": self.reference,
            "winner": self.winner,
            "leaders": self.leaders,
            "clusters": self.clusters,
            "assumptions": assumptions_dict(self.assumptions),
            "notes": list(self.notes),
            "rows": [row.as_dict() for row in self.rows],
            "differences": [one.as_dict() for one in self.differences],
        }

    def to_json(self) -> str:
        """Return the object as text. Same inputs, same bytes."""
        return json.dumps(self.as_dict(), indent=2, allow_nan=False) + "\n"


def compare(
    source: Source,
    policies: Sequence[str | Policy],
    *,
    scenario: Scenario | None = None,
    seeds: int | Sequence[int] = 3,
    metric: str = "recompute_ratio",
    infinite: bool = False,
    cost: CostModel | None = None,
    jobs: int = 1,
    progress: Report | None = None,
) -> Comparison:
    """Run policies on the same requests with the same load signal, and say which differences are outside the noise.

    Args:
        source: a workload, or a function from a seed to one.
        policies: names or objects, each once.
        scenario: the fleet and everything else that all of them share; its policy is not used.
        seeds: how many, counted from 1, or the seeds themselves.
        metric: what decides: ``recompute_ratio``, ``ttft_mean_s`` or ``usd_per_million_requests``.
        infinite: run each policy with unlimited caches too.
        cost: prices and seconds.
        jobs: processes, see :func:`~prefixroute.sim.tasks.run_tasks`.
        progress: told the share of the work that is done.

    Raises:
        ConfigError: no policy, one given twice, an unknown metric, or what :func:`run_tasks` refuses.
    """
    base, cost, chosen = scenario or Scenario(), cost or CostModel(), seeds_of(seeds)
    scenarios = [replace(base, policy=policy) for policy in policies]
    names = [one.policy_name for one in scenarios]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"compare needs policies, each once, got {', '.join(names) or 'none'}")
    if metric not in METRICS:
        raise ConfigError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
    every = scenarios + [one.unlimited() for one in scenarios] * infinite
    tasks = [RunTask(source, replace(one, seed=seed), cost, Measure(cost)) for one in every for seed in chosen]
    floors = [FloorTask(source, seed, base.cache) for seed in chosen]
    results = list(run_tasks([*floors, *tasks], jobs, progress))
    floor = _floor(results[: len(chosen)])
    groups: list[list[Sample]] = [
        results[first : first + len(chosen)] for first in range(len(chosen), len(results), len(chosen))
    ]
    beyond = [_row(group, floor).recompute_ratio for group in groups[len(names) :]]
    rows = tuple(_row(*both) for both in zip(groups[: len(names)], repeat(floor), beyond or repeat(None)))
    best = min(range(len(rows)), key=lambda at: (getattr(rows[at], metric), at))
    pairs = Pairs(groups[best], fixed=is_fixed(source))
    differences = [_difference(name, group, pairs, cost) for name, group in zip(names, groups, strict=False)]
    judged = tuple(_judged(one, metric, reference=at == best) for at, one in enumerate(differences))
    alone = all(one.verdict in ("reference", "worse") for one in judged)
    workload = open_source(source, chosen[0])
    return Comparison(
        workload=workload.name,
        metric=metric,
        rows=rows,
        reference=names[best],
        differences=judged,
        winner=names[best] if alone and len(names) > 1 else None,
        clusters=pairs.clusters,
        assumptions=(*workload.assumptions, *cost.assumptions, *assumed(base)),
        notes=workload.notes,
    )


def _floor(floors: Sequence[tuple[int, int]]) -> float:
    recomputed, prompt = (sum(column) for column in zip(*floors, strict=True))
    return recomputed / prompt if prompt else 0.0


def _row(group: list[Sample], floor: float, beyond: float | None = None) -> Row:
    return Row.over([sample.outcome for sample in group], floor, beyond)


def _difference(name: str, group: list[Sample], pairs: Pairs, cost: CostModel) -> Difference:
    return Difference(
        name,
        "tie",
        pairs.interval(group, "recomputed", "prompt"),
        pairs.interval(group, "ttft_s"),
        pairs.interval(group, "prefill_s").scaled(cost.usd(1.0) * MILLION),
    )


def _judged(one: Difference, metric: str, *, reference: bool) -> Difference:
    decisive: Interval = getattr(one, metric)
    if reference:
        return replace(one, verdict="reference")
    if not decisive.excludes_zero:
        return one
    return replace(one, verdict="worse" if decisive.value > 0 else "better")
