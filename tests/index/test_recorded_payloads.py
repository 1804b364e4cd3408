"""Batches that vLLM and SGLang recorded themselves, from a folder beside the checkout.

Without it these tests are skipped.

Set PREFIXROUTE_EVENTS to the folder. Each kind of event has a small batch of our own in test_payloads.py.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from prefixroute.errors import EventError
from prefixroute.index import PrefixIndex
from prefixroute.types import Namespace

FOLDER = Path(os.environ.get("PREFIXROUTE_EVENTS", Path(__file__).resolve().parents[3] / "shared" / "events"))
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded events in {FOLDER}: set PREFIXROUTE_EVENTS")


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """Every file by its path below the folder, with what its index says of it."""
    if not FOLDER.is_dir():
        return {}
    entries = json.loads((FOLDER / "index.json").read_text())["files"]
    found = {entry["file"]: entry for entry in entries}
    for entry in json.loads((FOLDER / "managers" / "index.json").read_text())["files"]:
        found[f"managers/{entry['file']}"] = entry
    for entry in json.loads((FOLDER / "engines" / "manifest.json").read_text()):
        timestamp, events, *rank = entry.pop("decoded")
        if isinstance(timestamp, str):  # a load report, which is no batch
            found[f"engines/{entry['file']}"] = {**entry, "expect": "error"}
            continue
        maps = [as_map(event) for event in events]
        found[f"engines/{entry['file']}"] = {**entry, "ts": timestamp, "events": maps, "rank": (rank or [None])[0]}
    return found


def as_map(event: Any) -> dict[str, Any]:
    if isinstance(event, dict):
        return event
    kind, *values = event
    fields = {
        "BlockStored": [
            "block_hashes",
            "parent_block_hash",
            "token_ids",
            "block_size",
            "lora_id",
            "medium",
            "lora_name",
        ],
        "BlockRemoved": ["block_hashes", "medium"],
        "AllBlocksCleared": [],
    }[kind]
    return {"type": kind, **dict(zip(fields, values, strict=False))}


def name_of(value: Any) -> int:
    """A hash as 64 bits: a number, or the last eight bytes of a digest."""
    if isinstance(value, dict):
        return int.from_bytes(bytes.fromhex(next(iter(value.values())))[-8:], "big")
    return int(value) % 2**64


class Engine:
    """What an engine's events say that it holds, by looking: the path of tokens of each name of the indexed group."""

    def __init__(self) -> None:
        self.paths: dict[int, tuple[Any, ...]] = {}
        self.sizes: dict[int, int] = {}
        self.copies: Counter[tuple[int, str]] = Counter()

    def hear(self, event: dict[str, Any]) -> None:
        if event["type"] == "AllBlocksCleared":
            self.copies.clear()
            return
        if event.get("group_idx"):
            return
        medium = (event.get("medium") or "GPU").upper()
        names = [name_of(name) for name in event["block_hashes"]]
        if event["type"] == "BlockRemoved":
            for name in names:
                if self.copies[name, medium]:
                    self.copies[name, medium] -= 1
            return
        parent = event.get("parent_block_hash")
        path = () if parent is None else self.paths.get(name_of(parent))
        size, ids = event["block_size"], event["token_ids"]
        for at, name in enumerate(names):
            if ids:
                if path is None:
                    continue
                path = (*path, *self.block(event, ids[at * size : (at + 1) * size], at))
                self.paths[name], self.sizes[name] = path, size
            if name in self.paths:
                self.copies[name, medium] += 1

    @staticmethod
    def block(event: dict[str, Any], ids: list[Any], at: int) -> list[Any]:
        """Tokens with what keeps them apart, which the first of a chain carries."""
        keys = (event.get("extra_keys") or [None] * (at + 1))[at]
        apart = json.dumps([keys, event.get("lora_name"), event.get("lora_id"), event.get("cache_salt")])
        tokens = [token[0] if isinstance(token, list) else token for token in ids]
        plain = apart in ("[null, null, null, null]", "[[], null, null, null]")
        return tokens if plain else [(token, apart) for token in tokens]

    def held(self, ids: list[int], block_size: int) -> int:
        """Leading tokens of a prompt of which each whole block lies in a block that is held."""
        names = {name for (name, _), copies in self.copies.items() if copies}
        end = block_size
        while end <= len(ids) and any(
            len(path) - self.sizes[name] < end <= len(path) and list(path[:end]) == ids[:end]
            for name, path in self.paths.items()
            if name in names
        ):
            end += block_size
        return end - block_size


GOOD = sorted(file for file, entry in recorded().items() if "events" in entry)
BAD = sorted(file for file, entry in recorded().items() if "events" not in entry)


@pytest.mark.parametrize("file", GOOD)
def test_a_recorded_batch_means_what_its_index_says(file: str) -> None:
    entry = recorded()[file]
    sizes = {event.get("block_size") or 4 for event in entry["events"]}
    for block_size in {4} if max(sizes, default=4) <= 8 else {16}:
        index, engine = PrefixIndex(block_size=block_size), Engine()
        index.add_replica("a")
        done = index.apply("a", (FOLDER / file).read_bytes())
        assert (done.timestamp, done.rank) == (entry["ts"], entry["rank"])
        assert (done.events, done.refused, done.unrecognized) == (len(entry["events"]), 0, 0)
        for event in entry["events"]:
            engine.hear(event)
        for ids in (event["token_ids"] for event in entry["events"] if event.get("token_ids")):
            tokens = [token[0] if isinstance(token, list) else token for token in ids]
            windows = [event for event in entry["events"] if event.get("kv_cache_spec_sliding_window")]
            if not windows:
                assert index.match(tokens).tolist() == [engine.held(tokens, block_size)]


@pytest.mark.parametrize("file", BAD)
def test_a_hostile_batch_costs_what_its_index_says(file: str) -> None:
    expect, payload = recorded()[file]["expect"], (FOLDER / file).read_bytes()
    index = PrefixIndex(block_size=4)
    index.add_replica("a")
    if "error" in expect.lower():
        before = index.to_bytes()
        with pytest.raises(EventError):
            index.apply("a", payload)
        assert index.to_bytes() == before
        return
    done = index.apply("a", payload)
    left_out = done.refused + done.unrecognized
    if "first and third" in expect:
        assert (done.events, left_out, len(done.reasons)) == (3, 1, 1)
        assert done.reasons[0].startswith("event 1: ")
    elif expect in ("applied", "the event applies"):
        assert (left_out, done.stored) == (0, 1)
    elif "either wins" not in expect:
        assert (left_out, len(done.reasons)) == (1, 1)


def after(*files: str, block_size: int = 4, **replica: Any) -> PrefixIndex:
    index = PrefixIndex(block_size=block_size)
    index.add_replica("a", **replica)
    for file in files:
        assert index.apply("a", (FOLDER / file).read_bytes()).refused == 0
    return index


STORED = (
    "engines/vllm_store_root.msgpack",
    "engines/vllm_store_child.msgpack",
    "engines/vllm_store_second_copy.msgpack",
)


@pytest.mark.parametrize(
    ("files", "held"),
    [
        (STORED[:2], [16, 0, 0]),
        ((*STORED, "engines/vllm_removed_one_copy.msgpack"), [16, 0, 0]),
        ((*STORED, "engines/vllm_removed_one_copy.msgpack", "engines/vllm_removed_last_copy.msgpack"), [12, 0, 0]),
        ((*STORED, "engines/vllm_all_cleared.msgpack"), [0, 0, 0]),
        (("managers/vl_duplicate_stored.bin", "managers/vl_duplicate_one_evicted.bin"), [8, 0, 0]),
        (("engines/vllm_group_metadata.msgpack", "engines/vllm_group_removed.msgpack"), [0, 0, 0]),
        (("engines/vllm_two_groups_swa.msgpack",), [16, 0, 0]),
        (("managers/vl_groups_full_mode.bin",), [32, 0, 0]),
        (("engines/vllm_offload.msgpack",), [0, 8, 0]),
        (("engines/vllm_offload_placeholder.msgpack",), [0, 4, 0]),
        (("engines/vllm_mooncake_lowercase.msgpack",), [0, 8, 0]),
        (("managers/vl_stored_root.bin", "managers/vl_offload_placeholder.bin"), [8, 0, 0]),
        (("managers/vl_partial_block.bin",), [12, 0, 0]),
        (("managers/vl_partial_block.bin", "managers/vl_partial_promoted.bin"), [16, 0, 0]),
        (("engines/sglang_store_root.msgpack", "engines/sglang_offload_remove.msgpack"), [0, 8, 0]),
        (("engines/sglang_page_size_1.msgpack",), [8, 0, 0]),
        (("engines/sglang_bigram.msgpack",), [16, 0, 0]),
        (("managers/sg_stored_root.bin", "managers/sg_stored_parent.bin", "managers/sg_removed.bin"), [0, 0, 0]),
        (("managers/sg_stored_root.bin", "managers/sg_stored_parent.bin", "managers/sg_media.bin"), [12, 0, 0]),
        (("vllm_stored_root.bin", "vllm_stored_parent.bin", "vllm_removed.bin"), [4, 0, 0]),
    ],
)
def test_batches_one_after_the_other_hold_what_their_notes_say(files: tuple[str, ...], held: list[int]) -> None:
    assert after(*files).match_media(list(range(1, 37))).tolist() == [held]


def test_reuse_reports_are_no_copies() -> None:
    files = (*STORED[:2], "engines/vllm_reuse_report.msgpack", "engines/vllm_removed_one_copy.msgpack")
    assert after(*files).match(list(range(1, 17))).tolist() == [12]
    assert after(*files, reuse_reports=True).match(list(range(1, 17))).tolist() == [8]


@pytest.mark.parametrize(
    ("file", "space", "held"),
    [
        ("engines/vllm_lora.msgpack", Namespace(lora="sql-adapter"), 8),
        ("engines/vllm_salt.msgpack", Namespace(salt="tenant-1"), 8),
        ("engines/vllm_mm.msgpack", Namespace(extra=((2, "img-a"),)), 12),
        (
            "engines/vllm_lora_mm_salt_session.msgpack",
            Namespace(lora="sql-adapter", salt="tenant-1", extra=((2, "img-a"),)),
            12,
        ),
        ("engines/sglang_lora.msgpack", Namespace(lora="sql-adapter"), 8),
        ("engines/sglang_salt.msgpack", Namespace(salt="s"), 8),
        ("managers/vl_lora_two_mm_salt.bin", Namespace("", "adapter-x", "tenant-a", ((0, "img-1"), (2, "img-2"))), 12),
        ("managers/vl_prompt_embeds.bin", Namespace(extra=((0, b"\x11" * 32),)), 4),
    ],
)
def test_namespaces_of_recorded_batches(file: str, space: Namespace, held: int) -> None:
    index = after(file)
    ids = next(event["token_ids"] for event in recorded()[file]["events"])
    assert index.match(ids, namespace=space).tolist() == [held]
    assert index.match(ids).tolist() == [0]
