"""The hashes in the batches that vLLM and SGLang recorded themselves. See tests/index/test_recorded_payloads.py.

Set PREFIXROUTE_EVENTS to the folder; without it these tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from prefixroute import EventError
from prefixroute.hash_exact import HashScheme, SglangHashes, VllmHashes, stored_events, verify
from prefixroute.live import likely_reason
from prefixroute.live.frames import read_load

FOLDER = Path(os.environ.get("PREFIXROUTE_EVENTS", Path(__file__).resolve().parents[3] / "shared" / "events"))
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded events in {FOLDER}: set PREFIXROUTE_EVENTS")
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("**/*") if path.suffix in (".bin", ".msgpack"))

ENGINES, MANAGERS = VllmHashes(), VllmHashes("sha256_cbor")
EXPECTED: dict[str, tuple[HashScheme[Any], str | None]] = {
    # Every block agrees, or the reason that must be named.
    "engines/vllm_store_root.msgpack": (ENGINES, None),
    "engines/vllm_store_child.msgpack": (ENGINES, "parent"),
    "engines/vllm_store_second_copy.msgpack": (ENGINES, None),
    "engines/vllm_reuse_report.msgpack": (ENGINES, None),
    "engines/vllm_lora.msgpack": (ENGINES, "lora"),
    "engines/vllm_salt.msgpack": (ENGINES, None),
    "engines/vllm_mm.msgpack": (ENGINES, None),
    "engines/vllm_lora_mm_salt_session.msgpack": (ENGINES, "lora"),
    "engines/vllm_lookahead.msgpack": (VllmHashes(look_ahead=1), None),
    "engines/vllm_two_groups_swa.msgpack": (ENGINES, "block_size"),
    "engines/vllm_masked_blocks.msgpack": (ENGINES, None),
    "engines/vllm_partial_promoted.msgpack": (ENGINES, "block_size"),
    "engines/sglang_store_root.msgpack": (SglangHashes(), None),
    "engines/sglang_page_size_1.msgpack": (SglangHashes(), None),
    "engines/sglang_bigram.msgpack": (SglangHashes(bigram=True), None),
    "engines/sglang_salt.msgpack": (SglangHashes(), None),
    "engines/sglang_lora.msgpack": (SglangHashes(), "lora"),
    "engines/sglang_dynamo_lora.msgpack": (SglangHashes(dynamo_format=True), "lora"),
    "engines/sglang_dynamo_salt.msgpack": (SglangHashes(dynamo_format=True), None),
    "engines/sglang_short_page.msgpack": (SglangHashes(), None),
    "managers/vl_stored_root.bin": (MANAGERS, None),
    "managers/vl_stored_parent.bin": (MANAGERS, "parent"),
    "managers/vl_reuse_full_mode.bin": (MANAGERS, None),
    "managers/vl_duplicate_stored.bin": (MANAGERS, None),
    "managers/vl_lora.bin": (MANAGERS, "lora"),
    "managers/vl_salt.bin": (MANAGERS, None),
    "managers/vl_mm.bin": (MANAGERS, None),
    "managers/vl_lora_two_mm_salt.bin": (MANAGERS, "lora"),
    "managers/vl_lookahead.bin": (VllmHashes("sha256_cbor", look_ahead=1), None),
    "managers/vl_decode_grows.bin": (MANAGERS, None),
    "managers/vl_bytes_hashes.bin": (MANAGERS, None),
    "managers/vl_bytes16_hashes.bin": (VllmHashes("xxhash_cbor", "0"), None),
    "managers/vl_groups.bin": (MANAGERS, None),
    "managers/vl_groups_full_mode.bin": (MANAGERS, None),
    "managers/vl_groups_block_sizes.bin": (MANAGERS, "block_size"),
    "managers/vl_masked_blocks.bin": (MANAGERS, None),
    "managers/vl_partial_block.bin": (MANAGERS, "block_size"),
    "managers/vl_partial_promoted.bin": (MANAGERS, "parent"),
    "managers/vl_thousand.bin": (MANAGERS, None),
    "managers/sg_stored_root.bin": (SglangHashes(), None),
    "managers/sg_stored_parent.bin": (SglangHashes(), "parent"),
    "managers/sg_extra_key_only.bin": (SglangHashes(extra_key="any"), None),
    "managers/sg_salt_session.bin": (SglangHashes(), None),
    "managers/sg_lora.bin": (SglangHashes(), "lora"),
    "managers/sg_bigram.bin": (SglangHashes(bigram=True), None),
    "managers/sg_page_1.bin": (SglangHashes(), None),
    "managers/sg_short_last_page.bin": (SglangHashes(), None),
    "managers/sg_thousand.bin": (SglangHashes(), None),
    "vllm_stored_root.bin": (MANAGERS, None),
    "sglang_stored_root.bin": (SglangHashes(), None),
}


@pytest.mark.parametrize("file", EXPECTED)
def test_the_engine_s_hashes_are_reproduced_or_the_reason_is_named(file: str) -> None:
    scheme, reason = EXPECTED[file]
    found = verify(stored_events((FOLDER / file).read_bytes()), scheme)
    assert found.reason == reason, found
    if reason is None:
        assert (found.mismatched, found.unchecked) == (0, 0)
    if reason not in ("parent", "lora"):
        assert found.scheme == scheme  # never another algorithm or seed


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("engines/vllm_lora.msgpack", "/models/sql"),
        ("engines/vllm_lora_mm_salt_session.msgpack", "/models/sql"),
        ("managers/vl_lora.bin", "/models/adapter-x"),
        ("managers/vl_lora_two_mm_salt.bin", "/models/adapter-x"),
    ],
)
def test_adapters_of_vllm_are_reproduced_with_their_path(file: str, path: str) -> None:
    found = verify(stored_events((FOLDER / file).read_bytes(), path), EXPECTED[file][0])
    assert (found.reason, found.mismatched, found.unchecked) == (None, 0, 0)


@pytest.mark.parametrize("file", FILES)
def test_every_recorded_file_is_read_or_refused(file: str) -> None:
    payload = (FOLDER / file).read_bytes()
    if "loadstat" in file:
        assert read_load(payload).running >= 0
    try:
        events = list(stored_events(payload))
    except EventError:
        assert file.rpartition("/")[2].startswith("bad_") or "loadstat" in file
        return
    found = verify(events, MANAGERS)
    assert found.matched + found.mismatched + found.unchecked == sum(len(event.hashes) for event in events)
    assert likely_reason([payload])[1]
