"""The bindings: which replica has a session's prefix. A bounded map that forgets idle sessions."""

from __future__ import annotations

from collections import Counter, OrderedDict
from hashlib import blake2b
from typing import NamedTuple

from prefixroute.types import new_tuple

MAX_KEY = 256
"""Characters up to which a key is kept as it is; of a longer one a digest is kept, so that keys take bounded memory."""


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
        self.idle_s, self.capacity = idle_s, capacity
        self.moves: Counter[str] = Counter()
        self._map: OrderedDict[str, Binding] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of sessions remembered."""
        return len(self._map)

    def get(self, session: str, now: float) -> Binding | None:
        """Return a session's binding, unless it has been idle for too long. Changes nothing."""
        binding = self._map.get(session if len(session) <= MAX_KEY else digest(session))
        return binding if binding is not None and now - binding.seen <= self.idle_s else None

    def bind(self, session: str, slot: int, generation: int, now: float) -> None:
        """Bind a session, or renew its binding."""
        if len(session) > MAX_KEY:
            session = digest(session)
        bindings = self._map
        bindings[session] = new_tuple(Binding, (slot, generation, now))
        bindings.move_to_end(session)
        while len(bindings) > self.capacity:
            bindings.popitem(last=False)
            self.moves["evicted"] += 1

    def forget(self, session: str) -> bool:
        """Drop a session; return whether it was bound."""
        return self._map.pop(short(session), None) is not None

    def clear(self) -> int:
        """Drop every session; return how many there were."""
        count = len(self._map)
        self._map.clear()
        return count

    def sweep(self, now: float) -> None:
        """Drop the sessions that have been idle for too long."""
        bindings = self._map
        while bindings:
            session = next(iter(bindings))
            if now - bindings[session].seen <= self.idle_s:
                return
            bindings.pop(session, None)
            self.moves["idle"] += 1


def short(key: str) -> str:
    """Return a key as it is kept: itself, or the digest of a long one."""
    return key if len(key) <= MAX_KEY else digest(key)


def digest(key: str) -> str:
    """Return what a long key is kept as: NUL and 128 bits of BLAKE2b in hexadecimal, which no key of a host begins with."""
    return "\0" + blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
