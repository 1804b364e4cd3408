"""Times in the unit of their size, and replicas that do nothing."""

from __future__ import annotations

import math

import pytest

from prefixroute.advise.idle import Reason, count_idle, reason
from prefixroute.policies import CacheAware
from prefixroute.report.times import duration, unit_of
from prefixroute.sim import Scenario, simulate
from prefixroute.workload import chat


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"), (0.0004, "0.4 ms"), (0.0043, "4.3 ms"), (0.0099, "9.9 ms"), (0.00999, "10 ms"), (0.15, "150 ms"), (1.5, "1.50 s"), (169.2, "169 s"),
        (9_748.79, "2.71 h"), (25_590.7, "7.11 h"), (35_567_367.0, "9,880 h"),
    ],
)  # fmt: skip
def test_a_time_has_the_unit_of_its_size(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_table_has_one_unit_in_which_its_smallest_figure_shows() -> None:
    assert unit_of([0.001, -0.5]).name == "ms"
    assert unit_of([0.07, 10.6]).name == "ms"  # in seconds, good policies beside one that cannot keep up would be alike
    assert unit_of([0.0, 1.5, 30.0]).name == "s"
    assert unit_of([-35_567.367, math.inf]).name == "h"
    assert unit_of([]).name == "ms"
    assert unit_of([7_200.0]).figure(7_200.0) == "2.00"
    assert unit_of([0.5]).figure(0.0043) == "4.3"


def test_replicas_are_idle_that_get_less_than_a_tenth_of_their_share() -> None:
    even = simulate(chat(1, requests=400), Scenario(policy="round-robin", replicas=4)).outcome
    one = simulate(chat(1, requests=400), Scenario(policy="prefix-hash", replicas=1)).outcome
    assert count_idle([even]) == count_idle([one]) == 0
    few = simulate(chat(1, requests=2), Scenario(policy="round-robin", replicas=4)).outcome
    assert count_idle([few]) == 0  # two requests on four replicas prove nothing


def test_the_reason_is_a_head_above_the_minimum_match() -> None:
    assert reason(Scenario(policy="cache-aware"), 1_152) == Reason("minimum-match", 1_024, 1_152)
    above = Scenario(policy=CacheAware(min_match_tokens=1_168))
    for scenario, head in ((above, 1_152), (Scenario(policy="session"), 1_152), (Scenario(policy="cache-aware"), 0)):
        assert reason(scenario, head) is None
