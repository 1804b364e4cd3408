"""Batches of KV events as engines send them: from bytes to what matches, one kind of event after the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import lcm
from typing import Any

import msgpack
import pytest

from prefixroute import limits
from prefixroute.errors import ConfigError, EventError, UnknownReplicaError
from prefixroute.index import PrefixIndex
from prefixroute.types import Namespace

IDS = list(range(1, 33))
MOST_WAITING = 65_536  # blocks in the orphan buffer, of all replicas
FULL = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
SLIDING = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 8}
CLEARED = {"type": "AllBlocksCleared"}


def stored(hashes: Sequence[Any], ids: Sequence[Any], size: int = 4, parent: Any = None, **more: Any) -> dict[str, Any]:
    event = {"type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": parent, "token_ids": list(ids)}
    return {**event, "block_size": size, "lora_id": None, "medium": "GPU", "lora_name": None, **more}


def removed(*hashes: Any, **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU", **more}


def packed(*events: Any) -> bytes:
    return bytes(msgpack.packb([1.5, list(events), 0]))


@pytest.fixture
def index() -> PrefixIndex:
    index = PrefixIndex(block_size=4)
    index.add_replica("a")
    return index


def match(index: PrefixIndex, ids: Sequence[int] = IDS, **options: Any) -> int:
    return int(index.match(list(ids), **options)[0])


def media(index: PrefixIndex) -> list[int]:
    tokens: list[int] = index.match_media(IDS)[0].tolist()
    return tokens


def test_a_batch_is_applied_in_order(index: PrefixIndex) -> None:
    done = index.apply("a", packed(stored([1, 2], IDS[:8]), stored([3], IDS[8:12], parent=2), removed(3)))
    assert (done.timestamp, done.rank, done.events, done.refused, done.reasons) == (1.5, 0, 3, 0, [])
    assert (done.stored, done.removed, match(index)) == (3, 1, 8)
    done = index.apply("a", packed(CLEARED, stored([1], IDS[:4])))
    assert (done.cleared, match(index)) == (1, 4)
    assert index.feed_stats("a").to_dict() == dict.fromkeys(index.feed_stats("a").to_dict(), 0) | {
        "batches": 2,
        "events": 5,
    }


@pytest.mark.parametrize(
    "hashes", [[5, 6], [-5, -6], [2**64 - 1, 2**63], [-(2**63), 2**63 - 1], [bytes(24) + b"12345678", b"abcdefghi" * 2]]
)
def test_hashes_are_numbers_of_either_sign_or_bytes(index: PrefixIndex, hashes: list[Any]) -> None:
    index.apply("a", packed(stored(hashes, IDS[:8])))
    assert match(index) == 8
    assert index.apply("a", packed(removed(hashes[1]))).removed == 1
    assert match(index) == 4


def test_events_may_be_arrays_of_any_length(index: PrefixIndex) -> None:
    short = ["BlockStored", [1], None, IDS[:4], 4]
    long = ["BlockStored", [2], 1, IDS[4:8], 4, None, "cpu", None, [None], 0, "full_attention", None, None, None, 9, {}]
    done = index.apply("a", packed(short, long))
    assert (done.refused, media(index)) == (0, [4, 4, 0])
    index.apply("a", packed(["BlockRemoved", [2], "CPU", 0, None, None, "later"], ["BlockRemoved", [1]]))
    assert match(index) == 0
    assert index.apply("a", packed(["AllBlocksCleared"])).cleared == 1


def test_a13_a_second_store_is_a_second_copy(index: PrefixIndex) -> None:
    index.add_replica("full", reuse_reports=True)
    for name in ("a", "full"):
        index.apply(name, packed(stored([1, 2], IDS[:8]), stored([1, 2], IDS[:8]), removed(2)))
    assert index.match(IDS).tolist() == [8, 4]


@pytest.mark.parametrize(("copies", "left"), [(65_534, 0), (65_535, 4), (65_537, 4)])
@pytest.mark.parametrize("size", [2, 4])
def test_copies_beyond_the_most_that_are_counted_are_never_taken_for_none(
    index: PrefixIndex, *, copies: int, left: int, size: int
) -> None:
    names = [1, 2] if size == 2 else [2]
    index.apply("a", packed(*[stored(names, IDS[:4], size)] * copies))
    done = index.apply("a", packed(removed(*[2] * (copies - 1))))
    assert (done.unknown, match(index)) == (0, 4)
    index.apply("a", packed(removed(2)))
    assert match(index) == left
    index.apply("a", packed(CLEARED))
    assert len(index) == 0


def test_copies_of_a_window_beyond_the_most_that_are_counted_stay(index: PrefixIndex) -> None:
    index.apply("a", packed(stored([1], IDS[:4], **FULL), *[stored([1], IDS[:4], **SLIDING)] * 65_537))
    index.apply("a", packed(removed(*[1] * 65_536, group_idx=1)))
    assert match(index) == 4


def test_blocks_that_fill_no_block_of_the_index_are_counted_until_others_do(index: PrefixIndex) -> None:
    done = index.apply("a", packed(stored([1], IDS[:2], 2)))
    assert (done.stored, done.unfilled) == (0, 1)
    done = index.apply("a", packed(stored([2], IDS[2:4], 2, parent=1)))
    assert (done.stored, done.unfilled) == (1, 0)
    assert match(index) == 4


def test_a14_a_store_without_content_says_that_a_block_is_on_that_tier_too(index: PrefixIndex) -> None:
    on_cpu = {"medium": "CPU", "group_idx": 0}
    done = index.apply("a", packed(stored([1, 2], IDS[:8], **FULL), stored([1], [], 0, **on_cpu), removed(1, 2)))
    assert (done.copies, done.removed, media(index)) == (1, 2, [0, 4, 0])
    done = index.apply("a", packed(stored([9], [], 0, **on_cpu), stored([9], [], 4, **on_cpu)))
    assert (done.placeless, done.refused, index.feed_stats("a").placeless) == (2, 0, 2)
    index.apply("a", packed(removed(1, medium="cpu", group_idx=0)))
    assert match(index) == 0


MARKS = [
    ({"lora_name": "x"}, Namespace(lora="x")),
    ({"cache_salt": "s"}, Namespace(salt="s")),
    ({"extra_keys": [["s"]]}, Namespace(salt="s")),
]


@pytest.mark.parametrize(("more", "space"), MARKS)
@pytest.mark.parametrize("medium", ["CPU", "cpu", "STORAGE", "EXTERNAL", "tape"])
@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("behind", [False, True])
def test_a_block_keeps_what_its_name_stands_for(
    index: PrefixIndex, *, more: dict[str, Any], space: Namespace, medium: str, size: int, behind: bool
) -> None:
    """A connector tells of another tier without adapter, salt and media."""
    names = list(range(1, 16 // size + 1))
    told = names[1:] if behind else names
    index.apply("a", packed(stored(names, IDS[:16], size, **more)))
    plain = stored(told, IDS[16 - len(told) * size : 16], size, parent=1 if behind else None, medium=medium)
    assert index.apply("a", packed(plain)).refused == 0
    assert (match(index, namespace=space), match(index)) == (16, 0)
    index.apply("a", packed(removed(*names)))
    assert sum(index.match_media(IDS, namespace=space)[0].tolist()) == (0 if behind and size >= 4 else 16)
    index.apply("a", packed(removed(*told, medium=medium)))
    assert (match(index, namespace=space), match(index), len(index)) == (0, 0, 0)


def test_a_block_keeps_its_media(index: PrefixIndex) -> None:
    """Also in the middle of a prompt, where the parent alone says nothing of them."""
    image = Namespace(extra=((4, "img"),))
    index.apply("a", packed(stored([1, 2, 3], IDS[:12], extra_keys=[None, [["img", 0]], None])))
    index.apply("a", packed(stored([2, 3], IDS[4:12], parent=1, medium="cpu"), removed(2, 3)))
    assert index.match_media(IDS, namespace=image)[0].tolist() == [4, 8, 0]
    assert match(index) == 4


def test_blocks_behind_a_known_one_are_of_its_kind(index: PrefixIndex) -> None:
    """Also where the event says that they start a prompt, and where their parent is unknown."""
    lora = Namespace(lora="x")
    index.apply("a", packed(stored([1, 2], IDS[:8], lora_name="x"), stored([1, 2, 3], IDS[:12], medium="cpu")))
    assert (match(index, namespace=lora), match(index)) == (12, 0)
    done = index.apply("a", packed(stored([2, 4], IDS[4:12], parent=77, medium="cpu")))
    assert (done.orphaned, done.copies, match(index, namespace=lora)) == (0, 2, 12)
    index.apply("a", packed(removed(1, 2)))
    assert media(index) == [0, 0, 0]
    assert index.match_media(IDS, namespace=lora)[0].tolist() == [0, 12, 0]


def test_what_the_gpu_says_of_a_block_corrects_what_a_connector_said(index: PrefixIndex) -> None:
    lora = Namespace(lora="x")
    index.apply("a", packed(stored([1, 2], IDS[:8], medium="cpu")))
    assert match(index) == 8  # nobody has said more yet
    index.apply("a", packed(stored([1, 2], IDS[:8], lora_name="x")))
    assert (match(index), match(index, namespace=lora)) == (0, 8)
    index.apply("a", packed(removed(2, 1)))
    assert index.match_media(IDS, namespace=lora)[0].tolist() == [0, 8, 0]
    index.apply("a", packed(removed(2, 1, medium="cpu")))
    assert (len(index), index.stats().event_names) == (0, 0)


@pytest.mark.parametrize("first", [False, True], ids=["connector-first", "window-first"])
def test_what_the_gpu_says_of_a_block_corrects_windows_too(index: PrefixIndex, *, first: bool) -> None:
    names = range(1, 9)
    events = [stored(names, IDS, medium="CPU", **FULL), stored(names, IDS, lora_name="x", **SLIDING)]
    index.apply("a", packed(*(reversed(events) if first else events)))
    index.apply("a", packed(stored(names, IDS, lora_name="x", **FULL)))
    assert (match(index, namespace=Namespace(lora="x")), match(index)) == (32, 0)
    index.apply("a", packed(removed(8, group_idx=1)))
    assert match(index, namespace=Namespace(lora="x")) == 28


def test_a_store_without_adapter_of_a_block_on_the_gpu_is_a_copy_of_it(index: PrefixIndex) -> None:
    index.apply("a", packed(stored([1], IDS[:4], lora_name="x"), stored([1], IDS[:4])))
    assert (match(index), match(index, namespace=Namespace(lora="x"))) == (0, 4)
    index.apply("a", packed(removed(1), removed(1)))
    assert len(index) == 0


def test_a15_media_are_open_words_in_any_case(index: PrefixIndex) -> None:
    index.apply("a", packed(stored([1], IDS[:4], medium="cpu"), stored([1], IDS[:4], medium="tape")))
    assert (media(index), index.feed_stats("a").unknown_media) == ([0, 4, 0], 1)
    index.apply("a", packed(removed(1, medium="DISK"), removed(1, medium="CPU")))
    assert media(index) == [0, 0, 4]  # a removal from a disk leaves the tape
    index.apply("a", packed(removed(1, medium="Tape")))
    assert match(index) == 0


@pytest.mark.parametrize("medium", ["GPU", "CPU", "STORAGE", "EXTERNAL"])
def test_owners_of_a_medium_have_copies_of_their_own(index: PrefixIndex, medium: str) -> None:
    ours, theirs = {"medium": medium}, {"medium": medium, "ownership": "tier-7"}
    index.apply("a", packed(stored([1], IDS[:4], **ours)))
    assert index.apply("a", packed(removed(1, **theirs))).unknown == 1
    assert match(index) == 4
    index.apply("a", packed(stored([1], IDS[:4], **theirs), removed(1, **ours)))
    assert index.apply("a", packed(removed(1, **ours))).unknown == 1
    assert match(index) == 4
    index.apply("a", packed(removed(1, **theirs)))
    assert (match(index), len(index)) == (0, 0)


def test_a16_a_hash_is_a_key_within_its_group(index: PrefixIndex) -> None:
    index.apply("a", packed(stored([1, 2], IDS[:8], **FULL), stored([1, 2], IDS[:8], group_idx=2)))
    done = index.apply("a", packed(removed(1, 2, group_idx=2)))
    assert (done.removed, done.unknown, match(index)) == (0, 0, 8)
    assert index.feed_stats("a").unindexed == 2


@pytest.mark.parametrize(
    ("gone", "usable"),
    [([], 32), ([1], 32), ([8], 28), ([7], 24), ([2, 4, 6, 8], 4), (range(1, 8), 0), (range(1, 9), 0)],
)
def test_sliding_windows_bound_what_is_usable(index: PrefixIndex, gone: Sequence[int], usable: int) -> None:
    names = list(range(1, 9))
    index.apply("a", packed(stored(names, IDS, **FULL), stored(names, IDS, **SLIDING)))
    index.apply("a", packed(*[removed(name, group_idx=1) for name in gone]))
    again = PrefixIndex.from_bytes(index.to_bytes())
    for held in (index, again):
        assert match(held) == usable
        assert sum(media(held)) == usable
        assert held.match_many(IDS, [0, 32]).tolist() == [[usable]]
    again.apply("a", packed(stored([*gone], [], **SLIDING)) if gone else packed())
    assert match(again) == 32


def test_a_window_may_speak_first_and_in_larger_blocks(index: PrefixIndex) -> None:
    wide = {**SLIDING, "kv_cache_spec_sliding_window": 16}
    index.apply("a", packed(stored([2, 4, 6, 8], IDS, 8, **wide)))
    assert match(index) == 0
    index.apply("a", packed(stored(range(1, 9), IDS, **FULL)))
    assert match(index) == 32
    assert match(index, IDS[:28]) == 24  # whole blocks of both groups
    index.apply("a", packed(removed(6, group_idx=1)))
    assert match(index) == 16


WINDOW_SIZES = [
    (4, 8, 4),
    (8, 8, 4),
    (16, 8, 4),
    (4, 16, 2),
    (16, 16, 2),
    (8, 8, 1),
    (4, 8, 8),
    (16, 16, 8),
    (4, 4, 16),
    (3, 3, 2),
    (4, 3, 2),
    (16, 16, 24),
    (8, 4, 12),
]


@pytest.mark.parametrize("tokens", [1, 3, 8, 9, 16, 17, 64])
@pytest.mark.parametrize(("block_size", "full", "sliding"), WINDOW_SIZES)
@pytest.mark.parametrize("first", [False, True], ids=["full-first", "window-first"])
@pytest.mark.parametrize("own", [False, True], ids=["equal-names", "own-names"])
def test_a_window_of_any_block_size_bounds_what_is_usable(
    *, tokens: int, block_size: int, full: int, sliding: int, first: bool, own: bool
) -> None:
    """Engines name the same end alike in each group. Where names differ, the window's own tokens place its blocks."""
    ids = list(range(1, 65))
    index = PrefixIndex(block_size=block_size)
    index.add_replica("a")
    kind = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": tokens}
    ends = range(sliding, 65, sliding)
    name = {end: end + 1_000 * own for end in ends}
    last = 64 // full * full
    events = [
        stored(range(full, 65, full), ids[:last], full, **FULL),
        stored(name.values(), ids[: ends[-1]], sliding, **kind),
    ]
    index.apply("a", packed(*(reversed(events) if first else events)))
    held = set(ends)

    def usable(prompt: int) -> int:
        step = lcm(block_size, sliding)
        need = max(tokens - 1, 1)
        windows = ((end, range(end, max(0, end - need), -sliding)) for end in range(prompt // step * step, 0, -step))
        return next((end for end, window in windows if held.issuperset(window)), 0)

    for gone in (None, 64, 8, 40, 36, 48, 16, 56, 32):
        if gone in held:
            held.discard(gone)
            assert index.apply("a", packed(removed(name[gone], group_idx=1))).unknown == 0
        index = PrefixIndex.from_bytes(index.to_bytes())
        found = [match(index, ids[:prompt]) for prompt in range(65)]
        assert found == [usable(min(prompt, last) // block_size * block_size) for prompt in range(65)], gone


@pytest.mark.parametrize("size", [2, 4, 8])
def test_what_is_believed_is_believed_of_windows_too(index: PrefixIndex, size: int) -> None:
    """A decision says that the engine will hold the prompt in all of its groups. Its events bound only what they tell."""
    kind = {**SLIDING, "kv_cache_spec_sliding_window": 8}
    ends = range(size, 17, size)
    index.apply("a", packed(stored(range(4, 17, 4), IDS[:16], **FULL), stored(ends, IDS[:16], size, **kind)))
    index.insert("a", IDS)
    assert match(index) == 32
    index.apply("a", packed(removed(12, 16, group_idx=1)))
    usable = [0, 0, 8, 8, 8, 8, 24, 24, 32] if size == 8 else [0, 4, 8, 8, 8, 8, 24, 28, 32]
    assert [match(index, IDS[:end]) for end in range(0, 33, 4)] == usable


def test_a_window_has_null_blocks_before_what_it_holds(index: PrefixIndex) -> None:
    """Its names are the last blocks of the tokens: engines store what the window still needs."""
    index.apply("a", packed(stored(range(1, 9), IDS, **FULL), stored([7, 8], IDS, **SLIDING)))
    assert [match(index, IDS[:end]) for end in (32, 28, 24)] == [32, 0, 0]
    index.apply("a", packed(stored([9], [1, 2, 3, 4], parent=8, **SLIDING), stored([9], [1, 2, 3, 4], parent=8)))
    assert match(index, [*IDS, 1, 2, 3, 4]) == 36


FIRST_KEYS = [(["s"], Namespace(salt="s")), ([["img", 1]], Namespace(extra=((1, "img"),)))]


@pytest.mark.parametrize(("key", "space"), FIRST_KEYS, ids=["salt", "media"])
@pytest.mark.parametrize("first", [False, True], ids=["full-first", "window-first"])
def test_a_window_leaves_out_the_keys_of_its_null_blocks(
    index: PrefixIndex, *, key: list[Any], space: Namespace, first: bool
) -> None:
    ids = IDS[:16]
    plain = [stored([13, 14], ids, extra_keys=[None, None], **SLIDING), stored([11, 12, 13, 14], ids, **FULL)]
    keys = [key, None, None, None]
    keyed = [
        stored([3, 4], ids, extra_keys=[None, None], **SLIDING),
        stored([1, 2, 3, 4], ids, extra_keys=keys, **FULL),
    ]
    index.apply("a", packed(*(keyed if first else reversed(keyed))))
    assert (match(index, ids, namespace=space), match(index, ids)) == (16, 0)
    index.apply("a", packed(*(plain if first else reversed(plain)), removed(14, 13, group_idx=1)))
    assert (match(index, ids, namespace=space), match(index, ids)) == (16, 0)


@pytest.mark.parametrize("first", [False, True], ids=["full-first", "window-first"])
def test_a_masked_window_has_holes_anywhere(index: PrefixIndex, *, first: bool) -> None:
    one = {**SLIDING, "kv_cache_spec_sliding_window": 5}
    events = [stored([4, 6], IDS[:24], **one), stored(range(1, 7), IDS[:24], **FULL)]
    index.apply("a", packed(*(events if first else reversed(events))))
    assert [match(index, IDS[:end]) for end in (12, 16, 20, 24)] == [0, 16, 16, 24]


def test_a_masked_window_of_smaller_blocks_may_have_a_hole_between_any_two() -> None:
    index = PrefixIndex(block_size=8)
    index.add_replica("a")
    two = {**SLIDING, "kv_cache_spec_sliding_window": 9}
    index.apply("a", packed(stored(range(1, 7), IDS[:24], **FULL), stored([2, 4], IDS[:16], **two)))
    assert match(index, IDS[:16]) == 0


@pytest.mark.parametrize("first", [False, True], ids=["full-first", "window-first"])
@pytest.mark.parametrize("block_size", [4, 8])
def test_a_masked_window_of_smaller_blocks_keeps_those_before_an_end(*, block_size: int, first: bool) -> None:
    """The indexed group has no name for the ends inside of its blocks: they are those before the next name."""
    index = PrefixIndex(block_size=block_size)
    index.add_replica("a")
    two = {**SLIDING, "kv_cache_spec_sliding_window": 9}
    events = [stored([3, 4, 7, 8], IDS, **two), stored([2, 4, 6, 8], IDS, 8, **FULL)]
    index.apply("a", packed(*(events if first else reversed(events))))
    assert [match(index, IDS[:end]) for end in (8, 16, 24, 32)] == [0, 16, 16, 32]
    index.apply("a", packed(removed(7, group_idx=1)))
    assert [match(index, IDS[:end]) for end in (24, 32)] == [16, 16]


@pytest.mark.parametrize("first", [False, True], ids=["full-first", "window-first"])
@pytest.mark.parametrize("tells", [["a"], ["b", "a"]], ids=["itself", "another-first"])
def test_a_window_finds_blocks_that_waited_for_their_parent(
    index: PrefixIndex, tells: list[str], *, first: bool
) -> None:
    index.add_replica("b")
    events = [stored([3, 4], IDS[:16], **SLIDING), stored([2, 3, 4], IDS[4:16], parent=1, **FULL)]
    index.apply("a", packed(*(events if first else reversed(events))))
    for name in tells:
        index.apply(name, packed(stored([1], IDS[:4], **FULL)))
    assert match(index, IDS[:16]) == 16


def test_a_place_that_names_of_a_window_share_is_held_until_all_have_gone(index: PrefixIndex) -> None:
    index.apply("a", packed(stored(range(1, 9), IDS, **FULL), stored(range(1, 9), IDS, **SLIDING)))
    index.apply("a", packed(*(stored([name], IDS[28:], parent=7, **SLIDING) for name in (18, 28))))
    held = []
    for name in (18, 8, 28):
        index.apply("a", packed(removed(name, group_idx=1)))
        held.append(match(index))
    assert held == [32, 32, 28]


def test_a_partial_block_of_a_window_changes_nothing_of_the_whole_ones(index: PrefixIndex) -> None:
    index.apply("a", packed(stored([2, 4], IDS[:16], 8, **FULL), stored([2, 4], IDS[:16], 8, **SLIDING)))
    index.apply("a", packed(stored([5], IDS[16:20], 4, parent=4, **SLIDING)))
    assert match(index) == 16


@pytest.mark.parametrize("ours", [{"medium": "GPU"}, {"medium": "cpu", "ownership": "x"}, {"medium": "tape"}])
def test_a_window_loses_only_copies_of_the_same_residence(index: PrefixIndex, ours: dict[str, str]) -> None:
    index.apply("a", packed(stored([1, 2], IDS[:8], **FULL), stored([1, 2], IDS[:8], **{**SLIDING, **ours})))
    for other in ({"medium": "DISK"}, {"medium": "cpu"}, {"medium": "GPU", "ownership": "y"}):
        assert index.apply("a", packed(removed(1, 2, group_idx=1, **other))).unknown == 2
    assert match(index) == 8
    index = PrefixIndex.from_bytes(index.to_bytes())
    index.apply("a", packed(removed(1, 2, group_idx=1, **{"medium": "GPU", **ours})))
    assert match(index) == 0


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_pages_lose_only_copies_of_the_same_residence(index: PrefixIndex, size: int) -> None:
    names = list(range(1, 8 // size + 1))
    index.apply("a", packed(stored(names, IDS[:8], size, medium="DISK")))
    assert index.apply("a", packed(removed(*names, medium="EXTERNAL"))).unknown == len(names)
    assert match(index) == 8
    index.apply("a", packed(removed(*names, medium="disk")))
    assert (match(index), len(index)) == (0, 0)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_reports_of_reuse_are_no_copies_in_blocks_of_any_size(size: int) -> None:
    index = PrefixIndex(block_size=4)
    index.add_replica("a", reuse_reports=True)
    names = list(range(1, 8 // size + 1))
    for _ in range(3):
        index.apply("a", packed(stored(names, IDS[:8], size)))
    index.apply("a", packed(removed(*reversed(names))))
    assert (match(index), len(index)) == (0, 0)
    assert index.apply("a", packed(removed(*names))).unknown == len(names)


def test_two_pages_that_end_in_one_block_are_two_copies_of_it() -> None:
    index = PrefixIndex(block_size=4)
    index.add_replica("a", reuse_reports=True)
    index.apply("a", packed(stored([1, 2], IDS[:6], 3), stored([1, 3], [*IDS[:4], 70, 71], 3)))
    held = []
    for page in (3, 2):
        index.apply("a", packed(removed(page)))
        held.append(match(index, IDS[:6]))
    assert held == [4, 0]


@pytest.mark.parametrize("waiting", [False, True], ids=["at-once", "waited"])
@pytest.mark.parametrize("gone", [2, 3])
def test_two_blocks_of_the_engine_that_share_one_of_the_index_are_two_copies_of_it(*, waiting: bool, gone: int) -> None:
    index = PrefixIndex(block_size=4)
    index.add_replica("a", reuse_reports=True)
    first = stored([1], IDS[:8], 8)
    forks = [stored([name], [*IDS[8:12], *[name] * 4], 8, parent=1) for name in (2, 3)]
    index.apply("a", packed(*([*forks, *forks, first, *forks] if waiting else [first, *forks, *forks])))
    index.apply("a", packed(removed(gone)))
    assert match(index, IDS[:12]) == 12
    index.apply("a", packed(removed(5 - gone)))
    assert (match(index, IDS[:12]), index.stats().event_names) == (8, 2)


@pytest.mark.parametrize("told", [{}, {"ownership": "o"}], ids=["plain", "owned"])
def test_a_block_is_placed_on_a_tier_whoever_shares_a_block_of_the_index_with_it_there(told: dict[str, str]) -> None:
    index = PrefixIndex(block_size=4)
    index.add_replica("a", reuse_reports=True)
    index.apply("a", packed(*(stored([name], [*IDS[:4], *[name] * 4], 8, medium="tape") for name in (1, 2))))
    done = index.apply("a", packed(*[stored([2], [], 0, medium="disk", **told)] * 2))
    assert (done.copies, done.reused) == (2, 2)
    index.apply("a", packed(removed(2, medium="disk", **told), removed(2, medium="tape")))
    assert match(index, IDS[:5]) == 4


@pytest.mark.parametrize("owners", [["o", "p"], ["o", None], [None, "o"]])
def test_owners_of_a_block_that_waits_have_copies_of_their_own(owners: list[str | None]) -> None:
    index = PrefixIndex(block_size=4)
    index.add_replica("a", reuse_reports=True)
    waiting = [stored([2], IDS[4:8], parent=1, ownership=owner) for owner in owners]
    done = index.apply("a", packed(*waiting, *waiting))
    assert (done.orphaned, done.reused) == (2, 2)
    index = PrefixIndex.from_bytes(index.to_bytes())
    index.apply("a", packed(stored([1], IDS[:4]), *waiting, removed(2, ownership=owners[0])))
    assert match(index) == 8
    index.apply("a", packed(removed(2, ownership=owners[1])))
    assert match(index) == 4


def test_a_copy_that_the_buffer_dropped_is_not_the_owners_any_more() -> None:
    index = PrefixIndex(block_size=4)
    index.add_replica("a", reuse_reports=True)
    index.apply("a", packed(stored([2], IDS[4:8], parent=1, ownership="o")))
    many = range(10, 10 + MOST_WAITING)
    index.apply("a", packed(stored(many, IDS[:4] * len(many), parent=9)))
    assert (index.stats().orphans, index.stats().orphans_dropped) == (MOST_WAITING, 1)
    index.apply("a", packed(stored([1], IDS[:4]), stored([2], IDS[4:8], parent=1, ownership="o")))
    assert match(index) == 8


APART = [
    ([stored([9], [7] * 4, medium="EXTERNAL"), stored([1], IDS[:4])], {}),
    ([stored([1], IDS[:4], ownership="o")], {"ownership": "o"}),
]


@pytest.mark.parametrize(("first", "ours"), APART, ids=["another-apart", "owner"])
def test_a_report_may_name_blocks_that_are_new(first: list[dict[str, Any]], ours: dict[str, str]) -> None:
    index = PrefixIndex(block_size=4)
    index.add_replica("a", reuse_reports=True)
    done = index.apply("a", packed(*first, stored([1, 2], IDS[:8], **ours), stored([1, 2, 3], IDS[:12], **ours)))
    assert (done.copies, done.reused, index.stats().reused, match(index)) == (0, 3, 3, 12)
    done = index.apply("a", packed(removed(3, 2, 1, **ours)))
    assert (done.removed, match(index)) == (3, 0)


@pytest.mark.parametrize(("reuse_reports", "held"), [(False, 8), (True, 4)])
def test_reports_of_a_block_that_waits_are_no_copies(*, reuse_reports: bool, held: int) -> None:
    index = PrefixIndex(block_size=4)
    index.add_replica("a", reuse_reports=reuse_reports)
    second = stored([2], IDS[4:8], parent=1)
    index.apply("a", packed(second, second, removed(2), stored([1], IDS[:4])))
    assert match(index) == held


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("medium", ["CPU", "tape"])
@pytest.mark.parametrize("adopted", [False, True], ids=["still-waits", "adopted"])
def test_a_block_that_waits_is_on_another_tier_too(
    index: PrefixIndex, *, size: int, medium: str, adopted: bool
) -> None:
    parent = stored([1], IDS[:size], size)
    there = [stored([2], IDS[size : 2 * size], size, parent=1), stored([2], [], 0, medium=medium)]
    done = index.apply("a", packed(*there, *([parent] if adopted else []), removed(2)))
    assert (done.placeless, done.unknown) == (0, 0)
    index.apply("a", packed(*([] if adopted else [parent])))
    assert media(index) == ([size, size, 0] if medium == "CPU" else [size, 0, size])
    index.apply("a", packed(removed(2, medium=medium)))
    assert match(index) == size


def test_masked_and_state_groups_are_counted(index: PrefixIndex) -> None:
    mamba = {"group_idx": 1, "kv_cache_spec_kind": "mamba"}
    done = index.apply(
        "a", packed(stored([3, 5], IDS[:24], **mamba), stored([], IDS[:24], **mamba), removed(3, group_idx=1))
    )
    assert (done.refused, done.unindexed, done.unknown, match(index)) == (0, 2, 0, 0)


def test_the_group_of_full_attention_may_have_any_number(index: PrefixIndex) -> None:
    full = {"group_idx": 3, "kv_cache_spec_kind": "mla_attention"}
    first = {**SLIDING, "group_idx": 0}
    index.apply("a", packed(stored([1, 2], IDS[:8], **first), stored([1, 2], IDS[:8], **full)))
    assert match(index) == 8
    index.apply("a", packed(removed(2, group_idx=0)))
    assert match(index) == 4
    index.apply("a", packed(removed(1, 2, group_idx=3)))
    assert len(index) == 0


@pytest.mark.parametrize("unknown", [{}, {"group_idx": 0}, {"group_idx": 0, "kv_cache_spec_kind": "unknown"}])
@pytest.mark.parametrize("first", [False, True])
def test_full_attention_is_indexed_in_place_of_an_unknown_kind(
    index: PrefixIndex, unknown: dict[str, Any], first: bool
) -> None:
    """Whichever speaks first, and with all that the group of unknown kind had stored."""
    full = {"group_idx": 1, "kv_cache_spec_kind": "mla_attention"}
    index.insert("a", list(range(900, 904)))
    events = [stored([1, 2, 3], IDS[:12], **unknown), stored([1, 2], IDS[:8], **full)]
    index.apply("a", packed(*(reversed(events) if first else events)))
    assert match(index) == 8
    assert index.apply("a", packed(removed(1, 2, 3, **unknown), removed(3, medium="CPU"))).unknown == 0
    assert (match(index), match(index, range(900, 904))) == (8, 4)  # belief is another matter
    assert index.apply("a", packed(stored([3], IDS[8:12], parent=2, **unknown))).unindexed == 1
    index.apply("a", packed(removed(2, 1, group_idx=1)))
    assert match(index) == 0


def test_a_removal_of_an_unknown_group_takes_nothing_of_the_indexed_one(index: PrefixIndex) -> None:
    index.apply("a", packed(stored([1, 2], IDS[:8], group_idx=1, kv_cache_spec_kind="full_attention")))
    index.apply("a", packed(removed(2), removed(1, group_idx=0)))
    assert match(index) == 8


def test_windows_outlive_a_change_of_the_indexed_group(index: PrefixIndex) -> None:
    """What they hold is said once."""
    full = {"group_idx": 2, "kv_cache_spec_kind": "full_attention"}
    index.apply("a", packed(stored([1, 2], IDS[:8]), stored([1, 2], IDS[:8], **SLIDING)))
    index.apply("a", packed(stored([1, 2, 3], IDS[:12], **full)))
    assert match(index) == 8
    index.apply("a", packed(removed(1, 2, group_idx=1)))
    assert match(index) == 0


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("block_size", [4, 16])
def test_pages_are_regrouped(size: int, block_size: int) -> None:
    index = PrefixIndex(block_size=block_size)
    index.add_replica("a")
    names = [1_000 + at for at in range(32 // size)]
    half = len(names) // 2
    index.apply("a", packed(stored(names[:half], IDS[: half * size], size)))
    index.apply("a", packed(stored(names[half:], IDS[half * size :], size, parent=names[half - 1] if half else None)))
    assert match(index) == 32
    index = PrefixIndex.from_bytes(index.to_bytes())
    for left in range(len(names) - 1, -1, -1):
        done = index.apply("a", packed(removed(names[left])))
        assert (done.removed, done.unknown) == (max(1, size // block_size), 0)
        assert match(index) == left * size // block_size * block_size
    assert index.stats().event_names == 0


@pytest.mark.parametrize("block_size", [2, 4, 8])
def test_a_partial_block_is_promoted(block_size: int) -> None:
    index = PrefixIndex(block_size=block_size)
    index.add_replica("a")
    index.apply("a", packed(stored([8], IDS[:8], 8), stored([12], IDS[8:12], 4, parent=8)))
    assert match(index) == 12 // block_size * block_size
    index.apply("a", packed(removed(12), stored([16], IDS[8:16], 8, parent=8)))
    assert match(index) == 16
    index.apply("a", packed(removed(16), removed(8)))
    assert len(index) == 0


def test_a_short_last_page_waits_for_the_rest(index: PrefixIndex) -> None:
    index.apply("a", packed(stored([1], IDS[:4]), stored([2], IDS[4:6], 2, parent=1)))
    assert match(index) == 4
    index.apply("a", packed(stored([3], IDS[6:10], 4, parent=2)))
    assert match(index) == 8
    index.apply("a", packed(stored([4], [77, 78], 2, parent=2)))
    assert match(index, [*IDS[:6], 77, 78]) == 8  # another branch inside of the block


def test_lookahead_tokens_and_pairs_are_matched_by_their_tokens(index: PrefixIndex) -> None:
    pairs = list(pairwise(IDS[:9]))
    index.apply("a", packed(stored([1, 2], pairs)))
    assert match(index) == 8
    index.apply("a", packed(CLEARED, stored([1, 2], IDS[:8], lookahead_token_ids=[[5], [9]])))
    assert match(index) == 8


@pytest.mark.parametrize(
    ("more", "space"),
    [
        ({"lora_name": "x", "extra_keys": [["x"], ["x"]]}, Namespace(lora="x")),
        ({"lora_id": 7}, Namespace(lora="7")),
        ({"extra_keys": [["s"], None]}, Namespace(salt="s")),
        ({"cache_salt": "s", "session_id": "chat-1"}, Namespace(salt="s")),
        ({"extra_keys": [[["img", 2]], [["img", -2]]]}, Namespace(extra=((2, "img"),))),
        ({"extra_keys": [[b"\x11" * 32], None]}, Namespace(extra=((0, b"\x11" * 32),))),
        ({"extra_keys": [["s", b"\x11" * 32], None]}, Namespace(salt="s", extra=((0, b"\x11" * 32),))),
        ({"lora_name": "x", "extra_keys": [["x", "x"], ["x"]]}, Namespace(lora="x", salt="x")),
        (
            {"lora_name": "x", "extra_keys": [["x", ["i", 1], "x", b"\x11" * 32], ["x"]]},
            Namespace(lora="x", salt="x", extra=((0, b"\x11" * 32), (1, "i"))),
        ),
        (
            {"lora_name": "x", "extra_keys": [["x", ["i", 0], ["j", 2], "s"], ["x", ["j", -2]]]},
            Namespace(lora="x", salt="s", extra=((0, "i"), (2, "j"))),
        ),
    ],
)
@pytest.mark.parametrize("model", ["", "m"])
def test_what_keeps_equal_tokens_apart(index: PrefixIndex, more: dict[str, Any], space: Namespace, model: str) -> None:
    wanted = Namespace(model=model, lora=space.lora, salt=space.salt, extra=space.extra)
    base = Namespace(model=model) if model else None
    assert index.apply("a", packed(stored([1, 2], IDS[:8], **more)), namespace=base).refused == 0
    assert match(index, namespace=wanted) == 8
    assert match(index, namespace=base) == 0
    if wanted.salt:
        assert match(index, namespace=Namespace(model=model, lora=space.lora, extra=space.extra)) == 0


MALFORMED = [
    stored("ab", IDS[:4]),
    stored([None], IDS[:4]),
    stored([b"1234567"], IDS[:4]),
    stored([1.5], IDS[:4]),
    stored([2], [-1, 2, 3, 4]),
    stored([2], [1.0, 2, 3, 4]),
    stored([2], [2**32, 2, 3, 4]),
    stored([2], [[1, 2, 3]] * 4),
    stored([2], IDS[:3]),
    stored([2], IDS[:4], -4),
    stored([2], IDS[:4], 0),
    stored([2], IDS[:4], 2**16 + 1),
    stored([2], IDS[:4], 16),
    stored([2], IDS[:4], parent=2),
    stored([2], IDS[:4], parent="x"),
    stored([2], IDS[:4], medium=7),
    stored([2], IDS[:4], group_idx="x"),
    stored([2], IDS[:4], extra_keys=[[7]]),
    stored([2], IDS[:4], extra_keys=[[""] * (2**16 + 1)]),
    {"type": "BlockStored"},
    {"type": 7},
    {"block_hashes": [2]},
    [],
    None,
    7,
    "BlockStored",
    {"type": "BlockRemoved", "block_hashes": {}},
]


@pytest.mark.parametrize("event", MALFORMED, ids=lambda event: str(event)[:60])
def test_a_malformed_event_costs_itself_alone(index: PrefixIndex, event: Any) -> None:
    done = index.apply("a", packed(stored([1], IDS[:4]), event, stored([3], IDS[4:8], parent=1)))
    assert (done.events, done.refused, done.stored, match(index)) == (3, 1, 2, 8)
    assert [reason.split(":")[0] for reason in done.reasons] == ["event 1"]
    assert index.feed_stats("a").refused == 1


def test_unknown_types_are_counted_and_named(index: PrefixIndex) -> None:
    done = index.apply("a", packed({"type": "BlockMoved", "x": [1]}, ["BlockMoved", 2], stored([1], IDS[:4])))
    assert (done.unrecognized, done.refused, match(index)) == (2, 0, 4)
    assert [re.findall(r'event \d|".*"', reason) for reason in done.reasons] == [
        [f"event {at}", '"BlockMoved"'] for at in range(2)
    ]
    many = index.apply("a", packed(*[{"type": "x" * 1_000}] * 100))
    assert (many.unrecognized, len(many.reasons)) == (100, 8)
    assert max(map(len, many.reasons)) < 80


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        packed()[:-1],
        packed() + b"\x00",
        msgpack.packb({}),
        msgpack.packb([1.5]),
        msgpack.packb([1.5, None, 0]),
        msgpack.packb(["LoadStat", 1, 2]),
        b"\x92\x01\xdd\xff\xff\xff\xff",
        b"\x92\x01\xdf\xff\xff\xff\xff",
        b"\x92\x01\x91\xc6\xff\xff\xff\xff",
        b"\x91" * 20_000,
        b"\x92\x01\xdd" + (2**17 + 1).to_bytes(4) + b"\xc0" * (2**17 + 1),
        packed({**stored([9], IDS[:4]), "extra_keys": msgpack.unpackb(b"\x91" * 500 + b"\xc0", strict_map_key=False)}),
        packed(stored([9], IDS[:4]))[:-20],
    ],
    ids=lambda payload: payload[:12].hex(),
)
def test_bytes_that_are_no_batch_change_nothing(index: PrefixIndex, payload: bytes) -> None:
    index.apply("a", packed(stored([1], IDS[:4])))
    before = index.to_bytes()
    with pytest.raises(EventError, match="batch"):
        index.apply("a", payload)
    assert index.to_bytes() == before


def test_arguments_are_checked(index: PrefixIndex) -> None:
    with pytest.raises(UnknownReplicaError):
        index.apply("z", packed())
    with pytest.raises(UnknownReplicaError):
        index.feed_stats("z")
    with pytest.raises(TypeError):
        index.apply("a", "text")  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        index.apply("a", packed(), now=float("nan"))
    with pytest.raises(EventError, match=f"{limits.MAX_PAYLOAD_BYTES} bytes"):
        index.apply("a", bytes(limits.MAX_PAYLOAD_BYTES + 1))


def test_13_sequence_numbers_show_gaps_restarts_and_repeats(index: PrefixIndex) -> None:
    for sequence, missed in ((100, 0), (101, 0), (104, 2)):
        assert index.apply("a", packed(stored([sequence], IDS[:4])), sequence=sequence).missed == missed
    assert index.apply("a", packed(stored([101], IDS[:4])), sequence=101).stale
    assert match(index) == 4
    again = index.apply("a", packed(stored([7], IDS[4:8])), sequence=0)
    assert (again.restarted, again.missed, match(index), match(index, IDS[4:8])) == (True, 0, 0, 4)
    assert not index.apply("a", packed(), sequence=1).restarted
    stats = index.feed_stats("a")
    assert (stats.missed, stats.restarts, stats.stale) == (2, 1, 1)
    index.remove_replica("a")
    index.add_replica("a")
    assert index.apply("a", packed(), sequence=50).missed == 0


@pytest.mark.parametrize("number", [1, 50, 100, 101, 104])
def test_13_an_engine_that_began_again_is_seen_at_any_number(index: PrefixIndex, number: int) -> None:
    for sequence in (100, 101, 104):
        index.apply("a", packed(stored([sequence], IDS[:4])), sequence=sequence)
    index = PrefixIndex.from_bytes(index.to_bytes())
    done = index.apply("a", packed(stored([7], IDS[4:8])), sequence=number)
    assert (done.restarted, done.missed) == (True, number)  # what the new process sent before was missed
    assert (match(index), match(index, IDS[4:8])) == (0, 4)
    assert not index.apply("a", packed(), sequence=number + 1).restarted


def test_14_a_batch_that_was_missing_is_too_late(index: PrefixIndex) -> None:
    index.apply("a", packed(stored([1], IDS[:4])), sequence=1)
    index.apply("a", packed(removed(1)), sequence=4)
    for number in (2, 3, 1):
        assert index.apply("a", packed(stored([1], IDS[:4])), sequence=number).stale
    assert match(index) == 0  # a removed block does not come back to life


def test_a_repeated_batch_is_known_by_its_bytes_after_many_others(index: PrefixIndex) -> None:
    batches = [
        packed(stored([number + 1], IDS[:4]), removed(number)) for number in range(limits.REMEMBERED_BATCHES + 2)
    ]
    for number, batch in enumerate(batches):
        index.apply("a", batch, sequence=number)
    assert index.apply("a", batches[2], sequence=2).stale
    assert index.apply("a", batches[1], sequence=1).restarted  # forgotten: what cannot be told apart is cleared


def test_any_number_leaves_an_index_that_can_be_saved(index: PrefixIndex) -> None:
    for number in (0, 2**64 - 1, 1, 2**64 - 2, 0, 2**64 - 1):
        index.apply("a", packed(CLEARED, stored([number], IDS[:4])), sequence=number)
    assert PrefixIndex.from_bytes(index.to_bytes()).feed_stats("a").to_dict() == index.feed_stats("a").to_dict()


def test_19_batches_of_another_rank_are_counted(index: PrefixIndex) -> None:
    for rank in (None, 1, 1, 0, 2):
        index.apply("a", bytes(msgpack.packb([1.5, [], rank])))
    assert PrefixIndex.from_bytes(index.to_bytes()).feed_stats("a").other_rank == 2


def test_keyword_events_have_every_part(index: PrefixIndex) -> None:
    index.apply_stored("a", [1], token_ids=IDS[:8], block_size=8, kind="full_attention")
    index.apply_stored("a", [1], token_ids=IDS[:8], block_size=8, group=1, kind="sliding_window", sliding_window=8)
    index.apply_stored("a", [1], token_ids=[], medium="tape", ownership="me")
    assert (media(index), index.apply_removed("a", [1]).removed) == ([8, 0, 0], 2)
    assert media(index) == [0, 0, 8]
    assert index.apply_removed("a", [1], medium="tape").unknown == 1
    index.apply_removed("a", [1], group=1)
    assert match(index) == 0
    index.apply_removed("a", [1], medium="tape", ownership="me")
    assert len(index) == 0
