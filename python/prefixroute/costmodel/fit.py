"""Fit the cost model to measured first-token times, and say how well it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel.cost import CostModel
from prefixroute.errors import ConfigError

LEAST_ROWS = 3
"""Two figures are fitted; a residual needs a third row."""
_POOR_FIT = 0.2
_SLOWEST = 1e-4
"""The least utilization that is tried."""
_AT_PEAK = 0.999
_MILLISECONDS = 200
"""Times slower than predicted from which on rows are taken for milliseconds: no replica is, none that is idle."""
_SECTIONS = 50
"""Steps that narrow the utilization to a part in 10^9."""


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

    Returns:
        The fitted model, and how far it is from the rows.

    Raises:
        ConfigError: for too few rows, rows that cannot be told apart, a row with impossible figures, times that look
            like milliseconds, or a cost model of step times, which has no utilization.
    """
    if cost.step_times is not None:
        raise ConfigError(f"fit needs a utilization to fit, {cost.step_times.name} has step times instead")
    tokens, cached, seconds = _columns(np.array([tuple(row) for row in rows], dtype=float))
    _check_growth(cost.with_measured(utilization=cost.utilization, overhead_s=0.0), tokens, cached, seconds)

    def fitted(log_utilization: float) -> CostModel:
        utilization = math.exp(log_utilization)
        predicted = cost.with_measured(utilization=utilization, overhead_s=0.0).prefill_seconds(tokens - cached, cached)
        weights = seconds**-2.0
        overhead = max(0.0, float(((seconds - predicted) * weights).sum() / weights.sum()))
        return cost.with_measured(utilization=utilization, overhead_s=overhead)

    def errors(model: CostModel) -> NDArray[np.float64]:
        return model.prefill_seconds(tokens - cached, cached) / seconds - 1

    best = fitted(_least(lambda at: float((errors(fitted(at)) ** 2).sum()), math.log(_SLOWEST), 0.0))
    return _report(best, errors(best), tokens, cached, seconds)


def _report(cost: CostModel, errors: NDArray[np.float64], *columns: NDArray[np.float64]) -> Fit:
    tokens, cached, seconds = columns
    median, p90 = (float(np.quantile(np.abs(errors), share)) for share in (0.5, 0.9))
    notes = []
    if cost.utilization > _AT_PEAK and errors.mean() > _POOR_FIT / 4:
        notes.append(
            f"measured faster than {cost.gpu.name}'s peak, by {errors.mean():.0%} on average: "
            "another GPU, a quantised model, or more cached tokens than the rows say"
        )
    if p90 > _POOR_FIT:
        notes.append("one row in ten is more than 20 % off: the replica was not idle, or the cached tokens are wrong")
    at = int(np.argmax(np.abs(errors)))
    worst = Residual(int(tokens[at]), int(cached[at]), float(seconds[at]), float(seconds[at] * (1 + errors[at])))
    return Fit(cost, len(tokens), float(errors.mean()), median, p90, worst, tuple(notes))


def _columns(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    if len(table) and (table.ndim != 2 or table.shape[1] != 3):  # noqa: PLR2004 - rows of three
        raise ConfigError(f"fit needs rows of (tokens, cached, seconds), got an array of the shape {table.shape}")
    if len(table) < LEAST_ROWS:
        raise ConfigError(f"fit needs {LEAST_ROWS} rows or more of (tokens, cached, seconds), got {len(table)}")
    tokens, cached, seconds = table.T
    good = np.isfinite(table).all(axis=1) & (tokens >= 1) & (cached >= 0) & (cached < tokens) & (seconds > 0)
    if not good.all():
        at = int(np.argmin(good))
        raise ConfigError(
            f"measured row {at} must have tokens >= 1, 0 <= cached < tokens and seconds > 0, got {tuple(table[at])}"
        )
    return tokens, cached, seconds


def _check_growth(
    cost: CostModel, tokens: NDArray[np.float64], cached: NDArray[np.float64], seconds: NDArray[np.float64]
) -> None:
    """Refuse rows that no utilization explains: all alike, falling with the work, or in another unit."""
    predicted = cost.prefill_seconds(tokens - cached, cached)
    if predicted.max() < 1.05 * predicted.min():
        raise ConfigError("measured rows must differ in length: all of them take about as long to compute")
    design = np.column_stack([predicted, np.ones_like(seconds)]) / seconds[:, None]
    (slope, _), *_ = np.linalg.lstsq(design, np.ones_like(seconds), rcond=None)
    if slope <= 0:
        raise ConfigError("measured seconds do not grow with the tokens computed: the rows cannot be fitted")
    times = float(np.median(seconds / predicted))
    if times > _MILLISECONDS:
        raise ConfigError(
            f"measured seconds are {times:,.0f} times what {cost.gpu.name} takes for {cost.model.name} (median row: "
            f"{np.median(seconds):g} s): if they are milliseconds, divide them by 1,000"
        )


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function of one valley is least, by golden sections."""
    golden = (math.sqrt(5) - 1) / 2
    inner, outer = high - golden * (high - low), low + golden * (high - low)
    at_inner, at_outer = function(inner), function(outer)
    for _ in range(_SECTIONS):
        if at_inner < at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - golden * (high - low)
            at_inner = function(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + golden * (high - low)
            at_outer = function(outer)
    return min((low, high, (low + high) / 2), key=function)
