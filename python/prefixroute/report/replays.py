"""A replay: figures as measured, differences between policies, and the simulator's prediction beside them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from prefixroute.costmodel.assumption import SECONDS, SHARES
from prefixroute.replay import Difference, Predictions, Replayed, compared
from prefixroute.replay.predict import FIGURES
from prefixroute.report.figures import hundredths, milliseconds, tenths
from prefixroute.report.sheet import Sheet
from prefixroute.report.table import Column, Table
from prefixroute.sim.metrics import CURVE
from prefixroute.sim.sweep import left_out

if TYPE_CHECKING:
    from prefixroute.report.drawing import Chart

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


MEASURED = (
    Column("policy", "policy", text=True),
    Column("requests", "requests", "{:,}".format),
    Column("errors", "errors", "{:,}".format),
    Column("TTFT mean ms", "ttft_mean_s", milliseconds),
    Column("p50 ms", "ttft_p50_s", milliseconds),
    Column("p90 ms", "ttft_p90_s", milliseconds),
    Column("p99 ms", "ttft_p99_s", milliseconds),
    Column("TPOT mean ms", "tpot_mean_s", milliseconds),
    Column("total mean ms", "total_mean_s", milliseconds),
    Column("recomputed %", "recompute_ratio", hundredths, missing="not told"),
    Column("skew", "skew", "{:.3f}".format),
    Column("good / s", "goodput_rps", "{:,.2f}".format),
    Column("good %", "good_share", tenths),
    Column("late ms", "late_max_s", milliseconds),
)
"""Columns of what was measured. ``late`` is how late the sender was at worst: above some milliseconds it is the
limit."""
DIFFERENCES = (
    Column("policy", "policy", text=True),
    Column("figure", "figure", _DIFFERING.__getitem__, text=True),
    Column("difference", lambda one: _amount(one.figure, one.value)),
    Column("from", lambda one: _amount(one.figure, one.low)),
    Column("to", lambda one: _amount(one.figure, one.high)),
    Column("pairs", "pairs", "{:,}".format),
    Column("verdict", lambda one: "within the noise" if one.is_noise else "beyond the noise", text=True),
)
"""Columns of how a policy differs from the first, with 95 % intervals over sessions."""


def replay_sheet(name: str, replayed: Replayed, predictions: Predictions, rows: Path | None = None) -> Sheet:
    """Return a replay as people read it.

    Args:
        name: of the workload.
        replayed: what was measured.
        predictions: what the simulator says.
        rows: the file that its rows are in; None = they were not written.
    """
    first, count = replayed.settings.policies[0], len(replayed.settings.endpoints)
    where = f"{name.partition(',')[0]} measured on {count} endpoint{'s' * (count > 1)}"
    file, hint = ("ROWS.csv", "; --rows ROWS.csv writes the file") if rows is None else (shlex.quote(str(rows)), "")
    differences = Table.of(f"differences from {first}, the same requests", DIFFERENCES, replayed.differences)
    return Sheet(
        title=f"{where}{_soonest(replayed)}",
        tables=(
            Table.of(where, MEASURED, replayed.figures),
            *([differences] if replayed.differences else []),
            _predicted(replayed, predictions),
        ),
        assumptions=predictions.assumptions,
        notes=tuple(replay_notes(replayed)),
        verdict=(*replay_verdict(replayed), *prediction_verdict(replayed, predictions)),
        following=f"prefixroute fit {file}   (the cost model fitted to what was measured{hint})",
        policies=replayed.settings.policies,
        charts=partial(_drawn, replayed, predictions),
    )


def _soonest(replayed: Replayed) -> str:
    """Return which policy answers soonest, if that is beyond the noise; empty for one policy."""
    first = replayed.settings.policies[0]
    sooner = [one for one in replayed.differences if one.figure == "ttft_s" and not one.is_noise and one.value < 0]
    if sooner:
        best = min(sooner, key=lambda one: one.value)
        return f": {best.policy} answers {_amount('ttft_s', -best.value).lstrip('+')} sooner than {first}"
    return f": none answers sooner than {first} beyond the noise" if replayed.differences else ""


def _amount(figure: str, value: float) -> str:
    if not math.isfinite(value):
        return "not known"
    if figure == "recompute_ratio":
        return f"{round(100 * value, 2) + 0.0:+.2f} points"  # no -0.00
    return f"{round(1e3 * value, 1) + 0.0:+,.1f} ms"


def _predicted(replayed: Replayed, predictions: Predictions) -> Table:
    """Return predicted / measured for each figure: 1.00 = the simulator was right."""

    def ratio(figure: str) -> Column:
        rests_on = SHARES if figure in {"recompute_ratio", "skew"} else SECONDS | SHARES
        over = lambda row: row["predicted_over_measured"][figure]  # noqa: E731
        return Column(TITLES[figure], over, "{:.2f}".format, rests_on, missing="-")

    columns = [Column("policy", lambda row: row["policy"], text=True), *map(ratio, FIGURES)]
    return Table.of("predicted / measured", columns, compared(replayed, predictions), predictions.assumptions)


def _drawn(replayed: Replayed, predictions: Predictions) -> Mapping[str, Chart]:
    """Return the charts: what was measured, and how near the predictions were."""
    from prefixroute.report.charts import answered_within, ratios

    policies, curves = replayed.settings.policies, {}
    for policy in policies:
        seconds = [row.ttft_s for row in replayed.rows if row.policy == policy and not row.warm and not row.error]
        if seconds:
            curves[policy] = np.quantile(seconds, CURVE).tolist()
    marks = [
        {"policy": row["policy"], "figure": TITLES[figure], "ratio": row["predicted_over_measured"][figure]}
        for figure in FIGURES
        for row in compared(replayed, predictions)
        if row["predicted_over_measured"][figure]
    ]
    drawn = {"Time to first token, measured": answered_within(policies, curves)} if curves else {}
    return drawn | ({"Predicted / measured": ratios(policies, marks)} if marks else {})


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
    said = (
        f"Of all predictions the {figure} of {policy} is furthest off: {off:.2f} times too "
        f"{'high' if ratio > 1 else 'low'}."
    )
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
