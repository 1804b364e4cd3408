"""The bootstrap: it covers what it should, clusters widen it, and pairs narrow it."""

from __future__ import annotations

import numpy as np
import pytest

from prefixroute.advise.bootstrap import Floats, Interval, Ratio, ratio_intervals, student, sums_by_cluster


def ratio_interval(top: Floats, below: Floats, *, seed: int, resamples: int = 1_000) -> Interval:
    (interval,) = ratio_intervals([Ratio(top, below)], seed=seed, resamples=resamples)
    return interval


def test_coverage_is_near_the_level() -> None:
    rng = np.random.default_rng(1)
    truth, covered, trials = 2.0, 0, 200
    for trial in range(trials):
        weights = rng.uniform(1, 3, 120)
        values = weights * (truth + rng.normal(0, 1, 120))
        interval = ratio_interval(values[None], weights, seed=trial, resamples=300)
        covered += interval.low <= truth <= interval.high
    assert 0.89 <= covered / trials <= 0.99


def test_requests_of_a_session_are_not_independent_samples() -> None:
    rng = np.random.default_rng(2)
    sessions = np.repeat(np.arange(50), 40)
    values = np.repeat(rng.normal(0, 1, 50), 40)
    by_session = ratio_interval(sums_by_cluster(values, sessions, 50)[None], np.full(50, 40.0), seed=0)
    by_request = ratio_interval(values[None], np.ones(2_000), seed=0)
    assert by_session.value == pytest.approx(by_request.value)
    assert by_session.high - by_session.low > 4 * (by_request.high - by_request.low)


def test_a_pair_on_the_same_sessions_sees_what_two_intervals_do_not() -> None:
    rng = np.random.default_rng(3)
    first = rng.normal(10, 5, 400)
    second = first + rng.normal(0.3, 0.5, 400)
    ones = np.ones(400)
    assert ratio_interval((second - first)[None], ones, seed=0).excludes_zero
    one, other = (ratio_interval(values[None], ones, seed=0) for values in (first, second))
    assert one.high > other.low


def test_runs_of_other_seeds_are_noise_too() -> None:
    values = np.stack([np.full(30, 1.0), np.full(30, -1.0)])
    interval = ratio_interval(values, np.ones(30), seed=0)
    assert interval.value == 0.0
    assert (interval.low, interval.high) == (-1.0, 1.0)


@pytest.mark.parametrize("runs", [2, 3, 10, 40])
def test_few_runs_are_covered_by_students_interval(runs: int) -> None:
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(2_000):
        values = rng.normal(5, 2, runs)
        half = student(runs) * float(np.std(values, ddof=1)) / runs**0.5
        covered += abs(float(values.mean()) - 5) <= half
    assert 0.935 <= covered / 2_000 <= 0.965


@pytest.mark.parametrize("clusters", [0, 1])
def test_one_cluster_proves_nothing(clusters: int) -> None:
    interval = ratio_interval(np.ones((1, clusters)), np.ones(clusters), seed=0)
    assert not interval.excludes_zero
    assert (interval.low, interval.high) == (-np.inf, np.inf)


def test_same_seed_same_interval_and_batches_change_nothing_but_draws() -> None:
    values, ones = np.arange(20.0)[None], np.ones(20)
    assert ratio_interval(values, ones, seed=4) == ratio_interval(values, ones, seed=4)
    assert Interval(1.0, 0.5, 1.5) | Interval(9.0, 0.7, 2.0) == Interval(1.0, 0.5, 2.0)
