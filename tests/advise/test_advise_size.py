"""Sizing: the fleet it names keeps the promise, one replica less does not, and better routing needs fewer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prefixroute.advise import FleetSize, Headroom, Sizing, Slo, size
from prefixroute.advise.behind import replicas_behind
from prefixroute.advise.size import NO_HEADROOM
from prefixroute.advise.slo import promise_of
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim import EngineModel, Promise, Scenario, simulate
from prefixroute.workload import Poisson, chat

WORKLOAD = chat(1, requests=1_200, arrivals=Poisson(40.0))
SLO = Slo(95, 0.4)
COST = CostModel(preset="article", tensor_parallel=2)
BASE = Scenario(engine=EngineModel(COST))


@pytest.fixture(scope="module")
def sizing() -> Sizing:
    return size(WORKLOAD, SLO, ["round-robin", "session"], scenario=BASE, headroom=NO_HEADROOM, cost=COST, most=64)


def p95(policy: str, replicas: int) -> float:
    log = simulate(WORKLOAD, replace(BASE, policy=policy, replicas=replicas, seed=1), cost=COST).log
    return float(np.percentile(log.column("first_token") - log.column("arrival"), 95))


def test_the_fleet_keeps_the_promise_and_one_less_does_not(sizing: Sizing) -> None:
    for fleet in sizing.fleets:
        assert fleet.replicas is not None
        assert fleet.replicas == fleet.least
        assert fleet.seconds == (p95(fleet.policy, fleet.replicas),)
        assert fleet.seconds_one_less == (p95(fleet.policy, fleet.replicas - 1),)
        assert fleet.seconds[0] <= SLO.seconds < fleet.seconds_one_less[0]
        assert fleet.gpus == 2 * fleet.replicas
        assert fleet.usd_per_month == pytest.approx(fleet.gpus * 730 * COST.usd_per_gpu_hour)


def test_better_routing_needs_fewer_gpus(sizing: Sizing) -> None:
    apart, together = sizing.fleets
    assert together.replicas < apart.replicas


def test_headroom_lets_a_replica_fail_and_a_peak_come(sizing: Sizing) -> None:
    least = sizing.fleets[1].least
    assert least is not None
    for headroom in (Headroom(1.0, 2), Headroom(0.5, 0), Headroom()):
        (fleet,) = size(WORKLOAD, SLO, ["session"], scenario=BASE, headroom=headroom, cost=COST, most=64).fleets
        assert fleet.least == least
        assert fleet.replicas == max(fleet.at_peak or 0, least + headroom.spare)
        assert fleet.seconds_one_less == (p95("session", (fleet.replicas or 0) - 1),)
        assert fleet.decided_by == ("failure" if least + headroom.spare >= (fleet.at_peak or 0) else "peak")
    with pytest.raises(ConfigError, match=r"utilization .* 0 .* 1, got 1\.5"):
        Headroom(1.5)


def test_a_fleet_that_cannot_keep_up_keeps_no_promise() -> None:
    """However generous: its times grow with the length of the log."""
    busy = chat(1, requests=1_500, arrivals=Poisson(60.0))
    settings = {"scenario": BASE, "headroom": NO_HEADROOM, "cost": COST, "most": 32}
    (fleet,) = size(busy, Slo(95, 1_000.0), ["round-robin"], **settings).fleets  # type: ignore[arg-type]
    assert fleet.replicas is not None
    log = simulate(busy, replace(BASE, policy="round-robin", replicas=fleet.replicas - 1, seed=1), cost=COST).log
    assert replicas_behind(log, fleet.replicas - 1) > 0
    (limited,) = size(busy, (), ["round-robin"], **settings | {"most": fleet.replicas - 1}).fleets  # type: ignore[arg-type]
    assert (limited.replicas, limited.overloaded) == (None, True)


def test_one_replica_that_falls_behind_is_overload_too() -> None:
    """One key for everything, on eight replicas of which seven are idle."""
    workload = chat(1, requests=1_500, arrivals=Poisson(60.0))
    one_key = replace(
        workload, source=lambda: (request._replace(session="the same") for request in workload.requests())
    )
    run = simulate(one_key, replace(BASE, policy="session", replicas=8), cost=COST)
    assert replicas_behind(run.log, 8) == 1
    even = simulate(workload, replace(BASE, policy="session", replicas=8), cost=COST)
    assert replicas_behind(even.log, 8) == 0


def test_every_kind_of_time_can_be_promised() -> None:
    run = simulate(WORKLOAD, replace(BASE, policy="session", seed=1), cost=COST)
    log = run.log
    first, finish, arrival = (log.column(name) for name in ("first_token", "finish", "arrival"))
    output = log.column("output")
    assert Slo(90, 1.0, "e2e").measured(run) == np.percentile(finish - arrival, 90)
    assert Slo(90, 1.0, "tpot").measured(run) == np.percentile((finish - first) / (output - 1), 90)
    assert Slo(90, 1.0, "itl").measured(run) == run.gaps.percentile(90) > Slo(50, 1.0, "itl").measured(run) > 0
    tight = size(WORKLOAD, Slo.parse_all("ttft_p95=400ms,tpot_p95=1ms"), ["session"], scenario=BASE, most=8).fleets[0]
    assert tight.replicas is None
    assert tight.seconds[0] < 0.4 < 400 * tight.seconds[1]


def test_a_fleet_that_preempts_more_than_it_may_is_too_small() -> None:
    """Long answers beside little memory: fewer replicas keep up, and compute prompts again and again."""
    long = replace(
        WORKLOAD,
        source=lambda: (one._replace(output_tokens=4_000) for one in WORKLOAD.head(300).scaled(0.1).requests()),
    )
    scenario = replace(BASE, capacity_tokens=60_000)

    def sized(most: float | None) -> FleetSize:
        (fleet,) = size(
            long, (), ["session"], scenario=scenario, headroom=Headroom(1.0, 0, most), cost=COST, most=32
        ).fleets
        return fleet

    loose, strict = sized(None), sized(0.02)
    assert loose.replicas is not None
    assert strict.replicas is not None
    assert loose.replicas < strict.replicas
    assert strict.preempted <= 0.02 < loose.preempted
    run = simulate(long, replace(scenario, policy="session", replicas=loose.replicas, seed=1), cost=COST)
    assert loose.preempted == pytest.approx((run.outcome.preemptions or 0) / 300)


def test_a_sized_fleet_says_how_many_requests_keep_every_promise() -> None:
    slos = Slo.parse_all("ttft_p95=400ms,tpot_p95=20ms,itl_p90=20ms")
    assert promise_of(slos) == Promise(ttft_s=0.4, tpot_s=0.02, itl_s=0.02, itl_percentile=90)
    assert promise_of(Slo.parse_all("ttft_p99=2s,ttft_p50=100ms")) == Promise(ttft_s=2.0)
    assert promise_of(()) is None
    (fleet,) = size(WORKLOAD, slos, ["session"], scenario=BASE, headroom=NO_HEADROOM, cost=COST).fleets
    again = replace(BASE, policy="session", replicas=fleet.replicas or 0, seed=1, promise=promise_of(slos))
    outcome = simulate(WORKLOAD, again, cost=COST).outcome
    assert fleet.goodput_per_s == outcome.goodput_per_s
    assert 0.8 * (outcome.requests_per_s or 0) < (fleet.goodput_per_s or 0) <= (outcome.requests_per_s or 0)


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
        ("tpot_p95=50ms", Slo(95, 0.05, "tpot")),
        ("itl_p99=100ms", Slo(99, 0.1, "itl")),
        ("e2e_p50=20", Slo(50, 20, "e2e")),
    ],
)
def test_an_slo_is_read_and_written(text: str, slo: Slo) -> None:
    assert Slo.parse(text) == slo
    assert Slo.parse(str(slo)) == slo


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p95=1s",
        "ttft_p95=1h",
        "ttft_p95=",
        "ttft_p95=-1s",
        "ttft_p0=1s",
        "ttft_p100=1s",
        "ttft_p95=0s",
        "itt_p95=1s",
    ],
)
def test_what_is_no_slo_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="SLO"):
        Slo.parse(text)
    with pytest.raises(ConfigError, match=r"percentile once.*ttft_p95=1s,ttft_p95=2s"):
        Slo.parse_all("ttft_p95=1s,ttft_p95=2s")


def test_nothing_to_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy\b.* 1 replica, got 0\b"):
        size(WORKLOAD, SLO, [])
