"""One value per request of a run, and intervals of what two policies' runs differ by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixroute.advise.bootstrap import Interval, ratio_interval, sums_by_cluster
from prefixroute.costmodel import CostModel
from prefixroute.sim import Outcome, Run

Floats = NDArray[np.float64]

DAY_S = 86_400
FEWEST_DAYS = 5
"""Days from which an interval over days is made too: fewer are too few to resample."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a run leaves for comparison: one value per request, in the order of the workload."""

    outcome: Outcome
    session: NDArray[np.int64]
    day: NDArray[np.int64]
    prompt: Floats
    recomputed: Floats
    ttft_s: Floats
    prefill_s: Floats

    @classmethod
    def of(cls, run: Run, cost: CostModel) -> Sample:
        """Take the columns of a run."""
        log, prefill = run.log, run.prefill_seconds(cost)
        order = np.argsort(log.column("number"), kind="stable")
        ttft = prefill if run.scenario.engine is None else log.column("first_token") - log.column("arrival")
        sessions = log.column("session")[order]
        _, first, inverse = np.unique(sessions, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)  # sessions by first request: the same numbers whatever the policy
        rank[np.argsort(first, kind="stable")] = np.arange(len(first))
        return cls(
            run.outcome,
            rank[inverse],
            (log.column("arrival")[order] // DAY_S).astype(np.int64),
            log.column("prompt")[order].astype(np.float64),
            (log.column("prompt") - log.column("hit"))[order].astype(np.float64),
            ttft[order].astype(np.float64),
            prefill[order],
        )


@dataclass(frozen=True, slots=True)
class Measure:
    """Makes a sample of a run; an object so that other processes can have it."""

    cost: CostModel

    def __call__(self, run: Run) -> Sample:
        """Make the sample."""
        return Sample.of(run, self.cost)


class Pairs:
    """Intervals of the difference from one policy's samples, over sessions, and over days where there are enough.

    Where every seed has the same requests (``fixed``), a session is one cluster with a run for each seed; where each
    seed draws its own requests, the sessions of all seeds stand side by side.
    """

    def __init__(self, reference: list[Sample], *, fixed: bool) -> None:
        """Compare with ``reference``, one sample for each seed."""
        self._reference, self._fixed = reference, fixed
        self.clusters = self._clusters("session")
        self._units = ["session", "day"] if fixed and self._clusters("day") >= FEWEST_DAYS else ["session"]

    def _clusters(self, unit: str) -> int:
        counts = [int(getattr(sample, unit).max(initial=-1)) + 1 for sample in self._reference]
        return counts[0] if self._fixed else sum(counts)

    def interval(self, group: list[Sample], column: str, per: str | None = None) -> Interval:
        """Return the difference of a column's sum over the sum of ``per`` (None: over requests).

        The wider ends count where both sessions and days were resampled.
        """
        interval, *others = (self._over(unit, group, column, per) for unit in self._units)
        for other in others:
            interval |= other
        return interval

    def _over(self, unit: str, group: list[Sample], column: str, per: str | None) -> Interval:
        top, below = [], []
        for mine, theirs in zip(group, self._reference, strict=True):
            clusters = getattr(theirs, unit)
            size = int(clusters.max(initial=-1)) + 1
            change = getattr(mine, column) - getattr(theirs, column)
            weight = np.ones(len(clusters)) if per is None else getattr(theirs, per)
            top.append(sums_by_cluster(change, clusters, size))
            below.append(sums_by_cluster(weight, clusters, size))
        if self._fixed:
            return ratio_interval(np.stack(top), below[0], seed=0)
        return ratio_interval(np.concatenate(top)[None], np.concatenate(below), seed=0)
