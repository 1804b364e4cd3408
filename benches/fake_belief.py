"""A belief in pure Python: the reference model of an index behind the router, exact and slow.

It counts every copy as one on the GPU, and an event whose parent it does not know is lost: nothing waits for a parent.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from prefixroute.errors import UnknownReplicaError
from prefixroute.index import IndexStats
from prefixroute.limits import FIXED_HASH_KEY
from prefixroute.types import Namespace

COUNTERS = [name for name in vars(IndexStats) if not name.startswith("_") and name != "to_dict"]


@dataclass(frozen=True, eq=False)
class FakeBlocks:
    """A hashed prompt."""

    array: NDArray[np.uint64]
    token_count: int
    block_size: int

    def __len__(self) -> int:
        return len(self.array)

    def hash_at(self, block: int) -> int:
        return int(self.array[block])

    def head(self, blocks: int) -> FakeBlocks:
        return FakeBlocks(self.array[:blocks], min(blocks * self.block_size, self.token_count), self.block_size)


@dataclass(frozen=True)
class FakeInsertion:
    """What an insert created, and the leading blocks that were held before."""

    held_before: int
    created: frozenset[int]
    stamp: int


class FakeReplica:
    """What one replica holds: predicted blocks, least recently used first, and copies that events have reported."""

    def __init__(self, name: str, capacity: int | None) -> None:
        self.name, self.capacity, self.fed = name, capacity, False
        self.predicted: OrderedDict[int, tuple[int, float]] = OrderedDict()  # block: stamp and time of its last touch
        self.reported: Counter[int] = Counter()  # block: copies

    def holds(self, block: int) -> bool:
        return block in self.predicted or block in self.reported


class FakeBelief:
    """Blocks by replica in LRU order, evicted one by one from the tail of the oldest chain."""

    def __init__(self, block_size: int = 16, *, ttl_s: float | None = None, provisional_s: float | None = 2.0) -> None:
        self.hash_key = FIXED_HASH_KEY
        self.block_size, self.ttl_s, self.provisional_s = block_size, ttl_s, provisional_s
        self.slots: list[FakeReplica | None] = []
        self.chained: dict[int, int] = {}  # an engine's name of a block: its chained hash
        self.stamp = 0

    @property
    def replicas(self) -> tuple[str | None, ...]:
        return tuple(replica and replica.name for replica in self.slots)

    def find(self, name: str) -> FakeReplica:
        for replica in self.slots:
            if replica is not None and replica.name == name:
                return replica
        raise UnknownReplicaError(f"no replica is named {name!r}")

    def add_replica(self, name: str, capacity_tokens: int | None = None, *, reuse_reports: bool = False) -> int:
        del reuse_reports
        if None not in self.slots:
            self.slots.append(None)
        slot = self.slots.index(None)
        self.slots[slot] = FakeReplica(name, capacity_tokens)
        return slot

    def check_room(self, replicas: int) -> None:
        """Accept any number."""

    def remove_replica(self, name: str) -> None:
        self.slots[self.slots.index(self.find(name))] = None

    def clear(self, name: str | None = None) -> None:
        for replica in self.slots if name is None else [self.find(name)]:
            if replica is not None:
                replica.predicted.clear()
                replica.reported.clear()

    def new_epoch(self) -> None:
        self.clear()

    def set_capacity(self, name: str, tokens: int | None) -> None:
        replica = self.find(name)
        replica.capacity = tokens
        self._evict(replica)

    def hash(self, prompt: Any, namespace: Namespace | None = None) -> FakeBlocks:
        if hasattr(prompt, "token_count"):
            return prompt
        if isinstance(prompt, str):
            prompt = prompt.encode()
        text = isinstance(prompt, bytes)
        data = prompt if isinstance(prompt, bytes) else np.asarray(prompt, np.uint32).tobytes()
        count = -(-len(data) // 4) if text else len(data) // 4
        return FakeBlocks(self._chain(data, self._root(namespace)), count, self.block_size)

    def _root(self, namespace: Namespace | None) -> int:
        return int.from_bytes(blake2b(repr(namespace or "").encode(), digest_size=8).digest(), "little")

    def _chain(self, data: bytes, before: int) -> NDArray[np.uint64]:
        width = 4 * self.block_size  # four bytes a token, of text as well
        chain, hashes = before.to_bytes(8, "little"), []
        for start in range(0, len(data) - width + 1, width):
            chain = blake2b(chain + data[start : start + width], digest_size=8).digest()
            hashes.append(int.from_bytes(chain, "little"))
        return np.array(hashes, np.uint64)

    def hash_and_match(self, prompt: Any, out: NDArray[np.uint32], namespace: Namespace | None = None) -> FakeBlocks:
        blocks = self.hash(prompt, namespace)
        hashes = blocks.array.tolist()
        for slot, replica in enumerate(self.slots):
            out[slot] = 0 if replica is None else self._leading(replica, hashes) * self.block_size
        return blocks

    def _leading(self, replica: FakeReplica, hashes: list[int]) -> int:
        depth = 0
        while depth < len(hashes) and replica.holds(hashes[depth]):
            depth += 1
        return depth

    def match_media(self, prompt: Any, namespace: Namespace | None = None) -> NDArray[np.uint32]:
        held = np.zeros((len(self.slots), 3), np.uint32)
        self.hash_and_match(prompt, held[:, 0], namespace)
        return held

    def insert(self, name: str, prompt: Any, namespace: Namespace | None = None, now: float = 0.0) -> FakeInsertion:
        replica, hashes = self.find(name), self.hash(prompt, namespace).array.tolist()
        before = self._leading(replica, hashes)
        self.stamp += 1
        fresh = [block for block in hashes if block not in replica.reported]
        created = frozenset(block for block in fresh if block not in replica.predicted)
        for block in reversed(fresh):  # the tail is older than the head
            replica.predicted[block] = self.stamp, now
            replica.predicted.move_to_end(block)
        self._evict(replica)
        return FakeInsertion(before, created, self.stamp)

    def _evict(self, replica: FakeReplica) -> None:
        capacity = replica.capacity
        while capacity is not None and len(replica.predicted) * self.block_size > capacity:
            replica.predicted.popitem(last=False)

    def retract(self, name: str, prompt: FakeBlocks, insertion: FakeInsertion) -> None:
        del prompt
        predicted = self.find(name).predicted
        for block in insertion.created:
            if block in predicted and predicted[block][0] == insertion.stamp:
                del predicted[block]

    def expire(self, now: float) -> None:
        for replica in self.slots:
            if replica is None:
                continue
            spans = [self.ttl_s, self.provisional_s if replica.fed else None]
            ttl = min((span for span in spans if span is not None), default=float("inf"))
            for block in [block for block, (_, touched) in replica.predicted.items() if touched + ttl <= now]:
                del replica.predicted[block]

    def held_tokens(self) -> list[int]:
        return [
            (0 if replica is None else len(replica.predicted) + len(replica.reported)) * self.block_size
            for replica in self.slots
        ]

    def unmatched_event_blocks(self) -> list[int]:
        return [0] * len(self.slots)

    def crowded_blocks(self) -> list[int]:
        return [0] * len(self.slots)

    def stats(self) -> IndexStats:
        return IndexStats(**dict.fromkeys(COUNTERS, 0))

    def expect_events(self, name: str) -> None:
        self.find(name).fed = True

    def apply(self, name: str, payload: bytes, *, sequence: int | None = None, now: float = 0.0) -> SimpleNamespace:
        del sequence
        self.find(name)
        events = msgpack.unpackb(payload)[1]
        for event in events:
            if event["type"] == "AllBlocksCleared":
                self.apply_cleared(name)
            elif event["type"] == "BlockRemoved":
                self.apply_removed(name, event["block_hashes"])
            else:
                parent, ids = event["parent_block_hash"], event["token_ids"]
                self.apply_stored(name, event["block_hashes"], parent=parent, token_ids=ids, now=now)
        return SimpleNamespace(tiered=any(event.get("medium") not in (None, "GPU") for event in events))

    def apply_stored(
        self,
        name: str,
        block_hashes: Any,
        *,
        parent: int | None = None,
        token_ids: Any,
        namespace: Namespace | None = None,
        medium: str | None = None,
        now: float = 0.0,
    ) -> None:
        del medium, now
        self.expect_events(name)
        before = self._root(namespace) if parent is None else self.chained.get(parent)
        if before is None:
            return
        chain = self._chain(np.asarray(token_ids, np.uint32).tobytes(), before).tolist()
        self._store(name, list(block_hashes), chain)

    def apply_stored_hashes(
        self, name: str, block_hashes: Any, *, parent: int | None = None, medium: str | None = None, now: float = 0.0
    ) -> None:
        del medium, now
        self.expect_events(name)
        if parent is None or parent in self.chained:
            hashes = [int(block) for block in block_hashes]
            self._store(name, hashes, hashes)

    def _store(self, name: str, named: list[int], chain: list[int]) -> None:
        replica = self.find(name)
        self.chained |= dict(zip(named, chain, strict=True))
        for block in chain:
            replica.predicted.pop(block, None)
            replica.reported[block] += 1

    def apply_removed(self, name: str, block_hashes: Any, *, medium: str | None = None) -> None:
        del medium
        reported = self.find(name).reported
        for block in block_hashes:
            chained = self.chained.get(int(block), -1)
            if chained in reported:
                reported[chained] -= 1
                if not reported[chained]:
                    del reported[chained]

    def apply_cleared(self, name: str) -> None:
        self.clear(name)
