"""The backtest: a log made by a known fleet is recognised, another is not, and unknown is not zero."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from prefixroute.advise import IN_USE, Question
from prefixroute.advise.backtest import backtest
from prefixroute.errors import ConfigError
from prefixroute.sim import Scenario, simulate
from prefixroute.workload import Request, Workload, chat

TRUTH = Scenario(policy="session", replicas=4, capacity_tokens=200_000)


def logged(every: int = 1) -> Workload:
    """A log of ``TRUTH``; only each ``every``-th request reports its cached tokens."""
    workload = chat(1, requests=2_500)
    log = simulate(workload, TRUTH).log
    hits = log.in_order(log.column("hit")).tolist()

    def source() -> Iterator[Request]:
        for number, request in enumerate(workload.requests()):
            yield request._replace(reported_hit_tokens=None if number % every else hits[number])

    return replace(workload, source=source)


def test_the_fleet_that_wrote_the_log_agrees_with_it() -> None:
    found = backtest(logged(), TRUTH)
    assert found.verdict == "agrees"
    assert found.simulated == found.reported
    assert (found.mean_error_tokens, found.within_block) == (0.0, 1.0)
    assert found.compared == found.requests == 2_500
    assert "agrees with the log." in found.text()


def test_another_policy_disagrees_and_the_search_finds_the_right_one() -> None:
    found = backtest(logged(), replace(TRUTH, policy="round-robin"), search=["round-robin", "session"])
    assert found.verdict == "disagrees"
    assert found.difference.high < 0
    assert (found.search[0].policy, found.search[0].capacity_tokens) == ("session", 200_000)
    assert found.search[0].difference == pytest.approx(0.0)
    assert len(found.search) == 8


def test_capacities_that_the_log_cannot_tell_apart_are_not_told_apart() -> None:
    roomy = replace(TRUTH, capacity_tokens=4_000_000)
    workload = chat(1, requests=800)
    log = simulate(workload, roomy).log
    hits = log.in_order(log.column("hit")).tolist()
    logs = replace(
        workload,
        source=lambda: (one._replace(reported_hit_tokens=hits[at]) for at, one in enumerate(workload.requests())),
    )
    found = backtest(logs, roomy, search=["session", "random"])
    assert (
        "The log does not tell the capacity: from 2,000,000 tokens a replica up the hits are the same." in found.text()
    )
    nearest = json.loads(found.to_json())["nearest"]
    assert nearest["policy"] == "session"
    assert nearest["capacity_tokens"] == [2_000_000, 4_000_000, 8_000_000, None]
    assert nearest["capacity_told_apart"] is False
    told = backtest(logged(), TRUTH, search=["session"])
    assert "session with 200,000 tokens a replica" in told.text()
    assert json.loads(told.to_json())["nearest"]["capacity_told_apart"] is True


def test_without_a_policy_named_what_is_usual_is_assumed_and_marked() -> None:
    found = backtest(logged())
    assert found.policy == IN_USE == Question().in_use
    assert {item.name: item.assumed for item in found.assumptions}["policy"]


def test_only_what_is_reported_is_compared() -> None:
    found = backtest(logged(every=3), TRUTH)
    assert found.compared == 834
    assert found.simulated == found.reported
    assert sum(band.requests for band in found.bands) == found.compared


def test_json_is_the_same_twice() -> None:
    one, other = (backtest(logged(), TRUTH, search=["random"]).to_json() for _ in range(2))
    assert one == other
    assert json.loads(one)["difference"]["value"] == 0.0


def test_a_log_without_reports_is_refused() -> None:
    with pytest.raises(ConfigError, match="chat reports no cached tokens"):
        backtest(chat(1, requests=10))
