"""From truth to belief: what each path knows, when, and what it can never know."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np
import pytest

from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.hashing import BlockHashes
from prefixroute.policies import View
from prefixroute.router import Router
from prefixroute.sim import EngineModel, Events, History, Perfect, Scenario, simulate
from prefixroute.sim.observe import EventFeed, PerfectBelief
from prefixroute.sim.stores import BlockStore
from prefixroute.types import Replica
from prefixroute.workload import Request, Workload, chat, fan_out

BLOCK = 16


def request(blocks: int, *, first: int = 1, arrival: float = 0.0, session: str | None = None) -> Request:
    hashes = BlockHashes(np.arange(first, first + blocks), token_count=blocks * BLOCK + 1, block_size=BLOCK)
    return Request(arrival, hashes, hashes, blocks * BLOCK + 1, 1, session=session)


def held(router: Router, asked: Request) -> list[int]:
    view = router.choose(asked.prompt).view
    return list(view.hits)


def fed(*, replicas: int = 1) -> Router:
    """Return a router whose replicas have declared that they send events."""
    return Router({f"r{i}": Replica(events=True) for i in range(replicas)}, clock=lambda: 0.0, policy="round-robin")


def test_perfect_belief_is_the_truth_at_the_moment_of_the_match() -> None:
    truth = {"a": BlockStore(None, BLOCK), "b": BlockStore(None, BLOCK)}
    belief = PerfectBelief(BLOCK, truth)
    router = Router(list(truth), index=belief)
    truth["b"].serve(request(3))
    belief.request = request(5)
    assert held(router, request(5)) == [0, 3 * BLOCK]


def test_events_arrive_late_in_order_and_with_their_delay() -> None:
    store, pending, router = BlockStore(None, BLOCK, record_events=True), [], fed()
    model, truth = Events(delay_s=2.0), {"r0": store}
    feed = EventFeed([router], model, truth, lambda at, *call: pending.append((at, call)), seed=0)
    store.serve(request(4))
    feed.send("r0", store, store.take_events(), now=1.0)
    assert held(router, request(4)) == [0]
    for at, (action, *arguments) in pending:
        assert at == 3.0
        action(*arguments)
    assert held(router, request(4)) == [4 * BLOCK]


def test_a_removed_block_ends_the_match_where_it_was() -> None:
    store, router = BlockStore(4 * BLOCK, BLOCK, record_events=True), fed()
    feed = EventFeed([router], Events(), {"r0": store}, lambda *_: None, seed=0)
    store.serve(request(3))
    store.serve(request(2, first=100))
    feed.send("r0", store, store.take_events(), now=0.0)
    assert held(router, request(3)) == [store.hit(request(3))]
    assert store.hit(request(3)) < 3 * BLOCK


def test_an_event_of_an_earlier_life_says_nothing_about_the_new_one() -> None:
    old, pending, router = BlockStore(None, BLOCK, record_events=True), [], fed()
    truth = {"r0": old}
    feed = EventFeed(
        [router], Events(delay_s=1.0), truth, lambda _, action, *rest: pending.append((action, rest)), seed=0
    )
    old.serve(request(4))
    feed.send("r0", old, old.take_events(), now=0.0)
    truth["r0"] = BlockStore(None, BLOCK, record_events=True)
    for action, arguments in pending:
        action(*arguments)
    assert held(router, request(4)) == [0]


PROMPT = BlockHashes(np.arange(1, 251), token_count=4_000, block_size=BLOCK)


def best_hits_of_four_equal_prompts(observe: Events | History) -> list[int]:
    seen: list[int] = []

    def longest(view: View) -> tuple[int, str]:
        seen.append(max(view.hits))
        return view.hits.index(seen[-1]), "longest"

    four = [Request(0.01 * number, PROMPT, PROMPT, 4_000, 1) for number in range(4)]
    scenario = Scenario(policy=longest, replicas=4, observe=observe, engine=EngineModel(CostModel()))
    simulate(Workload("four", BLOCK, lambda: iter(four), 4), scenario)
    return seen


@pytest.mark.parametrize("delay_s", [0.0, 1.0])
def test_a_simulated_router_believes_what_it_has_just_routed_as_in_production(delay_s: float) -> None:
    """The first of the four has not reached its first token when the last is routed: no event has come."""
    now = 0.0
    router = Router({f"r{i}": Replica(events=True) for i in range(4)}, clock=lambda: now)
    tickets, production = [], []
    for _ in range(4):
        now += 0.01
        tickets.append(router.route(PROMPT))
        production.append(tickets[-1].decision.best_hit_tokens)
    assert production == [0, 3_984, 3_984, 3_984]
    assert best_hits_of_four_equal_prompts(Events(delay_s=delay_s)) == production


FIXED = "cache-aware:adaptive=false:fallback=power-of-two"
"""The rule that follows matches only: bindings, which keep sessions together without any belief, are not looked at."""


def test_events_of_requests_that_arrive_together_are_no_worse_than_history() -> None:
    """The requests of a group are equal and arrive at one instant: only what was just routed can keep them together."""
    engine = EngineModel(CostModel())
    ratios = [
        simulate(
            fan_out(1, requests=600),
            Scenario(policy=FIXED, load="in_flight", observe=observe, engine=engine, seed=1),
        ).outcome.recompute_ratio
        for observe in (Events(), History())
    ]
    assert ratios[0] == pytest.approx(ratios[1], abs=0.001)
    assert ratios[0] == pytest.approx(0.1332, abs=0.001)


def test_a_look_into_the_caches_is_no_upper_bound() -> None:
    """Caches do not hold yet what waits before them, which the history of routing knows."""
    engine = EngineModel(CostModel())
    perfect, history = (
        simulate(
            fan_out(1, requests=200), Scenario(policy=FIXED, load="in_flight", observe=observe, engine=engine, seed=1)
        ).outcome.recompute_ratio
        for observe in (Perfect(), History())
    )
    assert perfect > 1.5 * history


def test_all_events_lost_is_no_belief_and_none_lost_is_the_truth() -> None:
    workload = chat(1, requests=3_000)
    ratios = [
        simulate(workload, Scenario(policy=FIXED, replicas=4, observe=observe)).outcome.recompute_ratio
        for observe in (Perfect(), Events(), Events(loss=0.3), Events(loss=1.0))
    ]
    perfect, events, lossy, blind = ratios
    assert events == pytest.approx(perfect, abs=0.005)
    assert perfect < lossy < blind


def test_history_knows_no_more_than_it_sent() -> None:
    """A cache that something else fills, or that forgets, is invisible to routing history."""

    def once_more() -> Iterator[Request]:
        yield from (request(40, session="s") for _ in range(3))

    workload = Workload("thrice", BLOCK, once_more, 3)
    small = Scenario(replicas=1, capacity_tokens=16 * BLOCK, observe=History(), policy="cache-aware")
    run = simulate(workload, small)
    assert run.log.column("hit").tolist() == [0, 0, 0]  # the prompt is larger than the cache


@pytest.mark.parametrize(("name", "value"), [("delay_s", -1.0), ("delay_s", inf), ("loss", 1.1), ("loss", -0.1)])
def test_impossible_events_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"event.*{value}"):
        Events(**{name: value})
