"""Intervals of differences: a paired bootstrap over whole sessions, and over days where a trace has enough of them.

Turns of one session share their fate, so requests are not independent samples: resampling them one by one would make
every interval too narrow. Two policies are compared on the *same* resampled sessions, which removes the noise that
they share. A resample also draws which seed's run it looks at, so draws of the policies count as noise too; and since
three runs say little about where a fourth would fall, an interval is at least as wide as Student's t over the runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 1_000
"""Resamples of an interval: the 2.5 % tail then rests on 25 of them."""
LEVEL = 0.95
TAILS = ((1.0 - LEVEL) / 2, (1.0 + LEVEL) / 2)
"""Quantiles of the resamples that are the ends of an interval."""
STUDENT = (
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
    2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09,
)  # fmt: skip
"""97.5 % quantiles of Student's t with 1 to 20 degrees of freedom; more are taken as 20."""
UNKNOWN = {
    "one-session": "there is one session only, which no resample can leave out",
    "few-requests": "fewer than 10 requests lie beyond the percentile",
    "tied": "both policies have the same percentile in every resample: many requests have that time",
}
"""Why the ends of an interval are not known."""
_CELLS = 4_000_000  # of a batch of weights: 32 MB


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and the ends of its 95 % interval, in the unit of the value.

    Attributes:
        value: what was measured.
        low: the lower end; minus infinity where it is not known.
        high: the upper end; infinity where it is not known.
        unknown: why the ends are not known, one of :data:`UNKNOWN`; empty where they are.
    """

    value: float
    low: float
    high: float
    unknown: str = ""

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign is outside the noise."""
        return self.low > 0.0 or self.high < 0.0

    def __or__(self, other: Interval) -> Interval:
        """Return this value with the wider ends of the two."""
        ends = min(self.low, other.low), max(self.high, other.high)
        return Interval(self.value, *ends, unknown=self.unknown or other.unknown)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object; an end that is not known is null, and ``unknown`` says why."""
        ends = (end if math.isfinite(end) else None for end in (self.low, self.high))
        why = {"unknown": self.unknown} if self.unknown else {}
        return {"value": self.value, **dict(zip(("low", "high"), ends, strict=True)), **why}


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two sums over clusters, as sums per cluster.

    Attributes:
        top: shape ``[runs, clusters]``, a line for each run (seed) of the simulation. For a paired difference, the
            difference of two policies' sums.
        below: shape ``[clusters]``: prompt tokens, or requests.
    """

    top: Floats
    below: Floats


def sums_by_cluster(values: Floats, clusters: NDArray[np.integer], count: int) -> Floats:
    """Return the sum of ``values`` in each of ``count`` clusters: shape ``[count]``."""
    return np.bincount(clusters, weights=values, minlength=count).astype(np.float64)


def ratio_intervals(ratios: Sequence[Ratio], *, seed: int, resamples: int = RESAMPLES) -> list[Interval]:
    """Return each ratio with its interval over clusters, all of them from the same resamples.

    Args:
        ratios: of the same runs and clusters. One cluster alone proves nothing: its intervals are everything.
        seed: of the resampling.
        resamples: how many.
    """
    if not ratios:
        return []
    values, drawn = drawn_ratios(ratios, seed=seed, resamples=resamples)
    if drawn is None:
        return [Interval(float(value), -math.inf, math.inf, "one-session") for value in values]
    low, high = np.quantile(drawn, TAILS, axis=0)
    ends = zip(values, low, high, strict=True)
    return [Interval(float(value), float(least), float(most)) for value, least, most in ends]


def drawn_ratios(ratios: Sequence[Ratio], *, seed: int, resamples: int = RESAMPLES) -> tuple[Floats, Floats | None]:
    """Return each ratio, shape ``[ratios]``, and what it is in each resample, shape ``[resamples, ratios]``.

    The resamples are None where there are fewer than two clusters.
    """
    tops = np.stack([ratio.top for ratio in ratios])  # [ratios, runs, clusters]
    below = np.stack([ratio.below for ratio in ratios])
    runs, clusters = tops.shape[1:]
    values = _divided(tops.sum(axis=2).mean(axis=1), below.sum(axis=1))
    if clusters < 2:  # noqa: PLR2004
        return values, None
    rng = np.random.default_rng([seed, 0x626F6F74])
    drawn = []
    for weights in resampled(rng, clusters, resamples):
        run = rng.integers(runs, size=len(weights))
        drawn += [_divided(weights[run == at] @ tops[:, at].T, weights[run == at] @ below.T) for at in range(runs)]
    return values, np.concatenate(drawn)


def student(runs: int) -> float:
    """Return Student's factor of a 95 % interval of the mean of so many runs, two or more."""
    return STUDENT[min(runs - 1, len(STUDENT)) - 1]


def _divided(top: Floats, below: Floats) -> Floats:
    return np.divide(top, below, out=np.zeros_like(below), where=below > 0)


def resampled(rng: np.random.Generator, clusters: int, resamples: int, cells: int = 0) -> Iterator[Floats]:
    """Yield batches, shape ``[batch, clusters]``, of how often each cluster is drawn.

    Small where each costs ``cells``.
    """
    batch = max(1, _CELLS // max(clusters, cells))
    for first in range(0, resamples, batch):
        size = min(batch, resamples - first)
        draws = rng.integers(clusters, size=(size, clusters))
        draws += np.arange(size)[:, None] * clusters
        yield np.bincount(draws.ravel(), minlength=size * clusters).reshape(size, clusters).astype(np.float64)
