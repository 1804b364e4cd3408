"""A smaller fleet: what the advice says of it is what ``size`` finds for the promise that the fleet keeps today."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from prefixroute.advise import Question, Slo, advise, advisor, size
from prefixroute.advise import fleet as smaller
from prefixroute.advise.size import Told
from prefixroute.costmodel import CostModel
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import Poisson, Workload, chat, documents

BUSY = chat(1, requests=1_200, arrivals=Poisson(20.0))


def test_the_advice_names_the_fleet_that_size_finds() -> None:
    advice = advise(BUSY, Question(policies=(), seeds=1, current="random"))
    found = next(finding for finding in advice.findings if finding.kind == "fleet-size")
    engine = EngineModel(CostModel())
    log = simulate(BUSY, Scenario(policy="random", engine=engine, seed=1)).log
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
    assert f"busy {100 * (fleet.busy or 0):.0f} % of the time, with none to spare for a failure" in found.text
    assert found.text in advice.text().splitlines()[1:3]  # among the first lines, and not again below
    assert advice.text().count(found.text) == 1
    assert advice.verdict == f"{advice.policy}; but {fleet.replicas} replicas would do"
    fewer = simulate(BUSY, Scenario(policy="random", replicas=fleet.replicas, engine=engine, seed=1)).log
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
    loaded = BUSY.scaled(1.5)
    found = smaller.smaller_fleet(loaded, Scenario(policy="random", replicas=3), "random", cost=CostModel())
    assert found.evidence["replicas"] == 3
    assert found.text.startswith(
        "All 3 replicas are needed: with random, 95 % of the requests have their first token within"
    )
    worse = smaller.smaller_fleet(loaded, Scenario(policy="random", replicas=3), "session", cost=CostModel())
    assert worse.evidence["replicas"] is None
    assert worse.text.startswith("All 3 replicas are needed: with random, they take")
    assert (found.severity, found.evidence["overloaded"]) == ("note", False)


def test_a_fleet_that_cannot_keep_up_is_called_so_before_all_else() -> None:
    advice = advise(BUSY.scaled(6.0), Question(scenario=Scenario(replicas=3), policies=(), seeds=1))
    found = next(finding for finding in advice.findings if finding.kind == "fleet-size")
    assert (found.severity, found.evidence["overloaded"]) == ("warning", True)
    assert advice.verdict == f"{advice.policy}; but 3 replicas cannot keep up"
    assert found.text.startswith("3 replicas cannot keep up: in time, requests come faster than they are served with ")
    assert advice.opening[0] == found.text
    assert advice.text().count(found.text) == 1


def test_one_replica_that_would_do_needs_no_router_and_the_headline_says_so() -> None:
    idle = chat(1, requests=400, arrivals=Poisson(0.2))
    advice = advise(idle, Question(scenario=Scenario(replicas=4), policies=(), seeds=1))
    assert advice.verdict == f"{advice.policy}; but 1 replica would do, without a router"
    assert "routing is not the reason" in advice.opening[0]


def test_a_policy_that_answers_far_later_than_what_is_in_use_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it saves, and on every fleet that is looked at."""
    looked = []

    def slow_session(workload: Workload, scenario: Scenario, *rest: object) -> Told:
        looked.append((scenario.policy_name, scenario.replicas))
        ttft = {"session": 1.6, "cache-aware": 1.2}.get(scenario.policy_name, 1.0)
        return Told(ttft, recompute_ratio=0.1, busy=0.1, is_overloaded=False)

    monkeypatch.setattr(advisor, "read", slow_session)
    advice = advise(BUSY, Question(policies=(), seeds=1, vary=("replicas",)))
    assert looked[:6] == [(policy, count) for count in (8, 4) for policy in ("round-robin", "session", "cache-aware")]
    assert [policy for policy, count in looked if count == 16][:2] == ["round-robin", "session"]
    assert advice.policy == "cache-aware"
    assert all(flip.policy.startswith("cache-aware") for flip in advice.sensitivity)
    (found,) = (one for one in advice.findings if one.kind == "slower")
    assert found.text == (
        "session was passed over: in time, 95 % of the requests have their first token within 1.60 s, more than 1.5 times "
        "the 1.00 s with round-robin."
    )


def test_what_would_be_advised_elsewhere_is_what_is_advised_there() -> None:
    """The rows of the sensitivity come from the same choice, minimum match and clock included."""
    question = Question(scenario=Scenario(replicas=4, capacity_tokens=60_000), policies=(), seeds=2)
    documents_ = partial(documents, requests=1_200)
    flips = advise(documents_, replace(question, vary=("capacity", "replicas"))).sensitivity
    assert len(flips) == 5
    for flip in flips:
        change = {"replicas": flip.value} if flip.setting == "replicas" else {"capacity_tokens": flip.value}
        there = advise(documents_, replace(question, scenario=replace(question.scenario, **change)))  # type: ignore[arg-type]
        assert there.row is not None
        assert (flip.policy, flip.recompute_ratio) == (there.policy, there.row.recompute_ratio)


def test_without_time_or_a_choice_there_is_no_fleet_to_size() -> None:
    for workload, replicas in ((BUSY, 1), (BUSY.head(1), 4)):
        advice = advise(workload, Question(scenario=Scenario(replicas=replicas), policies=(), seeds=1))
        assert "fleet-size" not in {finding.kind for finding in advice.findings}
