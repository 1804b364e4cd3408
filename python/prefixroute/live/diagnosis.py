"""Why an engine's events arrive and no prompt matches the blocks that they name."""

from __future__ import annotations

from typing import Literal

from prefixroute.errors import PrefixRouteError
from prefixroute.hash_exact import Content, stored_events

NoMatchReason = Literal["block_size", "hashes_only", "lora", "salt", "tokenizer", "unknown"]


def likely_reason(sample: bytes | None, unfilled_size: int | None = None) -> tuple[NoMatchReason, str]:
    """Return the likely reason, and what to do about it.

    The engine's hash algorithm and seed are none: the index matches token ids, and a prompt that comes with hashes under
    another key is refused. The engine's block size is none by itself, as blocks are regrouped. The router's block size is
    one if it is longer than what the engine stores.

    Args:
        sample: a batch of the engine that stores blocks; ``None`` = none is at hand.
        unfilled_size: tokens in a block of the router, if the engine's blocks have never filled one.
    """
    if sample is None:
        return "unknown", "no batch that stores blocks is at hand; compare one with prefixroute.hash_exact.verify"
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
