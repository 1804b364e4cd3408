"""A belief in pure Python: the dull twin of an index behind the router, exact and slow."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixroute.types import Namespace


@dataclass(frozen=True, eq=False)
class FakeBlocks:
    """A hashed prompt."""

    array: NDArray[np.uint64]
    token_count: int
    block_size: int

    def __len__(self) -> int:
        return len(self.array)


@dataclass(frozen=True)
class FakeInsertion:
    """What an insert created."""

    held_before: int
    created: frozenset[int]
    stamp: int


class FakeBelief:
    """Blocks by replica in LRU order, evicted one by one from the tail of the oldest chain."""

    def __init__(self, block_size: int = 16) -> None:
        self.block_size = block_size
        self.names: list[str | None] = []
        self.held: list[OrderedDict[int, int]] = []  # block hash -> stamp of the insert that last touched it
        self.capacity: list[int | None] = []
        self.stamp = 0

    @property
    def replicas(self) -> tuple[str | None, ...]:
        return tuple(self.names)

    def add_replica(self, name: str, capacity_tokens: int | None = None) -> int:
        if None in self.names:
            slot = self.names.index(None)
        else:
            slot = len(self.names)
            self.names.append(None)
            self.held.append(OrderedDict())
            self.capacity.append(None)
        self.names[slot], self.held[slot], self.capacity[slot] = name, OrderedDict(), capacity_tokens
        return slot

    def remove_replica(self, name: str) -> None:
        slot = self.names.index(name)
        self.names[slot], self.held[slot] = None, OrderedDict()

    def clear(self, name: str | None = None) -> None:
        for slot, known in enumerate(self.names):
            if name in (None, known):
                self.held[slot].clear()

    def new_epoch(self) -> None:
        self.clear()

    def set_capacity(self, name: str, tokens: int | None) -> None:
        slot = self.names.index(name)
        self.capacity[slot] = tokens
        self._evict(slot)

    def hash(self, prompt: Any, namespace: Namespace | None = None) -> FakeBlocks:
        if hasattr(prompt, "token_count"):
            return prompt
        if isinstance(prompt, str):
            prompt = prompt.encode()
        text = isinstance(prompt, bytes)
        data = prompt if isinstance(prompt, bytes) else np.asarray(prompt, np.uint32).tobytes()
        width = 4 * self.block_size  # four bytes a token, of text as well
        count = -(-len(data) // 4) if text else len(data) // 4
        chain, hashes = blake2b(repr(namespace or "").encode(), digest_size=8).digest(), []
        for start in range(0, len(data) - width + 1, width):
            chain = blake2b(chain + data[start : start + width], digest_size=8).digest()
            hashes.append(int.from_bytes(chain, "little"))
        return FakeBlocks(np.array(hashes, np.uint64), count, self.block_size)

    def hash_and_match(self, prompt: Any, out: NDArray[np.uint32], namespace: Namespace | None = None) -> FakeBlocks:
        blocks = self.hash(prompt, namespace)
        hashes = blocks.array.tolist()
        for slot, held in enumerate(self.held):
            depth = 0
            while depth < len(hashes) and hashes[depth] in held:
                depth += 1
            out[slot] = depth * self.block_size
        return blocks

    def insert(self, name: str, prompt: Any, namespace: Namespace | None = None, now: float = 0.0) -> FakeInsertion:
        del now
        slot = self.names.index(name)
        held, hashes = self.held[slot], self.hash(prompt, namespace).array.tolist()
        self.stamp += 1
        created = frozenset(h for h in hashes if h not in held)
        before = 0
        while before < len(hashes) and hashes[before] in held:
            before += 1
        for block in reversed(hashes):  # the tail is older than the head
            held[block] = self.stamp
            held.move_to_end(block)
        self._evict(slot)
        return FakeInsertion(before * self.block_size, created, self.stamp)

    def held_tokens(self) -> list[int]:
        return [len(held) * self.block_size for held in self.held]

    def _evict(self, slot: int) -> None:
        capacity = self.capacity[slot]
        while capacity is not None and len(self.held[slot]) * self.block_size > capacity:
            self.held[slot].popitem(last=False)

    def retract(self, name: str, prompt: FakeBlocks, insertion: FakeInsertion) -> None:
        del prompt
        held = self.held[self.names.index(name)]
        for block in insertion.created:
            if held.get(block) == insertion.stamp:
                del held[block]
