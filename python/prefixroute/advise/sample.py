"""One value per request of a run, and intervals of what two policies' runs differ by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from prefixroute.advise.behind import replicas_behind
from prefixroute.advise.bootstrap import TAILS, Interval, Ratio, drawn_ratios, student, sums_by_cluster
from prefixroute.advise.percentiles import Observed, is_known, percentiles_of
from prefixroute.costmodel import CostModel
from prefixroute.sim import Outcome, Run
from prefixroute.sim.grid import Source, is_fixed, open_source
from prefixroute.sim.run import promise_kept
from prefixroute.workload import HitLosses, Sightings, losses_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DAY_S = 86_400
FEWEST_DAYS = 5
"""Days from which an interval over days is made too: fewer are too few to resample."""
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """What a run leaves for comparison: one value per request, in the order of the workload.

    ``usd`` is prefill dollars per million requests; ``usd_busiest`` the same with capacity bought for the busiest
    replica: ``usd`` x (prefill seconds of the busiest replica / mean). ``behind`` counts replicas that cannot keep up;
    timed only.
    ``decode_s`` is spent on ``gaps`` tokens after the first; untimed there are none, and ``e2e_s`` is prefill alone.
    ``missed`` is 1 for a request that broke the scenario's promise, else 0.
    ``losses`` says where the hits went; None where that was not asked for, or cannot be told.
    """

    outcome: Outcome
    session: Integers
    day: Integers
    requests: Floats
    prompt: Floats
    recomputed: Floats
    ttft_s: Floats
    e2e_s: Floats
    decode_s: Floats
    gaps: Floats
    missed: Floats
    usd: Floats
    usd_busiest: Floats
    behind: int = 0
    losses: HitLosses | None = None

    def figure(self, metric: str) -> float:
        """Return the metric of this run alone."""
        if metric in PERCENTILES:
            return float(np.percentile(self.ttft_s, PERCENTILES[metric])) if len(self.ttft_s) else 0.0
        top, below = (float(getattr(self, name).sum()) for name in COLUMNS[metric])
        return top / below if below else 0.0


@dataclass(frozen=True, slots=True)
class Measure:
    """Makes a sample of a run; an object so that other processes can have it.

    Attributes:
        cost: prices and seconds.
        load_parts: parts of the run for which the load of the fleet is kept; 0 keeps none.
        source: what is simulated, where the sample is to say where the hits went.
        sightings: what was seen before of each request, by seed: looked at once for all policies.
    """

    cost: CostModel
    load_parts: int = 0
    source: Source | None = None
    sightings: dict[int, Sightings] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, run: Run) -> Sample:
        """Make the sample."""
        log, outcome = run.log, run.outcome
        order = np.argsort(log.column("number"), kind="stable")
        prefill = run.prefill_seconds(self.cost)
        ttft = e2e = prefill
        decode, gaps, missed = (np.zeros_like(prefill) for _ in range(3))
        if run.scenario.promise is not None:
            missed = (~promise_kept(log, run.scenario.promise)).astype(np.float64)
        if run.scenario.engine is not None:
            arrival, first, finish = (
                log.column(name).astype(np.float64) for name in ("arrival", "first_token", "finish")
            )
            ttft, e2e, decode = first - arrival, finish - arrival, finish - first
            gaps = log.column("output").astype(np.float64) - 1
        usd = (self.cost.usd(prefill) * MILLION)[order]
        plain = outcome.usd_per_million_requests
        uneven = outcome.usd_per_million_requests_busiest / plain if plain else 1.0
        return Sample(
            outcome=run.outcome_with_load(self.load_parts) if self.load_parts else outcome,
            session=_by_first_request(log.column("session")[order].astype(np.int64)),
            day=(log.column("arrival")[order] // DAY_S).astype(np.int64),
            requests=np.ones(len(order)),
            prompt=log.column("prompt")[order].astype(np.float64),
            recomputed=(log.column("prompt") - log.column("hit"))[order].astype(np.float64),
            ttft_s=ttft[order].astype(np.float64),
            e2e_s=e2e[order].astype(np.float64),
            decode_s=decode[order],
            gaps=gaps[order].clip(0),
            missed=missed[order],
            usd=usd,
            usd_busiest=usd * uneven,
            behind=0 if run.scenario.engine is None else replicas_behind(log, len(run.names)),
            losses=self._losses(run),
        )

    def _losses(self, run: Run) -> HitLosses | None:
        """Return where the hits of a run went.

        None of whole entries in place of blocks, and of runs that warm their caches first.
        """
        if self.source is None or run.scenario.cache == "entries" or run.scenario.warmup:
            return None
        workload, log = open_source(self.source, run.scenario.seed), run.log
        key = 0 if is_fixed(self.source) else run.scenario.seed
        if key not in self.sightings:
            self.sightings[key] = Sightings.of(
                workload.requests(), workload.block_size, volatile=workload.volatile is not None
            )
        replicas, hits = (log.in_order(log.column(name)).tolist() for name in ("replica", "hit"))
        return losses_of(workload.requests(), workload.block_size, replicas, hits, self.sightings[key])


def _by_first_request(sessions: Integers) -> Integers:
    """Return sessions numbered by their first request: the same numbers whatever the policy."""
    _, first, inverse = np.unique(sessions, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]


COLUMNS = {
    "recompute_ratio": ("recomputed", "prompt"),
    "ttft_mean_s": ("ttft_s", "requests"),
    "itl_mean_s": ("decode_s", "gaps"),
    "e2e_mean_s": ("e2e_s", "requests"),
    "missed_ratio": ("missed", "requests"),
    "usd_per_million_requests": ("usd", "requests"),
    "usd_per_million_requests_busiest": ("usd_busiest", "requests"),
}
"""What each metric is a ratio of."""
DRAWN = "usd_per_million_requests_busiest"
"""The metric that rests on which sessions meet on one replica."""
LUCK = 0.1
"""Share of the smaller of two dollars by the busiest replica that is taken as luck where there is one run only."""
PERCENTILES = {"ttft_p50_s": 50.0, "ttft_p90_s": 90.0, "ttft_p99_s": 99.0}
"""Which percentile of TTFT each further metric is."""


METRICS = (*COLUMNS, *PERCENTILES)
"""What policies are compared by; lower is better."""
MISSED = "missed_ratio"
"""The share of requests that broke the scenario's promise."""
TIMED_ONLY = ("itl_mean_s", "e2e_mean_s", MISSED)
"""Those of them that untimed runs do not measure; the last only where a scenario has a promise."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """How far every policy is from every other, by metric, with 95 % intervals.

    Attributes:
        policies: their names, in the order of the axes.
        ends: value, low and high of the row's policy less the column's, shape ``[metrics, policies, policies, 3]``.
        unknown: by metric, why its ends are not known; those of other metrics are not where policies are tied.
    """

    policies: tuple[str, ...]
    ends: Floats = field(repr=False)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def interval(self, policy: str, other: str, metric: str) -> Interval:
        """Return the value of ``policy`` less that of ``other``."""
        at, to = self.policies.index(policy), self.policies.index(other)
        value, low, high = map(float, self.ends[METRICS.index(metric), at, to])
        known = math.isfinite(high - low)
        return Interval(value, low, high, "" if known else self.unknown.get(metric, "tied"))

    @classmethod
    def of(cls, policies: Sequence[str], groups: Sequence[Sequence[Sample]], *, fixed: bool) -> Gaps:
        """Measure them.

        Args:
            policies: the names of the groups.
            groups: one for each policy, with a sample for each seed.
            fixed: every seed has the same requests. A session is then one cluster with a run for each seed; else each
                seed draws its own requests, and the sessions of all seeds stand side by side.
        """
        days = int(groups[0][0].day.max(initial=-1)) + 1
        units = ["session", "day"] if fixed and days >= FEWEST_DAYS else ["session"]
        by_unit = [
            np.concatenate([_ratio_gaps(groups, unit, fixed), _time_gaps(groups, unit, fixed)]) for unit in units
        ]
        by_run = np.stack([_run_gaps(metric, groups) for metric in METRICS])
        ends = by_unit[0]
        for wider in (*by_unit[1:], by_run):
            ends[..., 1] = np.minimum(ends[..., 1], wider[..., 1])
            ends[..., 2] = np.maximum(ends[..., 2], wider[..., 2])
        same = np.arange(len(groups))
        ends[:, same, same] = 0.0
        return cls(tuple(policies), ends, _unknown(groups[0], fixed=fixed))


def _unknown(group: Sequence[Sample], *, fixed: bool) -> dict[str, str]:
    """Return of which metrics the runs of a policy are too few for an interval, and why."""
    if clusters(group, fixed=fixed) < 2:  # noqa: PLR2004
        return dict.fromkeys(METRICS, "one-session")
    fewest = min(len(sample.ttft_s) for sample in group)
    return {metric: "few-requests" for metric, percentile in PERCENTILES.items() if not is_known(fewest, percentile)}


def pairs_of(values: Floats, drawn: Floats | None, *, known: bool = True) -> Floats:
    """Return the ends of all differences of one metric, shape ``[policies, policies, 3]``.

    Args:
        values: of each policy, shape ``[policies]``.
        drawn: the same in each resample, shape ``[resamples, policies]``; None = nothing to resample.
        known: whether the ends are defined.
    """
    ends = np.empty((len(values), len(values), 3))
    ends[..., 0] = values[:, None] - values[None, :]
    ends[..., 1], ends[..., 2] = -np.inf, np.inf
    if drawn is not None and known:
        for at in range(len(values)):
            low, high = np.quantile(drawn[:, [at]] - drawn, TAILS, axis=0)
            ends[at, :, 1] = np.minimum(low, ends[at, :, 0])
            ends[at, :, 2] = np.maximum(high, ends[at, :, 0])
    return ends


def _ratio_gaps(groups: Sequence[Sequence[Sample]], unit: str, fixed: bool) -> Floats:  # noqa: FBT001 - private
    ratios = [_ratio(group, unit, *pair, fixed=fixed) for pair in COLUMNS.values() for group in groups]
    values, drawn = drawn_ratios(ratios, seed=0)
    each = len(groups)
    return np.stack(
        [
            pairs_of(values[first : first + each], None if drawn is None else drawn[:, first : first + each])
            for first in range(0, len(ratios), each)
        ]
    )


def _time_gaps(groups: Sequence[Sequence[Sample]], unit: str, fixed: bool) -> Floats:  # noqa: FBT001 - private
    observed = [[Observed(sample.ttft_s, getattr(sample, unit)) for sample in group] for group in groups]
    found = percentiles_of(observed, tuple(PERCENTILES.values()), fixed=fixed, seed=0)
    ends = np.stack(
        [
            pairs_of(found.values[:, at], None if found.drawn is None else found.drawn[..., at], known=known)
            for at, known in enumerate(found.known)
        ]
    )
    # Many requests of one length have one time, which is then the percentile of both policies in every resample. Zero
    # with a width of zero would say that the policies are equal, which is known only where no request differs.
    tied = (ends == 0.0).all(axis=-1) & ~_alike(observed)
    ends[tied, 1:] = -np.inf, np.inf
    return ends


def _alike(groups: Sequence[Sequence[Observed]]) -> NDArray[np.bool_]:
    """Return of each pair of policies whether every request has the same value under both."""
    joined = [np.concatenate([run.values for run in group]) for group in groups]
    return np.array([[np.array_equal(one, other) for other in joined] for one in joined])


def _run_gaps(metric: str, groups: Sequence[Sequence[Sample]]) -> Floats:
    """Return the mean differences of the runs, as wide as they differ.

    Which sessions meet on the busiest replica is one draw in each run, which no resampling of sessions draws again: one
    run tells nothing of it, and :data:`LUCK` stands for it.
    """
    figures = np.array([[sample.figure(metric) for sample in group] for group in groups])  # [policies, runs]
    apart = figures[:, None] - figures[None, :]
    mean, runs = apart.mean(axis=2), figures.shape[1]
    half = student(runs) * apart.std(axis=2, ddof=1) / math.sqrt(runs) if runs > 1 else np.zeros_like(mean)
    if runs == 1 and metric == DRAWN:
        half = LUCK * np.minimum(figures, figures.T) * (mean != 0.0)
    return np.stack([mean, mean - half, mean + half], axis=2)


def clusters(group: Sequence[Sample], *, fixed: bool) -> int:
    """Return the number of sessions that intervals rest on."""
    counts = [int(sample.session.max(initial=-1)) + 1 for sample in group]
    return counts[0] if fixed else sum(counts)


def _ratio(group: Sequence[Sample], unit: str, column: str, per: str, *, fixed: bool) -> Ratio:
    tops, below = [], []
    for sample in group:
        number = getattr(sample, unit)
        size = int(number.max(initial=-1)) + 1
        tops.append(sums_by_cluster(getattr(sample, column), number, size))
        below.append(sums_by_cluster(getattr(sample, per), number, size))
    if fixed:
        return Ratio(np.stack(tops), below[0])
    return Ratio(np.concatenate(tops)[None], np.concatenate(below))
