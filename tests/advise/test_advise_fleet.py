"""A smaller fleet: what the advice says of it is what ``size`` finds for the promise that the fleet keeps today."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prefixroute.advise import Question, Slo, advise, size
from prefixroute.advise import fleet as smaller
from prefixroute.costmodel import CostModel
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import Poisson, chat

BUSY = chat(1, requests=1_200, arrivals=Poisson(20.0))


def test_the_advice_names_the_fleet_that_size_finds() -> None:
    advice = advise(BUSY, Question(policies=(), seeds=1, current="random"))
    found = next(finding for finding in advice.findings if finding.kind == "fleet-size")
    engine = EngineModel(CostModel())
    log = simulate(BUSY, Scenario(policy="random", engine=engine)).log
    today = float(np.percentile(log.column("first_token") - log.column("arrival"), 95))
    assert found.evidence["ttft_p95_today_s"] == today
    fleet = size(BUSY, Slo(95, 1.1 * today), [advice.policy], most=8).fleets[0]
    assert found.evidence["replicas"] == fleet.replicas
    assert fleet.replicas is not None
    assert fleet.replicas < 8
    assert found.evidence["ttft_p95_one_less_s"] == fleet.ttft_one_less_s
    assert found.evidence["ttft_p95_one_replica_s"] == fleet.ttft_one_s
    assert found.text.startswith(f"{fleet.replicas} of the 8 replicas would do: with {advice.policy} ")
    assert f"${CostModel().usd_per_month(8 - fleet.replicas):,.0f} a month less" in found.text
    assert "on the whole trace" in found.text
    assert {"chunk_tokens", "max_running"} <= {item.name for item in advice.comparison.assumptions}


def test_a_long_trace_is_looked_at_from_its_start_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smaller, "SIZED_REQUESTS", 300)
    found = smaller.smaller_fleet(BUSY, Scenario(policy="session", replicas=4), "round-robin", cost=CostModel())
    assert "on the first 300 requests" in found.text
    assert found.evidence["requests"] == 300


def test_a_fleet_that_is_needed_whole_is_called_so() -> None:
    loaded = replace(BUSY.scaled(6.0))
    found = smaller.smaller_fleet(loaded, Scenario(policy="random", replicas=3), "random", cost=CostModel())
    assert found.evidence["replicas"] == 3
    assert found.text.startswith(
        "All 3 replicas are needed: with random 95 % of the requests have their first token within"
    )
    worse = smaller.smaller_fleet(loaded, Scenario(policy="random", replicas=3), "session", cost=CostModel())
    assert worse.evidence["replicas"] is None
    assert worse.text.startswith("All 3 replicas are needed: with random they take")


def test_without_time_or_a_choice_there_is_no_fleet_to_size() -> None:
    for workload, replicas in ((BUSY, 1), (BUSY.head(1), 4)):
        advice = advise(workload, Question(scenario=Scenario(replicas=replicas), policies=(), seeds=1))
        assert "fleet-size" not in {finding.kind for finding in advice.findings}
