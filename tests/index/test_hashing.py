"""Hashes: the golden vectors that the Rust tests read too, and every way of giving a prompt."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import subprocess
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixroute.errors import ConfigError, TokensError
from prefixroute.hashing import BlockHashes, hash_blocks

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "hash_v1.json").read_text())


@dataclass(frozen=True)
class Namespace:
    model: str | bytes = ""
    lora: str | bytes = ""
    salt: str | bytes = ""
    extra: tuple[tuple[int, str | bytes], ...] = ()


@pytest.mark.parametrize("case", GOLDEN["tokens"], ids=lambda case: f"block{case['block_size']}-{len(case['tokens'])}")
def test_golden_tokens(case: dict[str, Any]) -> None:
    namespace = Namespace(model=case["model"], salt=case["salt"], extra=tuple(map(tuple, case["extra"])))
    hashes = hash_blocks(case["tokens"], case["block_size"], namespace)
    assert hashes.array.tolist() == [int(value) for value in case["hashes"]]
    assert hashes.token_count == len(case["tokens"])


@pytest.mark.parametrize("case", GOLDEN["text"], ids=lambda case: f"block{case['block_size']}")
def test_golden_text(case: dict[str, Any]) -> None:
    text, expected = case["text"], [int(value) for value in case["hashes"]]
    for prompt in (text, text.encode(), bytearray(text.encode())):
        hashes = hash_blocks(prompt, case["block_size"])
        assert hashes.array.tolist() == expected
        assert hashes.token_count == -(-len(text.encode()) // 4)


class OwnList(list[Any]):
    """Read through the stable ABI, which on this interpreter other lists may not be."""


IDS = [7, 0, 65_535, 32_767, 1] * 20
WIDE = [*IDS, 2**31, 2**32 - 1, 2**31 - 1]


@pytest.mark.parametrize(
    "prompt",
    [
        tuple(IDS),
        OwnList(IDS),
        [np.int64(token) for token in IDS],
        np.array(IDS, dtype=object),
        np.array(IDS, dtype=np.uint16),
        np.array(IDS, dtype=np.int32),
        np.array(IDS, dtype=np.int64),
        np.array(IDS, dtype=np.uint64),
        np.array(IDS, dtype=">u4"),
        np.array(IDS, dtype=">i8"),
        np.repeat(np.array(IDS, dtype=np.uint32), 3)[::3],
        np.array(IDS[::-1], dtype=np.int64)[::-1],
        np.frombuffer(b"x" + np.array(IDS, dtype=np.uint32).tobytes(), dtype=np.uint8)[1:].view(np.uint32),
        array("i", IDS),
        array("Q", IDS),
        memoryview(array("H", IDS)),
        memoryview(array("I", IDS[::-1]))[::-1],
    ],
    ids=lambda prompt: f"{type(prompt).__name__}-{getattr(prompt, 'dtype', getattr(prompt, 'typecode', ''))}",
)
def test_every_sequence_of_ids_is_the_same_prompt(prompt: Any) -> None:
    assert hash_blocks(prompt) == hash_blocks(IDS)


@pytest.mark.parametrize("dtype", [np.uint32, np.int64, np.uint64, np.float64, object])
def test_ids_go_up_to_32_bits_and_nothing_is_a_prompt_too(dtype: Any) -> None:
    if dtype is not np.float64:
        assert hash_blocks(np.array(WIDE, dtype=dtype), 1) == hash_blocks(WIDE, 1) == hash_blocks(OwnList(WIDE), 1)
    assert hash_blocks(np.array([], dtype=dtype)) == hash_blocks([]) == hash_blocks(())
    assert len(hash_blocks([])) == 0


def test_small_dtypes() -> None:
    ids = [0, 1, 127] * 16
    for dtype in (np.int8, np.uint8, np.int16):
        assert hash_blocks(np.array(ids, dtype=dtype)) == hash_blocks(ids)
    assert hash_blocks(memoryview(bytes(ids))) == hash_blocks(ids)


def test_what_makes_an_array_of_itself_is_a_prompt() -> None:
    class Tensor:
        def __array__(self) -> np.ndarray[Any, Any]:
            return np.array(IDS, dtype=np.int64)

    assert hash_blocks(Tensor()) == hash_blocks(IDS)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([1, 2, -3], "0..=4294967295.*-3.* 2$"),
        ([1, 2**32], "4294967295.*4294967296.* 1$"),
        ([10**30], "4294967295.*1000000000000000000000000000000.* 0$"),
        ([1, 2.0], r"integers.*2\.0 \(float\).* 1$"),
        ([1, float("nan")], r"integers.*nan \(float\).* 1$"),
        ([1, 2, None], r"integers.*None \(NoneType\).* 2$"),
        ([True], r"integers.*True \(bool\).* 0$"),
        (["a"], r"integers.*'a' \(str\).* 0$"),
        ([[1]], r"integers.*\[1\] \(list\).* 0$"),
        ((1, -1), "4294967295.*-1.* 1$"),
        (np.array([1, 2, -7, -8]), "4294967295.*-7.* 2$"),
        (np.array([1, -1], dtype=np.int8), "4294967295.*-1.* 1$"),
        (np.array([5, 2**40]), "4294967295.*1099511627776.* 1$"),
        (np.array([2**64 - 1], dtype=np.uint64), "4294967295.*18446744073709551615.* 0$"),
        (np.array([1, -2], dtype=">i4"), "4294967295.*-2.* 1$"),
        (np.array([1, None]), "integers.*None.* 1$"),
        (np.array([1.0]), "integers.*float64.* 0$"),
        (np.array([True]), "integers.*bool.* 0$"),
        (np.array(["a"]), "integers.*<U1.* 0$"),
        (np.array([[1]]), "one dimension.*array.* 2$"),
        (np.array(3), "one dimension.*array.* 0$"),
        (array("d", [1.0]), 'integers.*"d".* 0$'),
        (array("i", [1, -1]), "4294967295.*-1.* 1$"),
        (memoryview(np.zeros((2, 2), dtype=np.uint32)), "one dimension.*buffer.* 2$"),
        (memoryview(np.zeros(2, dtype=">u4")), 'integers.*">I".* 0$'),
        ("\ud800", "Unicode.*ud800"),
        (3, "got int"),
        (None, "got NoneType"),
        ({1: 2}, "got dict"),
        (iter([1]), "got list_iterator"),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", repr(value)),  # workers of one run must agree on names
)
def test_what_is_no_prompt_is_refused_with_its_first_bad_position(prompt: Any, message: str) -> None:
    for each in [prompt, OwnList(prompt)] if isinstance(prompt, list) else [prompt]:
        with pytest.raises(TokensError, match=message):
            hash_blocks(each)


def test_an_id_that_changes_its_list_while_it_is_read() -> None:
    class Shrinks:
        def __index__(self) -> int:
            del prompt[1:]
            return 1

    for make in (list, OwnList):
        prompt: list[Any] = make([Shrinks(), *range(100)])
        assert hash_blocks(prompt, 1) == hash_blocks([1], 1)


@pytest.mark.parametrize("block_size", [0, 65_537, 2**40, -1, 2**80])
def test_block_sizes_have_limits(block_size: int) -> None:
    with pytest.raises(ConfigError, match=f"block size.*1..=65536.* {block_size}"):
        hash_blocks([1], block_size)


@pytest.mark.parametrize("block_size", [1, 1_536, 2_096, 65_536])
def test_blocks_of_any_size_are_hashed_alike(block_size: int) -> None:
    ids = np.arange(3 * block_size + 1, dtype=np.uint32)
    hashes = hash_blocks(ids, block_size)
    assert (len(hashes), hashes.token_count) == ((3 * block_size + 1) // block_size, len(ids))
    assert hash_blocks(ids[:-block_size], block_size).array.tolist() == hashes.array[:-1].tolist()
    assert hash_blocks("x" * 8 * block_size, block_size).token_count == 2 * block_size


def test_only_full_blocks_are_hashed_and_the_tail_counts_in_tokens() -> None:
    hashes = hash_blocks(list(range(40)))
    assert (len(hashes), hashes.token_count, hashes.block_size) == (2, 40, 16)
    assert hash_blocks(list(range(32)) + [99] * 8).array.tolist() == hashes.array.tolist()


def test_hashes_are_the_same_in_every_process() -> None:
    code = "from prefixroute.hashing import hash_blocks; print(hash_blocks(list(range(64))).array.tolist())"
    for seed in ("0", "1"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        printed = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True
        )
        assert json.loads(printed.stdout) == hash_blocks(list(range(64))).array.tolist()


NAMESPACES = [
    None,
    Namespace(model="S"),
    Namespace(lora="S"),
    Namespace(salt="S"),
    Namespace(lora="S v2"),
    Namespace(model="a", lora="b"),
    Namespace(model="ab"),
    Namespace(model="a\0b"),
    Namespace(extra=((0, "S"),)),
    Namespace(extra=((1, "S"),)),
    Namespace(extra=((0, "S"), (0, "T"))),
    Namespace(extra=((0, "ST"),)),
]


def test_namespaces_never_share_a_hash() -> None:
    chains = [hash_blocks(list(range(64)), 16, namespace).array.tolist() for namespace in NAMESPACES]
    assert len({value for chain in chains for value in chain}) == 4 * len(NAMESPACES)


def test_an_extra_key_changes_the_blocks_from_its_own_on() -> None:
    plain = hash_blocks(list(range(64))).array.tolist()
    keyed = hash_blocks(list(range(64)), 16, Namespace(extra=((40, b"digest"), (33, "other")))).array.tolist()
    assert [left == right for left, right in zip(plain, keyed, strict=True)] == [True, True, False, False]
    swapped = Namespace(extra=((33, "other"), (40, b"digest")))
    assert hash_blocks(list(range(64)), 16, swapped).array.tolist() == keyed
    late = Namespace(extra=((64, "beyond the last token"),))
    assert hash_blocks(list(range(64)), 16, late).array.tolist() == plain


def test_text_and_tokens_never_share_a_hash() -> None:
    ids = np.frombuffer(b"abcd" * 64, dtype=np.uint32)
    assert set(hash_blocks(ids).array.tolist()).isdisjoint(hash_blocks("abcd" * 64).array.tolist())
    with pytest.raises(ConfigError, match="extra keys"):
        hash_blocks("abcd", 16, Namespace(extra=((0, "S"),)))


@pytest.mark.parametrize(
    ("namespace", "message"),
    [
        ("model", r"namespace.*prefixroute\.Namespace.*str$"),
        (Namespace(model=3), "namespace.*str.*bytes.*int$"),  # type: ignore[arg-type]
        (Namespace(extra=((-1, "x"),)), "pairs"),
        (Namespace(extra=(3,)), "pairs"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_namespace_is_refused(namespace: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        hash_blocks([1], 16, namespace)


def test_block_hashes_are_values() -> None:
    hashes = hash_blocks(list(range(100)))
    same = BlockHashes(hashes.array, token_count=100)
    assert same == hashes
    assert hash(same) == hash(hashes)
    assert pickle.loads(pickle.dumps(hashes)) == copy.deepcopy(hashes) == hashes  # noqa: S301 (our own bytes)
    assert hashes != BlockHashes(hashes.array, token_count=101)
    assert hashes != hash_blocks(list(range(1, 101)))
    assert hashes != "something else"
    assert {hashes: 1}[same] == 1
    assert repr(hashes).split() == ["<BlockHashes", "blocks=6", "token_count=100", "block_size=16>"]
    signed = hashes.array.view(np.int64)
    assert BlockHashes(signed, token_count=100) == BlockHashes(signed.tolist(), token_count=100) == hashes


@pytest.mark.parametrize("value", [0, 1, 2**30 - 1, 2**30, 2**60 - 1, 2**60, 2**63, 2**64 - 1, -1, -(2**30), -(2**63)])
def test_a_hash_is_any_64_bits(value: int) -> None:
    assert BlockHashes([value], token_count=16).array.tolist() == [value % 2**64]
    assert BlockHashes([np.int64(7), value], token_count=32).array.tolist() == [7, value % 2**64]


def test_the_array_is_a_read_only_view() -> None:
    hashes = hash_blocks(list(range(64)))
    view = hashes.array
    assert (view.dtype, view.shape, view.flags.writeable) == (np.uint64, (4,), False)
    expected = view.tolist()
    del hashes
    assert view.tolist() == expected
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 0
    assert hash_blocks([]).array.shape == (0,)


def test_head_shares_the_chain() -> None:
    hashes = hash_blocks(list(range(100)))
    assert hashes.head(2) == hash_blocks(list(range(32)))
    assert hashes.head(2, 40) == hash_blocks(list(range(40)))
    assert hashes.head(6, 100) == hashes
    assert hashes.head(4).head(1).array.tolist() == hashes.array[:1].tolist()
    for blocks, tokens in ((7, None), (2, 31), (-1, None), (2, -32)):
        with pytest.raises(ConfigError):
            hashes.head(blocks, tokens)


@pytest.mark.parametrize(
    ("hashes", "tokens", "message"),
    [
        ([1, 2], 31, "token count.* 32 .*2 blocks.* 31$"),
        ([2**64], 16, "64 bits.*18446744073709551616.* 0$"),
        ([2**64 + 5], 16, "64 bits.*18446744073709551621"),
        ([2**90], 16, f"64 bits.*{2**90}"),
        ([-(2**63) - 1], 16, "64 bits.*-9223372036854775809"),
        ([1.5], 16, "int.*bytes.*float.* 0$"),
        ([b"short"], 16, "8 bytes.* 5 .* 0$"),
        (np.zeros((1, 1), dtype=np.uint64), 16, "one dimension"),
        (3, 16, "got int"),
    ],
)
def test_hashes_that_are_none_are_refused(hashes: Any, tokens: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BlockHashes(hashes, token_count=tokens)
