from __future__ import annotations

from typing import Any

import pytest

from prefixroute.costmodel import Assumption
from prefixroute.report.study import Study
from prefixroute.sim.metrics import CURVE

RATIOS = {"round-robin": (0.486, 0.510), "cache-aware": (0.486, 0.043)}


def row(policy: str, replicas: int, ratio: float) -> dict[str, Any]:
    return {
        "policy": policy,
        "replicas": replicas,
        "seeds": 3,
        "requests": 40_000,
        "prompt_tokens": 220_000_000,
        "recomputed_tokens": round(220_000_000 * ratio),
        "recompute_ratio": ratio,
        "recompute_ratio_spread": 0.002,
        "floor": 0.0371,
        "skew": 1.04,
        "usd_per_million_requests": 250 * ratio,
        "usd_per_million_requests_busiest": 260 * ratio,
        "ttft_mean_s": 0.09,
        "ttft_p50_s": 0.08,
        "ttft_p90_s": 0.2,
        "ttft_p99_s": 0.33,
    }


def study_of(replicas: tuple[int, ...]) -> Study:
    rows = tuple(row(policy, n, RATIOS[policy][n == 8]) for n in replicas for policy in RATIOS)
    curves = {(r["policy"], r["replicas"]): [share * r["recompute_ratio"] for share in CURVE] for r in rows}
    assumptions = (
        Assumption("gpu", "H100", "", "the user", assumed=False),
        Assumption("usd_per_gpu_hour", 4.29, "$/h", "price of <2026>", assumed=True),
        Assumption("capacity_tokens", 300_000, "tokens", "the user", assumed=False),
    )
    return Study("chat", "blocks", rows, assumptions, ("a note & more",), curves)


@pytest.fixture
def study() -> Study:
    return study_of((1, 8))


@pytest.fixture
def one_fleet() -> Study:
    return study_of((8,))
