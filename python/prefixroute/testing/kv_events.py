"""What an engine's cache does, as KV events in vLLM's and in SGLang's format."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from prefixroute.extras import extra_module
from prefixroute.hashing import BlockHashes
from prefixroute.sim.replica import CacheEvent
from prefixroute.types import Namespace

Format = Literal["vllm", "sglang"]
_HALF, _WHOLE = 1 << 63, 1 << 64


@dataclass(frozen=True, slots=True)
class BlockContent:
    """What a block is made of.

    Attributes:
        tokens: its token ids.
        namespace: adapter and salt.
        first: whether it is the first of its prompt.
    """

    tokens: tuple[int, ...]
    namespace: Namespace
    first: bool


class EventEncoder:
    """Turns what a cache did into the batches that an engine would publish. Not thread-safe.

    Block hashes in events are opaque to routers; here they are the library's own chained hashes.

    Args:
        block_size: tokens in a block.
        format: whose format; SGLang's hashes are signed, and its batches always have a rank.
        rank: data-parallel rank.
        clock: the Unix time, as engines stamp batches with it.
    """

    def __init__(
        self,
        block_size: int,
        format: Format = "vllm",  # noqa: A002  # the field's word
        rank: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._block_size, self._sglang, self._rank, self._clock = block_size, format == "sglang", rank, clock
        self._pack: Callable[[Any], bytes] = extra_module("msgpack", "testing").packb
        self._contents: dict[int, BlockContent] = {}
        self._held: set[int] = set()
        self._wanted: Counter[int] = Counter()  # requests in flight, by block

    def learn(self, hashes: BlockHashes, tokens: list[int], namespace: Namespace) -> None:
        """Note what the blocks of a request are made of, before the cache stores them.

        Args:
            hashes: of the request's full blocks.
            tokens: of the request.
            namespace: of the request.
        """
        size, blocks = self._block_size, hashes.array.tolist()
        self._wanted.update(blocks)
        for number, block in enumerate(blocks):
            if block not in self._contents:
                content = tuple(tokens[number * size : (number + 1) * size])
                self._contents[block] = BlockContent(content, namespace, number == 0)

    def forget(self, hashes: BlockHashes) -> None:
        """Note that a request has ended, as often as :meth:`learn` was called for it.

        Args:
            hashes: that were learned.
        """
        for block in hashes.array.tolist():
            self._wanted[block] -= 1
            if self._wanted[block] <= 0:
                del self._wanted[block]
                self._drop(block)

    def _drop(self, block: int) -> None:
        """Forget what a block is made of, if it is neither held nor in flight."""
        if block not in self._held and block not in self._wanted:
            self._contents.pop(block, None)

    def encode(self, events: Iterable[CacheEvent]) -> bytes | None:
        """Return a batch of what the cache did; ``None`` if it did nothing.

        Args:
            events: of the cache, in order.
        """
        told = []
        for event in events:
            blocks = event.blocks.tolist()
            if event.kind == "stored":
                self._held.update(blocks)
                told.append(self._stored(event.parent, blocks))
            else:
                told.append({"type": "BlockRemoved", "block_hashes": self._names(blocks), "medium": "GPU"})
                self._held.difference_update(blocks)
                for block in blocks:
                    self._drop(block)
        return self._batch(told) if told else None

    def cleared(self) -> bytes:
        """Return the batch that says that the cache was reset."""
        held = list(self._held)
        self._held.clear()
        for block in held:
            self._drop(block)
        return self._batch([{"type": "AllBlocksCleared"}])

    def _stored(self, parent: int | None, blocks: list[int]) -> dict[str, Any]:
        contents = [self._contents[block] for block in blocks]
        namespace = contents[0].namespace
        event = {
            "type": "BlockStored",
            "block_hashes": self._names(blocks),
            "parent_block_hash": None if parent is None else self._names([parent])[0],
            "token_ids": [token for content in contents for token in content.tokens],
            "block_size": self._block_size,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": namespace.lora or None,
        }
        if self._sglang:
            return event | ({"cache_salt": namespace.salt} if namespace.salt else {})
        extra = [_extra_keys(content) for content in contents]
        return event | {"extra_keys": extra, "group_idx": 0, "kv_cache_spec_kind": "full_attention"}

    def _names(self, blocks: list[int]) -> list[int]:
        if self._sglang:
            return [block - _WHOLE if block >= _HALF else block for block in blocks]
        return blocks

    def _batch(self, events: list[dict[str, Any]]) -> bytes:
        return self._pack([self._clock(), events, self._rank])


def _extra_keys(content: BlockContent) -> list[str] | None:
    """Return vLLM's extra keys of a block: adapter, and the salt on the first."""
    namespace = content.namespace
    keys = [namespace.lora] if namespace.lora else []
    if namespace.salt and content.first:
        keys.append(namespace.salt)
    return keys or None
