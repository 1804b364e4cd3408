"""The Router's own options: each one does what its line says."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.index import PrefixIndex
from prefixroute.policies import CacheAware, MinTtft, Policy, PrebleE2, Scores, View
from prefixroute.router import Decision, Router
from prefixroute.types import EMPTY_ATTRS, Namespace, Timing

Make = Callable[..., Router]
TOKENS = list(range(2_000))


def watched(make_router: Make, **options: Any) -> tuple[Router, list[View]]:
    """Return a router of two replicas, and the views that its policy gets."""
    seen: list[View] = []

    def watch(view: View) -> int:
        seen.append(view)
        return view.slots[0]

    return make_router(2, policy=watch, **options), seen


def test_a_policy_sees_what_the_caller_said(make_router: Make) -> None:
    router, seen = watched(make_router, seed=7)
    space = Namespace(model="m", lora="l")
    router.choose(
        TOKENS, session="s", key="k", namespace=space, priority=3, slo_ttft_s=0.5, max_tokens=64, attrs={"tenant": "t"}
    )
    view = seen[-1]
    assert tuple(view.request) == ("s", "k", space, 3, 0.5, 64, {"tenant": "t"})
    assert (view.decision_id, view.seed, view.prompt_tokens, view.names) == (0, 7, 2_000, ("r0", "r1"))
    router.choose(TOKENS)
    assert (seen[-1].decision_id, seen[-1].request.attrs) == (1, EMPTY_ATTRS)


def test_signals_follow_the_life_of_a_request(make_router: Make, clock: Any) -> None:
    router, seen = watched(make_router, cost=CostModel(), timing=Timing(window_s=60.0))
    ticket = router.route(TOKENS)
    router.choose(TOKENS)
    view = seen[-1]
    spent = CostModel().prefill_seconds(2_000, 0)
    assert (view.in_flight, view.queued, view.decoding, view.recent) == ([1, 0], [2_000, 0], [0, 0], [1, 0])
    assert (view.held, view.last_miss, view.rates) == ([2_000, 0], [0, -1], [None, None])
    assert view.window_s == [pytest.approx(spent), 0.0]
    assert view.head is not None
    clock.now = 2.0
    ticket.first_token()
    router.choose(TOKENS)
    view = seen[-1]
    assert (view.in_flight, view.queued, view.decoding, view.rates) == ([1, 0], [0, 0], [2_000, 0], [1_000.0, None])
    clock.now = 61.0
    ticket.finish()
    router.choose([1, 2, 3])
    view = seen[-1]
    assert (view.in_flight, view.decoding, view.window_s, view.head) == ([0, 0], [0, 0], [0.0, 0.0], None)


def test_only_what_a_policy_reads_is_gathered(make_router: Make) -> None:
    seen: list[View] = []

    class Watch(Policy):
        name = "watch"
        signals = frozenset({"queued"})

        def decide(self, view: View) -> Scores:
            seen.append(view)
            return Scores([0.0] * len(view.slots), "watched")

    make_router(2, policy=Watch()).choose(TOKENS)
    assert seen[0].queued == [0, 0]
    assert seen[0].in_flight is seen[0].reports is seen[0].head is seen[0].window_s is None


def test_belief_may_have_a_lifetime_and_a_budget() -> None:
    now = [0.0]
    router = Router(["a"], ttl_s=60.0, clock=lambda: now[0])
    router.route(TOKENS).finish()
    now[0] = 59.0
    assert router.choose(TOKENS).hit_tokens == 1_984
    now[0] = 62.0
    assert router.choose(TOKENS).hit_tokens == 0
    small = Router(["a"], max_bytes=1 << 20, capacity_tokens=1 << 40)
    for i in range(600):
        small.route([100_000 * i + j for j in range(2_000)]).finish()
    assert small.stats()["index"]["reserved_bytes"] <= 1 << 20
    assert small.choose([100_000 * 599 + j for j in range(2_000)]).hit_tokens == 1_984


def test_a_sync_that_the_byte_budget_has_no_room_for_changes_nothing() -> None:
    router = Router(["a", "b"], max_bytes=10_240)
    with pytest.raises(ConfigError, match=r"max_bytes.* \d+ .*40 replicas.*10240"):
        router.sync([f"r{i}" for i in range(40)])
    assert router.replicas == ("a", "b")
    with pytest.raises(ConfigError, match="max_bytes"):
        Router(["a"], max_bytes=1_000)


def test_capacity_bounds_what_is_believed() -> None:
    router = Router(["a"], capacity_tokens=1_600)
    router.route(TOKENS).finish()
    assert router.choose(TOKENS).hit_tokens == 1_600


def test_documents_are_told_by_attribute_or_head(make_router: Make) -> None:
    router = make_router(16, policy="document")
    by_name = {router.choose([i] * 2_000, attrs={"document": "manual"}).replica for i in range(20)}
    by_head = {router.choose(TOKENS[:1_024] + [i] * 50).replica for i in range(20)}
    apart = {router.choose([i] * 2_000).replica for i in range(20)}
    assert (len(by_name), len(by_head)) == (1, 1)
    assert len(apart) > 3


def test_time_may_be_given_with_each_call(make_router: Make) -> None:
    router = make_router(2, policy="session", timing=Timing(session_idle_s=10.0, ticket_s=20.0))
    ticket = router.route(TOKENS, session="s", now=100.0)
    assert router.choose(TOKENS, session="s", now=109.0).reason == "primary"
    assert router.choose(TOKENS, session="s", now=111.0).reason == "assigned"
    ticket.first_token(now=115.0)
    router.choose(TOKENS, now=134.0)
    assert ticket.open
    router.choose(TOKENS, now=136.0)
    assert not ticket.open


def test_a_router_says_what_it_is(make_router: Make) -> None:
    router = make_router(2, policy="session")
    ticket = router.route(TOKENS, key="k")
    assert repr(router).split() == ["<Router", "policy=session", "replicas=2", "in_flight=1>"]
    assert repr(ticket) == f"<Ticket '{ticket.replica}' open key='k'>"
    assert (ticket.key, ticket.hit_tokens, ticket.decision.policy) == ("k", 0, "session")


def test_a_policy_that_answers_nonsense_is_named(make_router: Make) -> None:
    router = make_router(2, policy=lambda _: 9)
    with pytest.raises(ConfigError, match=r"9.*\(0, 1\)"):
        router.route(TOKENS)
    assert router.stats()["in_flight"] == 0


@pytest.mark.parametrize(
    "answer",
    [
        None, "r0", True, 1.0, (True, "x"), (1.0, "x"), ("1", "x"), ([], "x"), (0,), (0, "x", 0), (0, 1, 2), {0, 1},
        ["a", "b"], [None, None], [1j, 2], [1.0, nan], [nan, 1.0], [Decimal("NaN"), 1], Scores([nan, 1], "x", 1.0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("plain", [True, False])
def test_an_answer_of_no_known_form_is_refused_and_books_nothing(
    make_router: Make, answer: Any, *, plain: bool
) -> None:
    class Odd(Policy):
        def decide(self, view: View) -> Any:
            del view
            return answer

    router = make_router(2, policy=(lambda _: answer) if plain else Odd())
    with pytest.raises(ConfigError, match="policy '"):
        router.route(TOKENS)
    assert router.stats()["in_flight"] == 0


@pytest.mark.parametrize("answer", [np.int64(1), (np.uint8(1), "x"), [-inf, 10**400], [-inf, inf]])
def test_slots_and_scores_may_be_numbers_of_any_class(make_router: Make, answer: Any) -> None:
    router = make_router(2, policy=lambda _: answer)
    assert router.route(TOKENS).replica == "r1"


def test_a_call_may_come_from_inside_of_a_call(make_router: Make) -> None:
    class Finalized:
        def __del__(self) -> None:
            router.finish("first")

    class Id:
        def __index__(self) -> int:
            inner.append(router.choose(TOKENS))
            return 7

    def rule(view: View) -> int:
        Finalized()
        return view.slots[0]

    inner: list[Decision] = []
    router = make_router(2, policy=rule, index=PrefixIndex())
    first = router.route(TOKENS, key="first")
    second = router.route([*TOKENS, Id()])
    assert (first.open, second.open, len(inner)) == (False, True, 1)
    assert router.stats()["in_flight"] == 1


def test_hit_tokens_are_counted_by_medium() -> None:
    router = Router(["a"], policy=CacheAware(min_match_tokens=16))
    router.apply_stored("a", [1, 2], parent=None, token_ids=TOKENS[:32])
    router.apply_stored("a", [3], parent=2, token_ids=TOKENS[32:48], medium="CPU_PINNED")
    router.route(TOKENS)
    assert router.stats()["hit_tokens"] == 48
    for medium, tokens in (("GPU", 32), ("CPU", 16)):
        assert f'prefixroute_hit_tokens_total{{replica="a",medium="{medium}"}} {tokens}\n' in router.metrics_text()
    router.remove_replica("a")
    assert 'prefixroute_hit_tokens_total{replica="",medium="CPU"} 16\n' in router.metrics_text()


def test_tiers_count_by_their_credits() -> None:
    options = {"policy": CacheAware(min_match_tokens=16)}
    plain, tiered = Router(["gpu", "cpu"], **options), Router(["gpu", "cpu"], tier_credits=(1.0, 0.5, 0.0), **options)
    for router in (plain, tiered):
        router.apply_stored("gpu", [1, 2], parent=None, token_ids=list(range(32)))
        router.apply_stored("cpu", [1, 2, 3], parent=None, token_ids=list(range(48)), medium="CPU")
    assert (plain.choose(TOKENS).replica, plain.choose(TOKENS).hit_tokens) == ("cpu", 48)
    decision = tiered.choose(TOKENS)
    assert (decision.replica, decision.hit_tokens, decision.view.hits) == ("gpu", 32, [32, 24])
    for wrong in ((1.0, 0.5), (1.0, 2.0, 0.0)):
        with pytest.raises(ConfigError, match=r"tier_credits.*GPU, CPU"):
            Router(tier_credits=wrong)  # type: ignore[arg-type]


def test_a_seed_may_be_any_whole_number_and_a_cost_anything_that_prices_prefill() -> None:
    """What numpy calls an integer draws as Python's does, and a policy needs no more of a cost than the router."""

    class Flat:
        def prefill_seconds(self, new_tokens: int, cached_tokens: int = 0) -> float:
            return 1e-4 * new_tokens

    for policy in (MinTtft(cost=Flat()), PrebleE2(cost=Flat()), "power-of-two"):  # type: ignore[arg-type]
        picks = [
            [Router(["a", "b", "c"], policy=policy, seed=seed).choose(list(range(64))).replica for _ in range(3)]
            for seed in (2, np.int64(2))
        ]
        assert picks[0] == picks[1]


def test_a_rate_is_never_infinite() -> None:
    router = Router(["a"], policy="min-ttft", clock=lambda: 0.0)
    for _ in range(2):
        ticket = router.route(list(range(4_000)), now=0.0)
        ticket.first_token(now=5e-324)
        ticket.finish(now=1.0)
    assert router.choose([1, 2, 3]).replica == "a"


@pytest.mark.parametrize(
    ("block_size", "shared", "hit"),
    [(1_536, 6_144, 6_144), (2_096, 1_900, 0), (2_096, 2_100, 2_096), (2_096, 4_300, 4_192)],
)
def test_blocks_of_engines_for_hybrid_models(make_router: Make, block_size: int, shared: int, hit: int) -> None:
    router = make_router(1, block_size=block_size)
    with router.route(list(range(10_000))):
        pass
    assert router.choose([*range(shared), *range(50_000, 60_000)]).hit_tokens == hit
