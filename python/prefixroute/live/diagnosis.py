"""Why an engine's events arrive and no prompt matches the blocks that they name."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from prefixroute.errors import PrefixRouteError
from prefixroute.hash_exact import StoredEvent, stored_events

if TYPE_CHECKING:
    from prefixroute.types import Namespace

NoMatchReason = Literal["block_size", "hashes_only", "lora", "salt", "tokenizer", "unindexed", "unknown"]
Reason = tuple[NoMatchReason, str]
"""The likely reason, and what to do about it."""

RECENT_BATCHES = 16
"""Batches that stored blocks by which a feed is judged: the last ones."""
FEWEST_BATCHES = 4
"""Of these, the fewest that must have brought the blocks that no prompt matches: fewer are odd ones."""
SAMPLE_BYTES = 1 << 17
"""A recent batch up to this size is kept, to say why nothing matches."""
ODD_SHARE = 1 / 16
"""A smaller share of the blocks, or of the prompts, says nothing of the others."""
_PARENT, _NO_PARENT = b"parent_block_hash", b"parent_block_hash\xc0"
_NIL_THEN_TOKENS = re.compile(
    rb"\xc0(?:\x90|(?:[\x91-\x9f]|\xdc..|\xdd....)[\x00-\x7f\x92\xcc-\xcf])",  # of an event that is an array
    re.DOTALL,
)


def _may_begin(payload: bytes) -> bool:
    """Return whether a batch may have a prompt's first block: true for all that do, and for few others.

    Looking at the bytes costs a fraction of what applying the batch does.
    """
    return _NO_PARENT in payload if _PARENT in payload else _NIL_THEN_TOKENS.search(payload) is not None


class RecentStores:
    """What a feed has stored lately, for a diagnosis: how much, and a sample of batches.

    Only a prompt's first block carries its salt, and most batches of an engine that generates have none. So batches
    with a first block are kept apart.

    Attributes:
        blocks: blocks of each of the last batches, oldest first.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.blocks: deque[int] = deque(maxlen=RECENT_BATCHES)
        self._begin: deque[bytes] = deque(maxlen=RECENT_BATCHES)
        self._last: bytes | None = None

    def note(self, blocks: int, payload: bytes) -> None:
        """Note a batch that stored blocks, or named blocks that nobody could store.

        Args:
            blocks: how many.
            payload: the batch.
        """
        self.blocks.append(blocks)
        if len(payload) <= SAMPLE_BYTES:
            self._last = payload
            if _may_begin(payload):
                self._begin.append(payload)

    @property
    def samples(self) -> tuple[bytes, ...]:
        """The last batches with a prompt's first block, oldest first; else the last batch, if there is one."""
        return tuple(self._begin) or (() if self._last is None else (self._last,))


def is_of_few(blocks: int, recent: Sequence[int]) -> bool:
    """Return whether the last few batches alone have brought so many blocks, so that they tell nothing of the others.

    Args:
        blocks: blocks that no prompt matches.
        recent: blocks of the last batches, oldest first; none = they are not known.
    """
    batches = 0
    for brought in reversed(recent):
        batches, blocks = batches + 1, blocks - brought
        if blocks <= 0:
            return batches < FEWEST_BATCHES
    return False


def is_mostly_unfilled(samples: Sequence[bytes], stored: int, unfilled: int, block_size: int) -> bool:
    """Return whether most blocks of an engine ended before they filled one of the router's.

    Args:
        samples: batches of the engine that store blocks.
        stored: blocks of the router that were filled.
        unfilled: blocks of the engine that filled none, those that begin a filled one included.
        block_size: tokens in a block of the router.
    """
    sizes = Counter(event.block_size for event in _read(samples)[0])
    if not sizes or not unfilled:
        return False
    parts = max(1, block_size // sizes.most_common(1)[0][0])
    return unfilled - stored * (parts - 1) > stored * parts


def likely_reason(
    samples: Sequence[bytes],
    routed: Sequence[Namespace | None] = (),
    *,
    unfilled_size: int | None = None,
    unindexed: bool = False,
) -> Reason:
    """Return the likely reason, and what to do about it: that of most blocks, so that an odd one does not hide it.

    The engine's hash algorithm and seed are none: the index matches token ids, and a prompt that comes with hashes
    under another key is refused. The engine's block size is none by itself, as blocks are regrouped. The router's block
    size is one if it is longer than what the engine stores.

    Args:
        samples: batches of the engine that store blocks; none = none are at hand.
        routed: namespaces that recent prompts were hashed under; none = prompts without one.
        unfilled_size: tokens in a block of the router, if most of the engine's blocks have not filled one.
        unindexed: no block could be indexed, as all are of attention groups that the index does not follow.
    """
    if unindexed:
        return (
            "unindexed",
            "all blocks belong to attention groups that the index does not follow: see the events' group_idx",
        )
    if not samples:
        return "unknown", "no batch that stores blocks is at hand; compare one with prefixroute.hash_exact.verify"
    events, without, refused = _read(samples)
    if refused and not events and not without:
        return "unknown", refused
    if not events or without * 2 > len(samples):
        return (
            "hashes_only",
            "events carry hashes without token ids: nobody can compare them but by the engine's scheme",
        )
    if unfilled_size is not None:
        sizes = ", ".join(str(size) for size in sorted({event.block_size for event in events}))
        found = f"the engine's blocks of {sizes} tokens end before they fill one of the router's {unfilled_size}"
        return "block_size", f"{found}: give the router the engine's block_size"
    return _of_namespaces([event for event in events if event.parent is None] or events, routed or [None])


def _read(samples: Sequence[bytes]) -> tuple[list[StoredEvent], int, str]:
    """Return the events with token ids, how many batches have none, and why a batch could not be read."""
    events: list[StoredEvent] = []
    without, refused = 0, ""
    for sample in samples:
        try:
            found = list(stored_events(sample))
        except PrefixRouteError as error:
            refused = str(error)
        else:
            without += not found
            events += found
    return events, without, refused


def _of_namespaces(events: list[StoredEvent], routed: Sequence[Namespace | None]) -> Reason:
    """Return the reason that lies in what blocks belong to and what prompts were routed under, else the tokens."""
    loras, asked = [event.adapter or "" for event in events], ["" if one is None else one.lora for one in routed]
    if _differ(loras, asked):
        found = f"blocks belong to {_adapters(loras)}, prompts were routed under {_adapters(asked)}"
        return "lora", f"{found}: route each request with the Namespace(lora=...) that its engine serves it under"
    salts = [event.contents[0].salt or "" for event in events]
    salted = ["" if one is None else one.salt for one in routed]
    if _differ(salts, salted):
        found = f"{_share(salts)} of the blocks are salted and {_share(salted)} of the prompts"
        return "salt", f"{found}: give a request the same Namespace(salt=...) and cache_salt"
    return "tokenizer", "token ids of prompts are not the engine's: compare tokenizer, chat template and special tokens"


def _differ(blocks: list[str], prompts: list[str]) -> bool:
    """Return whether all but odd blocks have what no prompt has, or the other way round."""
    shares = [
        sum(one in others for one in ones) / len(ones)
        for ones, others in ((blocks, set(prompts)), (prompts, set(blocks)))
    ]
    return min(shares) < ODD_SHARE


def _adapters(names: list[str]) -> str:
    most = [name for name, _ in Counter(names).most_common(3)]
    return ", ".join(f"adapter {name!r}" if name else "the base model" for name in most)


def _share(salts: list[str]) -> str:
    return f"{sum(map(bool, salts)) / len(salts):.0%}"
