"""The backtest: a log made by a known fleet is recognised, another is not, and unknown is not zero."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from prefixroute.advise import IN_USE, Question, advise
from prefixroute.advise.backtest import backtest
from prefixroute.advise.findings import agreement
from prefixroute.errors import ConfigError
from prefixroute.report.answer import answer
from prefixroute.report.backtests import ZEROS, backtest_lines
from prefixroute.sim import Scenario, simulate
from prefixroute.workload import Request, Workload, chat

TRUTH = Scenario(policy="session", replicas=4, capacity_tokens=200_000)


def logged(requests: int = 2_500, *, every: int = 1, truth: Scenario = TRUTH, share: float | None = None) -> Workload:
    """A log of ``truth``; only each ``every``-th request reports its cached tokens, or a ``share`` of its prompt."""
    workload = chat(1, requests=requests)
    log = simulate(workload, truth).log
    hits = log.in_order(log.column("hit")).tolist()

    def source() -> Iterator[Request]:
        for number, request in enumerate(workload.requests()):
            told = hits[number] if share is None else round(share * request.prompt_tokens)
            yield request._replace(reported_hit_tokens=None if number % every else told)

    return replace(workload, source=source)


def test_the_fleet_that_wrote_the_log_agrees_with_it() -> None:
    found = backtest(logged(), TRUTH)
    assert found.verdict == "agrees"
    assert found.simulated == found.reported
    assert (found.mean_error_tokens, found.within_block) == (0.0, 1.0)
    assert found.compared == found.requests == 2_500


def test_another_policy_disagrees_and_the_search_finds_the_right_one() -> None:
    found = backtest(logged(), replace(TRUTH, policy="round-robin"), search=["round-robin", "session"])
    assert found.verdict == "disagrees"
    assert found.difference.high < 0
    assert found.nearest is not None
    assert found.nearest.policy == found.search[0].policy == "session"
    assert {one.policy for one in found.search} == {"round-robin", "session"}
    errors = [one.mean_error_tokens for one in found.search]
    assert errors == sorted(errors)


@pytest.mark.parametrize("given", [300_000, None])
def test_the_capacity_is_found_wherever_it_is(given: int | None) -> None:
    """A log of 60,000 tokens a replica, with no such figure given."""
    truth = replace(TRUTH, capacity_tokens=60_000)
    assumed = replace(TRUTH, capacity_tokens=given)
    nearest = backtest(logged(truth=truth), assumed, search=["session"]).nearest
    assert nearest is not None
    assert nearest.capacity_tokens == pytest.approx(60_000, rel=0.1)
    assert nearest.told_apart


def test_a_search_without_time_for_further_rounds_says_so() -> None:
    calls = iter((False, False, True))  # before the search, and before two rounds of it
    small = replace(TRUTH, capacity_tokens=60_000)
    log = logged(800, truth=small)
    cut = backtest(log, TRUTH, search=["session"], time_is_up=lambda: next(calls))
    assert len(cut.search) == 3
    assert cut.nearest is not None
    assert len(cut.notes) == len(log.notes) + 1


def test_capacities_that_the_log_cannot_tell_apart_are_not_told_apart() -> None:
    roomy = replace(TRUTH, capacity_tokens=4_000_000)
    nearest = backtest(logged(800, truth=roomy), roomy, search=["session", "random"]).nearest
    assert nearest is not None
    assert (nearest.policy, nearest.high, nearest.told_apart, nearest.edge) == ("session", None, False, None)
    assert nearest.low is not None
    assert nearest.low < 1_000_000  # all that these requests need


def test_a_log_beyond_the_range_says_so() -> None:
    """Hits that no capacity gives: more than caches that never evict, and fewer than the smallest."""
    for share, edge in ((0.9, "largest"), (0.0, "smallest")):
        nearest = backtest(logged(400, share=share), TRUTH, search=["random"]).nearest
        assert nearest is not None
        assert (nearest.edge, nearest.told_apart) == (edge, False)


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
    with pytest.raises(ConfigError, match=r"^chat "):
        backtest(chat(1, requests=10))


def test_a_log_of_zeros_throughout_is_no_disagreement_of_policies() -> None:
    found = backtest(logged(400, share=0.0), TRUTH)
    assert found.reports_no_hits
    assert ZEROS in backtest_lines(found)[0]
    assert not backtest(logged(400), TRUTH).reports_no_hits
    assert [one.kind for one in agreement(found)] == ["no-hits"]
    told = found.to_dict()
    assert (told["verdict"], told["reports_no_hits"]) == ("no-hits", True)
    assert not backtest(logged(400), TRUTH).to_dict()["reports_no_hits"]


def test_hits_that_are_not_reported_come_before_all_that_is_advised() -> None:
    advice = advise(logged(60, share=0.0), Question(scenario=Scenario(replicas=2), seeds=1, policies=()))
    assert advice.backtest is not None
    assert advice.backtest.reports_no_hits
    told, otherwise = (answer(one).headline for one in (advice, replace(advice, backtest=None)))
    assert told != otherwise
    assert told.endswith(otherwise)


def test_zeros_agree_with_a_fleet_that_hits_nothing() -> None:
    workload = logged(60, share=0.0)
    tiny = replace(TRUTH, capacity_tokens=workload.block_size)
    found = backtest(workload, tiny)
    assert (found.verdict, found.simulated) == ("agrees", 0.0)
