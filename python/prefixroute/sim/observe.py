"""The only path from truth to belief: perfect knowledge, the router's own history, or events that are late or lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixroute.belief import Heard
from prefixroute.errors import UnknownReplicaError
from prefixroute.hashing import BlockHashes
from prefixroute.index import IndexStats
from prefixroute.limits import FIXED_HASH_KEY
from prefixroute.router import Router
from prefixroute.sim.replica import CacheEvent
from prefixroute.sim.stores import Store
from prefixroute.types import Namespace
from prefixroute.validation import check_float, shown
from prefixroute.workload import Request


@dataclass(frozen=True, slots=True)
class History:
    """Nothing comes back from the replicas: the router predicts them from what it sent and what finished."""

    def __str__(self) -> str:
        """Return what ``--observe`` takes."""
        return "history"


@dataclass(frozen=True, slots=True)
class Perfect:
    """A match asks the caches themselves, as they are when the request is routed.

    Under load this is no upper bound: caches do not hold yet what is in their queues, which routing history knows.
    """

    def __str__(self) -> str:
        """Return what ``--observe`` takes."""
        return "perfect"


@dataclass(frozen=True, slots=True)
class Events:
    """The router's own index, fed by the stored and removed events of the caches, as in production.

    What was routed is believed for the router's ``Timing.provisional_s``; events confirm it.

    Args:
        delay_s: seconds from a change to its arrival at the routers (timed).
        loss: share of event batches that never arrive, 0 to 1.
    """

    delay_s: float = 0.0
    loss: float = 0.0

    def __post_init__(self) -> None:
        """Check delay and loss."""
        check_float("delay_s of events", self.delay_s, 0)
        check_float("loss of events", self.loss, 0, 1)

    def __str__(self) -> str:
        """Return what ``--observe`` takes, and the delay, which it does not take."""
        late = f" {self.delay_s:g} s late" if self.delay_s else ""
        return f"events{f':{self.loss:g}' if self.loss else ''}{late}"


Observation: TypeAlias = History | Perfect | Events


class Insertion(NamedTuple):
    """What an insert did to a belief that asks the caches: nothing."""

    held_before: int = 0


class PerfectBelief:
    """A belief that asks the caches. What the router books and what engines report change nothing.

    A cache is asked for a request, not for hashes: the front sets :attr:`request` before it asks the router.
    """

    def __init__(self, block_size: int, truth: Mapping[str, Store]) -> None:
        """Look into ``truth``, the stores by replica name, as they are at each match."""
        self.block_size, self.hash_key = block_size, FIXED_HASH_KEY
        self.request: Request | None = None
        self._truth = truth
        self._names: list[str | None] = []

    def add_replica(
        self,
        name: str,
        capacity_tokens: int | None = None,  # noqa: ARG002 - the cache has its own
        *,
        reuse_reports: bool = False,  # noqa: ARG002 - nothing is reported
    ) -> int:
        """Register a replica; a free slot is used again."""
        if None not in self._names:
            self._names.append(None)
        slot = self._names.index(None)
        self._names[slot] = name
        return slot

    def check_room(self, replicas: int) -> None:
        """Accept any number: nothing is kept."""

    def remove_replica(self, name: str) -> None:
        """Forget a replica."""
        self._names[self._slot(name)] = None

    def _slot(self, name: str) -> int:
        if name not in self._names:
            raise UnknownReplicaError(f"no replica is named {shown(name)}")
        return self._names.index(name)

    def hash_and_match(
        self,
        prompt: BlockHashes,
        out: NDArray[np.uint32],
        namespace: Namespace | None = None,  # noqa: ARG002
    ) -> BlockHashes:
        """Write what each replica holds of the request being routed."""
        request, truth = self.request, self._truth
        for slot, name in enumerate(self._names):
            out[slot] = truth[name].hit(request) if name is not None and request is not None else 0
        return prompt

    def match_media(self, prompt: BlockHashes, namespace: Namespace | None = None) -> NDArray[np.uint32]:
        """Return the same as held on the GPU."""
        held = np.zeros((len(self._names), 3), np.uint32)
        self.hash_and_match(prompt, held[:, 0], namespace)
        return held

    def held_tokens(self) -> list[int]:
        """Return the tokens each replica holds, by slot."""
        return [0 if name is None else self._truth[name].held_tokens for name in self._names]

    def unmatched_event_blocks(self) -> list[int]:
        """Return zeros: nothing is reported."""
        return [0] * len(self._names)

    def crowded_blocks(self) -> list[int]:
        """Return zeros: nothing is reported."""
        return [0] * len(self._names)

    def stats(self) -> IndexStats:
        """Return zeros: nothing is kept here."""
        return _NOTHING

    def insert(self, name: str, prompt: Any, namespace: Namespace | None = None, now: float = 0.0) -> Insertion:  # noqa: ARG002
        """Change nothing."""
        self._slot(name)
        return Insertion()

    def expire(self, now: float) -> None:
        """Change nothing."""

    def apply(self, name: str, payload: bytes, *, sequence: int | None = None, now: float = 0.0) -> Heard:  # noqa: ARG002
        """Change nothing."""
        self._slot(name)
        return _Unheard()

    def _ignore(self, name: str | None = None, *_: Any, **__: Any) -> None:
        """Change nothing."""
        if name is not None:
            self._slot(name)

    clear = new_epoch = set_capacity = retract = expect_events = _ignore
    apply_stored = apply_stored_hashes = apply_removed = apply_cleared = _ignore


class _Unheard(NamedTuple):
    """What a batch of events did: nothing."""

    tiered: bool = False
    adapters: tuple[str, ...] = ()


_NOTHING = IndexStats(**{name: 0 for name in vars(IndexStats) if name != "to_dict" and not name.startswith("_")})


class EventFeed:
    """Carries the events of the stores to every router: late, and some never.

    Args:
        routers: an event reaches all of them or none.
        model: delay and loss.
        truth: stores by replica name, to tell events of a replica's earlier life.
        later: schedules a call at a second of the run; unused without a delay.
        seed: of the losses.
    """

    def __init__(
        self,
        routers: Sequence[Router],
        model: Events,
        truth: Mapping[str, Store],
        later: Callable[..., None],
        seed: int,
    ) -> None:
        """Connect the routers."""
        self._routers, self._model, self._truth, self._later = routers, model, truth, later
        self._rng = np.random.default_rng([seed, 0x6576_656E_7473])
        self.lost = 0

    def send(self, name: str, store: Store, events: Iterable[CacheEvent], now: float) -> None:
        """Send what has changed in ``store``."""
        for event in events:
            if self._model.loss and self._rng.random() < self._model.loss:
                self.lost += 1
            elif self._model.delay_s:
                self._later(now + self._model.delay_s, self._apply, name, store, event, now + self._model.delay_s)
            else:
                self._apply(name, store, event, now)

    def _apply(self, name: str, store: Store, event: CacheEvent, now: float) -> None:
        if self._truth.get(name) is not store:
            return  # the replica has died since: a late event of its earlier life must not describe the new one
        for router in self._routers:
            if event.kind == "stored":
                router.apply_stored_hashes(name, event.blocks, parent=event.parent, now=now)
            else:
                router.apply_removed(name, event.blocks)
