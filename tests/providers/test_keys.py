"""Routing keys: documented, stable, even, and hardly moved when their number changes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from prefixroute import ConfigError, cache_key
from prefixroute.providers import prefix_key, shard_of, shards_for
from prefixroute.providers.keys import jump_hash

USERS = [f"user-{number}" for number in range(10_000)]


def test_120_a_minute_need_8_keys_and_1000_users_share_them_evenly() -> None:
    shards = shards_for(120, 15)
    assert shards == 8
    rate = Counter(cache_key(f"id-{number}", shards) for number in range(1_000))
    assert len(rate) == 8
    assert max(rate.values()) * 120 / 1_000 == pytest.approx(15, rel=0.25)


def test_keys_are_the_same_in_every_process_and_for_ever() -> None:
    golden = {"user-1": 4, "user-2": 4, "Zoë": 0, "17": 3}
    assert {user: shard_of(user, 8) for user in golden} == golden
    assert shard_of(17, 8) == shard_of("17", 8) == shard_of(b"17", 8)
    code = (
        f"from prefixroute.providers import shard_of; print({{user: shard_of(user, 8) for user in {list(golden)!r}}})"
    )
    for seed in ("1", "2"):
        said = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert said.stdout.strip() == repr(golden)


@pytest.mark.parametrize(
    ("key", "buckets", "bucket"),
    [(1, 1, 0), (42, 57, 43), (0xDEAD10CC, 1, 0), (0xDEAD10CC, 666, 361), (256, 1024, 520)],
)
def test_jump_hash_gives_what_other_implementations_give(key: int, buckets: int, bucket: int) -> None:
    assert jump_hash(key, buckets) == bucket


def test_one_key_more_moves_one_user_in_nine_and_only_to_it() -> None:
    before, after = [shard_of(user, 8) for user in USERS], [shard_of(user, 9) for user in USERS]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {8}
    assert len(moved) / len(USERS) == pytest.approx(1 / 9, abs=0.01)


def test_the_number_of_shards_is_no_part_of_the_key() -> None:
    stays = next(user for user in USERS if shard_of(user, 8) == shard_of(user, 9))
    assert cache_key(stays, 8) == cache_key(stays, 9)
    assert cache_key(stays, 8, prefix="support") == f"support-{shard_of(stays, 8)}"


@pytest.mark.parametrize("user", [None, "", b"", 1.5, True])
def test_no_id_is_no_user(user: object) -> None:
    with pytest.raises(ConfigError, match="user's id"):
        cache_key(user, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rate", "limit"), [(-1, 15), (float("nan"), 15), (10, 0), (10, float("nan")), (1e300, 1e-300)]
)
def test_impossible_rates(rate: float, limit: float) -> None:
    with pytest.raises(ConfigError):
        shards_for(rate, limit)


@pytest.mark.parametrize(("rate", "shards"), [(0, 1), (15, 1), (15.1, 2), (0.1 * 3 * 50, 1), (1_000, 67)])
def test_shards_for(rate: float, shards: int) -> None:
    assert shards_for(rate, 15) == shards


def body(question: str, *, marked: bool = True, system: str = "Be brief.") -> dict[str, object]:
    block: dict[str, object] = {"type": "text", "text": system}
    if marked:
        block["cache_control"] = {"type": "ephemeral"}
    return {"model": "m", "system": [block], "messages": [{"role": "user", "content": question}]}


@pytest.mark.parametrize("marked", [True, False])
def test_the_key_of_a_prompt_ends_at_its_breakpoint(marked: bool) -> None:
    one, other = body("Why?", marked=marked), body("How?", marked=marked)
    assert prefix_key(one) == prefix_key(other)
    assert prefix_key(one) != prefix_key(body("Why?", marked=marked, system="Be long."))


def test_marks_are_no_content_and_a_later_mark_is_a_longer_key() -> None:
    assert prefix_key(body("Why?", marked=True)) == prefix_key(body("Why?", marked=False))
    longer = body("Why?")
    longer["messages"] = [
        {"role": "user", "content": [{"type": "text", "text": "Why?", "cache_control": {"type": "x"}}]}
    ]
    assert prefix_key(longer) != prefix_key(body("Why?"))


def test_a_system_message_of_the_other_api_is_part_of_the_key() -> None:
    def chat(system: str, question: str) -> dict[str, object]:
        return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": question}]}

    assert prefix_key(chat("s", "a")) == prefix_key(chat("s", "b")) != prefix_key(chat("t", "a"))
    with pytest.raises(ConfigError, match="mapping"):
        prefix_key([])  # type: ignore[arg-type]
