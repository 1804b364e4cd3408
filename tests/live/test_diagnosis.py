"""Events arrive over real sockets and no prompt matches them: which reason is told for what is sent and routed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack
import pytest

from prefixroute import Namespace, Router
from prefixroute.live import FollowOptions, KvFeed, likely_reason
from prefixroute.live.diagnosis import RECENT_BATCHES, RecentStores
from prefixroute.testing import EventPublisher
from waiting import until

QUICK = FollowOptions(reconnect_s=0.01, reconnect_max_s=0.05, replay_timeout_s=0.5, audit_s=0.1)
EVENTS, STEP, PROMPTS, OTHER = 1_200, 20, 80, 1_000_000
Event = dict[str, Any]


def block(number: int, **fields: Any) -> Event:
    """A store of one 4-token block, the first of its prompt, as the engine and a prompt of the router have it."""
    event = {
        "type": "BlockStored",
        "block_hashes": [number + 1],
        "parent_block_hash": None,
        "token_ids": [number] * 4,
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": None,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
    return event | fields


def other(number: int, **fields: Any) -> Event:
    """The same with tokens that no prompt has."""
    return block(number, token_ids=[OTHER + number] * 4, **fields)


def growth(number: int) -> Event:
    """A block of an answer: it goes on from a prompt's first block and carries no salt."""
    return other(OTHER + number, parent_block_hash=1 + number % 500)


class Row(NamedTuple):
    sent: Callable[[int], list[Event]]
    routed: Callable[[int], Namespace | None]
    reason: str | None
    block_size: int = 4


def plain(_: int) -> None:
    return None


def under(**fields: Any) -> Callable[[int], Namespace]:
    return lambda _: Namespace(**fields)


SALTED: dict[str, Any] = {"extra_keys": [["s"]]}
LONG = block(
    0, block_hashes=list(range(OTHER, OTHER + 16)), token_ids=list(range(OTHER, OTHER + 64)), extra_keys=[None] * 16
)
ROWS = {
    "as routed": Row(lambda i: [block(i)], plain, None),
    "other tokens": Row(lambda i: [other(i)], plain, "tokenizer"),
    "other tokens, both under an adapter": Row(lambda i: [other(i, lora_name="l")], under(lora="l"), "tokenizer"),
    "other tokens, both under a numbered adapter": Row(lambda i: [other(i, lora_id=7)], under(lora="7"), "tokenizer"),
    "other tokens, the adapter as the model": Row(lambda i: [other(i, lora_name="l")], under(model="l"), "tokenizer"),
    "other tokens, both salted": Row(lambda i: [other(i, **SALTED)], under(salt="s"), "tokenizer"),
    "other tokens, many tenants": Row(
        lambda i: [other(i, extra_keys=[[f"tenant {i % 40}"]])],
        lambda i: Namespace(salt=f"tenant {i % 40}"),
        "tokenizer",
    ),
    "other tokens, one block of an adapter last": Row(
        lambda i: [other(i), *([block(OTHER, lora_name="l")] if i == EVENTS - 1 else [])], plain, "tokenizer"
    ),
    "other tokens, one prompt of an adapter": Row(
        lambda i: [other(i)], lambda i: Namespace(lora="l") if i == PROMPTS - 1 else None, "tokenizer"
    ),
    "other tokens, a mixed fleet": Row(
        lambda i: [other(i, lora_name="l" if i % 3 else None)],
        lambda i: None if i % 3 else Namespace(lora="l"),
        "tokenizer",
    ),
    "salted prompts": Row(lambda i: [block(i)], under(salt="t"), "salt"),
    "salted prompts but one": Row(
        lambda i: [other(i)], lambda i: Namespace(salt="t") if i != PROMPTS - 1 else Namespace(), "salt"
    ),
    "salted blocks": Row(lambda i: [block(i, **SALTED)], plain, "salt"),
    "another salt": Row(lambda i: [block(i, **SALTED)], under(salt="t"), "salt"),
    "salted blocks, then growth": Row(
        lambda i: [block(i, **SALTED)] if i < EVENTS - STEP else [growth(i)], plain, "salt"
    ),
    "salted blocks, then much growth": Row(lambda i: [block(i, **SALTED)] if i < 600 else [growth(i)], plain, "salt"),
    "prompts of an adapter": Row(lambda i: [block(i)], under(lora="l"), "lora"),
    "blocks of an adapter": Row(lambda i: [block(i, lora_name="l")], plain, "lora"),
    "blocks of a numbered adapter": Row(lambda i: [block(i, lora_id=7)], plain, "lora"),
    "another adapter": Row(lambda i: [block(i, lora_name="l")], under(lora="m"), "lora"),
    "short blocks": Row(lambda i: [block(i)], plain, "block_size", 64),
    "short blocks after a long one": Row(lambda i: [block(i)] if i else [LONG], plain, "block_size", 64),
    "a group that is not followed": Row(
        lambda i: [block(i, group_idx=1, kv_cache_spec_kind="unknown")], plain, "unindexed"
    ),
    "other tokens, and groups that are not followed": Row(
        lambda i: [other(i), *(other(i, group_idx=group, kv_cache_spec_kind="mamba") for group in (1, 2, 3))],
        plain,
        "tokenizer",
    ),
    "no token ids": Row(lambda i: [block(i, token_ids=[], block_size=0, medium="CPU")], plain, "hashes_only"),
    "no token ids but once": Row(
        lambda i: [block(i, token_ids=[], block_size=0, medium="CPU") if i else other(0)], plain, "hashes_only"
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_the_likely_reason(row: Row) -> None:
    with EventPublisher() as publisher:
        router = Router(["a", "b"], block_size=row.block_size)
        with router.follow({"a": KvFeed(publisher.endpoint, publisher.replay)}, options=QUICK):
            for first in range(0, EVENTS, STEP):
                events = [event for number in range(first, first + STEP) for event in row.sent(number)]
                publisher.publish(msgpack.packb([1.5, events, None]))
            until(lambda: router.stats()["replicas"]["a"]["feed"]["applied"] >= EVENTS // STEP)
            for number in range(PROMPTS):
                router.route([number] * row.block_size, namespace=row.routed(number)).finish()
            found = router.stats()["replicas"]["a"]["nothing_matches"]
            assert (None if found is None else found["reason"]) == row.reason, found


FIELDS = ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")


def as_array(event: Event) -> list[Any]:
    return [event[name] for name in (*FIELDS, "extra_keys")]


@pytest.mark.parametrize("form", [dict, as_array])
@pytest.mark.parametrize("tokens", [list(range(4)), [300, 70_000, 1, 2], list(range(400)), [[1, 2], [2, 3]] * 2])
def test_first_blocks_outlast_growth_in_the_sample(form: Callable[[Event], Any], tokens: list[Any]) -> None:
    recent = RecentStores()
    assert recent.samples == ()
    hashes = list(range(1, 1 + len(tokens) // 4))
    keys: list[Any] = [["s"], *[None] * (len(hashes) - 1)]
    begin = block(0, token_ids=tokens, block_hashes=hashes, extra_keys=keys)
    first = msgpack.packb([1.5, [form(begin)], None])
    after = msgpack.packb([1.5, [form(begin | {"parent_block_hash": 2**63, "extra_keys": [None] * len(hashes)})], None])
    recent.note(1, after)
    assert recent.samples == (after,)  # there is no better one
    recent.note(1, first)
    for _ in range(4 * RECENT_BATCHES):
        recent.note(1, after)
    assert recent.samples == (first,)
    assert likely_reason(recent.samples)[0] == "salt"
    for _ in range(4 * RECENT_BATCHES):
        recent.note(1, first)
    assert len(recent.samples) == len(recent.blocks) == RECENT_BATCHES
