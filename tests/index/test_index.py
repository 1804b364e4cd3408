"""The index by tables: what it answers, what it refuses, and faults that other routers have had."""

from __future__ import annotations

import copy
import doctest
import pickle
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from prefixroute import limits
from prefixroute.errors import ConfigError, EventError, TokensError, UnknownReplicaError
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.index import PrefixIndex
from prefixroute.sim.replica import Admitted, ReplicaCache
from prefixroute.types import Namespace

PROMPT = list(range(1000, 1160))


def index_of(*replicas: str, **settings: Any) -> PrefixIndex:
    """Return an index of some replicas that hold nothing yet."""
    index = PrefixIndex(**settings)
    for name in replicas:
        index.add_replica(name)
    return index


@pytest.fixture
def index() -> PrefixIndex:
    return index_of("a", "b", hash_key=limits.FIXED_HASH_KEY)


def engine_names(count: int, first: int = 1) -> list[int]:
    return list(range(first, first + count))


def test_all_ways_of_asking_agree(index: PrefixIndex) -> None:
    index.insert("a", PROMPT)
    index.insert("b", PROMPT[:64] + [7] * 32)
    hashes = hash_blocks(PROMPT)
    out = np.zeros(2, dtype=np.uint32)
    answers = [
        index.match(PROMPT),
        index.match(np.array(PROMPT, dtype=np.uint16)),
        index.match(hashes),
        index.match(PROMPT, None, out),
        index.match(PROMPT, out=out),
        index.match_hashes(hashes),
        index.match_hashes(hashes.array),
        index.match_hashes(hashes.array.view(np.int64)),
        index.match_hashes(hashes.array.tolist(), out=out),
        index.match_hashes(np.repeat(hashes.array, 2)[::2]),
        index.match_many(PROMPT, [0, 160])[0],
    ]
    for answer in answers:
        assert answer.dtype == np.uint32
        assert answer.tolist() == [160, 64]
    assert index.match(PROMPT, out=out) is out
    assert index.match_media(PROMPT).tolist() == [[160, 0, 0], [64, 0, 0]]


def test_the_last_token_may_hit_here_the_cap_is_the_router_s(index: PrefixIndex) -> None:
    index.insert("a", PROMPT[:32])
    assert index.match(PROMPT[:32]).tolist() == [32, 0]
    assert index.match(PROMPT[:31]).tolist() == [16, 0]
    assert index.match([]).tolist() == [0, 0]


def test_match_many_takes_any_ragged_batch(index: PrefixIndex) -> None:
    index.insert("a", PROMPT)
    flat = np.array(PROMPT + PROMPT[:40] + [5] * 20, dtype=np.uint32)
    for offsets in ([0, 160, 160, 200, 220], np.array([0, 160, 160, 200, 220], dtype=np.int32)):
        assert index.match_many(flat, offsets).tolist() == [[160, 0], [0, 0], [32, 0], [0, 0]]
    assert index.match_many(flat, [0]).shape == (0, 2)
    assert index.match_many(flat, [16, 32]).tolist() == [[0, 0]]
    assert PrefixIndex().match_many(flat, [0, 160]).shape == (1, 0)
    out = np.zeros((1, 2), dtype=np.uint32)
    assert index.match_many(flat, [0, 160], None, out) is out
    assert out.tolist() == [[160, 0]]


def test_insert_many_is_many_inserts(index: PrefixIndex) -> None:
    flat, offsets = PROMPT + PROMPT[:48], [0, 160, 208]
    first, second = index.insert_many(["a", "b"], flat, offsets)
    assert (first.stored, second.stored) == (10, 3)
    assert index.match(PROMPT).tolist() == [160, 48]
    third, fourth = index.insert_many("b", flat, offsets)
    assert (third.held_before, third.stored, fourth.held_before, fourth.stored) == (3, 7, 3, 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda i: i.insert("z", PROMPT), UnknownReplicaError, '"z"'),
        (lambda i: i.insert_many(["a", "z"], PROMPT, [0, 16, 32]), UnknownReplicaError, '"z"'),
        (lambda i: i.insert_many(["a"], PROMPT, [0, 16, 32]), ConfigError, "names.* 2,.* 1"),
        (lambda i: i.insert_many(3, PROMPT, [0, 16]), ConfigError, "names.*str.*list.*int"),
        (lambda i: i.remove_replica("z"), KeyError, '"z"'),
        (lambda i: i.clear("z"), KeyError, '"z"'),
        (lambda i: i.set_capacity("z", 3), KeyError, '"z"'),
        (lambda i: i.apply_cleared("z"), KeyError, '"z"'),
        (lambda i: i.apply_removed("z", [1]), KeyError, '"z"'),
        (lambda i: i.touch("z", PROMPT), KeyError, '"z"'),
        (lambda i: i.pin("z", hash_blocks(PROMPT)), KeyError, '"z"'),
        (lambda i: i.add_replica("a"), ConfigError, 'replica "a"'),
        (lambda i: i.add_replica(""), ConfigError, "replica name"),
        (lambda i: i.insert("a", PROMPT, now=float("nan")), ConfigError, "time.*seconds.*NaN"),
        (lambda i: i.match(hash_blocks(PROMPT, 32)), ConfigError, "block size.*16.*32"),
        (lambda i: i.insert("a", hash_blocks(PROMPT, 8)), ConfigError, "block size.*16.*8"),
        (lambda i: i.match_hashes(hash_blocks(PROMPT, 8)), ConfigError, "block size.*16.*8"),
        (lambda i: i.pin("a", hash_blocks(PROMPT, 8)), ConfigError, "block size.*16.*8"),
        (lambda i: i.match_many("text", [0, 1]), TokensError, "token ids.*str"),
        (lambda i: i.match_many(PROMPT, []), TokensError, "offsets"),
        (lambda i: i.match_many(PROMPT, [0, 9, 5]), TokensError, "offsets.* 5 .* 9 .* 2"),
        (lambda i: i.match_many(PROMPT, [0, 161]), TokensError, "offsets.*0..=160.* 161 .* 1"),
        (lambda i: i.match_many(PROMPT, [-1, 10]), TokensError, "offsets.*0..=160.* -1 .* 0"),
        (lambda i: i.match_many(PROMPT, [0.5, 10]), TokensError, "offsets.*array.*ints.*list"),
        (lambda i: i.match([1, -1]), TokensError, "position 1"),
        (lambda i: i.apply_stored("a", [1], token_ids=PROMPT[:15]), EventError, "16 token ids.* 15"),
        (lambda i: i.apply_stored("a", [1], token_ids=PROMPT[:16], kind="wide"), EventError, 'got "wide"'),
        (lambda i: i.apply_stored("a", [1], token_ids=PROMPT[:16], medium="\ud800"), ConfigError, "valid Unicode"),
        (lambda i: i.apply_stored("a", [2**64], token_ids=PROMPT[:16]), ConfigError, "64 bits"),
        (lambda i: i.apply_stored("a", [True], token_ids=PROMPT[:16]), ConfigError, "int.*bytes.*bool"),
    ],
)
def test_mistakes_are_refused_and_change_nothing(
    index: PrefixIndex, call: Callable[[PrefixIndex], Any], error: type[Exception], message: str
) -> None:
    before = (index.replicas, index.stats().to_dict())
    with pytest.raises(error, match=message):
        call(index)
    assert (index.replicas, index.stats().to_dict()) == before


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros(1, dtype=np.uint32), "out.* 2 .* 1"),
        (np.zeros(2, dtype=np.int32), "out.*uint32"),
        (np.zeros(4, dtype=np.uint32)[::2], "out.*uint32"),
        (np.zeros((1, 2), dtype=np.uint32), "out.*uint32"),
        (np.frombuffer(bytes(8), dtype=np.uint32), "out.*uint32"),
        ([0, 0], "out.*uint32"),
    ],
)
def test_an_unfit_out_array_is_refused(index: PrefixIndex, out: Any, message: str) -> None:
    for call in (lambda: index.match(PROMPT, out=out), lambda: index.hash_and_match(PROMPT, out)):
        with pytest.raises(ConfigError, match=message):
            call()


def test_out_may_be_longer_and_may_overlap_the_prompt(index: PrefixIndex) -> None:
    index.insert("b", PROMPT)
    prompt = np.array(PROMPT, dtype=np.uint32)
    assert index.match(prompt, out=prompt) is prompt
    assert prompt.tolist() == [0, 160] + [0] * 158
    with pytest.raises(ConfigError, match=r"shape \(1, 2\)"):
        index.match_many(PROMPT, [0, 160], out=np.zeros((2, 2), dtype=np.uint32))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_size": 0}, "block size.*1..=65536.* 0"),
        ({"block_size": 65_537}, "block size.*1..=65536.* 65537"),
        ({"block_size": -1}, "block size.*1..=65536.* -1"),
        ({"block_size": 2**70}, f"block size.*1..=65536.* {2**70}"),
        ({"block_size": 16.0}, "block size.*int.*float"),
        ({"block_size": True}, "block size.*int.*bool"),
        ({"capacity_tokens": -1}, "capacity.*0..=18446744073709551615.* -1"),
        ({"capacity_tokens": "many"}, "capacity.*int.*str"),
        ({"max_bytes": -1}, "max_bytes.*0..=18446744073709551615.* -1"),
        ({"ttl_s": 0.0}, "ttl.*positive.* 0"),
        ({"ttl_s": float("nan")}, "ttl.*positive.* NaN"),
        ({"provisional_s": 0.0}, "provisional_s.*positive.* 0"),
    ],
)
def test_settings_have_limits(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PrefixIndex(**settings)


@pytest.mark.parametrize("block_size", [1, 2, 7, 1024])
def test_every_block_size_counts_full_blocks(block_size: int) -> None:
    index = index_of("a", block_size=block_size)
    prompt = list(range(3 * block_size + block_size // 2))
    assert index.insert("a", prompt).stored == len(prompt) // block_size
    assert index.match(prompt).tolist() == [len(prompt) // block_size * block_size]


def test_slots_are_limited_and_used_again() -> None:
    index = PrefixIndex()
    for number in range(limits.MAX_REPLICAS):
        assert index.add_replica(f"r{number}") == number
    with pytest.raises(ConfigError, match="1024 replicas"):
        index.add_replica("one too many")
    index.remove_replica("r7")
    assert index.replicas[7] is None
    assert index.add_replica("new") == 7
    assert index.match(PROMPT).shape == (1024,)


def test_an_index_says_what_it_is(index: PrefixIndex) -> None:
    assert repr(index).split() == ["<PrefixIndex", "block_size=16", "replicas=2", "blocks=0>"]
    assert bool(index) is True
    index.insert("a", np.arange(16 * 12_345, dtype=np.uint32))
    assert repr(index).split() == ["<PrefixIndex", "block_size=16", "replicas=2", "blocks=12_345>"]
    assert len(index) == 12_345
    assert (index.block_size, index.replicas) == (16, ("a", "b"))
    insertion = index.insert("b", PROMPT)
    fields = ["Insertion(held_before=0", "stored=10", "dropped=0", "evicted=0"]
    assert repr(insertion).split(", ")[:4] == fields


def test_capacity_is_in_tokens_and_the_tail_goes_first(index: PrefixIndex) -> None:
    index.set_capacity("a", 100)
    insertion = index.insert("a", PROMPT)
    assert (insertion.stored, insertion.dropped) == (6, 4)
    assert index.match(PROMPT).tolist() == [96, 0]
    assert index.insert("a", [7] * 32).evicted == 2
    assert index.match(PROMPT).tolist() == [64, 0]


SIZES = {"live_bytes": 0, "reserved_bytes": 0}
"""What a copy may have otherwise: it is packed afresh."""


@pytest.fixture
def saved(index: PrefixIndex) -> bytes:
    index.insert("a", PROMPT, now=3.0)
    index.insert("b", PROMPT[:64], Namespace(salt="tenant"))
    index.apply_stored("b", engine_names(4), token_ids=PROMPT[:64])
    index.apply_stored("b", [99], parent=98, token_ids=PROMPT[:16], medium="CPU")
    return index.to_bytes()


def test_a_saved_index_answers_as_before(index: PrefixIndex, saved: bytes) -> None:
    for copied in (PrefixIndex.from_bytes(saved), copy.deepcopy(index), pickle.loads(pickle.dumps(index))):  # noqa: S301
        assert copied.replicas == index.replicas
        assert copied.match(PROMPT).tolist() == index.match(PROMPT).tolist() == [160, 64]
        assert copied.held_tokens() == index.held_tokens()
        assert copied.stats().to_dict() | SIZES == index.stats().to_dict() | SIZES
        assert copied.insert("a", [1] * 160).stored == 10
        assert copied.apply_removed("b", engine_names(4)).removed == 4


def test_bytes_that_were_cut_or_altered_are_refused(saved: bytes) -> None:
    wrong = [b"", b"text", saved[:-1], saved[1:], saved + b"\0", saved[: len(saved) // 2]]
    wrong += [saved[:at] + bytes([saved[at] ^ bit]) + saved[at + 1 :] for at in range(len(saved)) for bit in (1, 128)]
    for data in wrong:
        with pytest.raises(ConfigError, match="saved index"):
            PrefixIndex.from_bytes(data)


def test_the_examples_in_docstrings_hold() -> None:
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for each in (PrefixIndex, BlockHashes, hash_blocks):
        for example in finder.find(each, globs={"PrefixIndex": PrefixIndex}):
            runner.run(example)
    assert runner.summarize(verbose=False) == (0, 4)


# --- Faults that other routers have had -------------------------------------------------------------------------------


def test_a_byte_budget_holds_for_all_replicas_together_and_the_oldest_go_first() -> None:
    budget = 26_000
    index = PrefixIndex(max_bytes=budget)
    prompts = [np.arange(800, dtype=np.uint32) + 1000 * number for number in range(100)]
    for number, prompt in enumerate(prompts):
        name = f"r{number // 10}"
        if number % 10 == 0:
            index.add_replica(name)
        index.insert(name, prompt)
        assert index.stats().reserved_bytes <= budget
        assert index.match(prompt)[number // 10] == 800
    held = [int(index.match(prompt)[number // 10]) for number, prompt in enumerate(prompts)]
    assert held == sorted(held)
    assert 500 < len(index) < 2000
    assert index.stats().evicted_bytes == 5000 - len(index)


def test_reported_blocks_that_find_no_room_are_told_and_counted() -> None:
    index = index_of("a", max_bytes=20_000)
    told = [
        index.apply_stored("a", [number], token_ids=list(range(16 * number, 16 * number + 16)))
        for number in range(1, 2_001)
    ]
    assert sum(one.stored for one in told) + sum(one.dropped for one in told) == 2_000
    assert sum(one.dropped for one in told) == index.stats().dropped > 0


def test_a_byte_budget_below_what_an_empty_index_takes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_bytes.* \d+ .*0 replicas.* 0$") as refused:
        PrefixIndex(max_bytes=0)
    least = int(re.findall(r"\d+", str(refused.value))[0])
    index = PrefixIndex(max_bytes=least)
    with pytest.raises(ConfigError, match=rf"1 replicas.* {least}$"):
        index.add_replica("a")
    with pytest.raises(ConfigError, match="3 replicas"):
        index.check_room(3)
    assert index.replicas == ()


def test_a_removed_replica_comes_back_empty_and_leaves_the_others_alone(index: PrefixIndex) -> None:
    index.insert("a", PROMPT)
    index.insert("b", PROMPT[:80])
    assert len(index) == 10
    index.remove_replica("a")
    assert (len(index), index.replicas) == (5, (None, "b"))
    assert index.match(PROMPT).tolist() == [0, 80]
    assert index.add_replica("a") == 0
    assert index.match(PROMPT).tolist() == [0, 80]


def test_each_announced_copy_needs_a_removal_of_its_own(index: PrefixIndex) -> None:
    index.apply_stored("a", [1], token_ids=PROMPT[:16])
    for _ in range(2):
        index.apply_stored("a", [2], parent=1, token_ids=PROMPT[16:32])
    lengths = []
    for _ in range(3):
        lengths.append(int(index.match(PROMPT)[0]))
        removal = index.apply_removed("a", [2])
    assert lengths == [32, 32, 16]
    assert (removal.removed, removal.unknown) == (0, 1)
    assert index.match(PROMPT).tolist() == [16, 0]


def test_leaving_one_tier_leaves_the_other(index: PrefixIndex) -> None:
    index.apply_stored("a", [1], token_ids=PROMPT[:16], medium="GPU")
    index.apply_stored("a", [1], token_ids=PROMPT[:16], medium="CPU")
    assert index.match_media(PROMPT).tolist() == [[16, 0, 0], [0, 0, 0]]
    index.apply_removed("a", [1], medium="GPU")
    assert index.match(PROMPT).tolist() == [16, 0]
    assert index.match_media(PROMPT).tolist() == [[0, 16, 0], [0, 0, 0]]
    index.apply_removed("a", [1], medium="CPU_PINNED")
    assert index.match(PROMPT).tolist() == [0, 0]


def test_a_hole_hides_the_tail_until_it_is_filled(index: PrefixIndex) -> None:
    names = engine_names(10)
    index.apply_stored("a", names, token_ids=PROMPT)
    index.apply_removed("a", [names[3]])
    assert index.match(PROMPT).tolist() == [48, 0]
    index.apply_stored("a", [names[3]], parent=names[2], token_ids=PROMPT[48:64])
    assert index.match(PROMPT).tolist() == [160, 0]


def test_a_store_whose_parent_is_unknown_waits_for_it(index: PrefixIndex) -> None:
    waiting = index.apply_stored("a", [2, 3], parent=1, token_ids=PROMPT[16:48])
    assert (waiting.orphaned, index.stats().orphans) == (2, 2)
    assert index.match(PROMPT).tolist() == [0, 0]
    found = index.apply_stored("a", [1], token_ids=PROMPT[:16])
    assert (found.adopted, index.stats().orphans) == (2, 0)
    assert index.match(PROMPT).tolist() == [48, 0]


def test_engine_hashes_may_be_signed_unsigned_or_bytes(index: PrefixIndex) -> None:
    name = 2**64 - 5
    index.apply_stored("a", [name], token_ids=PROMPT[:16])
    index.apply_stored("a", [7], parent=name.to_bytes(32, "big"), token_ids=PROMPT[16:32])
    assert index.match(PROMPT).tolist() == [32, 0]
    assert index.apply_removed("a", np.array([-5], dtype=np.int64)).removed == 1
    assert index.match(PROMPT).tolist() == [0, 0]


def test_events_that_never_match_a_query_are_visible(index: PrefixIndex) -> None:
    for number in range(1000):
        index.apply_stored("a", [number], token_ids=[number + 1] * 16)
    index.match(PROMPT)
    index.apply_stored("b", [5_000], token_ids=[5_000] * 16)
    assert index.match([5_000] * 16).tolist() == [0, 16]
    assert index.unmatched_event_blocks() == [1_000, 0]  # a match elsewhere says nothing of it
    index.match([5] * 16)
    assert index.unmatched_event_blocks() == [0, 0]
    assert index.stats().unmatched_event_blocks == 0


@pytest.mark.parametrize(("reuse_reports", "held"), [(False, 8), (True, 4)])
def test_a13_copies_are_counted_with_or_without_a_parent(reuse_reports: bool, held: int) -> None:
    index = PrefixIndex(block_size=4)
    index.add_replica("a", reuse_reports=reuse_reports)
    first, again = (index.apply_stored("a", [11, 12], parent=None, token_ids=list(range(1, 9))) for _ in range(2))
    assert (first.stored, again.copies, again.reused) == (2, 0 if reuse_reports else 2, 2 if reuse_reports else 0)
    index.apply_removed("a", [12])
    assert index.match(list(range(1, 9))).tolist() == [held]
    assert index.stats().reused == again.reused


def test_blocks_with_more_copies_than_requests_can_make_are_shown() -> None:
    index = PrefixIndex(block_size=4)
    for name, reuse_reports in (("counted", False), ("declared", True)):
        index.add_replica(name, reuse_reports=reuse_reports)
        for times in (1_024, 1):
            for _ in range(times):
                index.apply_stored(name, [11, 12], parent=None, token_ids=list(range(8)))
            index.apply_stored(name, [13], parent=12, token_ids=list(range(8, 12)))
            assert index.crowded_blocks()[-1] == (2 if times == 1 and not reuse_reports else 0)
    index.apply_removed("counted", [12])
    assert index.crowded_blocks() == [1, 0]
    index.clear("counted")
    assert index.crowded_blocks() == [0, 0]


def test_namespaces_never_match_each_other(index: PrefixIndex) -> None:
    spaces = [None, Namespace(lora="S"), Namespace(salt="S"), Namespace(lora="S v2"), Namespace(model="S")]
    for space in spaces:
        assert index.match(PROMPT, space).tolist() == [0, 0]
        index.insert("a", PROMPT, space)
        assert index.match(PROMPT, space).tolist() == [160, 0]
    assert len(index) == 10 * len(spaces)


def test_an_event_carries_its_namespace_and_extra_keys(index: PrefixIndex) -> None:
    salted, image = Namespace(salt="tenant"), Namespace(extra=((20, "image digest"),))
    index.apply_stored("a", engine_names(10), token_ids=PROMPT, namespace=salted)
    index.apply_stored("b", engine_names(10, 50), token_ids=PROMPT, namespace=image)
    assert index.match(PROMPT, salted).tolist() == [160, 0]
    assert index.match(PROMPT, image).tolist() == [0, 160]
    assert index.match(PROMPT).tolist() == [0, 16]


@pytest.mark.parametrize("block_size", [128, 1024])
def test_a_match_never_passes_the_first_difference(block_size: int) -> None:
    index = index_of("a", block_size=block_size)
    shared = list(range(6144))
    index.insert("a", [*shared, *[1] * 2048])
    assert index.match([*shared, *[2] * 2048]).tolist() == [6144]
    with pytest.raises(EventError, match=rf"\b{block_size}\b.*\b1536$"):
        index.apply_stored("a", [1], token_ids=shared[:1536])


def test_generated_tokens_that_are_tokenised_otherwise_match_less_than_their_text() -> None:
    ids, text = index_of("a", block_size=1), index_of("a", block_size=1)
    ids.insert("a", [1, 2, 30, 40])
    assert ids.match([1, 2, 31, 5, 40]).tolist() == [2]
    text.insert("a", "either way")
    assert text.match("either way").tolist() == [2]


@pytest.mark.parametrize("block_size", [1, 2, 16])
def test_text_is_cut_anywhere_and_still_found(block_size: int) -> None:
    keys = ["가나다", "가나더", "각난닫", "日本語", "日本誤", "日木", "x" * 254 + "漢字", "x" * 254 + "漢子", "é", ""]
    index = index_of("a", block_size=block_size)
    for key in keys:
        for text in (key, key.encode()):
            index.insert("a", text * 40)
    for key in keys:
        assert index.match(key * 40).tolist() == [len(key.encode()) * 40 // (4 * block_size) * block_size]


def test_prompts_that_differ_in_their_last_half_block_are_no_full_match(index: PrefixIndex) -> None:
    index.insert("a", PROMPT[:24] + [1] * 8 + [2] * 4)
    other = PROMPT[:24] + [3] * 8 + [2] * 4
    assert int(index.match(other)[0]) == 16 < len(other)
    first, second = (Namespace(extra=((20, f"image {n}"),)) for n in (1, 2))
    index.insert("b", PROMPT[:32], first)
    assert index.match(PROMPT[:32], first).tolist() == [16, 32]
    assert index.match(PROMPT[:32], second).tolist() == [16, 16]


def test_retract_takes_back_what_an_insert_added_and_nobody_used(index: PrefixIndex) -> None:
    index.insert("a", PROMPT[:48])
    insertion = index.insert("a", PROMPT)
    assert insertion.held_before == 3
    assert index.retract("a", hash_blocks(PROMPT), insertion) == 7
    assert index.match(PROMPT).tolist() == [48, 0]
    assert index.retract("a", hash_blocks(PROMPT), insertion) == 0


def test_pinned_blocks_stay(index: PrefixIndex) -> None:
    index.set_capacity("a", 64)
    hashes = hash_blocks(PROMPT[:48])
    index.insert("a", hashes)
    assert index.pin("a", hashes) == 3
    assert index.insert("a", [7] * 64).dropped == 3
    assert index.match(PROMPT).tolist() == [48, 0]
    index.unpin("a", hashes)
    index.insert("a", [8] * 64)
    assert index.match(PROMPT).tolist() == [0, 0]


HALF_AN_EMOJI = "\ud83d"


@pytest.mark.parametrize(
    "namespace",
    [
        Namespace(model=HALF_AN_EMOJI),
        Namespace(lora=HALF_AN_EMOJI),
        Namespace(salt=HALF_AN_EMOJI),
        Namespace(extra=((0, HALF_AN_EMOJI),)),
        Namespace(extra=5),  # type: ignore[arg-type]
        Namespace(extra=(5,)),  # type: ignore[arg-type]
    ],
)
def test_a_namespace_that_is_none_is_the_library_s_error(index: PrefixIndex, namespace: Namespace) -> None:
    for call in (index.match, hash_blocks):
        with pytest.raises(ConfigError, match=r"Unicode|extra keys"):
            call(PROMPT, namespace=namespace)  # type: ignore[operator]


def test_a_name_that_is_no_unicode_is_the_library_s_error(index: PrefixIndex) -> None:
    insert = partial(index.insert, prompt=PROMPT)
    for call in (index.add_replica, index.remove_replica, index.clear, index.apply_cleared, insert):
        with pytest.raises(ConfigError, match=r"Unicode.*ud83d"):
            call(HALF_AN_EMOJI)  # type: ignore[operator]
    assert index.replicas == ("a", "b")


class Interrupted:
    """What Ctrl-C looks like when it comes while an object is asked for its value."""

    def __index__(self) -> int:
        raise KeyboardInterrupt

    __float__ = __index__
    model = property(__index__)


def test_an_interrupt_is_no_wrong_argument(index: PrefixIndex) -> None:
    calls: list[Callable[[], object]] = [
        lambda: index.match([1, Interrupted()]),
        lambda: index.match_hashes([Interrupted()]),
        lambda: index.insert("a", PROMPT, now=Interrupted()),  # type: ignore[arg-type]
        lambda: index.match(PROMPT, namespace=Interrupted()),  # type: ignore[arg-type]
        lambda: index.set_capacity("a", Interrupted()),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(KeyboardInterrupt):
            call()


def test_outcomes_are_values() -> None:
    index = index_of("a")
    insertion = index.insert("a", list(range(64)))
    stored = index.apply_stored("a", [1, 2], token_ids=list(range(32)))
    removed = index.apply_removed("a", [1, 7])
    cache, prompt = ReplicaCache(32), hash_blocks(list(range(32)))
    admitted = cache.start(prompt)
    refused = cache.start(hash_blocks(list(range(64))))
    assert isinstance(admitted, Admitted)
    finished = cache.finish(admitted.request, prompt)
    for value in (insertion, stored, removed, index.stats(), admitted, refused, finished):
        for copied in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):  # noqa: S301
            assert copied == value
            assert hash(copied) == hash(value)
            assert copied.to_dict() == value.to_dict()
    assert insertion != index.insert("a", list(range(64)))
    index.retract("a", hash_blocks(list(range(64)), hash_key=index.hash_key), pickle.loads(pickle.dumps(insertion)))  # noqa: S301


@pytest.mark.parametrize(
    ("block_size", "shared", "held"),
    [(1_536, 6_144, 6_144), (2_096, 1_900, 0), (2_096, 2_100, 2_096), (2_096, 4_300, 4_192)],
)
def test_blocks_of_any_size_match(block_size: int, shared: int, held: int) -> None:
    first = np.arange(10_000, dtype=np.uint32)
    second = np.concatenate((first[:shared], first[shared:] + 1))
    index = index_of("a", block_size=block_size)
    index.insert("a", first)
    assert index.match(second).tolist() == [held]
    assert index.match_many(second, [0, len(second)]).tolist() == [[held]]
    assert index.match(hash_blocks(second, block_size, hash_key=index.hash_key)).tolist() == [held]
    assert PrefixIndex.from_bytes(index.to_bytes()).match(second).tolist() == [held]


def test_indexes_hash_under_keys_of_their_own() -> None:
    indexes = [index_of("a") for _ in range(2)]
    hashes = [hash_blocks(PROMPT, hash_key=index.hash_key) for index in indexes]
    assert indexes[0].hash_key != indexes[1].hash_key
    assert not set(hashes[0].array.tolist()) & set(hashes[1].array.tolist())
    for index, ours in zip(indexes, hashes, strict=True):
        index.insert("a", PROMPT)
        assert index.match(ours).tolist() == [160]
        again = PrefixIndex.from_bytes(index.to_bytes())
        assert again.hash_key == index.hash_key
        assert again.match(PROMPT).tolist() == [160]
        assert index.match("x" * 640).tolist() == [0]
    fixed = index_of("a", hash_key=limits.FIXED_HASH_KEY)
    fixed.insert("a", hash_blocks(PROMPT))
    assert fixed.match(PROMPT).tolist() == [160]
    for wrong in (-1, 2**64, 1.5):
        with pytest.raises(ConfigError):
            PrefixIndex(hash_key=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            hash_blocks(PROMPT, hash_key=wrong)  # type: ignore[arg-type]


WORD = 2**64 - 1
SECRET = ((0xBE4BA423396CFEB8, 0x1CAD21F72C81017C), (0x78E5C0CC4EE679CB, 0x2172FFCC7DD05A82))  # of XXH3, for 16 tokens
SECRET += ((0x8E2443F7744608B8, 0x4C263A81E69035E0), (0xDB979083E96DD4DE, 0x1F67B3B7A4A44072))
LENGTH, AVALANCHE, MULTIPLIER = 0x9E3779B185EBCA87 * 64, 0x165667919E3779F9, 0x9FB21C651E98DF25


def content_sum(words: list[int], key: int) -> int:
    """Return XXH3's sum over 8 words of 64 bits, before its last steps."""
    total = LENGTH
    for pair, (first, second) in enumerate(SECRET):
        product = (words[2 * pair] ^ (first + key & WORD)) * (words[2 * pair + 1] ^ (second - key & WORD))
        total += (product ^ product >> 64) & WORD
    return total & WORD


def unmixed(value: int, multiplier: int, shift: int = 32) -> int:
    """Return what a step of the hash was made of: a product and a shift of 32 bits are undone."""
    return (value ^ value >> shift) * pow(multiplier, -1, 2**64) & WORD


def crafted_block(block: list[int], key: int, ours: Namespace, theirs: Namespace) -> list[int]:
    """Return 16 token ids that go on in ``theirs`` as ``block`` does in ``ours``, for a known key.

    By inverting the hash.
    """
    sums = content_sum([low | high << 32 for low, high in zip(block[::2], block[1::2], strict=True)], key)
    mixed = (sums ^ sums >> 37) * AVALANCHE & WORD
    content = mixed ^ mixed >> 32
    ends = [unmixed(int(hash_blocks(block, 16, of, key).array[0]), MULTIPLIER) for of in (ours, theirs)]
    wanted = unmixed(content ^ ends[0] ^ ends[1], AVALANCHE)
    wanted ^= wanted >> 37
    first, second = SECRET[0]
    words = [(first + key & WORD) ^ 1, second - key & WORD, *[0] * 6]  # 1 times what the second word is made to be
    words[1] ^= (wanted - content_sum(words, key)) & WORD
    return [part for word in words for part in (word & 0xFFFFFFFF, word >> 32)]


def test_tokens_crafted_for_one_key_match_nothing_under_another() -> None:
    """Whoever knows the key can compute tokens whose blocks match those of another namespace.

    Without it they match nothing.
    """
    ours, theirs = Namespace(salt="a"), Namespace(salt="b")
    tokens = [*crafted_block(PROMPT[:16], limits.FIXED_HASH_KEY, ours, theirs), *PROMPT[16:]]
    known = index_of("a", hash_key=limits.FIXED_HASH_KEY)
    for index in (known, *(index_of("a") for _ in range(100))):
        index.insert("a", PROMPT, ours)
        assert index.match(tokens, theirs).tolist() == [160 if index is known else 0]
        assert index.match(PROMPT, theirs).tolist() == [0]


def test_limits_have_one_owner() -> None:
    index = PrefixIndex(block_size=limits.MAX_BLOCK_SIZE)
    index.add_replica("n" * limits.MAX_NAME_BYTES)
    with pytest.raises(ConfigError):
        index.add_replica("n" * (limits.MAX_NAME_BYTES + 1))
    with pytest.raises(ConfigError):
        PrefixIndex(block_size=limits.MAX_BLOCK_SIZE + 1)
    assert hash_blocks("x" * limits.BYTES_PER_TOKEN * 7, 7).token_count == 7


def test_hashes_of_another_key_are_refused_instead_of_never_matching() -> None:
    index = index_of("a")
    foreign = hash_blocks(PROMPT)
    for call in (
        lambda: index.insert("a", foreign),
        lambda: index.match(foreign),
        lambda: index.match_hashes(foreign),
        lambda: index.hash_and_match(foreign, np.zeros(1, np.uint32)),
        lambda: index.pin("a", foreign.head(1)),
    ):
        with pytest.raises(ConfigError, match="hash_key"):
            call()
    index.insert("a", hash_blocks(PROMPT, hash_key=index.hash_key))
    given = BlockHashes(hash_blocks(PROMPT, hash_key=index.hash_key).array, token_count=len(PROMPT))
    assert index.match(given).tolist() == index.match(PROMPT).tolist()
