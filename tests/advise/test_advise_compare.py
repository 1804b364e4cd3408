"""Comparison: what is outside the noise is named, what is inside is not, and the numbers are those of the runs."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from prefixroute.advise.choice import METRIC
from prefixroute.advise.compare import METRICS, ONE_RUN, Comparison, compare
from prefixroute.advise.sample import TIMED_ONLY, Measure
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.policies import View
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import Poisson, Workload, chat

SMALL = partial(chat, requests=2_000)
FLEET = Scenario(replicas=8, capacity_tokens=None)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(SMALL, ["round-robin", "random", "session"], scenario=FLEET, seeds=2, infinite=True)


def test_a_large_difference_is_named(comparison: Comparison) -> None:
    assert comparison.reference == comparison.winner == "session"
    assert comparison.leaders == ["session"]
    difference = comparison.difference("round-robin")
    assert difference.verdict == "worse"
    assert difference.recompute_ratio.low > 0.1
    row, best = comparison.row("round-robin"), comparison.row("session")
    for metric in set(METRICS) - set(TIMED_ONLY):
        gap = getattr(row, metric) - getattr(best, metric)
        assert getattr(difference, metric).value == pytest.approx(gap, rel=0.02)


def test_no_winner_is_named_inside_the_noise() -> None:
    twins = compare(SMALL, ["round-robin", "random"], scenario=FLEET, seeds=3)
    assert twins.winner is None
    assert set(twins.leaders) == {"round-robin", "random"}
    other = next(one for one in twins.differences if one.verdict != "reference")
    assert other.verdict == "tie"
    assert other.recompute_ratio.low <= 0.0 <= other.recompute_ratio.high


def test_floor_and_infinite_cache_stand_beside_every_result(comparison: Comparison) -> None:
    document = json.loads(comparison.to_json())
    assert document["clusters"] > 200
    for row in document["rows"]:
        assert row["floor"] <= row["recompute_ratio_infinite"] + 1e-9
    assert [one["policy"] for one in document["differences"]] == ["round-robin", "random", "session"]


def test_same_inputs_same_bytes_here_and_over_processes(comparison: Comparison) -> None:
    again = compare(SMALL, ["round-robin", "random", "session"], scenario=FLEET, seeds=2, infinite=True, jobs=2)
    assert again.to_json() == comparison.to_json()


def test_samples_are_paired_by_request_whatever_the_order_of_finishing() -> None:
    workload, cost = chat(1, requests=800, arrivals=Poisson(40.0)), CostModel()
    samples = [
        Measure(cost)(simulate(workload, Scenario(policy=policy, replicas=4, engine=EngineModel(cost)), cost=cost))
        for policy in ("round-robin", "session")
    ]
    asked = list(workload.requests())
    names = {name: number for number, name in enumerate(dict.fromkeys(request.session for request in asked))}
    for sample in samples:
        assert sample.prompt.tolist() == [request.prompt_tokens for request in asked]
        assert sample.session.tolist() == [names[request.session] for request in asked]
        assert sample.outcome.ttft.mean == pytest.approx(sample.ttft_s.mean())
    assert not np.array_equal(samples[0].ttft_s, samples[1].ttft_s)


def test_a_trace_is_one_set_of_sessions_with_a_run_for_each_seed() -> None:
    workload: Workload = chat(1, requests=3_000)
    fixed = compare(workload, ["random", "session"], scenario=FLEET, seeds=3)
    sessions = len({request.session for request in workload.requests()})
    assert fixed.clusters == sessions


@pytest.mark.parametrize(
    ("policies", "settings", "named"),
    [
        ([], {}, "policies.* none$"),
        (["random", "random"], {}, "policies.* once.* random, random$"),
        (["random"], {"metric": "beauty"}, "metric .*recompute_ratio, ttft_mean_s,.*'beauty'"),
    ],
)
def test_what_cannot_be_compared_is_refused(policies: list[str], settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        compare(SMALL, policies, **settings)  # type: ignore[arg-type]


def test_one_run_takes_a_tenth_as_luck() -> None:
    found = compare(SMALL, ["round-robin", "random", "session"], scenario=FLEET, seeds=1, metric=METRIC)
    gap, own = found.difference("random").usd_per_million_requests_busiest, found.row("session")
    assert found.difference("random").verdict == "worse"
    assert gap.high - gap.value >= 0.1 * own.usd_per_million_requests_busiest
    assert ONE_RUN in found.notes


def test_equal_policies_are_told_apart_no_more_often_than_the_level_allows() -> None:
    """Two that draw a replica at random, by busiest dollars: which sessions meet there is luck."""

    def one(view: View) -> int:
        return view.slots[int(view.draw(0) * len(view.slots))]

    def other(view: View) -> int:
        return view.slots[int(view.draw(1) * len(view.slots))]

    workload = chat(1, requests=300)
    winners = 0
    for trial in range(40):
        seeds = range(3 * trial, 3 * trial + 3)
        found = compare(workload, [one, other], scenario=FLEET, seeds=seeds, metric=METRIC)
        assert found.rows[0].policy != found.rows[1].policy
        winners += found.winner is not None
    assert winners <= 6, "two of 40 expected; seven or more in one of a hundred cases"
