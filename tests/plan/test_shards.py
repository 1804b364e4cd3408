"""Routing keys for a rate: how many, what hit ratio to expect, who exceeds a key alone."""

from __future__ import annotations

import pytest

from prefixroute import ConfigError
from prefixroute.plan import Load, plan_shards
from prefixroute.plan.shards import moved
from prefixroute.providers import find_model

GPT = find_model("gpt-5")


def test_120_a_minute_over_1000_users_take_8_keys_none_over_the_limit_on_average() -> None:
    plan = plan_shards(GPT, Load(120, 1_000))
    assert plan.shards == 8
    assert not plan.is_promised
    assert plan.limit == 15
    row = next(row for row in plan.rows if row.shards == 8)
    assert row.busiest_per_minute == pytest.approx(15, rel=0.25)
    assert plan.over_limit == ()


def test_with_prefixes_of_users_one_key_loses_what_eight_keep() -> None:
    plan = plan_shards(GPT, Load(120, 200, shared_tokens=2_000, user_tokens=8_000))
    ratio = {row.shards: row.hit_ratio for row in plan.rows}
    assert ratio[8] > ratio[1] + 0.08
    usd = {row.shards: row.usd_per_thousand for row in plan.rows}
    assert usd[8] < usd[1]


def test_expectations_are_the_same_for_the_same_seed() -> None:
    one, other = (plan_shards(GPT, Load(60, 100), seed=3, requests=2_000) for _ in range(2))
    assert one == other
    assert one != plan_shards(GPT, Load(60, 100), seed=4, requests=2_000)


def test_a_user_who_exceeds_a_key_alone_is_named() -> None:
    plan = plan_shards(GPT, Load(120, {"crawler": 30.0, **{f"user-{n}": 1.0 for n in range(90)}}), requests=2_000)
    assert [user for user, _ in plan.over_limit] == ["crawler"]
    assert plan.over_limit[0][1] == pytest.approx(30)


def test_one_key_more_moves_few() -> None:
    assert plan_shards(GPT, Load(120, 10_000), requests=1_000).moved_by_one_more == pytest.approx(1 / 9, abs=0.02)
    with pytest.raises(ConfigError, match="users"):
        moved([], 8, 9)


def test_a_limit_that_no_source_states_is_assumed() -> None:
    assert not plan_shards(GPT, Load(30), requests=100).limit_assumed
    assert plan_shards(find_model("gpt-5.6"), Load(30), requests=100).limit_assumed
    assert "GPT-5.6" in plan_shards(find_model("gpt-5.6"), Load(30), requests=100).note
    assert not plan_shards(find_model("gpt-5.6"), Load(30), limit=10, requests=100).limit_assumed


@pytest.mark.parametrize(
    "given",
    [
        {"requests_per_minute": -1}, {"requests_per_minute": float("nan")}, {"users": 0}, {"users": {}},
        {"users": {"a": -1.0}}, {"users": {"a": 0.0}}, {"shared_tokens": 0}, {"user_tokens": -1},
    ],
)  # fmt: skip
def test_impossible_loads(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Load(**({"requests_per_minute": 10} | given))  # type: ignore[arg-type]
