"""Orders of calls that share a prefix.

The published figures, break-even, misses, workspaces, minimum sizes, batches.
"""

from __future__ import annotations

import pytest

from prefixroute import ConfigError
from prefixroute.plan import Burst, Calls, Speed, plan_batch, plan_burst
from prefixroute.plan.burst import AT_ONCE, NO_CACHE, ONE_FIRST, PREWARMED
from prefixroute.providers import find_model, providers

SONNET = find_model("claude-sonnet-5-5")


def cents(burst: Burst) -> dict[str, float]:
    return {order.name: 100 * order.usd for order in burst.orders}


def test_the_seed_article_10_calls_of_20000_tokens() -> None:
    burst = plan_burst(SONNET, Calls(10, 20_000))
    assert cents(burst) == pytest.approx({NO_CACHE: 40, AT_ONCE: 50, ONE_FIRST: 6.8, PREWARMED: 7.0})
    assert burst.best.name == ONE_FIRST


def test_a_miss_of_40_percent_costs_0_241_and_0_50_at_worst() -> None:
    burst = plan_burst(SONNET, Calls(10, 20_000, miss_probability=0.4))
    order = next(order for order in burst.orders if order.name == ONE_FIRST)
    assert (order.best_usd, order.usd, order.worst_usd) == pytest.approx((0.068, 0.2408, 0.50))


@pytest.mark.parametrize(("lifetime", "one_first", "prewarm"), [("5m", 2, 2), ("1h", 3, 3)])
def test_break_even_is_where_the_cost_falls_below_no_cache(lifetime: str, one_first: int, prewarm: int) -> None:
    burst = plan_burst(SONNET, Calls(10, 20_000), lifetime=lifetime)
    assert (burst.break_even_one_first, burst.break_even_prewarm) == (one_first, prewarm)
    for fewest, name in ((one_first, ONE_FIRST), (prewarm, PREWARMED)):
        for calls, better in ((fewest, True), (fewest - 1, False)):
            found = cents(plan_burst(SONNET, Calls(calls, 20_000), lifetime=lifetime))
            assert (found[name] < found[NO_CACHE]) is better


def test_workspaces_multiply_what_is_written() -> None:
    one, four = (cents(plan_burst(SONNET, Calls(12, 20_000, workspaces=count))) for count in (1, 4))
    assert four[ONE_FIRST] - one[ONE_FIRST] == pytest.approx(3 * (5 - 0.2))
    with pytest.raises(ConfigError, match="workspaces"):
        Calls(3, 20_000, workspaces=4)


@pytest.mark.parametrize(("model", "tokens", "cacheable"), [
    ("claude-opus-4-6", 2_000, False), ("claude-opus-4-6", 5_000, True), ("claude-opus-5-5", 2_000, True),
])  # fmt: skip
def test_under_the_minimum_no_order_caches(model: str, tokens: int, cacheable: bool) -> None:
    burst = plan_burst(find_model(model), Calls(10, tokens))
    assert burst.is_cacheable is cacheable
    costs = cents(burst)
    assert (costs[ONE_FIRST] < costs[NO_CACHE]) is cacheable
    assert (costs[AT_ONCE] == pytest.approx(costs[NO_CACHE])) is not cacheable


def test_what_is_not_shared_costs_the_same_in_every_order() -> None:
    bare, full = (cents(plan_burst(SONNET, Calls(10, 20_000, *rest))) for rest in ((), (1_000, 100)))
    more = {round(full[name] - bare[name], 9) for name in bare}
    assert more == {10 * (1_000 * 2 + 100 * 10) / 1e4}


def test_times_to_the_last_first_token() -> None:
    speed = Speed(prefill_tokens_per_s=10_000, overhead_s=0.5, answer_s=4, concurrency=4)
    times = {
        order.name: order.last_first_token_s for order in plan_burst(SONNET, Calls(10, 20_000), speed=speed).orders
    }
    assert times[NO_CACHE] == times[AT_ONCE] == pytest.approx(2 * (2.5 + 4) + 2.5)
    assert times[ONE_FIRST] == pytest.approx(2.5 + 2 * (0.5 + 4) + 0.5)
    free = {order.name: order.last_first_token_s for order in plan_burst(SONNET, Calls(10, 20_000)).orders}
    assert free[AT_ONCE] < free[ONE_FIRST] == free[PREWARMED]


def test_a_batch_of_one_with_the_longest_lifetime_comes_first() -> None:
    orders = {order.name: order for order in plan_batch(SONNET, Calls(10, 20_000))}
    plain, marked, first = orders.values()
    assert plain.best_usd == plain.worst_usd == pytest.approx(0.20)
    assert (marked.best_usd, marked.worst_usd) == pytest.approx((0.025 + 9 * 0.001, 0.25))
    assert (first.best_usd, first.worst_usd) == pytest.approx((0.04 + 9 * 0.001, 0.04 + 9 * 0.025))
    with pytest.raises(ConfigError, match="tiers"):
        plan_batch(find_model("deepseek-v4-pro"), Calls(10, 20_000))


@pytest.mark.parametrize("provider", providers(), ids=lambda provider: provider.name)
def test_laws_for_every_model(provider) -> None:  # noqa: ANN001
    for model in provider.models:
        for mode in model.modes:
            burst = plan_burst(model, Calls(50, 200_000, 100, 10), mode=mode.name)
            costs = cents(burst)
            assert costs[ONE_FIRST] <= costs[PREWARMED] <= costs[AT_ONCE] + costs[NO_CACHE]
            assert costs[NO_CACHE] <= costs[AT_ONCE]
            assert all(order.best_usd <= order.usd <= order.worst_usd for order in burst.orders)
            assert burst.to_dict()["best"] in costs


@pytest.mark.parametrize(
    "given",
    [
        {"requests": 0}, {"requests": 10**13}, {"requests": 1.5}, {"shared_tokens": -1}, {"own_tokens": -1},
        {"miss_probability": 1.1}, {"miss_probability": float("nan")}, {"output_tokens": True},
    ],
)  # fmt: skip
def test_impossible_calls(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        Calls(**({"requests": 10, "shared_tokens": 1_000} | given))  # type: ignore[arg-type]


def test_a_trillion_calls_are_priced_at_once() -> None:
    burst = plan_burst(SONNET, Calls(10**12, 20_000), speed=Speed(concurrency=1))
    assert burst.best.usd == pytest.approx(10**12 * 0.002, rel=1e-6)
