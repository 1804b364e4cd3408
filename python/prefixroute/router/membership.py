"""The router's fleet as its host sees it: who joins, leaves, pauses, comes back, and what replicas report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import isfinite
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixroute.errors import ConfigError, EventError
from prefixroute.limits import MAX_NAME_BYTES, MAX_REPLICAS
from prefixroute.router.book import LoadBook
from prefixroute.router.calibration import Calibration
from prefixroute.router.fleet import ACTIVE, DRAINING, MEDIA, SUSPENDED, Fleet
from prefixroute.router.loads import LOADS
from prefixroute.types import LoadReport, Replica, Timing

if TYPE_CHECKING:
    from prefixroute.belief import Belief

Capacity = int | Mapping[str, int]


class Membership:
    """Base of :class:`~prefixroute.router.Router`: the fleet, its loads, and the methods that change them.

    A change is mirrored to every shadow router, so that they see the fleet that the live one sees.
    """

    def __init__(  # noqa: PLR0917  # one caller
        self,
        index: Belief,
        capacity: Capacity,
        load: str,
        window: int,
        timing: Timing,
        clock: Callable[[], float],
        hash_seed: int,
    ) -> None:
        if not isinstance(load, str) or load not in LOADS:
            raise ConfigError(f"load must be one of {', '.join(LOADS)}, got {load!r}")
        self._index, self._capacity, self._timing, self._clock = index, capacity, timing, clock
        self._signal, self._load_name = LOADS[load], load
        self._lock = RLock()  # signal handlers and finalizers of the host run inside a call, and may call in turn
        self._fleet = Fleet(timing.slow_start_s, hash_seed)
        self._book = LoadBook(window, timing.report_fresh_s, timing.window_s)
        self._calibration = Calibration()
        self._mirrors: list[Membership] = []
        self._out = np.zeros(0, np.uint32)
        self._epoch = 0
        self._text = False

    @property
    def replicas(self) -> tuple[str, ...]:
        """Names of the replicas, in the order of their slots."""
        return tuple(name for name in self._fleet.names if name is not None)

    @property
    def index(self) -> Belief:
        """The belief; an engine's KV events are applied to it directly."""
        return self._index

    def __len__(self) -> int:
        """Return the number of replicas."""
        return len(self._fleet.members)

    def __bool__(self) -> bool:
        """Return true: a router without replicas is a router still."""
        return True

    def replica(self, name: str) -> Replica:
        """Return what is known about a replica."""
        return self._fleet[name].replica

    def add_replica(self, name: str, replica: Replica | None = None, *, now: float | None = None) -> None:
        """Add an empty replica; it starts slowly if there are others. Raise ``ConfigError`` if the name is taken."""
        now = self._time(now)
        with self._lock:
            if name in self._fleet.members:
                raise ConfigError(f"replica {name!r} exists already; sync() reconciles, remove_replica() forgets")
            self._add(name, replica or Replica(), now)
            for mirror in self._mirrors:
                mirror.add_replica(name, replica, now=now)

    def remove_replica(self, name: str) -> None:
        """Forget a replica, what it held and its load. Its sessions move when they next come."""
        with self._lock:
            self._remove(name)
            for mirror in self._mirrors:
                mirror.remove_replica(name)

    def drain(self, name: str, *, now: float | None = None) -> None:
        """Send nothing new to a replica that is going to leave; its sessions move. Requests in flight go on."""
        self._set_state(name, DRAINING, now)

    def suspend(self, name: str, *, now: float | None = None) -> None:
        """Send nothing to a replica for a while (a failed health check); load, belief and bindings stay."""
        self._set_state(name, SUSPENDED, now)

    def resume(self, name: str, *, now: float | None = None) -> None:
        """Let a drained or suspended replica take requests again; it starts slowly."""
        self._set_state(name, ACTIVE, now)

    def clear(self, name: str | None = None) -> None:
        """Believe that a replica (or every one) holds nothing: its cache was reset."""
        with self._lock:
            if name is not None:
                name = self._fleet[name].name
            self._index.clear(name)
            for mirror in self._mirrors:
                mirror.clear(name)

    def new_epoch(self) -> None:
        """Void all belief: the weights have changed. What is in flight now is not believed when it finishes either."""
        with self._lock:
            self._epoch += 1
            self._index.new_epoch()
            for mirror in self._mirrors:
                mirror.new_epoch()

    def sync(self, replicas: Mapping[str, Replica | None] | Iterable[str], *, now: float | None = None) -> None:
        """Make the fleet equal to ``replicas``: add, remove, change. Doing it twice changes nothing more.

        A replica whose ``incarnation`` has changed came back empty: belief, load and slow start begin anew. ``None``
        leaves what is known of a replica as it is.

        Raises:
            ConfigError: a name or setting is not allowed; nothing has changed then.
        """
        now = self._time(now)
        wanted = named(replicas)
        with self._lock:
            if len(wanted) > MAX_REPLICAS:
                raise ConfigError(f"a router has at most {MAX_REPLICAS} replicas, got {len(wanted)}")
            for name, replica in wanted.items():
                self._check(name, replica or Replica())
            joined = now if self._fleet.members else None  # the first replicas have no one to start slowly beside
            for name in [name for name in self._fleet.members if name not in wanted]:
                self._remove(name)
            for name, replica in wanted.items():
                if name in self._fleet.members:
                    self._change(name, replica, now)
                else:
                    self._add(name, replica or Replica(), joined)
            for mirror in self._mirrors:
                mirror.sync(wanted, now=now)

    def update_load(self, name: str, *, at: float | None = None, **loads: float | None) -> bool:
        """Keep a replica's own report of its load.

        Args:
            name: the replica.
            at: time of the report on the router's clock; a report older than the one known is ignored.
            loads: fields of :class:`~prefixroute.types.LoadReport`: ``waiting``, ``running`` (requests),
                ``waiting_tokens``, ``kv_use`` (0 to 1), ``tokens_per_s``.

        Returns:
            Whether the report was kept.
        """
        at = self._time(at)
        try:
            report = LoadReport(at, **loads)  # type: ignore[arg-type]
        except TypeError as error:
            fields = ", ".join(field for field in LoadReport.__dataclass_fields__ if field != "at")
            raise ConfigError(f"update_load takes {fields}; got {', '.join(loads)}") from error
        with self._lock:
            kept = self._book.report(self._fleet[name].slot, report)
            for mirror in self._mirrors:
                mirror.update_load(name, at=at, **loads)
        return kept

    def apply_stored(self, name: str, block_hashes: Any, **event: Any) -> Any:
        """Apply an engine's event that blocks were stored, see :meth:`PrefixIndex.apply_stored`.

        From the first event on the replica counts as event-fed: routed blocks are provisional there.

        Raises:
            EventError: this router matches text, which token-id events cannot describe.
        """
        self._hear(name, event)
        return self._index.apply_stored(name, block_hashes, **event)

    def apply_stored_hashes(self, name: str, block_hashes: Any, **event: Any) -> Any:
        """Apply the same from a replica that hashes prompts as the index does, see :meth:`PrefixIndex.apply_stored_hashes`."""
        self._hear(name, event)
        return self._index.apply_stored_hashes(name, block_hashes, **event)

    def apply_removed(self, name: str, block_hashes: Any, **event: Any) -> Any:
        """Apply an engine's event that blocks were removed, see :meth:`PrefixIndex.apply_removed`."""
        self._hear(name, event)
        return self._index.apply_removed(name, block_hashes, **event)

    def apply_cleared(self, name: str) -> None:
        """Apply an engine's event that its cache was cleared, see :meth:`PrefixIndex.apply_cleared`."""
        self._hear(name, {})
        self._index.apply_cleared(name)

    def _hear(self, name: str, event: Mapping[str, Any]) -> None:
        """Note that a replica sends events, and from which tiers."""
        if self._text:
            raise EventError("this router matches text: KV events name token ids, which say nothing about it")
        with self._lock:
            member = self._fleet[name]
            if not member.replica.events:
                member.replica = replace(member.replica, events=True)
                self._index.expect_events(name)
            member.tiered |= event.get("medium") not in (None, MEDIA[0])

    def _time(self, now: float | None) -> float:
        """Return a time that can be compared with any other: that given, else the clock's."""
        now = self._clock() if now is None else now
        if type(now) is float and now - now == 0.0:  # neither infinite nor NaN; the hot path
            return now
        try:
            finite = isfinite(now)
        except (TypeError, OverflowError):
            finite = False
        if not finite:
            raise ConfigError(f"a time must be a finite number of seconds, got {now!r}")
        return now

    def _add(self, name: str, replica: Replica, now: float | None) -> None:
        self._check(name, replica)
        slot = self._index.add_replica(name, self._capacity_of(name, replica))
        if replica.events:
            self._index.expect_events(name)
        self._book.reset(slot)
        self._fleet.add(name, slot, replica, now)
        if slot >= len(self._out):
            self._out = np.zeros(slot + 1, np.uint32)

    def _check(self, name: Any, replica: Any) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a replica name must be a non-empty string, got {name!r}")
        if not _is_unicode(name) or len(name.encode()) > MAX_NAME_BYTES:
            raise ConfigError(
                f"a replica name must be valid Unicode of at most {MAX_NAME_BYTES} bytes, got {name[:80]!r}"
            )
        if not isinstance(replica, Replica):
            raise ConfigError(f"replica {name!r} must be described by a Replica or None, got {replica!r}")
        capacity = self._capacity_of(name, replica)
        if not isinstance(capacity, int | np.integer) or isinstance(capacity, bool) or not 0 <= capacity < 1 << 64:
            raise ConfigError(
                f"capacity in tokens of replica {name!r} must be an int from 0 to 2**64 - 1, got {capacity!r}"
            )

    def _remove(self, name: str) -> None:
        member = self._fleet.remove(name)
        self._index.remove_replica(name)
        self._void(member.slot)

    def _change(self, name: str, replica: Replica | None, now: float) -> None:
        member = self._fleet[name]
        if replica is None or replica == member.replica:
            return
        capacity = self._capacity_of(name, replica)
        if capacity != self._capacity_of(name, member.replica):
            self._index.set_capacity(name, capacity)
        if replica.events:
            self._index.expect_events(name)
        renewed = replica.incarnation != member.replica.incarnation
        member.replica = replica
        if renewed:
            self._index.clear(name)
            self._void(member.slot)
            self._fleet.renew(member, now)
        else:
            self._fleet.refresh()

    def _void(self, slot: int) -> None:
        """Forget the load and the hit reports of a process that is gone."""
        self._book.reset(slot)
        self._calibration.reset(slot)

    def _set_state(self, name: str, state: str, now: float | None) -> None:
        now = self._time(now)
        with self._lock:
            self._fleet.set_state(name, state, now)
            for mirror in self._mirrors:
                mirror._set_state(name, state, now)

    def _capacity_of(self, name: str, replica: Replica) -> int:
        if replica.capacity_tokens is not None:
            return replica.capacity_tokens
        if not isinstance(self._capacity, Mapping):
            return self._capacity
        capacity = self._capacity.get(name)
        if capacity is None:
            raise ConfigError(f"capacity_tokens names no capacity for replica {name!r}")
        return capacity


def named(replicas: Mapping[str, Replica | None] | Iterable[str]) -> Mapping[str, Replica | None]:
    """Return replicas by name, whichever way they were given; refuse a bare string and a name given twice."""
    if isinstance(replicas, str):
        raise ConfigError(f"replicas must be a collection of names, got the string {replicas!r}")
    if not isinstance(replicas, Iterable):
        raise ConfigError(f"replicas must be a collection of names, got {replicas!r}")
    if isinstance(replicas, Mapping):
        return replicas
    known: dict[str, Replica | None] = {}
    for name in replicas:
        if name in known:
            raise ConfigError(f"replicas must have a name each, got {name!r} twice")
        known[name] = None
    return known


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: half an emoji cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
