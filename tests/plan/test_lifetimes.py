"""Lifetimes by rate and by gaps, and stored objects by the hour."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prefixroute import ConfigError
from prefixroute.plan import lifetimes_by_gaps, lifetimes_by_rate, plan_storage
from prefixroute.providers import find_model

SONNET = find_model("claude-sonnet-5-5")


def costs(plan) -> dict[str, float]:  # noqa: ANN001
    return {choice.name: choice.usd_per_thousand for choice in plan.choices}


@pytest.mark.parametrize(("per_hour", "best"), [(0.01, "no cache"), (0.2, "1h kept alive"), (600, "5m")])
def test_the_best_lifetime_by_rate(per_hour: float, best: str) -> None:
    assert lifetimes_by_rate(SONNET, 20_000, per_hour).best.name == best


def test_the_formula_at_12_uses_an_hour() -> None:
    found = costs(lifetimes_by_rate(SONNET, 1_000_000, 12))
    missed = math.exp(-1)  # a gap of 5 minutes on average against a lifetime of 5 minutes
    assert found["no cache"] == pytest.approx(2_000)
    assert found["5m"] == pytest.approx(1_000 * ((1 - missed) * 0.1 + missed * 2.5))
    assert found["1h"] == pytest.approx(1_000 * ((1 - math.exp(-12)) * 0.1 + math.exp(-12) * 4))
    assert found["5m kept alive"] == pytest.approx(1_000 * 0.1 / (1 - missed))


def test_gaps_drawn_at_a_rate_give_what_the_formula_gives() -> None:
    gaps = np.random.default_rng(1).exponential(300, 200_000)
    drawn, formula = costs(lifetimes_by_gaps(SONNET, 20_000, gaps)), costs(lifetimes_by_rate(SONNET, 20_000, 12))
    assert drawn == pytest.approx(formula, rel=0.02)


def test_a_gap_as_long_as_the_lifetime_is_a_hit() -> None:
    ratio = {choice.name: choice.hit_ratio for choice in lifetimes_by_gaps(SONNET, 20_000, [300.0, 300.1]).choices}
    assert (ratio["5m"], ratio["1h"]) == (0.5, 1.0)


def test_under_the_minimum_there_is_no_choice() -> None:
    assert [choice.name for choice in lifetimes_by_rate(SONNET, 100, 10).choices] == ["no cache"]


@pytest.mark.parametrize("gaps", [[], [-1.0], [float("nan")], [float("inf")], [[1.0]], ["x"], [1e300], None])
def test_impossible_gaps(gaps: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"gaps .*seconds"):
        lifetimes_by_gaps(SONNET, 20_000, gaps)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_impossible_rates(rate: float) -> None:
    with pytest.raises(ConfigError, match="uses_per_hour"):
        lifetimes_by_rate(SONNET, 20_000, rate)


def test_storage_breaks_even_at_rent_over_saving() -> None:
    pro = find_model("gemini-2.5-pro")
    plan = plan_storage(pro, 100_000, 10)
    # (4.50 + 1.25 for writing once an hour) / (1.25 - 0.125) uses an hour
    assert plan.break_even_per_hour == pytest.approx(5.75 / 1.125)
    for uses, better in ((5.0, False), (5.2, True)):
        rows = {row.name: row.usd_per_hour for row in plan_storage(pro, 100_000, uses).rows}
        assert (rows["explicit, stored"] < rows["no cache"]) is better
    assert plan_storage(pro, 100_000, 10, hours=24).break_even_per_hour == pytest.approx((4.5 + 1.25 / 24) / 1.125)


def test_against_implicit_caching_that_misses() -> None:
    pro = find_model("gemini-2.5-pro")
    never = plan_storage(pro, 100_000, 10)
    assert never.break_even_against_implicit is None  # at most 12 / e = 4.4 misses an hour, the rent is worth 5.1
    often = plan_storage(pro, 100_000, 10, miss_probability=0.5).break_even_against_implicit
    assert often is not None
    for uses, better in ((0.99 * often, False), (1.01 * often, True)):
        rows = {row.name: row.usd_per_hour for row in plan_storage(pro, 100_000, uses, miss_probability=0.5).rows}
        assert (rows["explicit, stored"] < rows["implicit"]) is better


def test_storage_needs_a_model_that_has_it_and_a_prefix_that_is_long_enough() -> None:
    with pytest.raises(ConfigError, match=r"claude-sonnet.* stored "):
        plan_storage(SONNET, 100_000, 10)
    short = plan_storage(find_model("gemini-2.5-pro"), 1_000, 10)
    assert not short.is_cacheable
    assert [row.name for row in short.rows] == ["no cache"]
    assert short.break_even_per_hour is None
