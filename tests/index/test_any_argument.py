"""Whatever is passed to whatever call: an answer or one of our errors, never a crash, and the object still works."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.errors import PrefixRouteError
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.index import PrefixIndex
from prefixroute.sim.replica import EntryCache, ReplicaCache
from prefixroute.types import Namespace

ALLOWED = (PrefixRouteError, TypeError, UnicodeEncodeError)

integers = st.integers(-(2**70), 2**70) | st.integers(-2, 20) | st.sampled_from([2**31, 2**32 - 1, 2**32, 2**63, 2**64])
scalars = st.none() | st.booleans() | integers | st.floats() | st.text(max_size=4) | st.binary(max_size=70)
dtypes = st.sampled_from(
    ["u1", "i1", "<u2", ">u4", "<u4", "i8", "<u8", ">i8", "f4", "f8", "O", "U1", "?", "c8", "M8[s]"]
)
arrays = st.builds(
    lambda data, dtype, step: np.zeros(len(data), dtype=dtype)[::step],
    st.lists(st.none(), max_size=40),
    dtypes,
    st.sampled_from([1, 2, -1]),
)
buffers = st.builds(array, st.sampled_from("bBhHiIqQfd"), st.lists(st.integers(0, 9), max_size=40))
hashes = st.builds(hash_blocks, st.lists(st.integers(0, 9), max_size=40), st.sampled_from([4, 16]))
namespaces = st.builds(Namespace, model=scalars, lora=scalars, extra=st.lists(st.tuples(integers, scalars), max_size=3))
sequences = st.lists(scalars, max_size=40) | st.lists(st.integers(0, 9), max_size=40)
anything = st.one_of(
    scalars,
    sequences,
    arrays,
    buffers,
    hashes,
    namespaces,
    st.just("a"),
    st.tuples(integers),
    st.dictionaries(st.text(max_size=1), scalars, max_size=1),
)

INDEX_CALLS = [
    "add_replica", "remove_replica", "clear", "set_capacity", "match", "match_many", "match_hashes", "hash_and_match",
    "match_media", "insert", "insert_many", "retract", "touch", "pin", "unpin", "apply_stored", "apply_removed",
    "apply_cleared", "apply", "expire", "from_bytes",
]  # fmt: skip
KEYWORDS = st.dictionaries(
    st.sampled_from(["namespace", "out", "now", "token_ids", "parent", "medium", "capacity_tokens", "sequence"]),
    anything,
    max_size=3,
)


def attempt(call: Any, *args: Any, **kwargs: Any) -> None:
    try:
        call(*args, **kwargs)
    except ALLOWED as error:
        assert str(error)  # noqa: PT017 (any of several, or none)


@given(calls=st.lists(st.tuples(st.sampled_from(INDEX_CALLS), st.lists(anything, max_size=4), KEYWORDS), max_size=6))
def test_index(calls: list[tuple[str, list[Any], dict[str, Any]]]) -> None:
    index = PrefixIndex(block_size=4, capacity_tokens=100)
    index.add_replica("a")
    for name, args, kwargs in calls:
        for each in (args, ["a", *args]):
            attempt(getattr(index, name), *each, **kwargs)
    if "a" in index.replicas:
        index.remove_replica("a")
    slot = index.add_replica("a")
    index.insert("a", [1, 2, 3, 4], now=1e12)
    assert index.match([1, 2, 3, 4])[slot] == 4


@given(
    args=st.lists(anything, max_size=3),
    kwargs=st.dictionaries(st.sampled_from(["token_count", "block_size", "namespace"]), anything),
)
def test_hashing(args: list[Any], kwargs: dict[str, Any]) -> None:
    for call in (hash_blocks, BlockHashes, hash_blocks([1] * 40).head):
        attempt(call, *args, **kwargs)


@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(["hit", "start", "grow", "finish", "abort", "serve", "clear"]),
            st.lists(anything | hashes | st.integers(0, 3), max_size=4),
        ),
        max_size=6,
    )
)
def test_caches(calls: list[tuple[str, list[Any]]]) -> None:
    blocks, entries = ReplicaCache(100, 4), EntryCache(100)
    for name, args in calls:
        attempt(getattr(blocks, name), *args)
        if hasattr(entries, name):
            attempt(getattr(entries, name), *args)
    assert len(blocks) <= 25
    assert entries.cached_tokens >= 0


SETTINGS = ["block_size", "capacity_tokens", "max_bytes", "ttl_s", "provisional_s"]


@pytest.mark.parametrize("make", [PrefixIndex, ReplicaCache, EntryCache])
@given(values=st.dictionaries(st.sampled_from(SETTINGS), anything))
def test_settings(make: Any, values: dict[str, Any]) -> None:
    attempt(make, **values)
