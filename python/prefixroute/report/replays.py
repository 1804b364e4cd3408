"""Tables of a replay: figures as measured, differences between policies, and the simulator's prediction beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefixroute.replay import Difference, Figures, Prediction, Replayed, compared
from prefixroute.replay.predict import FIGURES
from prefixroute.report.table import Column, Table

_TITLES = {
    "ttft_mean_s": "TTFT mean",
    "ttft_p50_s": "TTFT p50",
    "ttft_p90_s": "TTFT p90",
    "ttft_p99_s": "TTFT p99",
    "tpot_mean_s": "TPOT mean",
    "total_mean_s": "total mean",
    "recompute_ratio": "recomputed",
    "skew": "skew",
}


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f}"


def _percent(share: float | None) -> str:
    return "not told" if share is None else f"{100 * share:.2f}"


MEASURED: tuple[Column[Figures], ...] = (
    Column("policy", lambda one: one.policy, text=True),
    Column("requests", lambda one: f"{one.requests:,}"),
    Column("errors", lambda one: f"{one.errors:,}"),
    Column("TTFT mean ms", lambda one: _ms(one.ttft_mean_s)),
    Column("p50 ms", lambda one: _ms(one.ttft_p50_s)),
    Column("p90 ms", lambda one: _ms(one.ttft_p90_s)),
    Column("p99 ms", lambda one: _ms(one.ttft_p99_s)),
    Column("TPOT mean ms", lambda one: _ms(one.tpot_mean_s)),
    Column("total mean ms", lambda one: _ms(one.total_mean_s)),
    Column("recomputed %", lambda one: _percent(one.recompute_ratio)),
    Column("skew", lambda one: f"{one.skew:.3f}"),
    Column("good / s", lambda one: f"{one.goodput_rps:,.2f}"),
    Column("good %", lambda one: f"{100 * one.good_share:.1f}"),
    Column("late ms", lambda one: _ms(one.late_max_s)),
)
"""Columns of what was measured. ``late`` is how late the sender was at worst: above some milliseconds it is the limit."""


def measured_table(replayed: Replayed, title: str) -> Table:
    """Return the figures of each policy."""
    return Table.of(title, MEASURED, replayed.figures)


DIFFERENCES: tuple[Column[Difference], ...] = (
    Column("policy", lambda one: one.policy, text=True),
    Column(
        "figure", lambda one: {"ttft_s": "TTFT mean", "total_s": "total mean"}.get(one.figure, "recomputed"), text=True
    ),
    Column("difference", lambda one: _amount(one.figure, one.value)),
    Column("from", lambda one: _amount(one.figure, one.low)),
    Column("to", lambda one: _amount(one.figure, one.high)),
    Column("pairs", lambda one: f"{one.pairs:,}"),
    Column("verdict", lambda one: "within the noise" if one.is_noise else "beyond the noise", text=True),
)


def _amount(figure: str, value: float) -> str:
    return f"{100 * value:+.2f} points" if figure == "recompute_ratio" else f"{1e3 * value:+,.1f} ms"


def difference_table(replayed: Replayed) -> Table:
    """Return how each policy differs from the first, with 95 % intervals over sessions."""
    title = f"differences from {replayed.settings.policies[0]}, the same requests"
    return Table.of(title, DIFFERENCES, replayed.differences)


def prediction_table(replayed: Replayed, predictions: Sequence[Prediction]) -> Table:
    """Return predicted / measured for each figure: 1.00 = the simulator was right."""
    columns: list[Column[dict[str, Any]]] = [Column("policy", lambda row: str(row["policy"]), text=True)]
    columns += [Column(_TITLES[name], lambda row, name=name: _ratio(row, name)) for name in FIGURES]  # type: ignore[misc]
    return Table.of("predicted / measured", columns, compared(replayed, predictions))


def _ratio(row: dict[str, Any], name: str) -> str:
    ratio = row["predicted_over_measured"][name]
    return "-" if ratio is None else f"{ratio:.2f}"
