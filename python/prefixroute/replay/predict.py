"""What the simulator says of the same requests, fleets and policies, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel import CostModel
from prefixroute.replay.harness import Replayed, ReplaySettings, parts_of
from prefixroute.replay.rows import Figures
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.sim.engine import StepCost
from prefixroute.sim.metrics import RequestLog
from prefixroute.workload import Request, Workload

FIGURES = (
    "ttft_mean_s",
    "ttft_p50_s",
    "ttft_p90_s",
    "ttft_p99_s",
    "tpot_mean_s",
    "total_mean_s",
    "recompute_ratio",
    "skew",
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The simulator's figures for one policy, in the units of :class:`~prefixroute.replay.Figures`."""

    policy: str
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    total_mean_s: float
    recompute_ratio: float
    skew: float

    def over(self, measured: Figures) -> dict[str, float | None]:
        """Return predicted / measured of each figure; ``None`` where nothing was measured, or zero."""
        return {name: _ratio(getattr(self, name), getattr(measured, name)) for name in FIGURES}


def predict(
    workload: Workload, settings: ReplaySettings, *, cost: StepCost | None = None, chunk_tokens: int | None = None
) -> list[Prediction]:
    """Simulate what :func:`~prefixroute.replay.replay` measures: each part from empty caches, warm-up left out.

    Args:
        workload: what is replayed.
        settings: how.
        cost: prices the engines' steps; by default the cost model's own GPU and model.
        chunk_tokens: tokens of an engine's step.
    """
    cost = cost if cost is not None else CostModel()
    engine = EngineModel(cost) if chunk_tokens is None else EngineModel(cost, chunk_tokens)
    requests = list(workload.requests())
    parts = parts_of(requests, settings.parts)
    found = []
    for policy in settings.policies:
        scenario = Scenario(
            policy=policy,
            replicas=len(settings.endpoints),
            seed=settings.seed,
            capacity_tokens=settings.capacity_tokens,
            engine=engine,
            warmup=settings.warmup,
        )
        logs = [simulate(_part(workload, requests, part, settings), scenario).log for part in parts]
        found.append(_summed(policy, logs, len(settings.endpoints)))
    return found


def compared(replayed: Replayed, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Return a row for each policy: its figures as measured, as predicted, and predicted / measured."""
    return [
        {
            "policy": measured.policy,
            "measured": measured.to_dict(),
            "predicted": {name: getattr(prediction, name) for name in FIGURES},
            "predicted_over_measured": prediction.over(measured),
        }
        for measured, prediction in zip(replayed.figures, predictions, strict=True)
    ]


def _part(workload: Workload, requests: Sequence[Request], part: range, settings: ReplaySettings) -> Workload:
    """Return a part of a workload as it is sent: from time 0, at its speed, without answers that nobody dictates."""
    first = requests[part[0]].arrival_s

    def source() -> Iterator[Request]:
        for number in part:
            request = requests[number]
            kept = request.context if settings.dictate else request.prompt
            yield request._replace(arrival_s=(request.arrival_s - first) / settings.speed, context=kept)

    return replace(workload, source=source, request_count=len(part), volatile=None, is_parsed=False)


def _summed(policy: str, logs: Sequence[RequestLog], replicas: int) -> Prediction:
    def column(name: str) -> NDArray[np.float64]:
        return np.concatenate([log.column(name).astype(np.float64) for log in logs])

    arrival, first, finish, output = (column(name) for name in ("arrival", "first_token", "finish", "output"))
    ttft = first - arrival
    p50, p90, p99 = np.percentile(ttft, (50, 90, 99))
    several = output > 1
    counts = np.bincount(column("replica").astype(int), minlength=replicas)
    return Prediction(
        policy=policy,
        ttft_mean_s=float(ttft.mean()),
        ttft_p50_s=float(p50),
        ttft_p90_s=float(p90),
        ttft_p99_s=float(p99),
        tpot_mean_s=float(((finish - first)[several] / (output[several] - 1)).mean()) if several.any() else 0.0,
        total_mean_s=float((finish - arrival).mean()),
        recompute_ratio=float(1.0 - column("hit").sum() / column("prompt").sum()),
        skew=float(counts.max() * replicas / counts.sum()),
    )


def _ratio(predicted: float, measured: float | None) -> float | None:
    return predicted / measured if measured and measured == measured else None  # noqa: PLR0124  # NaN
