"""The fleet: which replicas there are, in which state, and which of them may take a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from prefixroute.errors import NoReplicaError, UnknownReplicaError
from prefixroute.policies.keyed import name_hash
from prefixroute.types import Replica

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from prefixroute.types import Namespace

ACTIVE, DRAINING, SUSPENDED = "active", "draining", "suspended"
START_SHARE = 1.0 / 30.0
"""Share with which a slow start begins: one request for each 30 that a warm replica has in flight."""
MEDIA = ("GPU", "CPU", "DISK")
"""Where blocks lie, fastest first."""


class Member:
    """One replica of the fleet. Its slot is reused after removal, its ``generation`` never; that is -1 once it has left."""

    __slots__ = ("generation", "hash", "name", "replica", "slot", "started", "state", "tiered")

    def __init__(self, name: str, slot: int, replica: Replica, generation: int, hash_seed: int) -> None:
        """Register an active replica that is not starting slowly."""
        self.name, self.slot, self.replica, self.generation = name, slot, replica, generation
        self.hash = name_hash(name, hash_seed)
        self.state = ACTIVE
        self.started: float | None = None
        self.tiered = False
        """Whether its engine has told of blocks outside of the GPU."""


Process: TypeAlias = tuple[Member, int]
"""A member and its generation: one process behind a name."""


class Fleet:
    """Members by name and by slot, with the tuples that decisions need kept ready.

    Not thread-safe: the router's lock guards it.
    """

    def __init__(self, slow_start_s: float, hash_seed: int) -> None:
        """Start without replicas. ``slow_start_s``: time in which a fresh replica grows to its full share."""
        self.slow_start_s, self.hash_seed = slow_start_s, hash_seed
        self.members: dict[str, Member] = {}
        self.by_slot: list[Member | None] = []
        self.slots: tuple[int, ...] = ()
        self.names: tuple[str | None, ...] = ()
        self.hashes: tuple[int, ...] = ()
        self.weights: tuple[float, ...] | None = None
        self.version = 0
        self._generation = 0
        self.even = True  # whether loads need no scaling
        self.limited = False  # whether some replica serves only certain models
        self._starting: list[Member] = []

    def __getitem__(self, name: str) -> Member:
        """Return a member; raise :class:`UnknownReplicaError` naming those known."""
        member = self.members.get(name)
        if member is None:
            known = ", ".join(sorted(self.members)[:8]) or "none"
            raise UnknownReplicaError(f"no replica {name!r}; known: {known}")
        return member

    def generation(self, slot: int) -> int:
        """Return the generation of a slot's member, -1 if the slot is free."""
        member = self.by_slot[slot] if slot < len(self.by_slot) else None
        return -1 if member is None else member.generation

    def add(self, name: str, slot: int, replica: Replica, now: float | None) -> Member:
        """Register a replica. With ``now`` it starts slowly if the fleet has others to carry the load."""
        self._generation += 1
        member = Member(name, slot, replica, self._generation, self.hash_seed)
        self.members[name] = member
        self.by_slot.extend([None] * (slot + 1 - len(self.by_slot)))
        self.by_slot[slot] = member
        if now is not None:
            self.start_slowly(member, now)
        self.refresh()
        return member

    def remove(self, name: str) -> Member:
        """Forget a replica."""
        member = self[name]
        del self.members[name]
        self.by_slot[member.slot] = None
        member.generation = -1
        self.refresh()
        return member

    def renew(self, member: Member, now: float) -> None:
        """Begin a new generation of a member: its process was replaced."""
        self._generation += 1
        member.generation = self._generation
        self.start_slowly(member, now)
        self.refresh()

    def set_state(self, name: str, state: str, now: float) -> Member:
        """Change whether a replica takes requests; a readmitted one starts slowly."""
        member = self[name]
        if member.state != state:
            member.state = state
            if state == ACTIVE:
                self.start_slowly(member, now)
            self.refresh()
        return member

    def start_slowly(self, member: Member, now: float) -> None:
        """Let a member's share grow from now on, unless it is the only active one."""
        others = any(m.state == ACTIVE and m is not member for m in self.members.values())
        member.started = now if others and self.slow_start_s > 0.0 else None

    def refresh(self) -> None:
        """Rebuild the tuples after a change."""
        self.version += 1
        active = [m for m in self.by_slot if m is not None and m.state == ACTIVE]
        self.slots = tuple(m.slot for m in active)
        self.names = tuple(None if m is None else m.name for m in self.by_slot)
        self.hashes = tuple(0 if m is None else m.hash for m in self.by_slot)
        equal = len({m.replica.weight for m in self.members.values()}) < 2  # noqa: PLR2004
        self.weights = None if equal else tuple(1.0 if m is None else m.replica.weight for m in self.by_slot)
        self.limited = any(m.replica.models is not None for m in self.members.values())
        self._starting = [m for m in active if m.started is not None]
        self.even = self.weights is None and not self._starting

    def candidates(
        self,
        namespace: Namespace | None,
        candidates: Iterable[str] | None,
        exclude: Collection[str] | None,
        tried: Collection[Process] = (),
    ) -> tuple[int, ...]:
        """Return the slots that may take a request; raise :class:`NoReplicaError` if there is none."""
        slots = self.slots
        if candidates is not None:
            wanted = {self[name].slot for name in candidates}
            slots = tuple(slot for slot in slots if slot in wanted)
        if exclude or tried:
            unwanted = {self.members[name].slot for name in exclude or () if name in self.members}
            unwanted |= {member.slot for member, generation in tried if member.generation == generation}
            slots = tuple(slot for slot in slots if slot not in unwanted)
        if self.limited and namespace is not None:
            slots = self._serving(slots, namespace.lora or namespace.model)
        if slots:
            return slots
        raise NoReplicaError(self._why_none(namespace))

    def _serving(self, slots: tuple[int, ...], model: str) -> tuple[int, ...]:
        if not model:
            return slots
        members = ((slot, self.by_slot[slot]) for slot in slots)
        return tuple(s for s, m in members if m is not None and (m.replica.models is None or model in m.replica.models))

    def _why_none(self, namespace: Namespace | None) -> str:
        if not self.members:
            return "no replica: the fleet is empty"
        counts = f"{len(self.slots)} active of {len(self.members)}"
        model = f" serving {namespace.lora or namespace.model!r}" if self.limited and namespace is not None else ""
        return f"no replica{model} may take the request: {counts}, the rest drained, suspended or excluded"

    def scaled(self, loads: Sequence[float], now: float) -> list[float]:
        """Return the loads divided by weight and slow-start share.

        A starting replica is never made to look busier than the busiest other one by more than a request: it takes less
        than its share of new work, but the work that has its prefix is not driven away.
        """
        scaled, weights = list(loads), self.weights
        if weights is not None:
            scaled = [load / weight for load, weight in zip(loads, weights, strict=True)]
        if self._starting:
            self._slow(scaled, now)
        return scaled

    def _slow(self, loads: list[float], now: float) -> None:
        starting = []
        for member in self._starting:
            if now - (member.started or 0.0) < self.slow_start_s:
                starting.append(member)
            else:
                member.started = None
        self._starting = starting
        self.even = self.weights is None and not starting
        slots = {member.slot for member in starting}
        others = [loads[slot] for slot in self.slots if slot not in slots]
        if not others:
            return
        most = max(others) + 1
        for member in starting:
            load, age = loads[member.slot], now - (member.started or 0.0)
            loads[member.slot] = max(load, min(load / max(START_SHARE, age / self.slow_start_s), most))
