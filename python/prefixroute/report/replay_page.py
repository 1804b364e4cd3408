"""The page and the picture of a replay; drawing needs the extra ``report``."""

from __future__ import annotations

import numpy as np

from prefixroute.replay import Predictions, Replayed, compared
from prefixroute.replay.predict import FIGURES
from prefixroute.report import html
from prefixroute.report.behind import remarks
from prefixroute.report.charts import answered_within, ratios
from prefixroute.report.drawing import Chart, Picture, svgs
from prefixroute.report.replays import (
    TITLES,
    difference_table,
    measured_table,
    prediction_table,
    prediction_verdict,
    replay_notes,
    replay_title,
    replay_verdict,
)
from prefixroute.sim.metrics import CURVE


def replay_page(name: str, replayed: Replayed, predictions: Predictions) -> str:
    """Return the page of a replay. Equal replays give equal bytes."""
    policies = list(replayed.settings.policies)
    drawings = svgs(replay_charts(replayed, predictions))
    parts = [
        *(html.paragraph(line) for line in _verdict(replayed, predictions)),
        html.legend(policies),
        *([html.deciding(drawings)] if drawings else []),
        html.heading("Measured"),
        html.table(measured_table(replayed, "")),
        *([html.table(difference_table(replayed))] if replayed.differences else []),
        html.heading("Beside the simulator"),
        html.further(drawings),
        html.table(prediction_table(replayed, predictions)),
        *html.rests_on(predictions.assumptions, replay_notes(replayed), "What the predictions rest on"),
    ]
    return html.document(replay_title(name, replayed), parts)


def replay_charts(replayed: Replayed, predictions: Predictions) -> dict[str, Chart]:
    """Return the charts by title, the one that decides first: what was measured, and how near the predictions were."""
    policies = list(replayed.settings.policies)
    curves = {}
    for policy in policies:
        seconds = [row.ttft_s for row in replayed.rows if row.policy == policy and not row.warm and not row.error]
        if seconds:
            curves[policy] = np.quantile(seconds, CURVE).tolist()
    drawn = {"Time to first token, measured": answered_within(policies, curves)} if curves else {}
    marks = [
        {"policy": row["policy"], "figure": TITLES[figure], "ratio": row["predicted_over_measured"][figure]}
        for figure in FIGURES
        for row in compared(replayed, predictions)
        if row["predicted_over_measured"][figure]
    ]
    if marks:
        drawn["Predicted / measured"] = ratios(policies, marks, "predicted / measured (dashed: the same)")
    return drawn


def replay_picture(name: str, replayed: Replayed, predictions: Predictions) -> Picture:
    """Return the charts between the verdict and what it rests on."""
    below = remarks(predictions.assumptions, replay_notes(replayed))
    return Picture(
        replay_title(name, replayed), replay_charts(replayed, predictions), _verdict(replayed, predictions), below
    )


def _verdict(replayed: Replayed, predictions: Predictions) -> list[str]:
    return [*replay_verdict(replayed), *prediction_verdict(replayed, predictions)]
