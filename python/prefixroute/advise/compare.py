"""Policies side by side: the same requests, the same load signal, and intervals of the differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefixroute.advise.bootstrap import Interval
from prefixroute.advise.idle import Idle, count_idle, reason
from prefixroute.advise.profile import common_head
from prefixroute.advise.sample import COLUMNS, DRAWN, LUCK, PERCENTILES, Measure, Sample, clusters, differences
from prefixroute.costmodel import Assumption, CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim import Cell, Grid, Row, Scenario
from prefixroute.sim.grid import Source, is_fixed, open_source, seeds_of
from prefixroute.sim.progress import Progress
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import OUTCOME, SCHEMA, assumed, assumptions_dict, beyond, left_out, overload
from prefixroute.workload import Workload

METRICS = (*COLUMNS, *PERCENTILES)
"""What may decide a comparison; lower is better."""
VERDICTS = {"reference": "lowest", "tie": "inside the noise", "worse": "worse", "better": "better"}
"""Verdicts in words."""
ONE_RUN = (
    f"one run of each policy: how evenly it shares work out is partly luck, for which {100 * LUCK:.0f} % of the dollars by "
    "the busiest replica are taken; more seeds measure it"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a policy is from the reference: its value less the reference's, with 95 % intervals.

    ``verdict`` speaks of the decisive metric: ``reference``, ``better``, ``worse``, or ``tie`` (inside the noise).
    """

    policy: str
    verdict: str
    recompute_ratio: Interval
    ttft_mean_s: Interval
    ttft_p50_s: Interval
    ttft_p90_s: Interval
    ttft_p99_s: Interval
    usd_per_million_requests: Interval
    usd_per_million_requests_busiest: Interval

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "policy": self.policy,
            "verdict": self.verdict,
            **{name: getattr(self, name).to_dict() for name in METRICS},
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows of several policies and their differences from the best.

    Attributes:
        workload: name of the workload.
        metric: the decisive one; lower is better.
        rows: one for each policy, in the order given.
        reference: the policy with the lowest value of the metric, among those that could be it.
        differences: of every policy from the reference, in the order given.
        winner: the reference, if every other policy is worse beyond the noise; else None.
        clusters: sessions that the intervals are made of.
        idle: policies that leave replicas nearly idle, and why.
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
    idle: tuple[Idle, ...] = ()

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

    def judgement(self, policy: str) -> str:
        """Return a policy's verdict in words, with the remark that it leaves replicas idle where it does."""
        verdict = self.difference(policy).verdict
        said = VERDICTS[verdict]
        own = getattr(self.row(policy), self.metric)
        if verdict == "reference" and any(getattr(row, self.metric) < own for row in self.rows):
            said = "lowest that can be advised"
        remark = next((one.remark for one in self.idle if one.policy == policy), "")
        return f"{said}, but {remark}" if remark and verdict == "reference" else ", ".join(filter(None, (said, remark)))

    def to_dict(self) -> dict[str, Any]:
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
            "rows": [row.to_dict() for row in self.rows],
            "differences": [one.to_dict() for one in self.differences],
            "idle": [one.to_dict() for one in self.idle],
        }

    def to_json(self) -> str:
        """Return the object as text. Same inputs, same bytes."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def compare(
    source: Source,
    policies: Sequence[AnyPolicy],
    *,
    scenario: Scenario | None = None,
    seeds: int | Sequence[int] = 3,
    metric: str = "recompute_ratio",
    infinite: bool = False,
    cost: CostModel | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
) -> Comparison:
    """Run policies on the same requests with the same load signal, and say which differences are outside the noise.

    Args:
        source: a workload, or a function from a seed to one.
        policies: names or objects, each once.
        scenario: the fleet and everything else that all of them share; its policy is not used.
        seeds: how many, counted from 1, or the seeds themselves.
        metric: what decides, one of :data:`METRICS`; lower is better.
        infinite: run each policy with unlimited caches too.
        cost: prices and seconds.
        jobs: processes, see :class:`~prefixroute.sim.grid.Grid`.
        progress: told the share of the work that is done.
        time_is_up: asked between runs; then unlimited caches and further seeds are left out, which a note says.

    Raises:
        ConfigError: no policy, one given twice, an unknown metric, or what :class:`~prefixroute.sim.grid.Grid` refuses.
    """
    base = scenario or Scenario()
    scenarios = [replace(base, policy=policy, label="") for policy in policies]
    return compare_scenarios(
        source,
        scenarios,
        seeds=seeds,
        metric=metric,
        infinite=infinite,
        cost=cost,
        jobs=jobs,
        progress=progress,
        time_is_up=time_is_up,
    )


def compare_scenarios(
    source: Source,
    scenarios: Sequence[Scenario],
    *,
    seeds: int | Sequence[int] = 3,
    metric: str = "recompute_ratio",
    among: Sequence[str] = (),
    infinite: bool = False,
    cost: CostModel | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
    load_parts: int = 0,
) -> Comparison:
    """Compare scenarios that may differ in anything but their cache kind; ``policy_name`` tells them apart.

    Arguments and errors as for :func:`compare`. A policy with other parameters needs a ``label`` of its own. The
    reference is the best ``among`` the names given; none given means all. With ``load_parts``, rows keep the load of the
    fleet in so many parts of the run, for pictures.
    """
    chosen, names = seeds_of(seeds), [one.policy_name for one in scenarios]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"compare needs policies, each once, got {', '.join(names) or 'none'}")
    if metric not in METRICS:
        raise ConfigError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
    grid = Grid(source, chosen, cost or CostModel(), jobs, progress, time_is_up)
    base, measure = scenarios[0], Measure(grid.cost, load_parts)
    cells = {(name, False): Cell(one, measure) for name, one in zip(names, scenarios, strict=True)}
    if infinite:
        unlimited = (Cell(one.unlimited(), OUTCOME, optional=True) for one in scenarios)
        cells |= {(name, True): cell for name, cell in zip(names, unlimited, strict=True)}
    results = grid.run(cells, floor=(base.cache, base.warmup))
    groups: list[list[Sample]] = [list(results.runs[name, False]) for name in names]
    rows = tuple(
        Row.over([sample.outcome for sample in group], results.floor, beyond(results.runs.get((name, True))))
        for name, group in zip(names, groups, strict=True)
    )
    eligible = [at for at, name in enumerate(names) if not among or name in among]
    best = min(eligible, key=lambda at: (getattr(rows[at], metric), at))
    fixed = is_fixed(grid.source)
    intervals = differences(groups, best, fixed=fixed)
    judged = tuple(
        Difference(name, _verdict(by_metric[metric], reference=at == best), **by_metric)
        for at, (name, by_metric) in enumerate(zip(names, intervals, strict=True))
    )
    alone = all(one.verdict in ("reference", "worse") for one in judged)
    workload = open_source(grid.source, chosen[0])
    lucky = (ONE_RUN,) if len(results.seeds) == 1 and len(names) > 1 and metric == DRAWN else ()
    return Comparison(
        workload=workload.name,
        metric=metric,
        rows=rows,
        reference=names[best],
        differences=judged,
        winner=names[best] if alone and len(names) > 1 else None,
        clusters=clusters(groups[best], fixed=fixed),
        assumptions=(*workload.assumptions, *grid.cost.assumptions, *assumed(base, "replicas")),
        notes=(*workload.notes, *lucky, *overload(rows), *left_out(results.left_out)),
        idle=_idle(workload, scenarios, groups),
    )


def _idle(workload: Workload, scenarios: Sequence[Scenario], groups: Sequence[Sequence[Sample]]) -> tuple[Idle, ...]:
    """Return which policies leave replicas nearly idle; the head that all prompts share is looked for only then."""
    counts = [count_idle([sample.outcome for sample in group]) for group in groups]
    if not any(counts):
        return ()
    head = len(common_head(workload)) * workload.block_size
    return tuple(
        Idle(one.policy_name, count, one.replicas, reason(one, head))
        for one, count in zip(scenarios, counts, strict=True)
        if count
    )


def _verdict(decisive: Interval, *, reference: bool) -> str:
    if reference:
        return "reference"
    if not decisive.excludes_zero:
        return "tie"
    return "worse" if decisive.value > 0 else "better"
