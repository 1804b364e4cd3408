"""One value per request of a run, and intervals of what two policies' runs differ by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixroute.advise.bootstrap import Interval, Ratio, over_runs, ratio_intervals, sums_by_cluster
from prefixroute.advise.percentiles import Observed, percentile_differences
from prefixroute.costmodel import CostModel
from prefixroute.sim import Outcome, Run

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
    replica: ``usd`` x (prefill seconds of the busiest replica / mean).
    """

    outcome: Outcome
    session: Integers
    day: Integers
    requests: Floats
    prompt: Floats
    recomputed: Floats
    ttft_s: Floats
    usd: Floats
    usd_busiest: Floats

    def figure(self, metric: str) -> float:
        """Return the metric of this run alone."""
        if metric in PERCENTILES:
            return float(np.percentile(self.ttft_s, PERCENTILES[metric])) if len(self.ttft_s) else 0.0
        top, below = (float(getattr(self, name).sum()) for name in COLUMNS[metric])
        return top / below if below else 0.0


@dataclass(frozen=True, slots=True)
class Measure:
    """Makes a sample of a run; an object so that other processes can have it."""

    cost: CostModel
    load_parts: int = 0

    def __call__(self, run: Run) -> Sample:
        """Make the sample."""
        log, outcome = run.log, run.outcome
        order = np.argsort(log.column("number"), kind="stable")
        prefill = run.prefill_seconds(self.cost)
        ttft = prefill if run.scenario.engine is None else log.column("first_token") - log.column("arrival")
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
            usd=usd,
            usd_busiest=usd * uneven,
        )


def _by_first_request(sessions: Integers) -> Integers:
    """Return sessions numbered by their first request: the same numbers whatever the policy."""
    _, first, inverse = np.unique(sessions, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]


COLUMNS = {
    "recompute_ratio": ("recomputed", "prompt"),
    "ttft_mean_s": ("ttft_s", "requests"),
    "usd_per_million_requests": ("usd", "requests"),
    "usd_per_million_requests_busiest": ("usd_busiest", "requests"),
}
"""What each metric is a ratio of."""
DRAWN = "usd_per_million_requests_busiest"
"""The metric that rests on which sessions meet on one replica."""
LUCK = 0.1
"""Share of the reference's dollars by the busiest replica that is taken as luck where there is one run only."""
PERCENTILES = {"ttft_p50_s": 50.0, "ttft_p90_s": 90.0, "ttft_p99_s": 99.0}
"""Which percentile of TTFT each further metric is."""


def differences(groups: list[list[Sample]], reference: int, *, fixed: bool) -> list[dict[str, Interval]]:
    """Return for each group of runs, by metric, how far it is from the group ``reference``.

    Args:
        groups: one for each policy, with a sample for each seed.
        reference: the group that the others are compared with.
        fixed: every seed has the same requests. A session is then one cluster with a run for each seed; else each seed
            draws its own requests, and the sessions of all seeds stand side by side.
    """
    days = int(groups[reference][0].day.max(initial=-1)) + 1
    units = ["session", "day"] if fixed and days >= FEWEST_DAYS else ["session"]
    by_unit = []
    for unit in units:
        ratios = [
            _ratio(group, groups[reference], unit, *pair, fixed=fixed) for group in groups for pair in COLUMNS.values()
        ]
        by_unit.append(ratio_intervals(ratios, seed=0))
    joined = by_unit[0] if len(units) == 1 else [one | other for one, other in zip(*by_unit, strict=True)]
    per_group = [joined[first : first + len(COLUMNS)] for first in range(0, len(joined), len(COLUMNS))]
    percentiles = _percentiles(groups, reference, units, fixed=fixed)
    return [
        {
            name: interval | _over_runs(name, group, groups[reference])
            for name, interval in zip((*COLUMNS, *PERCENTILES), (*ratios, *times), strict=True)
        }
        for group, ratios, times in zip(groups, per_group, percentiles, strict=True)
    ]


def _over_runs(metric: str, group: list[Sample], reference: list[Sample]) -> Interval:
    """Return the mean difference of the runs, as wide as they differ.

    Which sessions meet on the busiest replica is one draw in each run, which no resampling of sessions draws again: one
    run tells nothing of it, and :data:`LUCK` stands for it.
    """
    values = [mine.figure(metric) - theirs.figure(metric) for mine, theirs in zip(group, reference, strict=True)]
    if len(values) == 1 and metric == DRAWN and values[0]:
        luck = LUCK * reference[0].figure(metric)
        return Interval(values[0], values[0] - luck, values[0] + luck)
    return over_runs(values)


def _percentiles(groups: list[list[Sample]], reference: int, units: list[str], *, fixed: bool) -> list[list[Interval]]:
    by_unit = []
    for unit in units:
        observed = [[Observed(sample.ttft_s, getattr(sample, unit)) for sample in group] for group in groups]
        by_unit.append(percentile_differences(observed, reference, tuple(PERCENTILES.values()), fixed=fixed, seed=0))
    if len(by_unit) == 1:
        return by_unit[0]
    return [[one | other for one, other in zip(*pair, strict=True)] for pair in zip(*by_unit, strict=True)]


def clusters(group: list[Sample], *, fixed: bool) -> int:
    """Return the number of sessions that intervals rest on."""
    counts = [int(sample.session.max(initial=-1)) + 1 for sample in group]
    return counts[0] if fixed else sum(counts)


def _ratio(group: list[Sample], reference: list[Sample], unit: str, column: str, per: str, *, fixed: bool) -> Ratio:
    tops, below = [], []
    for mine, theirs in zip(group, reference, strict=True):
        number = getattr(theirs, unit)
        size = int(number.max(initial=-1)) + 1
        tops.append(sums_by_cluster(getattr(mine, column) - getattr(theirs, column), number, size))
        below.append(sums_by_cluster(getattr(theirs, per), number, size))
    if fixed:
        return Ratio(np.stack(tops), below[0])
    return Ratio(np.concatenate(tops)[None], np.concatenate(below))
