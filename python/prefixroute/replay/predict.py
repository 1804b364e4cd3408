"""What the simulator says of the same requests, fleets and policies, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel import Assumption, CostModel
from prefixroute.replay.harness import Replayed, ReplaySettings, parts_of
from prefixroute.replay.rows import Figures, RequestSlo
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.sim.request_log import RequestLog
from prefixroute.sim.sweep import assumed
from prefixroute.workload import Request, Workload

FIGURES = (
    "ttft_mean_s",
    "ttft_p50_s",
    "ttft_p90_s",
    "ttft_p99_s",
    "tpot_mean_s",
    "total_mean_s",
    "good_share",
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
    good_share: float
    recompute_ratio: float
    skew: float

    def over(self, measured: Figures) -> dict[str, float | None]:
        """Return predicted / measured of each figure; ``None`` where nothing was measured, or zero.

        Args:
            measured: the same figures of the replay.
        """
        return {name: _ratio(getattr(self, name), getattr(measured, name)) for name in FIGURES}


@dataclass(frozen=True, slots=True)
class Predictions:
    """The simulator's figures, and what they rest on.

    Attributes:
        rows: by policy, in the order of the replay.
        assumptions: the figures behind them, those that nobody gave marked so.
    """

    rows: tuple[Prediction, ...]
    assumptions: tuple[Assumption, ...] = ()


def predict(
    workload: Workload,
    settings: ReplaySettings,
    scenario: Scenario | None = None,
    *,
    measured: Replayed | None = None,
) -> Predictions:
    """Simulate what :func:`~prefixroute.replay.replay` measures: each part from empty caches, warm-up left out.

    Args:
        workload: what is replayed.
        settings: how.
        scenario: the engine with its prices, and every setting that the replay does not have. By default an engine of
            the cost model's own GPU and model, which the assumptions say.
        measured: what the replay gave: of each part and policy only as much is predicted as was sent, if it was
            interrupted or its time was up. A policy under which nothing was sent is predicted as it was asked for.

    Returns:
        The figures of each policy.
    """
    scenario = scenario if scenario is not None else Scenario()
    engine = scenario.engine if scenario.engine is not None else EngineModel(CostModel())
    base = replace(
        scenario,
        engine=engine,
        replicas=len(settings.endpoints),
        named=settings.endpoints,
        seed=settings.seed,
        capacity_tokens=settings.capacity_tokens,
        warmup=settings.warmup,
    )
    requests = list(workload.requests())
    parts = parts_of(requests, settings.parts)
    found = []
    for policy in settings.policies:
        one = replace(base, policy=policy)
        sent = [] if measured is None else _sent(parts, policy, measured)
        logs = [simulate(_part(workload, requests, part, settings), one).log for part in sent or parts]
        found.append(_summed(policy, logs, base.replicas, settings.slo))
    priced = engine.cost.assumptions if isinstance(engine.cost, CostModel) else ()
    return Predictions(tuple(found), (*workload.assumptions, *priced, *assumed(base)))


def _sent(parts: Sequence[range], policy: str, measured: Replayed) -> list[range]:
    """Return as much of each part as was sent under a policy; of a part of which nothing is counted, nothing."""
    last: dict[int, int] = {}
    for row in measured.rows:
        if row.policy == policy and not row.warm:
            last[row.part] = max(row.number, last.get(row.part, 0))
    return [range(parts[part].start, number + 1) for part, number in sorted(last.items())]


def compared(replayed: Replayed, predictions: Predictions) -> list[dict[str, Any]]:
    """Return a row for each policy: its figures as measured, as predicted, and predicted / measured.

    Args:
        replayed: what was measured.
        predictions: what was simulated.
    """
    return [
        {
            "policy": measured.policy,
            "measured": measured.to_dict(),
            "predicted": {name: getattr(prediction, name) for name in FIGURES},
            "predicted_over_measured": prediction.over(measured),
        }
        for measured, prediction in zip(replayed.figures, predictions.rows, strict=True)
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


def _summed(policy: str, logs: Sequence[RequestLog], replicas: int, slo: RequestSlo) -> Prediction:
    def column(name: str) -> NDArray[np.float64]:
        return np.concatenate([log.column(name).astype(np.float64) for log in logs])

    arrival, first, finish, output = (column(name) for name in ("arrival", "first_token", "finish", "output"))
    ttft = first - arrival
    p50, p90, p99 = np.percentile(ttft, (50, 90, 99))
    several = output > 1
    tpot = (finish - first)[several] / (output[several] - 1)
    good = np.ones(len(ttft), bool) if slo.ttft_s is None else ttft <= slo.ttft_s
    if slo.tpot_s is not None:
        good[several] &= tpot <= slo.tpot_s
    counts = np.bincount(column("replica").astype(int), minlength=replicas)
    return Prediction(
        policy=policy,
        ttft_mean_s=float(ttft.mean()),
        ttft_p50_s=float(p50),
        ttft_p90_s=float(p90),
        ttft_p99_s=float(p99),
        tpot_mean_s=float(tpot.mean()) if len(tpot) else 0.0,
        total_mean_s=float((finish - arrival).mean()),
        good_share=float(good.mean()),
        recompute_ratio=float(1.0 - column("hit").sum() / column("prompt").sum()),
        skew=float(counts.max() * replicas / counts.sum()),
    )


def _ratio(predicted: float, measured: float | None) -> float | None:
    return predicted / measured if measured and measured == measured else None  # noqa: PLR0124  # NaN
