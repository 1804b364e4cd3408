"""Intervals of percentiles: they cover the truth, pairs and sessions count, and what nobody can know has no ends."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from prefixroute.advise import compare
from prefixroute.advise.bootstrap import Floats, Interval
from prefixroute.advise.percentiles import Observed, percentiles_of
from prefixroute.advise.sample import pairs_of
from prefixroute.sim import Scenario
from prefixroute.workload import chat
from prefixroute.workload.spec import Spec

EACH = np.arange(2_000)


def differences(first: Floats, second: Floats, clusters: np.ndarray = EACH, *, fixed: bool = True) -> list[Interval]:
    groups = [[Observed(first, clusters)], [Observed(second, clusters)]]
    found = percentiles_of(groups, (50.0, 90.0, 99.0), fixed=fixed, seed=0)
    drawn = (None if found.drawn is None else found.drawn[..., at] for at in range(3))
    pairs = (pairs_of(found.values[:, at], each, known=found.known[at]) for at, each in enumerate(drawn))
    return [Interval(*map(float, ends[0, 1])) for ends in pairs]


def test_the_value_is_the_difference_of_percentiles_and_the_reference_is_nothing() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.exponential(1.3, 2_000), rng.exponential(1.0, 2_000)
    for fixed in (True, False):
        found = differences(first, second, fixed=fixed)
        for interval, percentile in zip(found, (50, 90, 99), strict=True):
            assert interval.value == pytest.approx(np.percentile(first, percentile) - np.percentile(second, percentile))
            assert interval.low <= interval.value <= interval.high


def test_coverage_is_near_the_level() -> None:
    rng = np.random.default_rng(2)
    truth = np.log(2) * 0.5  # medians of exponentials of mean 1.5 and 1
    covered = 0
    for _ in range(60):
        interval = differences(rng.exponential(1.5, 400), rng.exponential(1.0, 400), np.arange(400))[0]
        covered += interval.low <= truth <= interval.high
    assert 0.85 <= covered / 60 <= 1.0


def test_a_pair_on_the_same_sessions_sees_a_small_shift_and_requests_of_a_session_widen_it() -> None:
    rng = np.random.default_rng(3)
    base = rng.exponential(1.0, 2_000)
    moved = base + rng.normal(0.05, 0.02, 2_000)
    assert differences(moved, base)[0].excludes_zero
    assert not differences(moved, rng.permutation(base))[0].excludes_zero
    shared = np.repeat(rng.exponential(1.0, 50), 40)
    other = np.repeat(rng.exponential(1.0, 50), 40)
    by_session, by_request = (differences(shared, other, ids)[0] for ids in (np.repeat(np.arange(50), 40), EACH))
    assert by_session.high - by_session.low > 3 * (by_request.high - by_request.low)


def test_what_rests_on_too_little_has_no_ends() -> None:
    values = np.arange(999.0)
    p50, p90, p99 = differences(values, values + 1, np.arange(999))
    assert np.isfinite([p50.low, p50.high, p90.low, p90.high]).all()
    assert (p99.low, p99.high) == (-np.inf, np.inf)  # fewer than ten requests are slower than it
    assert p99.to_dict() == {"value": -1.0, "low": None, "high": None}
    one_session = differences(values, values + 1, np.zeros(999, np.int64))
    assert not any(interval.excludes_zero for interval in one_session)
    nothing = differences(np.empty(0), np.empty(0), np.empty(0, np.int64))
    assert {(one.value, one.low) for one in nothing} == {(0.0, -np.inf)}


def test_compare_gives_every_percentile_an_interval_that_may_decide() -> None:
    found = compare(
        chat(1, requests=3_000), ["round-robin", "session", "random"], scenario=Scenario(), seeds=2, metric="ttft_p90_s"
    )
    assert found.reference == "session"
    assert found.difference("round-robin").verdict == "worse"
    for row, difference in zip(found.rows, found.differences, strict=True):
        for name in ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s"):
            gap = getattr(row, name) - getattr(found.row("session"), name)
            assert getattr(difference, name).value == pytest.approx(gap)
            assert difference.to_dict()[name]["low"] is not None
    spread = [found.difference("random").ttft_p50_s, found.difference("random").ttft_p99_s]
    assert all(low.low <= low.value <= low.high for low in spread)


def test_days_widen_intervals_where_a_trace_has_enough_of_them() -> None:
    workload = chat(1, requests=1_500)
    span = max(request.arrival_s for request in workload.requests())
    hour, week = (workload.scaled(span / seconds) for seconds in (3_600.0, 6.5 * 86_400.0))
    widths = []
    for one in (hour, week):
        gap = (
            compare(one, ["round-robin", "session"], scenario=Scenario(), seeds=1).difference("round-robin").ttft_p90_s
        )
        widths.append(gap.high - gap.low)
    assert all(narrow <= wide for narrow, wide in pairwise(widths))


@pytest.mark.parametrize(
    ("workload", "unknown"),
    [
        ("chat,requests=200", {"ttft_p99_s": "few-requests", "ttft_p90_s": ""}),
        ("chat,requests=1,turns=1", {"ttft_p99_s": "one-session", "recompute_ratio": "one-session"}),
        ("documents,requests=1200", {"ttft_p99_s": "tied", "ttft_mean_s": ""}),
    ],
)
def test_an_interval_that_nobody_can_know_has_no_ends_and_says_why(workload: str, unknown: dict[str, str]) -> None:
    """Nor is it of zero width: nothing is proved by requests that all take as long."""
    found = compare(Spec.parse(workload), ["round-robin", "cache-aware"], scenario=Scenario(replicas=4), seeds=1)
    for metric, why in unknown.items():
        apart = found.gap("round-robin", "cache-aware", metric)
        assert apart.unknown == why
        assert (apart.to_dict()["low"] is None) is bool(why)
        assert apart.to_dict().get("unknown", "") == why
    assert found.gap("cache-aware", "cache-aware", "ttft_p99_s").to_dict() == {"value": 0.0, "low": 0.0, "high": 0.0}
