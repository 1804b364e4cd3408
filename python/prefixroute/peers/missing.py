"""Chains that a router does not know, and the blocks that wait for them: what lost messages leave behind."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from prefixroute.routing.fleet import Member

MAX_WAITING, MAX_WAITING_BYTES = 1_024, 1 << 24
"""Chains waited for and bytes of hashes that wait; of more, those that have waited longest are forgotten: a miss
each."""
ASK_AGAIN_S = 1.0
"""Seconds after which a missing chain is asked for, or sent, again."""


class Waiting(NamedTuple):
    """Blocks that a replica is told to hold, behind a chain that this router does not know."""

    member: Member
    generation: int
    rest: bytes


class MissingChains:
    """What waits for which chain, and when each was asked for or sent. The router's lock guards it."""

    def __init__(self) -> None:
        """Start with nothing missing."""
        self._waiting: OrderedDict[tuple[int, int], list[Waiting]] = OrderedDict()
        self._bytes = 0
        self._asked: dict[tuple[int, int], float] = {}

    def wait(self, known: int, parent: int, rest: bytes, member: Member) -> None:
        """Let a part of a chain wait for what it goes on behind.

        Args:
            known: blocks before it.
            parent: hash of the last of those.
            rest: its hashes as little-endian bytes.
            member: the replica that is told to hold it.
        """
        self._waiting.setdefault((known, parent), []).append(Waiting(member, member.generation, rest))
        self._bytes += len(rest) + 1  # a part without hashes waits too
        while self._bytes > MAX_WAITING_BYTES or len(self._waiting) > MAX_WAITING:
            self._forget(self._waiting.popitem(last=False)[1])

    def _forget(self, parts: list[Waiting]) -> None:
        self._bytes -= sum(len(part.rest) + 1 for part in parts)

    def take(self, known: int, parent: int) -> list[Waiting]:
        """Return what has waited for a chain that has come."""
        parts = self._waiting.pop((known, parent), [])
        self._forget(parts)
        return parts

    def is_due(self, known: int, parent: int, now: float) -> bool:
        """Return whether a chain was neither asked for nor sent lately, and note that it is now."""
        asked = self._asked
        if 0.0 <= now - asked.get((known, parent), float("-inf")) < ASK_AGAIN_S:  # a clock may go back
            return False
        if len(asked) >= MAX_WAITING:
            asked.clear()
        asked[known, parent] = now
        return True
