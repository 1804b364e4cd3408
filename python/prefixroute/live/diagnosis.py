"""Why an engine's events arrive and no prompt matches the blocks that they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from prefixroute.errors import PrefixRouteError
from prefixroute.hash_exact import Content, stored_events

NoMatchReason = Literal["block_size", "hashes_only", "lora", "salt", "tokenizer", "unknown"]


RECENT_BATCHES = 16
"""Batches that stored blocks by which a feed is judged: the last ones."""
FEWEST_BATCHES = 4
"""Of these, the fewest that must have brought the blocks that no prompt matches: fewer are odd ones."""


class RecentBatch(NamedTuple):
    """A batch that stored blocks, or named blocks that nobody could store.

    Attributes:
        blocks: how many.
        payload: its bytes; ``None`` = too many to be kept.
    """

    blocks: int
    payload: bytes | None


def is_of_few(blocks: int, recent: Sequence[RecentBatch]) -> bool:
    """Return whether the last few batches alone have brought so many blocks, so that they tell nothing of the others.

    Args:
        blocks: blocks that no prompt matches.
        recent: the last batches, oldest first; none = they are not known.
    """
    batches = 0
    for batch in reversed(recent):
        batches, blocks = batches + 1, blocks - batch.blocks
        if blocks <= 0:
            return batches < FEWEST_BATCHES
    return False


def likely_reason(samples: Sequence[bytes], unfilled_size: int | None = None) -> tuple[NoMatchReason, str]:
    """Return the likely reason, and what to do about it: that of most batches, so that an odd one does not hide it.

    The engine's hash algorithm and seed are none: the index matches token ids, and a prompt that comes with hashes
    under another key is refused. The engine's block size is none by itself, as blocks are regrouped. The router's block
    size is one if it is longer than what the engine stores.

    Args:
        samples: batches of the engine that store blocks; none = none are at hand.
        unfilled_size: tokens in a block of the router, if the engine's blocks have never filled one.
    """
    if not samples:
        return "unknown", "no batch that stores blocks is at hand; compare one with prefixroute.hash_exact.verify"
    found = [_reason_of(sample, unfilled_size) for sample in samples]
    votes = Counter(reason for reason, _ in found)
    # Of as many votes, the newer one.
    reason = max(reversed([reason for reason, _ in found]), key=votes.__getitem__)
    return reason, next(detail for other, detail in reversed(found) if other == reason)


def _reason_of(sample: bytes, unfilled_size: int | None) -> tuple[NoMatchReason, str]:
    try:
        events = list(stored_events(sample))
    except PrefixRouteError as error:
        return "unknown", str(error)
    if not events:
        return (
            "hashes_only",
            "events carry hashes without token ids: nobody can compare them but by the engine's scheme",
        )
    if unfilled_size is not None:
        sizes = ", ".join(str(size) for size in sorted({event.block_size for event in events}))
        found = f"the engine's blocks of {sizes} tokens end before they fill one of the router's {unfilled_size}"
        return "block_size", f"{found}: give the router the engine's block_size"
    return _of_contents([content for event in events for content in event.contents])


def _of_contents(contents: list[Content]) -> tuple[NoMatchReason, str]:
    """Return the reason that lies in what the blocks are made of."""
    adapters = sorted({content.lora for content in contents if content.lora is not None})
    if adapters:
        return "lora", f"blocks belong to adapters {', '.join(adapters)}: route such requests with Namespace(lora=...)"
    if any(content.salt is not None for content in contents):
        return "salt", "blocks are salted: route such requests with Namespace(salt=...)"
    return "tokenizer", "token ids of prompts are not the engine's: compare tokenizer, chat template and special tokens"
