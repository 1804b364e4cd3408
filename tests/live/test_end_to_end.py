"""Router, subscriber and four fake engines through the chat workload.

What the router believes is what the engines hold.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import httpx
import msgpack
import numpy as np
import numpy.typing as npt
import pytest

from prefixroute import EventError, Namespace, Replica, Router, UnknownReplicaError
from prefixroute.live import FollowOptions, KvFeed
from prefixroute.replay import Prediction, PromptMaker, Replayed, ReplaySettings, predict, replay
from prefixroute.sim import EngineModel, Events, Scenario
from prefixroute.testing import Behaviour, EngineSettings, EventPublisher, FakeEngine, PlainCost
from prefixroute.workload import ChatShape, Even, Workload, chat
from waiting import until

CAPACITY = 4_000
"""Tokens that an engine holds: four of them hold less than the chats in progress, so that blocks are evicted."""
SPEED = 10.0
DRAWS = 24
Floats = npt.NDArray[np.float64]
PREFILL_S_PER_1K, DECODE_S = 0.5, 0.02
SHAPE = ChatShape(system_tokens=200, user_tokens=60, answer_tokens=24, turns=6, slots=24)
QUICK = FollowOptions(reconnect_s=0.01, reconnect_max_s=0.05, replay_timeout_s=0.5, audit_s=0.1)


@pytest.fixture
def engines(form: str) -> Iterator[list[FakeEngine]]:
    settings = EngineSettings(format=form, capacity_tokens=CAPACITY, speed=SPEED)
    # And every seventh batch is lost on its way.
    behaviour = Behaviour(prefill_s_per_1k=PREFILL_S_PER_1K, decode_s=DECODE_S, drop_events=7)
    with ExitStack() as stack:
        yield [stack.enter_context(FakeEngine(settings, behaviour)) for _ in range(4)]


def late(workload: Workload, delays: Floats) -> Workload:
    """The same requests, each later by so many seconds."""
    moved = sorted(
        (
            request._replace(arrival_s=request.arrival_s + delay)
            for request, delay in zip(workload.requests(), delays, strict=True)
        ),
        key=lambda request: request.arrival_s,
    )
    return replace(workload, source=lambda: iter(moved), volatile=None, is_parsed=False)


def simulated(workload: Workload, measured: Replayed) -> list[Prediction]:
    """What the simulator makes of the same requests at the same replicas, as often as :data:`DRAWS`.

    Ties between replicas fall by the seed. Each request is late as it was, and by one of the latenesses of all requests
    more: answers are late like requests, and the router hears of them by then. One request that a busy machine held up
    for long is one of 240, and does not make every draw late.
    """
    settings = measured.settings
    scenario = Scenario(engine=EngineModel(PlainCost(PREFILL_S_PER_1K, DECODE_S)), observe=Events())
    delays = np.array([settings.speed * (row.sent_s - row.due_s) for row in measured.rows])
    found = []
    for seed in range(DRAWS):
        more = np.random.default_rng(seed).choice(delays, len(delays))
        given = replace(settings, speed=1.0, seed=seed)
        found.append(predict(late(workload, delays + more), given, scenario).rows[0])
    return found


@pytest.mark.parametrize(
    ("policy", "form"), [("cache-aware", "vllm"), ("cache-aware", "sglang"), ("session", "vllm"), ("lmetric", "sglang")]
)
def test_what_the_router_believes_is_what_every_engine_holds(engines: list[FakeEngine], policy: str) -> None:
    # Arrivals on the engines' clock, which runs faster than ours.
    workload = chat(5, requests=240, arrivals=Even(20.0), shape=SHAPE)
    urls = tuple(engine.url for engine in engines)
    chosen = ReplaySettings(
        endpoints=urls, policies=(policy,), capacity_tokens=CAPACITY, dictate=True, reset=False, speed=SPEED
    )
    router = chosen.router(policy)
    feeds = {engine.url: engine.feed for engine in engines}
    with router.follow(feeds, options=QUICK):
        measured = asyncio.run(replay(workload, chosen, make_router=lambda _: router))

        maker = PromptMaker(workload.block_size)
        prompts = [maker.make(request, number).tokens for number, request in enumerate(workload.requests())]

        def settled() -> bool:
            told = router.stats()["replicas"].values()
            return all(not one["feed"]["degraded"] and one["feed"]["waiting"] == 0 for one in told)

        def agrees() -> bool:
            held = dict(zip(router.replicas, router.index.held_tokens(), strict=True))
            return all(held[engine.url] == engine.core.held_tokens for engine in engines) and all(
                router.choose(prompt, candidates=[engine.url]).hit_tokens == engine.core.hit(prompt.tolist())
                for prompt in prompts
                for engine in engines
            )

        # A lost last batch is noticed only when its engine has been silent for a while: then it is asked for.
        until(lambda: settled() and agrees())
        stats = router.stats()["replicas"]
        assert 'prefixroute_feed_total{replica="' in router.metrics_text()
    assert not measured.figures[0].errors
    assert all(one["feed"]["lost"] == 0 for one in stats.values())
    assert sum(one["feed"]["filled"] for one in stats.values()) > 0
    assert sum(one["feed"]["events"]["removed"] for one in stats.values()) > 0
    expected = simulated(workload, measured)
    ratios = [one.recompute_ratio for one in expected]
    # A draw like the others leaves their range by less than the range itself, but for one in a thousand.
    spread = max(ratios) - min(ratios)
    assert spread < 0.08
    assert min(ratios) - spread <= (measured.figures[0].recompute_ratio or 0.0) <= max(ratios) + spread
    if policy == "session":  # sessions are placed by the replicas' names, which the simulation has too
        assert {one.skew for one in expected} == {measured.figures[0].skew}


def test_a_replica_that_leaves_is_not_followed_any_more() -> None:
    with EventPublisher() as a, EventPublisher() as b:
        router = Router(["a", "b"])
        feeds = {"a": KvFeed(a.endpoint, a.replay), "b": KvFeed(b.endpoint, b.replay)}
        with router.follow(feeds, options=QUICK) as subscriber:
            router.sync(["a"])
            until(lambda: set(subscriber.stats()) == {"a"})
            router.remove_replica("a")
            until(lambda: subscriber.stats() == {})


def test_feeds_of_unknown_replicas_and_routers_of_text_are_refused() -> None:
    feeds = {"x": KvFeed("tcp://127.0.0.1:1")}
    with pytest.raises(UnknownReplicaError):
        Router(["a"]).follow(feeds)
    with pytest.raises(EventError):
        Router(["x"], prompt_kind="text").follow(feeds)
    with pytest.raises(UnknownReplicaError):
        Router(["a"]).poll({"x": "http://127.0.0.1:1"})


def _stored(first: int, **fields: Any) -> bytes:
    event = {
        "type": "BlockStored",
        "block_hashes": [first],
        "parent_block_hash": None,
        "token_ids": list(range(first, first + 16)),
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    }
    return msgpack.packb([1.5, [event | fields], None])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "tokenizer"),
        ({"lora_name": "sql"}, "lora"),
        ({"extra_keys": [["tenant"]]}, "salt"),
        ({"token_ids": [], "block_size": 0}, "hashes_only"),
        ({"token_ids": list(range(8)), "block_size": 8}, "block_size"),
    ],
)
def test_events_that_match_nothing_are_told_with_the_likely_reason(fields: dict[str, Any], reason: str) -> None:
    with EventPublisher() as publisher:
        router = Router(["a"])
        with router.follow({"a": KvFeed(publisher.endpoint, publisher.replay)}, options=QUICK):
            for number in range(1_100):
                publisher.publish(_stored(16 * number, **fields))
            until(lambda: router.stats()["replicas"]["a"]["feed"]["applied"] == 1_100)
            found = router.stats()["replicas"]["a"]["nothing_matches"]
            assert found is not None
            assert found["reason"] == reason
            metrics = router.metrics_text()
            assert 'prefixroute_nothing_matches{replica="a"} 1' in metrics
            assert f'prefixroute_nothing_matches_reason{{replica="a",reason="{reason}"}} 1' in metrics


@pytest.mark.parametrize("odd", [_stored(1, block_hashes="abc"), _stored(1, lora_name="sql"), _stored(1, token_ids=[])])
def test_an_odd_batch_does_not_hide_the_reason(odd: bytes) -> None:
    with EventPublisher() as publisher:
        router = Router(["a"])
        with router.follow({"a": KvFeed(publisher.endpoint, publisher.replay)}, options=QUICK):
            for number in range(1_000):
                publisher.publish(_stored(16 * number))
            publisher.publish(odd)
            until(lambda: router.stats()["replicas"]["a"]["feed"]["applied"] >= 1_001)
            # The last one asks for the buffer again, and the replica is empty until it has come.
            until(lambda: (router.stats()["replicas"]["a"]["nothing_matches"] or {}).get("reason") == "tokenizer")
            assert 'prefixroute_nothing_matches{replica="a"} 1' in router.metrics_text()


@pytest.mark.parametrize(("batches", "raised"), [(1, False), (3, False), (4, True)])
def test_a_few_large_batches_do_not_say_that_nothing_matches(batches: int, raised: bool) -> None:
    ids = list(range(16_000))
    with EventPublisher() as publisher:
        router = Router(["a"])
        with router.follow({"a": KvFeed(publisher.endpoint, publisher.replay)}, options=QUICK):
            for number in range(batches):
                first = 1 + 1_000 * number
                tokens = [1_000_000 * number + token for token in ids]
                publisher.publish(_stored(1, block_hashes=list(range(first, first + 1_000)), token_ids=tokens))
            until(lambda: router.stats()["replicas"]["a"]["feed"]["applied"] == batches)
            assert (router.stats()["replicas"]["a"]["nothing_matches"] is not None) is raised


def test_batches_of_another_rank_are_counted() -> None:
    with EventPublisher() as publisher:
        router = Router(["a"])
        with router.follow({"a": KvFeed(publisher.endpoint, publisher.replay)}, options=QUICK):
            for rank in (None, 0, 1, 1):
                publisher.publish(msgpack.packb([1.5, [], rank]))
            until(lambda: router.stats()["replicas"]["a"]["feed"]["applied"] == 4)
            feed = router.stats()["replicas"]["a"]["feed"]
            assert (feed["wrong_rank"], re.findall(r"\d", feed["note"])) == (2, ["1", "0"])


def test_case_14_a_block_whose_removal_overtakes_its_store_stays_gone() -> None:
    removed = msgpack.packb([1.5, [{"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU"}], None])
    with EventPublisher() as publisher:
        router = Router(["a"])
        with router.follow({"a": KvFeed(publisher.endpoint, publisher.replay)}, options=QUICK) as subscriber:
            publisher.wait_for_subscriber()
            publisher.publish(_stored(1))
            publisher.publish(_stored(2), "drop")
            publisher.publish(_stored(7, token_ids=list(range(16))), "drop")
            publisher.publish(removed)
            until(lambda: subscriber.stats()["a"]["applied"] == 4)
            assert router.index.match(list(range(16))).tolist() == [0]
            assert router.index.held_tokens() == [32]


@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_an_index_that_lost_the_parents_of_new_blocks_is_read_again(block_size: int) -> None:
    prompt = list(range(96))
    with EventPublisher() as publisher:
        router = Router(["a"], block_size=block_size)
        with router.follow({"a": KvFeed(publisher.endpoint, publisher.replay)}, options=QUICK):
            for number in range(5):
                tokens, parent = prompt[16 * number : 16 * (number + 1)], number or None
                publisher.publish(_stored(number + 1, token_ids=tokens, parent_block_hash=parent))
            until(lambda: router.index.match(prompt).tolist() == [80 // block_size * block_size])
            router.clear("a")
            publisher.publish(_stored(6, token_ids=prompt[80:], parent_block_hash=5))
            until(lambda: router.index.match(prompt).tolist() == [96])
            assert router.stats()["replicas"]["a"]["feed"]["rebuilds"] == 1


def test_a_feed_sets_the_capacity_of_a_replica_that_was_given_none() -> None:
    router = Router({"a": None, "b": Replica(capacity_tokens=7_000)}, capacity_tokens=1_000)
    feeds = {name: KvFeed("tcp://127.0.0.1:1", capacity_tokens=5_000) for name in "ab"}
    with router.follow(feeds, options=QUICK):
        assert router.replica("a").capacity_tokens == 5_000
        assert router.replica("b").capacity_tokens == 7_000


def test_case_19_ranks_are_replicas_of_their_own() -> None:
    prompts = {0: list(range(32)), 1: list(range(100, 132))}
    with EventPublisher() as zero, EventPublisher() as one:
        router = Router({f"a#{rank}": Replica(address="http://a", rank=rank) for rank in prompts})
        feeds = {"a#0": KvFeed(zero.endpoint, zero.replay), "a#1": KvFeed(one.endpoint, one.replay)}
        with router.follow(feeds, options=QUICK):
            for publisher, tokens in ((zero, prompts[0]), (one, prompts[1])):
                publisher.publish(_stored(1, block_hashes=[1, 2], token_ids=tokens))
            until(lambda: router.index.held_tokens() == [32, 32])
            assert router.index.match(prompts[0]).tolist() == [32, 0]
            assert router.index.match(prompts[1]).tolist() == [0, 32]
            router.remove_replica("a#0")
            assert router.index.match(prompts[1]).tolist()[1] == 32


def test_a_ticket_tells_the_engine_its_rank() -> None:
    router = Router({"a#1": Replica(address="http://a", rank=1), "b": None})
    assert router.route([1] * 100, candidates=["a#1"]).headers() == {"X-data-parallel-rank": "1"}
    assert router.route([1] * 100, candidates=["b"]).headers() == {}


def test_adapters_and_salts_of_events_meet_the_requests_namespaces() -> None:
    with FakeEngine(EngineSettings(adapters=("sql",)), Behaviour(0, 0)) as engine:
        router = Router([engine.url], capacity_tokens=300_000)
        prompt = list(range(64))
        with router.follow({engine.url: engine.feed}, options=QUICK):
            body = {"prompt": prompt, "max_tokens": 1, "model": "sql", "cache_salt": "t"}
            httpx.post(f"{engine.url}/v1/completions", json=body, trust_env=False).raise_for_status()
            wanted = Namespace(lora="sql", salt="t")
            until(lambda: router.choose(prompt, namespace=wanted).hit_tokens == 48)
            assert router.choose(prompt).hit_tokens == 0
            assert router.choose(prompt, namespace=Namespace(lora="sql")).hit_tokens == 0


def _store(block: int) -> bytes:
    return msgpack.packb([0.0, [["BlockStored", [block], None, [block] * 16, 16, None, "GPU"]], None])


def test_a_replica_that_is_cleared_beside_its_feed_is_read_again() -> None:
    router = Router({"a": Replica(incarnation="1")}, block_size=16)
    with EventPublisher() as engine:

        def held() -> list[int]:
            return [block for block in range(40) if router.choose([block] * 16 + [0]).hit_tokens]

        with router.follow({"a": KvFeed(engine.endpoint, engine.replay)}, options=QUICK) as subscriber:
            engine.wait_for_subscriber()
            for number, clear in enumerate(
                (
                    lambda: None,
                    lambda: router.sync({"a": Replica(incarnation="2")}),
                    lambda: router.clear("a"),
                    router.clear,
                )
            ):
                clear()
                for block in range(5 * number, 5 * number + 5):
                    engine.publish(_store(block))
                until(lambda count=5 * number + 5: held() == list(range(count)))  # type: ignore[misc]
            until(lambda: not subscriber.stats()["a"]["degraded"])
            assert not subscriber.stats()["a"]["partial"]
            assert subscriber.stats()["a"]["rebuilds"] == 3
