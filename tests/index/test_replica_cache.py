"""The simulated truth through its public door: the rules of a paged engine, and of the coarser model of entries."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.errors import ConfigError
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.sim.replica import Admitted, EntryCache, NoRoom, ReplicaCache

BLOCK = 4
PATHS = st.lists(st.sampled_from([1, 1, 1, 2]), max_size=10)


def prompt(path: list[int] | str, rest: int = 0) -> BlockHashes:
    """One block per step, all its tokens alike, then the beginning of another block."""
    steps = list(map(int, path))
    return hash_blocks([step for step in steps for _ in range(BLOCK)] + [9] * rest, BLOCK)


def admitted(outcome: Admitted | NoRoom) -> Admitted:
    assert isinstance(outcome, Admitted)
    return outcome


def test_a_hit_leaves_the_last_token_to_compute() -> None:
    cache = ReplicaCache(None, BLOCK)
    assert cache.serve(prompt("123"), prompt("123")) == 0
    assert cache.hit(prompt("123")) == 8
    assert cache.hit(prompt("123", 1)) == 12
    assert cache.hit(prompt("1")) == 0
    assert cache.hit(prompt("", 3)) == 0


def test_three_turns_compute_only_what_is_new() -> None:
    cache = ReplicaCache(None, 1)
    computed = []
    for tokens in (200, 250, 310):
        request = hash_blocks(np.arange(tokens), 1)
        computed.append(tokens - cache.serve(request, request))
    assert computed == [200, 50, 60]


def test_the_least_recently_used_goes_first_and_the_tail_before_the_head() -> None:
    cache = ReplicaCache(6 * BLOCK, BLOCK)
    cache.serve(prompt("1122"), prompt("1122"))
    assert cache.serve(prompt("1133"), prompt("1133")) == 8
    assert (len(cache), cache.cached_tokens) == (6, 24)
    cache.serve(prompt("5"), prompt("5"))
    assert cache.hit(prompt("1122", 1)) == 12
    assert cache.hit(prompt("1133", 1)) == 16
    assert cache.evicted_blocks == 1


def test_running_requests_keep_their_blocks() -> None:
    cache = ReplicaCache(4 * BLOCK, BLOCK)
    first = admitted(cache.start(prompt("11", 2)))
    assert (cache.running, cache.pinned_tokens, len(cache)) == (1, 12, 2)
    refused = cache.start(prompt("222"))
    assert isinstance(refused, NoRoom)
    assert (refused.needed_blocks, refused.available_blocks) == (3, 1)
    assert (cache.running, cache.pinned_tokens, len(cache), cache.evicted_blocks) == (1, 12, 2, 0)
    second = admitted(cache.start(prompt("1", 1)))
    assert second.hit_tokens == 4
    assert cache.pinned_tokens == 16
    assert isinstance(cache.grow(first.request, prompt("1112", 1)), NoRoom)
    assert cache.grow(first.request, prompt("111")) is None
    cache.abort(second.request)
    finished = cache.finish(first.request, prompt("11122"))
    assert (finished.stored, finished.dropped) == (1, 1)
    assert (cache.running, cache.pinned_tokens, len(cache)) == (0, 0, 4)


def test_a_prompt_that_never_fits_is_counted_and_changes_nothing() -> None:
    cache = ReplicaCache(2 * BLOCK, BLOCK)
    cache.serve(prompt("1"), prompt("1"))
    assert cache.serve(prompt("111"), prompt("111")) == 4
    assert (cache.refused, len(cache), cache.running) == (1, 1, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.abort(7), "request 7"),
        (lambda c: c.finish(7, prompt("1")), "request 7"),
        (lambda c: c.finish(0, prompt("12")), "context.*request 0"),
        (lambda c: c.grow(0, prompt("2")), "context.*request 0"),
        (lambda c: c.serve(prompt("3"), prompt("4")), "context.*request 1"),
        (lambda c: c.hit(hash_blocks([1], 16)), "block size.* 4 .* 16"),
        (lambda _: ReplicaCache(10, 0), "block size.*1..=65536.* 0"),
    ],
)
def test_mistakes_leave_the_cache_as_it_was(call: Any, message: str) -> None:
    cache = ReplicaCache(None, BLOCK)
    cache.start(prompt("11"))
    with pytest.raises(ConfigError, match=message):
        call(cache)
    assert (cache.running, cache.pinned_tokens) == (1, 8)
    assert cache.finish(0, prompt("112")).stored == 1


def test_a_reset_spares_what_runs() -> None:
    cache = ReplicaCache(None, BLOCK)
    cache.serve(prompt("111"), prompt("111"))
    running = admitted(cache.start(prompt("1", 1)))
    cache.clear()
    assert (len(cache), cache.pinned_tokens) == (1, 8)
    cache.abort(running.request)
    cache.clear()
    assert len(cache) == 0
    assert bool(cache) is True


@given(capacity=st.integers(1, 12), turns=st.lists(st.tuples(PATHS, PATHS, st.integers(0, 3)), max_size=30))
def test_events_tell_what_is_held(capacity: int, turns: list[tuple[list[int], list[int], int]]) -> None:
    cache = ReplicaCache(capacity * BLOCK, BLOCK, record_events=True)
    held: set[int] = set()
    for path, output, rest in turns:
        hit = cache.serve(prompt(path, rest), prompt(path + output))
        expected = 0
        for block in prompt(path).array.tolist():
            if block not in held:
                break
            expected += BLOCK
        assert hit == min(expected, max(0, len(path) * BLOCK + rest - 1) // BLOCK * BLOCK)
        for event in cache.take_events():
            blocks = event.blocks.tolist()
            if event.kind == "stored":
                assert event.parent is None or event.parent in held
                assert held.isdisjoint(blocks)
                held.update(blocks)
            else:
                assert held.issuperset(blocks)
                held.difference_update(blocks)
        assert len(cache) == len(held) <= capacity
    assert cache.take_events() == []


def test_entries_are_whole_and_a_shared_head_stays() -> None:
    cache = EntryCache(10_000)
    assert cache.serve("a", 2_200, 2_600, 2_000) == 0
    assert cache.serve("b", 2_200, 2_600, 2_000) == 2_000
    assert cache.hit("a", 2_800, 2_000) == 2_600
    assert cache.serve("a", 2_800, 3_200, 2_000) == 2_600
    assert (len(cache), cache.cached_tokens) == (2, 7_800)
    assert cache.serve("c", 2_200, 2_600, 2_000) == 2_000
    assert (len(cache), cache.evicted_entries) == (2, 1)
    assert cache.hit("b", 2_800, 2_000) == 2_000
    cache.clear()
    assert (len(cache), cache.cached_tokens, bool(cache)) == (0, 0, True)


def test_documents_have_no_shared_head() -> None:
    cache = EntryCache(40_000)
    for name in ("a", "b", "a", "c", "b"):
        cache.serve(name, 16_100, 16_000)
    assert [cache.hit(name, 16_100) for name in ("a", "b", "c")] == [0, 16_000, 16_000]
    assert EntryCache(1_000).serve("too big", 2_000, 2_000) == 0


def test_what_has_state_refuses_to_be_copied() -> None:
    for cache in (ReplicaCache(), EntryCache()):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(cache)
