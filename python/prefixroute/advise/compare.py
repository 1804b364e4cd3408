"""Policies side by side: the same requests, the same load signal, and intervals of the differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from itertools import accumulate
from typing import Any

from prefixroute.advise.bootstrap import Interval
from prefixroute.advise.heads import Heads
from prefixroute.advise.idle import Idle, count_idle, reason
from prefixroute.advise.sample import DRAWN, LUCK, METRICS, MISSED, TIMED_ONLY, Gaps, Measure, Sample, clusters
from prefixroute.costmodel import Assumption, CostModel
from prefixroute.document import SCHEMA, ResultDocument
from prefixroute.errors import ConfigError
from prefixroute.policies import as_policy
from prefixroute.sim import Cell, Grid, Perfect, ResultRow, Results, Scenario
from prefixroute.sim.grid import Source, is_fixed, open_source, seeds_of
from prefixroute.sim.pool import Jobs
from prefixroute.sim.progress import Progress
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import OUTCOME, assumed, assumptions_dict, beyond, left_out, overload
from prefixroute.validation import check_choice
from prefixroute.workload import HitLosses, Workload

ONE_RUN = (
    f"one run of each policy: how evenly it shares work out is partly luck, for which {100 * LUCK:.0f} % of the "
    "dollars by the busiest replica are taken; more seeds measure it"
)


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """How far a policy is from the reference: its value less the reference's, with 95 % intervals.

    ``verdict`` speaks of the decisive metric: ``reference``, ``better``, ``worse``, or ``tie`` (within the noise). What
    untimed runs do not measure is None.
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
    itl_mean_s: Interval | None = None
    e2e_mean_s: Interval | None = None
    missed_ratio: Interval | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        known = {name: gap for name in METRICS if (gap := getattr(self, name)) is not None}
        return {
            "policy": self.policy,
            "verdict": self.verdict,
            **{name: gap.to_dict() for name, gap in known.items()},
        }


_AS_IT_IS, _UNLIMITED, _SEEING = "as it is", "with unlimited caches", "with a router that sees every cache"
"""Runs of a policy."""
REASONS = ("first_sight", "volatile", "elsewhere", "unknown", "evicted")
"""Why prompt tokens are computed, as :class:`~prefixroute.workload.HitLosses` has it; each once. Routing saves the
third, an index that knows more the fourth, capacity the last."""


@dataclass(frozen=True, slots=True)
class Comparison(ResultDocument):
    """Rows of several policies and their differences from the best.

    Attributes:
        workload: name of the workload.
        metric: the decisive one; lower is better.
        rows: one for each policy, in the order given.
        reference: the policy that the others are compared with: the one with the lowest value of the metric, among
            those that could be it.
        gaps: how far every policy is from every other.
        clusters: sessions that the intervals are made of.
        idle: policies that leave replicas nearly idle, and why.
        behind: of each policy, replicas to which requests come faster than they are served; timed only.
        spans_time: whether requests come at different times, so that a timed simulation has queues.
        losses: where the hits of each policy went, over all runs; empty unless asked for.
    """

    workload: str
    metric: str
    rows: tuple[ResultRow, ...]
    reference: str
    gaps: Gaps
    clusters: int
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]
    idle: tuple[Idle, ...] = ()
    behind: Mapping[str, int] = field(default_factory=dict)
    spans_time: bool = False
    losses: Mapping[str, HitLosses] = field(default_factory=dict)

    @property
    def timed(self) -> bool:
        """Whether the runs had a clock."""
        return self.rows[0].queue_mean_s is not None

    @property
    def leaves_out_queues(self) -> bool:
        """Whether a timed simulation of the same requests would have queues, and these runs have none."""
        return self.spans_time and not self.timed and len(self.rows) > 1

    @property
    def differences(self) -> tuple[ComparisonRow, ...]:
        """How far each policy is from the reference, in the order of the rows."""
        return tuple(self.difference(row.policy) for row in self.rows)

    @property
    def winner(self) -> str | None:
        """The reference, if every other policy is worse beyond the noise; else None."""
        others = [one.verdict for one in self.differences if one.policy != self.reference]
        return self.reference if others and all(verdict == "worse" for verdict in others) else None

    @property
    def leaders(self) -> list[str]:
        """The reference and every policy that the noise does not tell from it."""
        return [one.policy for one in self.differences if one.verdict in ("reference", "tie")]

    def is_overloaded(self, policy: str) -> bool:
        """Whether the fleet, or one of its replicas, cannot keep up under a policy; False without a clock.

        Args:
            policy: name of one of the rows.

        Returns:
            True where the queue of the fleet or of one replica grows without end.
        """
        return self.row(policy).is_overloaded or self.behind.get(policy, 0) > 0

    def row(self, policy: str) -> ResultRow:
        """Return the row of a policy.

        Args:
            policy: its name.
        """
        return next(row for row in self.rows if row.policy == policy)

    def lost(self, policy: str) -> dict[str, dict[str, float]]:
        """Return share, tokens and dollars of each of :data:`REASONS`; empty where they are not known.

        Shares are of all prompt tokens and add up to the recompute ratio. Tokens are those of a run in the mean and add
        up to the recomputed ones. Dollars are per million requests, in the mean and by the busiest replica. They are in
        proportion to tokens and add up to the row's.

        Args:
            policy: its name.
        """
        split, row = self.losses.get(policy), self.row(policy)
        if split is None:
            return {}
        whole = {name: getattr(row, name) for name in ("usd_per_million_requests", "usd_per_million_requests_busiest")}
        runs = split.prompt / row.prompt_tokens if row.prompt_tokens else 1.0
        ends = [round(tokens / runs) for tokens in accumulate(getattr(split, name) for name in REASONS)]
        return {
            name: {
                "share": split.share(name),
                "tokens": end - before,
                **{unit: usd * getattr(split, name) / max(1, split.recomputed) for unit, usd in whole.items()},
            }
            for name, before, end in zip(REASONS, (0, *ends), ends, strict=False)
        }

    def gap(self, policy: str, other: str, metric: str) -> Interval:
        """Return a metric of ``policy`` less that of ``other``, with its interval.

        Args:
            policy: name of one policy.
            other: name of the policy that is subtracted.
            metric: a field of :class:`~prefixroute.sim.ResultRow`.
        """
        return self.gaps.interval(policy, other, metric)

    def difference(self, policy: str) -> ComparisonRow:
        """Return the difference of a policy from the reference.

        Args:
            policy: its name.
        """
        measured = [metric for metric in METRICS if getattr(self.rows[0], metric) is not None]
        gaps = {metric: self.gap(policy, self.reference, metric) for metric in measured}
        return ComparisonRow(policy, _verdict(gaps[self.metric], reference=policy == self.reference), **gaps)

    def against(self, policy: str) -> Comparison:
        """Return the same comparison with another reference.

        Args:
            policy: name of the new reference.
        """
        return replace(self, reference=policy)

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
            "timed": self.timed,
            "leaves_out_queues": self.leaves_out_queues,
            "assumptions": assumptions_dict(self.assumptions),
            "notes": list(self.notes),
            "rows": [self._row_dict(row) for row in self.rows],
            "differences": [one.to_dict() for one in self.differences],
            "idle": [asdict(one) for one in self.idle],
            "behind": dict(self.behind),
        }

    def _row_dict(self, row: ResultRow) -> dict[str, Any]:
        lost = self.lost(row.policy)
        return {**row.to_dict(), **({"losses": lost} if lost else {})}


def compare(
    source: Source,
    policies: Sequence[AnyPolicy | Scenario],
    *,
    scenario: Scenario | None = None,
    seeds: int | Sequence[int] = 3,
    metric: str = "recompute_ratio",
    among: Sequence[str] = (),
    infinite: bool = False,
    cost: CostModel | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
    load_parts: int = 0,
) -> Comparison:
    """Run policies on the same requests with the same load signal, and say which differences are outside the noise.

    Args:
        source: a workload, or a function from a seed to one.
        policies: names or objects, each once; or scenarios of their own, which may differ in anything but their kind of
            cache. A policy with other parameters needs a ``label`` of its own.
        scenario: the fleet and everything else that all of them share; its policy is not used.
        seeds: how many, counted from 1, or the seeds themselves.
        metric: what decides, one of :data:`METRICS`; lower is better.
        among: names of which the best is the reference; none given means all.
        infinite: run each policy with unlimited caches too, and say where its hits went; for that, those that look at
            what replicas hold run once more, with a router that sees every cache.
        cost: prices and seconds.
        jobs: processes, see :class:`~prefixroute.sim.grid.Grid`.
        progress: told the share of the work that is done.
        time_is_up: asked between runs; then unlimited caches and further seeds are left out, which a note says.
        load_parts: parts of a run for which rows keep the load of the fleet, for pictures; 0 keeps none.

    Returns:
        A row for each policy, and the difference of each from the reference with its interval.

    Raises:
        ConfigError: no policy, one given twice, an unknown metric or one that these runs do not measure, or what
            :class:`~prefixroute.sim.grid.Grid` refuses.
    """
    base = scenario or Scenario()
    compared = [one if isinstance(one, Scenario) else replace(base, policy=one, label="") for one in policies]
    _check(compared, metric)
    grid = Grid(source, seeds_of(seeds), cost or CostModel(), jobs, progress, time_is_up)
    measure = Measure(grid.cost, load_parts, grid.source if infinite else None)
    cells = {(one.policy_name, _AS_IT_IS): Cell(one, measure) for one in compared}
    if infinite:
        cells |= {(one.policy_name, _UNLIMITED): Cell(one.unlimited(), OUTCOME, optional=True) for one in compared}
        cells |= {
            (one.policy_name, _SEEING): Cell(one, OUTCOME, optional=True, once=True) for one in informed(compared)
        }
    results = grid.run(cells, floor=(compared[0].cache, compared[0].warmup))
    return _compared(grid, compared, results, metric, among)


def _check(scenarios: Sequence[Scenario], metric: str) -> None:
    names = [one.policy_name for one in scenarios]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"compare needs policies, each once, got {', '.join(names) or 'none'}")
    check_choice("metric", metric, METRICS)
    if metric in TIMED_ONLY and not all(one.engine for one in scenarios):
        raise ConfigError(f"{metric} needs a timed simulation: give an engine, or --timed")
    if metric == MISSED and not all(one.promise for one in scenarios):
        raise ConfigError(f"{metric} needs a promise to miss: give one, or --goodput")


def _compared(
    grid: Grid, scenarios: Sequence[Scenario], results: Results[tuple[str, str]], metric: str, among: Sequence[str]
) -> Comparison:
    """Return the comparison of runs by policy and kind of run."""
    names, base = [one.policy_name for one in scenarios], scenarios[0]
    groups: list[list[Sample]] = [list(results.runs[name, _AS_IT_IS]) for name in names]
    seeing = {
        name: results.runs[name, _SEEING][0].recomputed_tokens for name in names if (name, _SEEING) in results.runs
    }
    rows = tuple(
        ResultRow.over(
            [sample.outcome for sample in group], results.floor, beyond(results.runs.get((name, _UNLIMITED)))
        )
        for name, group in zip(names, groups, strict=True)
    )
    eligible = [at for at, name in enumerate(names) if not among or name in among]
    best = min(eligible, key=lambda at: (getattr(rows[at], metric), at))
    fixed, workload = is_fixed(grid.source), open_source(grid.source, grid.seeds[0])
    lucky = (ONE_RUN,) if len(results.seeds) == 1 and len(names) > 1 and metric == DRAWN else ()
    return Comparison(
        workload=workload.name,
        metric=metric,
        rows=rows,
        reference=names[best],
        gaps=Gaps.of(names, groups, fixed=fixed),
        clusters=clusters(groups[best], fixed=fixed),
        assumptions=(*workload.assumptions, *grid.cost.assumptions, *assumed(base, "replicas")),
        notes=(*workload.notes, *lucky, *overload(rows), *left_out(results.left_out)),
        idle=_idle(workload, scenarios, groups),
        behind={name: min(sample.behind for sample in group) for name, group in zip(names, groups, strict=True)},
        spans_time=_spans_time(workload),
        losses=_losses(names, groups, seeing),
    )


def _spans_time(workload: Workload) -> bool:
    """Return whether requests come at different times; reads no further than the first that does."""
    requests = workload.requests()
    first = next(requests, None)
    return first is not None and any(request.arrival_s > first.arrival_s for request in requests)


def informed(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Return the scenarios whose policy looks at caches, each with a router that sees every cache."""
    return [
        replace(one, observe=Perfect())
        for one in scenarios
        if one.replicas > 1
        and one.cache == "blocks"
        and not one.warmup
        and not isinstance(one.observation, Perfect)
        and as_policy(one.policy).reads_hits()
    ]


def _losses(
    names: Sequence[str], groups: Sequence[Sequence[Sample]], seeing: Mapping[str, int]
) -> dict[str, HitLosses]:
    """Return where the hits went over the runs of each policy, where every run knows.

    Args:
        names: of the policies.
        groups: of each, a sample for each seed.
        seeing: tokens that a policy recomputes with the first seed where the router sees every cache, as far as that
            was run. What is thus found unknown of what is elsewhere is taken to be the same share with every seed.
    """
    found = {}
    for name, group in zip(names, groups, strict=True):
        each = [sample.losses for sample in group if sample.losses is not None]
        if len(each) < len(group):
            continue
        first = each[0]
        saved = first.recomputed - seeing.get(name, first.recomputed)
        share = min(1.0, max(0, saved) / first.elsewhere) if first.elsewhere else 0.0
        found[name] = reduce(HitLosses.plus, each, HitLosses()).told_apart(share)
    return found


def _idle(workload: Workload, scenarios: Sequence[Scenario], groups: Sequence[Sequence[Sample]]) -> tuple[Idle, ...]:
    """Return which policies leave replicas nearly idle; the head that all prompts share is looked for only then."""
    counts = [count_idle([sample.outcome for sample in group]) for group in groups]
    if not any(counts):
        return ()
    head = Heads.in_workload(workload).common
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
