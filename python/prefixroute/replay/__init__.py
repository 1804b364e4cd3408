"""Measure what was advised: a workload sent to real endpoints through the Router, beside the simulator's prediction."""

from __future__ import annotations

from prefixroute.replay.client import Client, Exchange
from prefixroute.replay.harness import Replayed, ReplaySettings, Schedule, replay
from prefixroute.replay.predict import Prediction, Predictions, compared, predict
from prefixroute.replay.prompts import PromptMaker, SynthesizedPrompt
from prefixroute.replay.rows import Difference, Figures, ReplayRow, RequestSlo, differences, write_rows

__all__ = [
    "Client",
    "Difference",
    "Exchange",
    "Figures",
    "Prediction",
    "Predictions",
    "PromptMaker",
    "ReplayRow",
    "ReplaySettings",
    "Replayed",
    "RequestSlo",
    "Schedule",
    "SynthesizedPrompt",
    "compared",
    "differences",
    "predict",
    "replay",
    "write_rows",
]
