"""The fleet: which replicas there are, in which state, and which of them may take a request."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from prefixroute.columns import Roster
from prefixroute.errors import NoReplicaError, UnknownReplicaError
from prefixroute.policies.keyed import name_hash
from prefixroute.routing.cache_names import CacheNames
from prefixroute.routing.ledger import Ledger
from prefixroute.types import DECODE, MIXED, PREFILL, LoadReport, Namespace, Replica
from prefixroute.validation import shown

if TYPE_CHECKING:
    from prefixroute.routing.decision import DecisionLimits

ACTIVE, DRAINING, SUSPENDED = "active", "draining", "suspended"
START_SHARE = 1.0 / 30.0
"""Share with which a slow start begins: one request for each 30 that a warm replica has in flight."""
MEDIA = ("GPU", "CPU", "DISK")
"""Where blocks lie, fastest first."""
MISSED_REPORTS = 2
"""A report counts for so many of the replica's own periods, if that is longer than ``Timing.report_fresh_s``."""
LONGEST_PERIOD_S = 60.0
"""The longest period of reports that is learned: what is older than two minutes is no load."""
PARTS: tuple[tuple[str, ...], ...] = ((MIXED,), (MIXED, PREFILL), (MIXED, DECODE))
"""Roles of the replicas that may take a whole request, its prompt, or its answer."""
WHOLE, PROMPT, ANSWER = range(len(PARTS))
"""Parts of a request that a decision may be about."""


@dataclass(slots=True, eq=False)
class Member:
    """One replica of the fleet, active and not starting slowly at first.

    Its slot is reused after removal, its ``generation`` never; that is -1 once it has left.
    """

    name: str
    slot: int
    replica: Replica
    generation: int
    hash: int
    """Of its name, for rendezvous hashing."""
    capacity: int
    """Tokens of its KV cache."""
    report: LoadReport | None = None
    """Its newest report."""
    period: float = 0.0
    """Seconds between its last two reports."""
    state: str = ACTIVE
    started: float | None = None
    resume_at: float | None = None
    """When a suspension ends by itself; ``None`` = when it is resumed."""
    tiered: bool = False
    """Whether its engine has told of blocks outside of the GPU."""
    adapters: dict[str, None] = field(default_factory=dict)
    """Adapters that its engine has named, the one first heard of first."""

    def keep(self, report: LoadReport) -> bool:
        """Keep a report unless a newer one is known; return whether it was kept."""
        known = self.report
        if known is not None and known.at > report.at:
            return False
        if known is not None and report.at > known.at:
            self.period = min(report.at - known.at, LONGEST_PERIOD_S)
        self.report = report
        return True

    def has_lapsed(self, now: float, fresh_s: float) -> bool:
        """Return whether it has reported, and its last report is too old to count."""
        return self.report is not None and now - self.report.at > max(fresh_s, MISSED_REPORTS * self.period)


Process: TypeAlias = tuple[Member, int]
"""A member and its generation: one process behind a name."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The fleet as one decision sees it. Replaced as a whole by every change, so that it never is half changed."""

    version: int = 0
    slots: tuple[int, ...] = ()
    """Slots of the active replicas, ascending."""
    pools: tuple[tuple[int, ...], ...] = ((),) * len(PARTS)
    """Those of them that may take each part of a request; the same object as ``slots`` where all may take
    everything."""
    names: tuple[str | None, ...] = ()
    hashes: tuple[int, ...] = ()
    weights: tuple[float, ...] | None = None
    roster: Roster = field(default_factory=lambda: Roster(()))
    """Both of them, for kernels."""
    limited: bool = False
    """Whether some replica serves only certain models."""
    starting: tuple[Member, ...] = ()
    """Replicas that start slowly."""
    even: bool = True
    """Whether loads need no scaling."""
    cache_names: CacheNames = field(default_factory=CacheNames)
    """What the name of a model means for cached blocks."""


class Fleet:
    """Members by name and by slot, and the snapshot of them that decisions read; the ledger is told of each process.

    Not thread-safe: the router's lock guards it. :meth:`refresh` makes snapshot and ledger right after a change that
    was cut off.
    """

    def __init__(self, slow_start_s: float, hash_seed: int, ledger: Ledger) -> None:
        """Start without replicas. ``slow_start_s``: time in which a fresh replica grows to its full share."""
        self.slow_start_s, self.hash_seed, self._ledger = slow_start_s, hash_seed, ledger
        self.members: dict[str, Member] = {}
        self.by_slot: list[Member | None] = []
        self.now = Snapshot()
        self.reporting = False
        """Whether a replica has ever reported its load."""
        self._generation = 0

    def __getitem__(self, name: str) -> Member:
        """Return a member; raise :class:`UnknownReplicaError` naming those known."""
        member = self.members.get(name) if isinstance(name, str) else None
        if member is None:
            known = ", ".join(sorted(self.members)[:8]) or "none"
            raise UnknownReplicaError(f"no replica {shown(name)}; known: {known}")
        return member

    def add(self, name: str, slot: int, replica: Replica, capacity: int, now: float | None) -> Member:
        """Register a replica. With ``now`` it starts slowly if the fleet has others to carry the load."""
        self._generation += 1
        member = Member(name, slot, replica, self._generation, name_hash(name, self.hash_seed), capacity)
        if now is not None:
            self.start_slowly(member, now)
        self.by_slot.extend([None] * (slot + 1 - len(self.by_slot)))
        self.by_slot[slot] = member
        self.members[name] = member
        self.refresh()
        return member

    def remove(self, member: Member) -> None:
        """Forget a replica; nothing happens if it has left already."""
        member.generation = -1
        if self.members.get(member.name) is member:
            del self.members[member.name]
        if self.by_slot[member.slot] is member:
            self.by_slot[member.slot] = None
        self.refresh()

    def renew(self, member: Member, now: float) -> None:
        """Begin a new generation of a member: its process was replaced."""
        self._generation += 1
        member.generation = self._generation
        member.report, member.period = None, 0.0
        self.start_slowly(member, now)
        self.refresh()

    def set_state(self, name: str, state: str, now: float) -> Member:
        """Change whether a replica takes requests; a readmitted one starts slowly."""
        member = self[name]
        if member.state != state:
            if state == ACTIVE:
                self.start_slowly(member, now)
            member.state = state
        member.resume_at = None
        self.refresh()
        return member

    def suspend(self, name: str, until: float | None) -> Member:
        """Let a replica take no requests until a time, or until it is resumed; the later end wins."""
        member = self[name]
        timed = until is not None and (member.state != SUSPENDED or member.resume_at is not None)
        member.resume_at = max(until or 0.0, member.resume_at or 0.0) if timed else None
        member.state = SUSPENDED
        self.refresh()
        return member

    def sweep(self, now: float) -> None:
        """Readmit replicas whose suspension has ended, and end slow starts that are over."""
        for member in list(self.members.values()):
            if member.resume_at is not None and member.resume_at <= now and member.state == SUSPENDED:
                self.set_state(member.name, ACTIVE, now)
        over = [m for m in self.now.starting if m.started is None or now - m.started >= self.slow_start_s]
        if over:
            for member in over:
                member.started = None
            self.refresh()

    def start_slowly(self, member: Member, now: float) -> None:
        """Let a member's share grow from now on, unless it is the only active one."""
        others = any(m.state == ACTIVE and m is not member for m in tuple(self.members.values()))
        member.started = now if others and self.slow_start_s > 0.0 else None

    def refresh(self) -> None:
        """Take a new snapshot after a change."""
        while True:
            before, taken = self.now, self._snapshot()
            if self.now is before:  # else a signal handler has changed the fleet meanwhile
                self.now = taken
                break
        free = (None, -1, False)
        self._ledger.see([free if m is None else (m.name, m.generation, m.state == DRAINING) for m in self.by_slot])

    def _snapshot(self) -> Snapshot:
        by_slot = tuple(self.by_slot)
        members = [m for m in by_slot if m is not None]
        active = [m for m in members if m.state == ACTIVE]
        equal = len({m.replica.weight for m in members}) < 2  # noqa: PLR2004
        starting = tuple(m for m in active if m.started is not None)
        slots = tuple(m.slot for m in active)
        hashes = tuple(0 if m is None else m.hash for m in by_slot)
        weights = None if equal else tuple(1.0 if m is None else m.replica.weight for m in by_slot)
        return Snapshot(
            version=self.now.version + 1,
            slots=slots,
            pools=_pools(slots, active),
            names=tuple(None if m is None else m.name for m in by_slot),
            hashes=hashes,
            weights=weights,
            roster=Roster(hashes, weights),
            limited=any(m.replica.models is not None for m in members),
            starting=starting,
            even=equal and not starting,
            cache_names=CacheNames.among((m.replica, tuple(m.adapters)) for m in members if m.replica.events),
        )

    def candidates(
        self, namespace: Namespace | None, limits: DecisionLimits, tried: Collection[Process] = (), part: int = WHOLE
    ) -> tuple[int, ...]:
        """Return the slots that may take a part of a request.

        Raises:
            NoReplicaError: there is none.
            UnknownReplicaError: a candidate is not of the fleet, and the limits do not ignore it.
        """
        slots = self.now.pools[part]
        if limits.candidates is not None:
            known = self.members
            names = [name for name in limits.candidates if name in known or not limits.ignores_unknown]
            wanted = {self[name].slot for name in names}
            slots = tuple(slot for slot in slots if slot in wanted)
        if limits.exclude or tried:
            unwanted = {self.members[name].slot for name in limits.exclude or () if name in self.members}
            unwanted |= {member.slot for member, generation in tried if member.generation == generation}
            slots = tuple(slot for slot in slots if slot not in unwanted)
        if self.now.limited and namespace is not None:
            slots = self._serving(slots, namespace.lora or namespace.model)
        if slots:
            return slots
        raise NoReplicaError(self._why_none(namespace, tried, part))

    def _serving(self, slots: tuple[int, ...], model: str) -> tuple[int, ...]:
        if not model:
            return slots
        members = ((slot, self.by_slot[slot]) for slot in slots)
        return tuple(s for s, m in members if m is not None and (m.replica.models is None or model in m.replica.models))

    def _why_none(self, namespace: Namespace | None, tried: Collection[Process], part: int) -> str:
        if not self.members:
            return "no replica: the fleet is empty"
        roles = sorted({member.replica.role for member in self.members.values()})
        if not set(roles) & set(PARTS[part]):
            pairs = "; route_pair() takes one of each" if part == WHOLE else ""
            return f"no replica has the role {' or '.join(PARTS[part])}, all are {' or '.join(roles)}{pairs}"
        model = f" serving {namespace.lora or namespace.model!r}" if self.now.limited and namespace is not None else ""
        why = f"no replica{model} may take the request: {self._left_out()}"
        names = ", ".join(sorted({member.name for member, _ in tried}))
        return f"{why}; the request has tried {names} already" if names else why

    def _left_out(self) -> str:
        """Return in words why each replica may not take a request."""
        active, total = len(self.now.slots), len(self.members)
        found = []
        if total > active:
            found.append(f"{total - active} of {total} drained or suspended")
        if active:
            found.append(
                f"{active} of {total} active, but left out by candidates, exclude, role, model or an earlier attempt"
            )
        return ", ".join(found)

    def capacities(self) -> list[int]:
        """Return the tokens of each replica's KV cache, by slot."""
        return [0 if m is None else m.capacity for m in self.by_slot]

    def scaled(self, loads: Sequence[float], now: float, pool: Sequence[int]) -> list[float]:
        """Return the loads divided by weight and slow-start share. ``pool``: slots that share the work.

        A starting replica is never made to look busier than the busiest other one by more than a request: it takes less
        than its share of new work, but the work that has its prefix is not driven away.
        """
        scaled, weights = list(loads), self.now.weights
        if weights is not None:
            scaled = [load / weight for load, weight in zip(loads, weights, strict=False)]
        if self.now.starting:
            self._slow(scaled, now, pool)
        return scaled

    def _slow(self, loads: list[float], now: float, pool: Sequence[int]) -> None:
        starting = [m for m in self.now.starting if m.started is not None and now - m.started < self.slow_start_s]
        slots = {member.slot for member in starting}
        others = [loads[slot] for slot in pool if slot not in slots]
        if not others:
            return
        most = max(others) + 1
        for member in starting:
            load, age = loads[member.slot], now - (member.started or 0.0)
            loads[member.slot] = max(load, min(load / max(START_SHARE, age / self.slow_start_s), most))


def _pools(slots: tuple[int, ...], active: Sequence[Member]) -> tuple[tuple[int, ...], ...]:
    """Return the slots of the active members that may take each part of a request."""
    if all(member.replica.role == MIXED for member in active):
        return (slots,) * len(PARTS)
    return tuple(tuple(member.slot for member in active if member.replica.role in roles) for roles in PARTS)
