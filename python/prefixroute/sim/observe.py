"""The only path from truth to belief: perfect knowledge, the router's own history, or events that are late or lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixroute.hashing import BlockHashes
from prefixroute.sim.stores import BlockStore, Store
from prefixroute.types import Namespace
from prefixroute.validation import check_float
from prefixroute.workload import Request


@dataclass(frozen=True, slots=True)
class History:
    """Nothing comes back from the replicas: the router predicts them from what it sent and what finished."""


@dataclass(frozen=True, slots=True)
class Perfect:
    """A match asks the caches themselves: the upper bound of any index."""


@dataclass(frozen=True, slots=True)
class Events:
    """Belief is fed by the stored and removed events of the caches, and by nothing else.

    Args:
        delay_s: seconds from a change to its arrival at the routers (time mode).
        loss: share of event batches that never arrive, 0 to 1.
    """

    delay_s: float = 0.0
    loss: float = 0.0

    def __post_init__(self) -> None:
        """Check delay and loss."""
        check_float("delay_s of events", self.delay_s, 0)
        check_float("loss of events", self.loss, 0, 1)


Observation: TypeAlias = History | Perfect | Events


class Insertion(NamedTuple):
    """What an insert did to a belief that learns from elsewhere: nothing."""

    held_before: int = 0


class _Told:
    """Common part of beliefs that routing does not change: slots and names."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.names: list[str | None] = []

    def add_replica(self, name: str, capacity_tokens: int | None = None) -> int:  # noqa: ARG002 - truth has its own
        """Register a replica; a free slot is used again."""
        if None in self.names:
            slot = self.names.index(None)
            self.names[slot] = name
            return slot
        self.names.append(name)
        return len(self.names) - 1

    def remove_replica(self, name: str) -> None:
        """Forget a replica."""
        self.names[self.names.index(name)] = None

    def clear(self, name: str | None = None) -> None:
        """Do nothing: only truth changes this belief."""

    def set_capacity(self, name: str, tokens: int | None) -> None:
        """Do nothing: only truth changes this belief."""

    def insert(self, name: str, prompt: Any, namespace: Namespace | None = None, now: float = 0.0) -> Insertion:  # noqa: ARG002
        """Do nothing: only truth changes this belief."""
        return Insertion()

    def held_tokens(self) -> list[int]:
        """Return the tokens each replica is believed to hold, by slot."""
        return [0 if name is None else self._held_by(name) for name in self.names]

    def _held_by(self, name: str) -> int:
        raise NotImplementedError

    def retract(self, name: str, prompt: Any, insertion: Any) -> None:
        """Do nothing: only truth changes this belief."""


class PerfectBelief(_Told):
    """Belief is truth. The front says which request is being routed before it asks the router."""

    def __init__(self, block_size: int, truth: Mapping[str, Store]) -> None:
        """Look into ``truth``, the stores by replica name, as they are at each match."""
        super().__init__(block_size)
        self._truth = truth
        self.request: Request | None = None

    def hash_and_match(
        self,
        prompt: BlockHashes,
        out: NDArray[np.uint32],
        namespace: Namespace | None = None,  # noqa: ARG002
    ) -> BlockHashes:
        """Write what each replica holds of the request being routed."""
        request, truth = self.request, self._truth
        for slot, name in enumerate(self.names):
            out[slot] = truth[name].hit(request) if name is not None and request is not None else 0
        return prompt

    def _held_by(self, name: str) -> int:
        return self._truth[name].held_tokens


class EventBelief(_Told):
    """Belief is the sum of the events that arrived: a set of block hashes for each replica."""

    def __init__(self, block_size: int) -> None:
        """Start knowing nothing."""
        super().__init__(block_size)
        self._held: dict[str, set[int]] = {}

    def hash_and_match(
        self,
        prompt: BlockHashes,
        out: NDArray[np.uint32],
        namespace: Namespace | None = None,  # noqa: ARG002
    ) -> BlockHashes:
        """Write the leading tokens that each replica is said to hold; a lost event leaves a hole that ends the match."""
        hashes = prompt.array.tolist()
        for slot, name in enumerate(self.names):
            held = self._held.get(name or "")
            out[slot] = _leading(hashes, held) * self.block_size if held else 0
        return prompt

    def _held_by(self, name: str) -> int:
        return len(self._held.get(name, ())) * self.block_size

    def remove_replica(self, name: str) -> None:
        """Forget a replica and what it was said to hold."""
        super().remove_replica(name)
        self._held.pop(name, None)

    def clear(self, name: str | None = None) -> None:
        """Forget what one replica, or every one, was said to hold."""
        for gone in [name] if name is not None else list(self._held):
            self._held.pop(gone, None)

    def apply(self, name: str, stored: list[int], removed: list[int]) -> None:
        """Take in a batch of one replica."""
        if name in self.names:
            held = self._held.setdefault(name, set())
            held.difference_update(removed)
            held.update(stored)


def _leading(hashes: list[int], held: set[int]) -> int:
    for position, block in enumerate(hashes):
        if block not in held:
            return position
    return len(hashes)


class EventFeed:
    """Carries the events of the stores to every router's belief: late, and some never.

    Args:
        beliefs: one for each router; an event reaches all of them or none.
        model: delay and loss.
        truth: stores by replica name, to tell events of a replica's earlier life.
        later: schedules a call at a second of the run; unused without a delay.
        seed: of the losses.
    """

    def __init__(
        self,
        beliefs: Sequence[EventBelief],
        model: Events,
        truth: Mapping[str, Store],
        later: Callable[..., None],
        seed: int,
    ) -> None:
        """Connect beliefs."""
        self._beliefs, self._model, self._truth, self._later = beliefs, model, truth, later
        self._rng = np.random.default_rng([seed, 0x6576_656E_7473])
        self.lost = 0

    def collect(self, name: str, store: BlockStore, now: float) -> None:
        """Send what ``store`` has changed since it was last asked."""
        for event in store.cache.take_events():
            if self._model.loss and self._rng.random() < self._model.loss:
                self.lost += 1
                continue
            blocks = event.blocks.tolist()
            stored, removed = (blocks, []) if event.kind == "stored" else ([], blocks)
            if self._model.delay_s:
                self._later(now + self._model.delay_s, self._apply, name, store, stored, removed)
            else:
                self._apply(name, store, stored, removed)

    def _apply(self, name: str, store: Store, stored: list[int], removed: list[int]) -> None:
        if self._truth.get(name) is not store:
            return  # the replica has died since: a late event of its earlier life must not describe the new one
        for belief in self._beliefs:
            belief.apply(name, stored, removed)
