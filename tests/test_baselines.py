"""A bench against a rival that answers wrongly says nothing: the baselines give the right answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("xxhash", reason="the baselines need the dependency group `bench`")

import baselines

PROMPT = list(range(100, 100 + 16 * 40 + 7))
FORK = PROMPT[: 16 * 10] + [7] * 16 * 30


def _dict_store(index: baselines.DictBaseline, replica: int, tokens: Sequence[int]) -> None:
    index.store(replica, index.hash(tokens))


def _dynamo_store(index: baselines.DynamoRadixTree, replica: int, tokens: Sequence[int]) -> None:
    index.apply(replica, index.stored_event(index.hash(tokens)))


@pytest.fixture(params=["dict", "dynamo"])
def rival(request: pytest.FixtureRequest) -> tuple[Any, Callable[..., None]]:
    if request.param == "dict":
        return baselines.DictBaseline(3), _dict_store
    pytest.importorskip("dynamo.llm", reason="the Dynamo baseline needs the dependency group `bench`")
    return baselines.DynamoRadixTree(3), _dynamo_store


def test_tokens_held_of_hits_forks_and_misses(rival: tuple[Any, Callable[..., None]]) -> None:
    index, store = rival
    store(index, 0, PROMPT)
    store(index, 1, PROMPT[: 16 * 25])
    store(index, 2, FORK)
    assert index.match(PROMPT) == [640, 400, 160]
    assert index.match(np.array(PROMPT, dtype=np.uint32)) == [640, 400, 160]
    assert index.match(FORK) == [160, 160, 640]
    assert index.match(PROMPT[:24]) == [16, 16, 16]
    assert index.match([5] * 64) == [0, 0, 0]
    assert index.match(PROMPT[:15]) == [0, 0, 0]
    for prompt in (PROMPT, FORK):
        assert index.match_hashes(index.hash(prompt)) == index.match(prompt)


def test_removal_of_a_dict_entry_per_replica() -> None:
    index = baselines.DictBaseline(2)
    hashes = index.hash(PROMPT)
    index.store(0, hashes)
    index.store(1, hashes)
    index.remove(0, hashes[8:])
    assert index.match(PROMPT) == [128, 640]
    index.remove(1, hashes)
    index.remove(0, hashes)
    assert index.match(PROMPT) == [0, 0]


def test_removal_of_a_chain_s_tail_in_dynamo() -> None:
    pytest.importorskip("dynamo.llm", reason="the Dynamo baseline needs the dependency group `bench`")
    index = baselines.DynamoRadixTree(2)
    hashes = index.hash(PROMPT)
    index.apply(0, index.stored_event(hashes))
    index.apply(1, index.stored_event(hashes))
    index.apply(0, index.removed_event(hashes, first=8))
    assert index.match(PROMPT) == [128, 640]


def test_chained_names_differ_where_a_prefix_differs() -> None:
    assert baselines.engine_hashes([]) == []
    left, right = baselines.engine_hashes([1, 2, 3]), baselines.engine_hashes([9, 2, 3])
    assert len(set(left) | set(right)) == 6
