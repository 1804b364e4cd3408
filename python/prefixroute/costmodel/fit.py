"""Fit the cost model to measured first-token times, and say how well it fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel.cost import CostModel
from prefixroute.errors import ConfigError

LEAST_ROWS = 3
"""Two figures are fitted; a residual needs a third row."""
_POOR_FIT = 0.2


@dataclass(frozen=True, slots=True)
class Residual:
    """One measured row beside what the fitted model says; seconds."""

    prompt_tokens: int
    cached_tokens: int
    measured_s: float
    predicted_s: float

    @property
    def relative_error(self) -> float:
        """Predicted over measured, less 1: positive where the model is too slow."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost model fitted to measurements, and how far it is from them.

    Attributes:
        cost: the model with the fitted utilization and overhead.
        rows: how many measurements there were.
        mean_error: mean relative error: the model's bias.
        median_absolute_error: half of the rows are nearer than this, relative.
        p90_absolute_error: nine in ten rows are nearer than this, relative.
        worst: the row that fits worst.
        notes: what makes the fit doubtful; empty where nothing does.
    """

    cost: CostModel
    rows: int
    mean_error: float
    median_absolute_error: float
    p90_absolute_error: float
    worst: Residual
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """Return the residual report, a line a figure."""
        worst = self.worst
        fitted = f"utilization {self.cost.utilization:.3f}, overhead {self.cost.overhead_s:.4f} s"
        spread = f"median {self.median_absolute_error:.1%}, 90th percentile {self.p90_absolute_error:.1%}"
        seconds = f"measured {worst.measured_s:.4f} s, predicted {worst.predicted_s:.4f} s"
        lines = [
            f"fitted to {self.rows} rows: {fitted}",
            f"relative error: mean {self.mean_error:+.1%}, {spread}",
            f"worst row: {worst.prompt_tokens} tokens, {worst.cached_tokens} cached, {seconds}",
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def fit(rows: Iterable[tuple[float, float, float]], cost: CostModel) -> Fit:
    """Fit utilization and overhead to measured (prompt tokens, cached tokens of these, seconds to first token).

    Least squares of the relative error, so that short prompts count as much as long ones; the overhead is never
    negative. Measure on an idle replica: queueing looks like slowness.

    Args:
        rows: the measurements, 3 or more, of different lengths.
        cost: the GPU, the model and the tensor parallelism that were measured.

    Raises:
        ConfigError: for too few rows, rows that cannot be told apart, or a row with impossible figures.
    """
    table = np.array([tuple(row) for row in rows], dtype=float)
    tokens, cached, seconds = _columns(table)
    operations = np.array([cost.prefill_flops(n - c, c) for n, c in zip(tokens, cached, strict=True)])
    if operations.max() < 1.05 * operations.min():
        raise ConfigError("measured rows must differ in length: all of them take about the same number of operations")
    slope, overhead = _least_squares(operations, seconds)
    peak = cost.gpu.flops * cost.tensor_parallel
    utilization = 1 / (slope * peak)
    notes = []
    if utilization > 1:
        notes.append(
            f"measured faster than {cost.gpu.name}'s peak (utilization {utilization:.2f}): "
            "another GPU, a quantised model, or more cached tokens than the rows say"
        )
    fitted = cost.with_measured(utilization=min(utilization, 1.0), overhead_s=overhead)
    predicted = fitted.prefill_seconds(tokens - cached, cached)
    errors = predicted / seconds - 1
    p90 = float(np.quantile(np.abs(errors), 0.9))
    if p90 > _POOR_FIT:
        notes.append("one row in ten is more than 20 % off: the replica was not idle, or the cached tokens are wrong")
    at = int(np.argmax(np.abs(errors)))
    worst = Residual(int(tokens[at]), int(cached[at]), float(seconds[at]), float(predicted[at]))
    median = float(np.median(np.abs(errors)))
    return Fit(fitted, len(table), float(errors.mean()), median, p90, worst, tuple(notes))


def _columns(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    if len(table) < LEAST_ROWS or table.ndim != 2 or table.shape[1] != 3:  # noqa: PLR2004 - rows of three
        raise ConfigError(f"fit needs {LEAST_ROWS} rows or more of (tokens, cached, seconds), got {table.shape}")
    tokens, cached, seconds = table.T
    good = np.isfinite(table).all(axis=1) & (tokens >= 1) & (cached >= 0) & (cached < tokens) & (seconds > 0)
    if not good.all():
        at = int(np.argmin(good))
        raise ConfigError(
            f"measured row {at} must have tokens >= 1, 0 <= cached < tokens and seconds > 0, got {tuple(table[at])}"
        )
    return tokens, cached, seconds


def _least_squares(operations: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, float]:
    """Return slope and overhead, both in seconds, that minimise the relative error; the overhead is 0 or more."""
    scale = operations.max()
    design = np.column_stack([operations / scale, np.ones_like(seconds)]) / seconds[:, None]
    (slope, overhead), *_ = np.linalg.lstsq(design, np.ones_like(seconds), rcond=None)
    if overhead < 0:
        overhead = 0.0
        slope = design[:, 0].sum() / (design[:, 0] ** 2).sum()
    if slope <= 0:
        raise ConfigError("measured seconds do not grow with the tokens computed: the rows cannot be fitted")
    return float(slope / scale), float(overhead)
