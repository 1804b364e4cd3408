"""A smaller fleet: what the advice says of it is what ``size`` finds for the promise that the fleet keeps today."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prefixroute.advise import Finding, Question, Slo, advise, advisor, size
from prefixroute.advise import fleet as smaller
from prefixroute.costmodel import CostModel
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import Poisson, Workload, chat

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
    assert found.text.startswith(f"{fleet.replicas} of the 8 replicas would do: with {advice.policy}, ")
    assert f"${CostModel().usd_per_month(8 - fleet.replicas):,.0f} a month less" in found.text
    assert "on the whole trace" in found.text
    assert found.text in advice.text().splitlines()[1:3]  # among the first lines, and not again below
    assert advice.text().count(found.text) == 1
    assert advice.verdict == f"{advice.policy}; but {fleet.replicas} replicas would do"
    fewer = simulate(BUSY, Scenario(policy="random", replicas=fleet.replicas, engine=engine)).log
    ttft = float(np.percentile(fewer.column("first_token") - fewer.column("arrival"), 95))
    assert found.evidence["whatever_the_routing"] == (ttft <= 1.1 * today)
    assert ("routing is not the reason" in found.text) == (ttft <= 1.1 * today)
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
        "All 3 replicas are needed: with random, 95 % of the requests have their first token within"
    )
    worse = smaller.smaller_fleet(loaded, Scenario(policy="random", replicas=3), "session", cost=CostModel())
    assert worse.evidence["replicas"] is None
    assert worse.text.startswith("All 3 replicas are needed: with random, they take")


def test_one_replica_that_would_do_needs_no_router_and_the_headline_says_so() -> None:
    idle = chat(1, requests=400, arrivals=Poisson(0.2))
    advice = advise(idle, Question(scenario=Scenario(replicas=4), policies=(), seeds=1))
    assert advice.verdict == f"{advice.policy}; but 1 replica would do, without a router"
    assert "routing is not the reason" in advice.opening[0]


def test_a_policy_that_answers_far_later_than_what_is_in_use_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it saves: the search for a smaller fleet looks at it in time."""
    looked = []

    def slow_session(workload: Workload, advised: Scenario, today: str, **rest: object) -> Finding:
        looked.append(advised.policy_name)
        late = advised.policy_name == "session"
        evidence = {"replicas": None, "ttft_p95_s": 1.6 if late else 1.2, "ttft_p95_today_s": 1.0}
        return Finding("fleet-size", "note", "looked at", evidence)

    monkeypatch.setattr(advisor, "smaller_fleet", slow_session)
    advice = advise(BUSY, Question(policies=(), seeds=1))
    assert looked == ["session", "cache-aware"]
    assert advice.policy == "cache-aware"


def test_without_time_or_a_choice_there_is_no_fleet_to_size() -> None:
    for workload, replicas in ((BUSY, 1), (BUSY.head(1), 4)):
        advice = advise(workload, Question(scenario=Scenario(replicas=replicas), policies=(), seeds=1))
        assert "fleet-size" not in {finding.kind for finding in advice.findings}
