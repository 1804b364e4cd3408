"""Percentiles and their resamples: the same paired bootstrap over whole clusters as that of ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixroute.advise.bootstrap import RESAMPLES, Floats, resampled

FEWEST_BEYOND = 10
"""Requests that must lie beyond a percentile: with fewer, its interval is undefined."""


def is_known(requests: int, percentile: float) -> bool:
    """Return whether enough of so many requests lie beyond a percentile for an interval of it."""
    return requests * (1 - percentile / 100) >= FEWEST_BEYOND


@dataclass(frozen=True, slots=True)
class Observed:
    """One value per request of a run, and the cluster of each, both of shape ``[requests]``."""

    values: Floats
    cluster: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of several groups of runs.

    Attributes:
        values: the mean over a group's runs, shape ``[groups, percentiles]``.
        drawn: the same in each resample of the clusters, shape ``[resamples, groups, percentiles]``; None where there
            are fewer than two clusters, or no request.
        known: of each percentile, whether enough requests lie beyond it.
    """

    values: Floats
    drawn: Floats | None
    known: tuple[bool, ...]


def percentiles_of(
    groups: Sequence[Sequence[Observed]], percentiles: Sequence[float], *, fixed: bool, seed: int
) -> Percentiles:
    """Return percentiles of every group, and what they are in each resample. All groups see the same resamples.

    Args:
        groups: the runs of each policy, in the same order of seeds, with the same clusters.
        percentiles: between 0 and 100.
        fixed: every run has the same clusters, and a resample looks at one run; else the clusters of each run are its
            own.
        seed: of the resampling.
    """
    sizes = [int(run.cluster.max(initial=-1)) + 1 for run in groups[0]]
    if not all(sizes):
        return Percentiles(np.zeros((len(groups), len(percentiles))), None, (False,) * len(percentiles))
    values = np.array([[np.percentile(run.values, percentiles) for run in group] for group in groups]).mean(axis=1)
    shares = np.array(percentiles) / 100
    fewest = min(len(run.values) for run in groups[0])
    known = tuple(is_known(fewest, percentile) for percentile in percentiles)
    if (sizes[0] if fixed else sum(sizes)) < 2:  # noqa: PLR2004
        return Percentiles(values, None, known)
    rng = np.random.default_rng([seed, 0x70657263])
    ordered = [[_Ordered.of(run, shares) for run in group] for group in groups]
    drawn = _fixed_draws(ordered, sizes[0], rng) if fixed else _own_draws(ordered, sizes, rng)
    return Percentiles(values, drawn, known)


@dataclass(frozen=True, slots=True)
class _Ordered:
    """A run's values in ascending order, and the cluster of each."""

    values: Floats
    cluster: NDArray[np.int64]
    shares: Floats

    @classmethod
    def of(cls, run: Observed, shares: Floats) -> _Ordered:
        order = np.argsort(run.values, kind="stable")
        return cls(run.values[order], run.cluster[order], shares)

    def percentiles(self, weights: Floats) -> Floats:
        """Return the percentiles under weights ``[batch, clusters]`` of the clusters: ``[batch, percentiles]``."""
        reached = np.cumsum(weights[:, self.cluster], axis=1)
        aims = reached[:, -1:] * self.shares
        places = [np.minimum((reached < aim[:, None]).sum(axis=1), len(self.values) - 1) for aim in aims.T]
        return np.stack([self.values[place] for place in places], axis=1)


def _fixed_draws(groups: Sequence[Sequence[_Ordered]], clusters: int, rng: np.random.Generator) -> Floats:
    """Return percentiles of every group in each resample, of one run each: ``[resamples, groups, percentiles]``."""
    drawn = []
    for weights in resampled(rng, clusters, RESAMPLES, cells=max(len(run.values) for run in groups[0])):
        chosen = rng.integers(len(groups[0]), size=len(weights))
        parts = [weights[chosen == at] for at in range(len(groups[0]))]
        drawn += [
            np.stack([group[at].percentiles(part) for group in groups], axis=1)
            for at, part in enumerate(parts)
            if len(part)
        ]
    return np.concatenate(drawn)


def _own_draws(groups: Sequence[Sequence[_Ordered]], sizes: Sequence[int], rng: np.random.Generator) -> Floats:
    """Return percentiles of every group in each resample, the mean over runs: ``[resamples, groups, percentiles]``."""
    by_run = []
    for at, size in enumerate(sizes):
        cells = len(groups[0][at].values)
        batches = resampled(rng, size, RESAMPLES, cells=cells)
        by_run.append(
            np.concatenate([np.stack([group[at].percentiles(part) for group in groups], axis=1) for part in batches])
        )
    mean: Floats = np.mean(by_run, axis=0)
    return mean
