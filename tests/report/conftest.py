from __future__ import annotations

import pytest

from prefixroute.costmodel import Assumption
from prefixroute.sim import ResultRow, Sweep
from prefixroute.sim.metrics import CURVE

RATIOS = {"round-robin": (0.486, 0.510), "cache-aware": (0.486, 0.043)}


def row(policy: str, replicas: int, ratio: float) -> ResultRow:
    return ResultRow(
        policy=policy,
        replicas=replicas,
        seeds=3,
        requests=40_000,
        prompt_tokens=220_000_000,
        recomputed_tokens=round(220_000_000 * ratio),
        recompute_ratio=ratio,
        recompute_ratio_spread=0.002,
        floor=0.0371,
        skew=1.04,
        usd_per_million_requests=250 * ratio,
        usd_per_million_requests_busiest=260 * ratio,
        ttft_mean_s=0.09,
        ttft_p50_s=0.08,
        ttft_p90_s=0.2,
        ttft_p99_s=0.33,
        ttft_curve_s=tuple(share * ratio for share in CURVE),
    )


def sweep_of(*replicas: int) -> Sweep:
    assumptions = (
        Assumption("cache", "blocks", "", "the user", assumed=False),
        Assumption("gpu", "H100", "", "the user", assumed=False),
        Assumption("usd_per_gpu_hour", 4.29, "$/h", "price of <2026>", assumed=True),
        Assumption("capacity_tokens", 300_000, "tokens", "the user", assumed=False),
    )
    rows = tuple(row(policy, n, RATIOS[policy][n == 8]) for n in replicas for policy in RATIOS)
    return Sweep("chat", rows, assumptions, ("a note & more",))


@pytest.fixture
def study() -> Sweep:
    return sweep_of(1, 8)


@pytest.fixture
def one_fleet() -> Sweep:
    return sweep_of(8)
