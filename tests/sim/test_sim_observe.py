"""From truth to belief: what each path knows, when, and what it can never know."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from prefixroute.errors import ConfigError
from prefixroute.hashing import BlockHashes
from prefixroute.sim import Events, History, Perfect, Scenario, simulate
from prefixroute.sim.observe import EventBelief, EventFeed, PerfectBelief
from prefixroute.sim.stores import BlockStore
from prefixroute.workload import Request, Workload, chat

BLOCK = 16


def request(blocks: int, *, first: int = 1, arrival: float = 0.0, session: str | None = None) -> Request:
    hashes = BlockHashes(np.arange(first, first + blocks), token_count=blocks * BLOCK + 1, block_size=BLOCK)
    return Request(arrival, hashes, hashes, blocks * BLOCK + 1, 1, session=session)


def held(belief: EventBelief | PerfectBelief, asked: Request) -> list[int]:
    out = np.zeros(2, np.uint32)
    if isinstance(belief, PerfectBelief):
        belief.request = asked
    belief.hash_and_match(asked.prompt, out)
    return out.tolist()


def test_perfect_belief_is_the_truth_at_the_moment_of_the_match() -> None:
    truth = {"a": BlockStore(None, BLOCK), "b": BlockStore(None, BLOCK)}
    belief = PerfectBelief(BLOCK, truth)
    assert [belief.add_replica(name) for name in truth] == [0, 1]
    truth["b"].serve(request(3))
    assert held(belief, request(5)) == [0, 3 * BLOCK]


def test_events_arrive_late_in_order_and_with_their_delay() -> None:
    store, pending = BlockStore(None, BLOCK, record_events=True), []
    belief = EventBelief(BLOCK)
    belief.add_replica("a")
    feed = EventFeed([belief], Events(delay_s=2.0), {"a": store}, lambda at, *call: pending.append((at, call)), seed=0)
    store.serve(request(4))
    feed.collect("a", store, now=1.0)
    assert held(belief, request(4))[0] == 0
    for at, (action, *arguments) in pending:
        assert at == 3.0
        action(*arguments)
    assert held(belief, request(4))[0] == 4 * BLOCK


def test_a_removed_block_ends_the_match_where_it_stood() -> None:
    store, belief = BlockStore(4 * BLOCK, BLOCK, record_events=True), EventBelief(BLOCK)
    belief.add_replica("a")
    feed = EventFeed([belief], Events(), {"a": store}, lambda *_: None, seed=0)
    store.serve(request(3))
    store.serve(request(2, first=100))
    feed.collect("a", store, now=0.0)
    assert held(belief, request(3))[0] == store.hit(request(3)) < 3 * BLOCK


def test_an_event_of_an_earlier_life_says_nothing_about_the_new_one() -> None:
    old, truth, pending = BlockStore(None, BLOCK, record_events=True), {}, []
    belief = EventBelief(BLOCK)
    belief.add_replica("a")
    truth["a"] = old
    feed = EventFeed(
        [belief], Events(delay_s=1.0), truth, lambda _, action, *rest: pending.append((action, rest)), seed=0
    )
    old.serve(request(4))
    feed.collect("a", old, now=0.0)
    truth["a"] = BlockStore(None, BLOCK, record_events=True)
    for action, arguments in pending:
        action(*arguments)
    assert held(belief, request(4))[0] == 0


def test_all_events_lost_is_no_belief_and_none_lost_is_the_truth() -> None:
    workload = chat(1, requests=3_000)
    ratios = [
        simulate(workload, Scenario(replicas=4, observe=observe)).outcome.recompute_ratio
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
    assert run.log.column("hit").tolist() == [0, 0, 0], "the prompt is larger than the cache: the truth never hits"


@pytest.mark.parametrize("given", [{"delay_s": -1.0}, {"delay_s": float("inf")}, {"loss": 1.1}, {"loss": -0.1}])
def test_impossible_events_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="event"):
        Events(**given)


def test_ordered_mode_refuses_a_delay_and_entries_refuse_events() -> None:
    with pytest.raises(ConfigError, match="no clock"):
        Scenario(observe=Events(delay_s=1.0))
    with pytest.raises(ConfigError, match="use cache 'blocks'"):
        Scenario(observe=Events(), cache="entries")
