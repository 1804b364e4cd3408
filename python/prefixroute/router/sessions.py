"""The bindings: which replica has a session's prefix. A bounded map that forgets idle sessions."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NamedTuple

from prefixroute.types import new_tuple
from prefixroute.validation import check_int


class Binding(NamedTuple):
    """A session's replica, and when the session was last seen."""

    slot: int
    generation: int
    seen: float


class Bindings:
    """Sessions by key, least recently used first. At most ``capacity`` of them, none idle longer than ``idle_s``.

    Not thread-safe: the router's lock guards it.
    """

    def __init__(self, idle_s: float, capacity: int) -> None:
        """Start without sessions."""
        check_int("session_capacity", capacity, 1)
        self.idle_s, self.capacity = idle_s, capacity
        self.moves: Counter[str] = Counter()
        self._map: OrderedDict[str, Binding] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of sessions remembered."""
        return len(self._map)

    def get(self, session: str, now: float) -> Binding | None:
        """Return a session's binding, unless it has been idle for too long. Changes nothing."""
        binding = self._map.get(session)
        return binding if binding is not None and now - binding.seen <= self.idle_s else None

    def bind(self, session: str, slot: int, generation: int, now: float) -> None:
        """Bind a session, or renew its binding."""
        bindings = self._map
        bindings[session] = new_tuple(Binding, (slot, generation, now))
        bindings.move_to_end(session)
        if len(bindings) > self.capacity:
            bindings.popitem(last=False)
            self.moves["evicted"] += 1

    def forget(self, session: str) -> bool:
        """Drop a session; return whether it was bound."""
        return self._map.pop(session, None) is not None

    def sweep(self, now: float) -> None:
        """Drop the sessions that have been idle for too long."""
        bindings = self._map
        while bindings:
            session = next(iter(bindings))
            if now - bindings[session].seen <= self.idle_s:
                return
            del bindings[session]
            self.moves["idle"] += 1
