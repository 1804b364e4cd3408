"""Sizing: the fleet it names keeps the promise, one replica less does not, and better routing needs fewer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prefixroute.advise.size import Sizing, Slo, size
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import Poisson, chat

WORKLOAD = chat(1, requests=1_200, arrivals=Poisson(40.0))
SLO = Slo(95, 0.4)
COST = CostModel(tensor_parallel=2)
BASE = Scenario(engine=EngineModel(COST))


@pytest.fixture(scope="module")
def sizing() -> Sizing:
    return size(WORKLOAD, SLO, ["round-robin", "session"], scenario=BASE, cost=COST, most=64)


def p95(policy: str, replicas: int) -> float:
    log = simulate(WORKLOAD, replace(BASE, policy=policy, replicas=replicas, seed=1), cost=COST).log
    return float(np.percentile(log.column("first_token") - log.column("arrival"), 95))


def test_the_fleet_keeps_the_promise_and_one_less_does_not(sizing: Sizing) -> None:
    for fleet in sizing.fleets:
        assert fleet.replicas is not None
        assert fleet.ttft_s == p95(fleet.policy, fleet.replicas) <= SLO.seconds
        assert fleet.ttft_one_less_s == p95(fleet.policy, fleet.replicas - 1) > SLO.seconds
        assert fleet.gpus == 2 * fleet.replicas
        assert fleet.usd_per_month == pytest.approx(fleet.gpus * 730 * COST.usd_per_gpu_hour)


def test_better_routing_needs_fewer_gpus(sizing: Sizing) -> None:
    apart, together = sizing.fleets
    assert together.replicas < apart.replicas


def test_a_promise_nobody_can_keep_is_said_so() -> None:
    (fleet,) = size(WORKLOAD.head(50), Slo(99, 1e-6), ["random"], most=2).fleets
    assert (fleet.replicas, fleet.gpus, fleet.usd_per_month) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft_p95=1.5s", Slo(95, 1.5)),
        ("ttft_p99=800ms", Slo(99, 0.8)),
        ("ttft_p95=1.5", Slo(95, 1.5)),
        ("ttft_p99.9=2s", Slo(99.9, 2)),
    ],
)
def test_an_slo_is_read_and_written(text: str, slo: Slo) -> None:
    assert Slo.parse(text) == slo
    assert Slo.parse(str(slo)) == slo


@pytest.mark.parametrize(
    "text", ["", "p95=1s", "ttft_p95=1h", "ttft_p95=", "ttft_p95=-1s", "ttft_p0=1s", "ttft_p100=1s", "ttft_p95=0s"]
)
def test_what_is_no_slo_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="SLO"):
        Slo.parse(text)


def test_nothing_to_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="size needs a policy and at least 1 replica"):
        size(WORKLOAD, SLO, [])
