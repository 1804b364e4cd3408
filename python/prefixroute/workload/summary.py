"""Summaries of many figures: quantiles, and groups by what prompts begin with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean, quantiles and greatest of some lengths, times or counts."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: NDArray[np.float64] | NDArray[np.int64]) -> Lengths:
        """Summarise an array; all zero where it is empty."""
        if not len(values):
            return cls(0.0, 0.0, 0.0, 0.0, 0.0)
        p50, p90, p99 = np.quantile(values, [0.5, 0.9, 0.99])
        return cls(float(values.mean()), float(p50), float(p90), float(p99), float(values.max()))


@dataclass(frozen=True, slots=True)
class Groups:
    """Requests grouped by their first ``depth`` blocks; requests shorter than that are in no group."""

    depth: int
    count: int
    largest: int
