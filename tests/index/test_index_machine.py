"""The index against its reference model on random histories of belief, truth, and a fleet that comes and goes."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule
from index_twin import BLOCK, Path, Twin, prefixes, tokens

from prefixroute.hashing import hash_blocks
from prefixroute.index import PrefixIndex
from prefixroute.limits import FIXED_HASH_KEY

NAMES = st.sampled_from(["a", "b", "c", "d"])
# Long stretches of one branch with a few others: what makes a tree split and merge.
STEPS = st.lists(st.sampled_from([1, 1, 1, 1, 2, 3]), max_size=10).map(tuple)
SPAN = st.none() | st.sampled_from([1.0, 2.0, 5.0])
CAPACITY = st.none() | st.integers(0, 12)
MEDIA = st.sampled_from(["GPU", "GPU", "CPU", "DISK", "EXTERNAL", "TAPE"])
EVENT_MEDIA = {
    "GPU": ["GPU", "gpu", None],
    "CPU": ["CPU", "cpu", "CPU_PINNED"],
    "DISK": ["DISK", "STORAGE"],
    "EXTERNAL": ["EXTERNAL"],
    "TAPE": ["tape"],
}


def engine_hash(path: Path) -> int:
    """An engine's own name of a block: any function of its path, here the hash under another namespace."""
    return int(hash_blocks([*tokens(path), 9, 9, 9], BLOCK).array[-1])


class IndexMachine(RuleBasedStateMachine):
    paths = Bundle("paths")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.known: set[Path] = set()
        self.insertions: list[tuple[str, Path, Any, int]] = []
        self.pins: list[tuple[str, Path]] = []

    @initialize(capacity=CAPACITY, ttl_s=SPAN, provisional_s=SPAN)
    def create(self, capacity: int | None, ttl_s: float | None, provisional_s: float | None) -> None:
        tokens_of = None if capacity is None else capacity * BLOCK + 2
        self.index = PrefixIndex(
            block_size=BLOCK,
            capacity_tokens=tokens_of,
            ttl_s=ttl_s,
            provisional_s=provisional_s,
            hash_key=FIXED_HASH_KEY,
        )
        self.twin = Twin(capacity, ttl_s, provisional_s)

    @rule(target=paths, start=st.just(()) | paths, more=STEPS)
    def path(self, start: Path, more: Path) -> Path:
        longer = (*start, *more)[:24]
        self.known.add(longer)
        return longer

    @rule(name=NAMES, capacity=CAPACITY)
    def add_replica(self, name: str, capacity: int | None) -> None:
        if name not in self.twin.replicas:
            tokens_of = None if capacity is None else capacity * BLOCK
            assert self.index.add_replica(name, tokens_of) == self.twin.add(name, capacity)

    def here(self, name: str) -> bool:
        if name not in self.twin.replicas:
            self.index.add_replica(name)
            self.twin.add(name, None)
        return True

    def gone(self, name: str) -> None:
        self.insertions = [entry for entry in self.insertions if entry[0] != name]
        self.pins = [entry for entry in self.pins if entry[0] != name]

    @rule(name=NAMES)
    def remove_replica(self, name: str) -> None:
        if name in self.twin.replicas:
            self.index.remove_replica(name)
            self.twin.remove(name)
            self.gone(name)

    @rule(name=st.none() | NAMES, event=st.booleans())
    def clear(self, name: str | None, event: bool) -> None:
        if name is None:
            self.index.clear()
        elif self.here(name):
            self.index.apply_cleared(name) if event else self.index.clear(name)
        for each in list(self.twin.replicas) if name is None else [name]:
            self.twin.clear(each)
            self.gone(each)

    @rule(name=NAMES, capacity=CAPACITY)
    def set_capacity(self, name: str, capacity: int | None) -> None:
        self.here(name)
        self.index.set_capacity(name, None if capacity is None else capacity * BLOCK + 1)
        self.twin.replicas[name].capacity = capacity
        self.twin.replicas[name].evict()

    @rule(name=NAMES, path=paths, wait=st.sampled_from([0.0, 0.0, 0.5, 3.0]), hashed=st.booleans())
    def insert(self, name: str, path: Path, wait: float, hashed: bool) -> None:
        self.here(name)
        self.now += wait
        prompt = hash_blocks(tokens(path), BLOCK) if hashed else np.array([*tokens(path), 7], dtype=np.int64)
        done = self.index.insert(name, prompt, now=self.now)
        expected = self.twin.insert(name, path, self.now)
        assert (done.held_before, done.stored, done.dropped, done.evicted) == expected
        self.insertions.append((name, path, done, self.twin.stamp))

    @precondition(lambda self: self.insertions)
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        name, path, insertion, stamp = data.draw(st.sampled_from(self.insertions))
        gone = self.index.retract(name, hash_blocks(tokens(path), BLOCK), insertion)
        assert gone == self.twin.retract(name, path, insertion.held_before, stamp)

    @rule(name=NAMES, path=paths, wait=st.sampled_from([0.0, 0.5]))
    def touch(self, name: str, path: Path, wait: float) -> None:
        self.here(name)
        self.now += wait
        assert self.index.touch(name, tokens(path), now=self.now) == self.twin.touch(name, path, self.now)

    @rule(name=NAMES, path=paths)
    def pin(self, name: str, path: Path) -> None:
        self.here(name)
        held = self.index.pin(name, hash_blocks(tokens(path), BLOCK))
        assert held == self.twin.pin(name, path)
        self.pins.append((name, path[:held]))

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        name, path = self.pins.pop(data.draw(st.integers(0, len(self.pins) - 1)))
        self.index.unpin(name, hash_blocks(tokens(path), BLOCK))
        self.twin.unpin(name, path)

    @rule(wait=st.sampled_from([0.0, 1.0, 4.0]))
    def expire(self, wait: float) -> None:
        self.now += wait
        assert self.index.expire(self.now) == self.twin.expire(self.now)

    @rule(name=NAMES, more=STEPS, medium=MEDIA, data=st.data())
    def stored(self, name: str, more: Path, medium: str, data: st.DataObject) -> None:
        self.here(name)
        held = sorted(self.twin.replicas[name].truth)
        parent: Path = data.draw(st.just(()) | st.sampled_from(held)) if held else ()
        more = more[: max(0, 24 - len(parent))]
        blocks = prefixes(parent + more)[len(parent) :]
        self.known.update(blocks)
        done = self.index.apply_stored(
            name,
            [engine_hash(block) for block in blocks],
            parent=engine_hash(parent) if parent else None,
            token_ids=tokens(more),
            medium=data.draw(st.sampled_from(EVENT_MEDIA[medium])),
            now=self.now,
        )
        assert Counter(done.to_dict()) == self.twin.stored(name, parent, more, medium, self.now)

    @rule(name=NAMES, path=paths, medium=MEDIA, data=st.data())
    def removed(self, name: str, path: Path, medium: str, data: st.DataObject) -> None:
        self.here(name)
        candidates = sorted({*self.twin.replicas[name].truth, *prefixes(path)})
        blocks = data.draw(st.lists(st.sampled_from(candidates), max_size=4)) if candidates else []
        spelled = data.draw(st.sampled_from(EVENT_MEDIA[medium]))
        done = self.index.apply_removed(name, [engine_hash(block) for block in blocks], medium=spelled)
        assert (done.removed, done.unknown) == self.twin.removed(name, blocks, medium)

    @invariant()
    def answers_are_equal(self) -> None:
        if not hasattr(self, "index"):
            return
        assert self.index.replicas == tuple(self.twin.slots)
        paths = sorted(self.known)
        expected = [self.twin.match(path) for path in paths]
        out = np.full(len(self.twin.slots) + 1, 77, dtype=np.uint32)
        for path, lengths in zip(paths, expected, strict=True):
            assert self.index.match(tokens(path)).tolist() == lengths
            hashes = self.index.hash_and_match(tokens(path), out)
            assert out.tolist() == [*lengths, 0]
            assert self.index.match_hashes(hashes).tolist() == lengths
        flat = [token for path in paths for token in tokens(path)]
        offsets = np.cumsum([0, *(len(path) * BLOCK for path in paths)])
        assert self.index.match_many(flat, offsets).tolist() == expected

    @invariant()
    def counts_are_equal(self) -> None:
        if not hasattr(self, "index"):
            return
        stats = self.index.stats()
        assert (len(self.index), stats.blocks) == (self.twin.distinct(), self.twin.distinct())
        assert stats.believed == sum(len(replica.belief) for replica in self.twin.replicas.values())
        assert stats.memberships == stats.believed + sum(len(r.truth) for r in self.twin.replicas.values())
        assert stats.replicas == len(self.twin.replicas)
        held = [self.twin.replicas.get(name or "") for name in self.twin.slots]
        assert self.index.held_tokens() == [(len(r.belief) + len(r.truth)) * BLOCK if r else 0 for r in held]

    @rule(pickled=st.booleans())
    def save_and_load(self, pickled: bool) -> None:
        """Nothing changes but that pins are gone: they belong to requests in flight."""
        saved = self.index.to_bytes()
        self.index = pickle.loads(pickle.dumps(self.index)) if pickled else PrefixIndex.from_bytes(saved)  # noqa: S301
        self.pins.clear()
        for replica in self.twin.replicas.values():
            for entry in replica.belief.values():
                entry.pins = 0

    @rule(path=paths)
    def media(self, path: Path) -> None:
        assert self.index.match_media(tokens(path)).tolist() == self.twin.media(path)


IndexMachine.TestCase.settings = settings(stateful_step_count=50, max_examples=120)
TestIndexMachine = IndexMachine.TestCase
