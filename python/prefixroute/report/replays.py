"""Tables of a replay: figures as measured, differences between policies, and the simulator's prediction beside them."""

from __future__ import annotations

from typing import Any

from prefixroute.costmodel.assumption import SECONDS, SHARES
from prefixroute.replay import Difference, Figures, Predictions, Replayed, compared
from prefixroute.replay.predict import FIGURES
from prefixroute.report.figures import hundredths, known, milliseconds
from prefixroute.report.table import Column, Table
from prefixroute.sim.sweep import left_out

TITLES = {
    "ttft_mean_s": "TTFT mean",
    "ttft_p50_s": "TTFT p50",
    "ttft_p90_s": "TTFT p90",
    "ttft_p99_s": "TTFT p99",
    "tpot_mean_s": "TPOT mean",
    "total_mean_s": "total mean",
    "good_share": "good",
    "recompute_ratio": "recomputed",
    "skew": "skew",
}
"""What tables and charts call the figures that are predicted."""
_FIT_FROM = 1.5
"""Factor between a prediction and what was measured from which on the cost model should be fitted."""
_DIFFERING = {"ttft_s": "TTFT mean", "tpot_s": "TPOT mean", "total_s": "total mean", "recompute_ratio": "recomputed"}


MEASURED: tuple[Column[Figures], ...] = (
    Column("policy", lambda one: one.policy, text=True),
    Column("requests", lambda one: f"{one.requests:,}"),
    Column("errors", lambda one: f"{one.errors:,}"),
    Column("TTFT mean ms", lambda one: milliseconds(one.ttft_mean_s)),
    Column("p50 ms", lambda one: milliseconds(one.ttft_p50_s)),
    Column("p90 ms", lambda one: milliseconds(one.ttft_p90_s)),
    Column("p99 ms", lambda one: milliseconds(one.ttft_p99_s)),
    Column("TPOT mean ms", lambda one: milliseconds(one.tpot_mean_s)),
    Column("total mean ms", lambda one: milliseconds(one.total_mean_s)),
    Column("recomputed %", lambda one: known(one.recompute_ratio, hundredths, "not told")),
    Column("skew", lambda one: f"{one.skew:.3f}"),
    Column("good / s", lambda one: f"{one.goodput_rps:,.2f}"),
    Column("good %", lambda one: f"{100 * one.good_share:.1f}"),
    Column("late ms", lambda one: milliseconds(one.late_max_s)),
)
"""Columns of what was measured. ``late`` is how late the sender was at worst: above some milliseconds it is the
limit."""


def measured_table(replayed: Replayed, title: str) -> Table:
    """Return the figures of each policy."""
    return Table.of(title, MEASURED, replayed.figures)


DIFFERENCES: tuple[Column[Difference], ...] = (
    Column("policy", lambda one: one.policy, text=True),
    Column("figure", lambda one: _DIFFERING[one.figure], text=True),
    Column("difference", lambda one: _amount(one.figure, one.value)),
    Column("from", lambda one: _amount(one.figure, one.low)),
    Column("to", lambda one: _amount(one.figure, one.high)),
    Column("pairs", lambda one: f"{one.pairs:,}"),
    Column("verdict", lambda one: "within the noise" if one.is_noise else "beyond the noise", text=True),
)


def _amount(figure: str, value: float) -> str:
    if figure == "recompute_ratio":
        return f"{round(100 * value, 2) + 0.0:+.2f} points"  # no -0.00
    return f"{round(1e3 * value, 1) + 0.0:+,.1f} ms"


def difference_table(replayed: Replayed) -> Table:
    """Return how each policy differs from the first, with 95 % intervals over sessions."""
    title = f"differences from {replayed.settings.policies[0]}, the same requests"
    return Table.of(title, DIFFERENCES, replayed.differences)


def prediction_table(replayed: Replayed, predictions: Predictions) -> Table:
    """Return predicted / measured for each figure: 1.00 = the simulator was right."""
    columns: list[Column[dict[str, Any]]] = [Column("policy", lambda row: str(row["policy"]), text=True)]
    for name in FIGURES:
        rests_on = SHARES if name in {"recompute_ratio", "skew"} else SECONDS | SHARES
        columns.append(Column(TITLES[name], lambda row, name=name: _ratio(row, name), rests_on))  # type: ignore[misc]
    return Table.of("predicted / measured", columns, compared(replayed, predictions), predictions.assumptions)


def replay_title(name: str, replayed: Replayed) -> str:
    """Return what was measured, in a line: which policy answers soonest, if that is beyond the noise."""
    count, first = len(replayed.settings.endpoints), replayed.settings.policies[0]
    where = f"{name.partition(',')[0]} measured on {count} endpoint{'s' * (count > 1)}"
    sooner = [one for one in replayed.differences if one.figure == "ttft_s" and not one.is_noise and one.value < 0]
    if sooner:
        best = min(sooner, key=lambda one: one.value)
        return f"{where}: {best.policy} answers {_amount('ttft_s', -best.value).lstrip('+')} sooner than {first}"
    return f"{where}: none answers sooner than {first} beyond the noise" if replayed.differences else where


def replay_verdict(replayed: Replayed) -> list[str]:
    """Return in a sentence for each policy how it differs from the first in mean TTFT and recomputed tokens."""
    first = replayed.settings.policies[0]
    said = []
    for policy in replayed.settings.policies[1:]:
        found = {one.figure: one for one in replayed.differences if one.policy == policy}
        ttft, tokens = found.get("ttft_s"), found.get("recompute_ratio")
        if ttft is None:
            said.append(f"{policy} and {first} have no request in common that both answered.")
            continue
        told = f"; it recomputes {_change(tokens, 'less', 'more')}" if tokens is not None else ""
        sooner = _change(ttft, "sooner", "later", f" than {first} by the mean TTFT")
        said.append(f"{policy} answers {sooner}{told}.")
    return said


def prediction_verdict(replayed: Replayed, predictions: Predictions) -> list[str]:
    """Return how near the predictions are at worst, and what to do about it; nothing where nothing was predicted."""
    ratios = [
        (ratio, TITLES[name], str(row["policy"]))
        for row in compared(replayed, predictions)
        for name in FIGURES
        if (ratio := row["predicted_over_measured"][name])
    ]
    if not ratios:
        return []
    ratio, figure, policy = max(ratios, key=lambda one: max(one[0], 1 / one[0]))
    off = max(ratio, 1 / ratio)
    said = f"Of all predictions the {figure} of {policy} is furthest off: {off:.2f} times too {'high' if ratio > 1 else 'low'}."
    follow = " Fit the cost model to what was measured before a fleet is sized by it: `prefixroute fit ROWS.csv`."
    return [said + follow * (off > _FIT_FROM)]


def _change(one: Difference, less: str, more: str, than: str = "") -> str:
    """Return a difference as words: ``12.0 ms sooner [10.1, 13.9] than another``."""
    sign = 1 if one.value > 0 else -1
    ends = sorted((sign * one.low, sign * one.high))
    value, low, high = (_amount(one.figure, end).lstrip("+") for end in (abs(one.value), *ends))
    noise = ", within the noise" if one.is_noise else ""
    return f"{value} {more if one.value > 0 else less} [{low}, {high}]{than}{noise}"


def replay_notes(replayed: Replayed) -> list[str]:
    """Return what a reader should know before believing the figures."""
    notes = []
    if replayed.interrupted:
        notes.append("interrupted: what was measured until then.")
    elif replayed.parts < replayed.settings.parts:
        first, last = replayed.parts + 1, replayed.settings.parts
        which = f"part {last}" if first == last else f"parts {first} to {last}"
        notes += left_out([f"{which} of {last}, under every policy"])
    if not replayed.reset:
        notes.append("the caches were not emptied before each part; predictions begin with empty ones.")
    if not replayed.settings.dictate:
        notes.append(
            "the engines' answers are not the trace's, so no blocks of answers are hit, here and in predictions."
        )
    return notes


def _ratio(row: dict[str, Any], name: str) -> str:
    ratio = row["predicted_over_measured"][name]
    return "-" if ratio is None else f"{ratio:.2f}"
