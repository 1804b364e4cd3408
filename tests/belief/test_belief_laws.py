"""The laws of every belief.

The index, the reference model of the router's tests, and the simulator's look into its caches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest

from fake_belief import COUNTERS, FakeBelief
from prefixroute.belief import Belief
from prefixroute.errors import UnknownReplicaError
from prefixroute.hashing import BlockHashes
from prefixroute.index import IndexStats, PrefixIndex
from prefixroute.router import Router
from prefixroute.sim.observe import PerfectBelief
from prefixroute.sim.stores import BlockStore

BLOCK = 16
EMPTY_BATCH = msgpack.packb([1.5, []])
Make = Callable[..., Belief]


def perfect(**_: float | None) -> Belief:
    return PerfectBelief(BLOCK, {name: BlockStore(None, BLOCK) for name in "abcd"})


def index(**lifetimes: float | None) -> Belief:
    return PrefixIndex(block_size=BLOCK, **lifetimes)  # type: ignore[arg-type]  # seconds


def fake(**lifetimes: float | None) -> Belief:
    return FakeBelief(BLOCK, **lifetimes)


EVERY = pytest.mark.parametrize("make", [index, fake, perfect], ids=lambda make: make.__name__)
PREDICTING = pytest.mark.parametrize("make", [index, fake], ids=lambda make: make.__name__)


def hashed(blocks: int, *, first: int = 1) -> BlockHashes:
    return BlockHashes(np.arange(first, first + blocks), token_count=blocks * BLOCK, block_size=BLOCK)


def held(belief: Belief, prompt: Any, slots: int = 1) -> list[int]:
    out = np.full(slots, 77, np.uint32)
    belief.hash_and_match(prompt, out)
    assert belief.match_media(prompt).sum(axis=1).tolist() == out.tolist()
    return out.tolist()


@pytest.fixture
def one(make: Make) -> Belief:
    belief = make()
    belief.add_replica("a")
    return belief


@EVERY
def test_every_belief_has_the_whole_protocol_and_serves_a_router(make: Make) -> None:
    belief = make()
    assert isinstance(belief, Belief)
    assert belief.block_size == BLOCK
    router = Router(["a", "b"], index=belief, policy="cache-aware")
    for _ in range(3):
        router.route(hashed(4)).finish(output=hashed(6))
    assert len(router.stats()["replicas"]) == 2
    assert "prefixroute_index_blocks" in router.metrics_text()


def test_a_belief_that_lacks_a_method_is_refused_when_the_router_is_made() -> None:
    class Partial:
        block_size = BLOCK

        def hash_and_match(self, *_: object) -> None:
            """Be the only method."""

    with pytest.raises(ValueError, match=r"index.*PrefixIndex.*Partial"):
        Router(["a"], index=Partial())  # type: ignore[arg-type]


@EVERY
def test_the_lowest_free_slot_is_given_first(make: Make) -> None:
    belief = make()
    assert [belief.add_replica(name) for name in "abc"] == [0, 1, 2]
    belief.remove_replica("b")
    belief.remove_replica("a")
    assert [belief.add_replica(name) for name in "da"] == [0, 1]
    assert held(belief, hashed(2), 3) == [0, 0, 0]
    assert len(belief.held_tokens()) == 3


@EVERY
@pytest.mark.parametrize(
    "call",
    [
        lambda belief: belief.remove_replica("x"),
        lambda belief: belief.clear("x"),
        lambda belief: belief.set_capacity("x", 10),
        lambda belief: belief.insert("x", hashed(1)),
        lambda belief: belief.expect_events("x"),
        lambda belief: belief.apply_stored("x", [1], token_ids=list(range(BLOCK))),
        lambda belief: belief.apply_stored_hashes("x", [1]),
        lambda belief: belief.apply_removed("x", [1]),
        lambda belief: belief.apply_cleared("x"),
        lambda belief: belief.apply("x", EMPTY_BATCH),
    ],
)
def test_an_unknown_replica_is_refused(one: Belief, call: Callable[[Belief], object]) -> None:
    with pytest.raises(UnknownReplicaError, match=r"named ['\"]x['\"]"):
        call(one)
    assert one.held_tokens() == [0]


@EVERY
def test_counters_are_those_of_an_index(one: Belief) -> None:
    one.expire(1.0)
    stats = one.stats()
    assert isinstance(stats, IndexStats)
    assert set(stats.to_dict()) == set(COUNTERS)


@PREDICTING
def test_what_is_inserted_is_held_until_it_is_retracted_cleared_or_evicted(one: Belief) -> None:
    assert one.insert("a", hashed(4)).held_before == 0
    booked = one.insert("a", hashed(6))
    assert booked.held_before == 4
    assert held(one, hashed(9)) == [6 * BLOCK]
    assert one.held_tokens() == [6 * BLOCK]
    one.retract("a", hashed(6), booked)
    assert held(one, hashed(9)) == [4 * BLOCK]
    one.set_capacity("a", 3 * BLOCK)
    assert held(one, hashed(9)) == [3 * BLOCK]
    one.new_epoch()
    assert held(one, hashed(9)) == [0]


@PREDICTING
def test_events_confirm_add_and_remove(one: Belief) -> None:
    one.insert("a", hashed(2))
    one.apply_stored_hashes("a", hashed(3).array)
    one.apply_stored_hashes("a", hashed(5).array[3:], parent=3)
    assert held(one, hashed(9)) == [5 * BLOCK]
    one.apply_stored_hashes("a", [9, 10], parent=8)
    assert held(one, hashed(12)) == [5 * BLOCK]  # the block before is not known: what follows it waits or is lost
    one.apply_removed("a", [3])
    assert held(one, hashed(9)) == [2 * BLOCK]
    one.apply_cleared("a")
    assert held(one, hashed(9)) == [0]


@PREDICTING
def test_token_events_meet_prompts_of_the_same_tokens(one: Belief) -> None:
    tokens = list(range(4 * BLOCK))
    one.apply_stored("a", [901, 902], token_ids=tokens[: 2 * BLOCK])
    one.apply_stored("a", [903], parent=902, token_ids=tokens[2 * BLOCK : 3 * BLOCK])
    assert held(one, tokens) == [3 * BLOCK]
    one.apply_removed("a", [903, 902])
    assert held(one, tokens) == [BLOCK]


@PREDICTING
def test_batches_of_events_are_the_events(one: Belief) -> None:
    tokens = list(range(2 * BLOCK))
    stored = {"type": "BlockStored", "block_hashes": [7, 8], "parent_block_hash": None, "token_ids": tokens}
    assert not one.apply("a", msgpack.packb([1.5, [{**stored, "block_size": BLOCK, "medium": "GPU"}]])).tiered
    assert held(one, tokens) == [2 * BLOCK]
    one.apply("a", msgpack.packb([1.5, [{"type": "BlockRemoved", "block_hashes": [8], "medium": "GPU"}], 0]))
    assert held(one, tokens) == [BLOCK]
    one.apply("a", msgpack.packb([1.5, [{"type": "AllBlocksCleared"}]]))
    assert held(one, tokens) == [0]


@PREDICTING
@pytest.mark.parametrize("provisional_s", [0.5, 30.0])
def test_belief_at_a_replica_with_events_is_provisional(make: Make, provisional_s: float) -> None:
    belief = make(provisional_s=provisional_s)
    for name in ("fed", "declared", "plain"):
        belief.add_replica(name)
    belief.apply_stored_hashes("fed", [1])
    belief.expect_events("declared")
    for name in ("fed", "declared", "plain"):
        belief.insert(name, hashed(3), now=10.0)
    belief.expire(10.0 + provisional_s * 0.99)
    assert held(belief, hashed(3), 3) == [3 * BLOCK] * 3
    belief.expire(10.0 + provisional_s)
    assert held(belief, hashed(3), 3) == [BLOCK, 0, 3 * BLOCK]


@PREDICTING
def test_every_belief_can_end_with_time(make: Make) -> None:
    belief = make(ttl_s=5.0)
    belief.add_replica("a")
    belief.insert("a", hashed(3), now=1.0)
    belief.expire(5.9)
    assert held(belief, hashed(3)) == [3 * BLOCK]
    belief.expire(6.0)
    assert held(belief, hashed(3)) == [0]
