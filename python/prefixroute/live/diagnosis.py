"""Why an engine's events arrive and no prompt matches the blocks that they name."""

from __future__ import annotations

from typing import Literal

from prefixroute.errors import PrefixRouteError
from prefixroute.hash_exact import stored_events

NoMatchReason = Literal["hashes_only", "lora", "salt", "tokenizer", "unknown"]


def likely_reason(sample: bytes | None) -> tuple[NoMatchReason, str]:
    """Return the likely reason, and what to do about it.

    The engine's block size, hash algorithm and seed are none: the index matches token ids, and regroups blocks of any
    size.

    Args:
        sample: a batch of the engine that stores blocks; ``None`` = none is at hand.
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
    contents = [content for event in events for content in event.contents]
    adapters = sorted({content.lora for content in contents if content.lora is not None})
    if adapters:
        return "lora", f"blocks belong to adapters {', '.join(adapters)}: route such requests with Namespace(lora=...)"
    if any(content.salt is not None for content in contents):
        return "salt", "blocks are salted: route such requests with Namespace(salt=...)"
    return "tokenizer", "token ids of prompts are not the engine's: compare tokenizer, chat template and special tokens"
