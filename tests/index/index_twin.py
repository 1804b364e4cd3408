"""The index as its definition: sets of blocks, every question answered by looking.

A block is named by its whole path.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

BLOCK = 3

TIERS = {"GPU": 0, "CPU": 1}
"""Every other medium is the slowest tier."""

Path = tuple[int, ...]


def tokens(path: Path) -> list[int]:
    return [token for step in path for token in (step, step + 100, step)]


def prefixes(path: Path) -> list[Path]:
    return [path[:depth] for depth in range(1, len(path) + 1)]


@dataclass
class Belief:
    stamp: int
    at: float
    pins: int = 0


@dataclass
class Replica:
    capacity: int | None
    belief: dict[Path, Belief] = field(default_factory=dict)
    truth: dict[Path, Counter[str]] = field(default_factory=dict)
    fed: bool = False

    def holds(self, block: Path) -> bool:
        return block in self.belief or block in self.truth

    def held(self, path: Path) -> int:
        count = 0
        for block in prefixes(path):
            if not self.holds(block):
                break
            count += 1
        return count

    def oldest(self) -> Path | None:
        """The next block to go: least recently touched, and of one touch the deepest; never a pinned one."""
        free = [block for block, entry in self.belief.items() if not entry.pins]
        return min(free, key=lambda block: (self.belief[block].stamp, -len(block)), default=None)

    def touch(self, path: Path, stamp: int, now: float) -> int:
        fresh = 0
        for block in prefixes(path):
            if block in self.truth:
                continue
            fresh += block not in self.belief
            pins = self.belief[block].pins if block in self.belief else 0
            self.belief[block] = Belief(stamp, now, pins)
        return fresh

    def evict(self) -> list[int]:
        gone = []
        while self.capacity is not None and len(self.belief) > self.capacity:
            block = self.oldest()
            if block is None:
                break
            gone.append(self.belief.pop(block).stamp)
        return gone


class Twin:
    def __init__(self, capacity: int | None, ttl_s: float | None, provisional_s: float | None = 2.0) -> None:
        self.capacity, self.ttl_s, self.provisional_s = capacity, ttl_s, provisional_s
        self.slots: list[str | None] = []
        self.replicas: dict[str, Replica] = {}
        self.stamp = 0
        self.clock = float("-inf")

    def add(self, name: str, capacity: int | None) -> int:
        self.replicas[name] = Replica(self.capacity if capacity is None else capacity)
        if None in self.slots:
            slot = self.slots.index(None)
            self.slots[slot] = name
            return slot
        self.slots.append(name)
        return len(self.slots) - 1

    def remove(self, name: str) -> None:
        del self.replicas[name]
        self.slots[self.slots.index(name)] = None

    def clear(self, name: str) -> None:
        old = self.replicas[name]
        self.replicas[name] = Replica(old.capacity, fed=old.fed)

    def match(self, path: Path) -> list[int]:
        return [self.replicas[name].held(path) * BLOCK if name else 0 for name in self.slots]

    def insert(self, name: str, path: Path, now: float) -> tuple[int, int, int, int]:
        replica = self.replicas[name]
        self.clock = max(self.clock, now)
        self.expire_replica(replica)
        held = replica.held(path)
        self.stamp += 1
        fresh = replica.touch(path, self.stamp, self.clock)
        gone = replica.evict()
        dropped = min(gone.count(self.stamp), fresh)
        return held, fresh - dropped, dropped, len(gone) - dropped

    def touch(self, name: str, path: Path, now: float) -> int:
        self.clock = max(self.clock, now)
        self.stamp += 1
        held = self.replicas[name].held(path)
        self.replicas[name].touch(path[:held], self.stamp, self.clock)
        return held

    def retract(self, name: str, path: Path, keep: int, stamp: int) -> int:
        belief = self.replicas[name].belief
        ours = [b for b in prefixes(path)[keep:] if b in belief and belief[b].stamp == stamp and not belief[b].pins]
        for block in ours:
            del belief[block]
        return len(ours)

    def pin(self, name: str, path: Path) -> int:
        replica = self.replicas[name]
        held = replica.held(path)
        for block in prefixes(path[:held]):
            if block in replica.belief:
                replica.belief[block].pins += 1
        return held

    def unpin(self, name: str, path: Path) -> None:
        replica = self.replicas[name]
        for block in prefixes(path):
            if block in replica.belief:
                replica.belief[block].pins = max(0, replica.belief[block].pins - 1)
        replica.evict()

    def expire_replica(self, replica: Replica) -> int:
        spans = [span for span in (self.ttl_s, self.provisional_s if replica.fed else None) if span is not None]
        gone = 0
        while spans:
            block = replica.oldest()
            if block is None or replica.belief[block].at + min(spans) > self.clock:
                break
            del replica.belief[block]
            gone += 1
        return gone

    def expire(self, now: float) -> int:
        self.clock = max(self.clock, now)
        return sum(map(self.expire_replica, self.replicas.values()))

    def stored(self, name: str, parent: Path, more: Path, medium: str, now: float) -> Counter[str]:
        replica = self.replicas[name]
        self.clock = max(self.clock, now)
        replica.fed = True
        blocks = prefixes(parent + more)[len(parent) :]
        done = Counter[str]()
        for block in blocks:
            if block in replica.belief:
                del replica.belief[block]
                done["confirmed"] += 1
            else:
                done["copies" if block in replica.truth else "stored"] += 1
            replica.truth.setdefault(block, Counter())[medium] += 1
        return done

    def removed(self, name: str, blocks: list[Path], medium: str) -> tuple[int, int]:
        truth = self.replicas[name].truth
        removed = 0
        for block in blocks:
            if truth.get(block, Counter())[medium]:
                removed += 1
                truth[block] -= Counter([medium])
                if not truth[block]:
                    del truth[block]
        return removed, len(blocks) - removed

    def media(self, path: Path) -> list[list[int]]:
        rows = []
        for name in self.slots:
            row = [0, 0, 0]
            replica = self.replicas.get(name or "")
            for block in prefixes(path[: replica.held(path)]) if replica else []:
                copies = replica.truth.get(block, Counter(GPU=1)) if replica else Counter()
                row[min(TIERS.get(medium, 2) for medium in +copies)] += BLOCK
            rows.append(row)
        return rows

    def distinct(self) -> int:
        return len({block for replica in self.replicas.values() for block in (*replica.belief, *replica.truth)})
