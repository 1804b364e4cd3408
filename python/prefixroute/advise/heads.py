"""Heads that many sessions begin with (system prompts, tools), one for each group of sessions that has its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from prefixroute.workload import Workload

Hashes = NDArray[np.uint64]

HEAD_SESSIONS = 2_000
"""Sessions, the first of the workload, among which heads are sought."""
LEAST_SHARE = 0.1
"""Share of these sessions that a group must have: fewer are a document or a team, not a system prompt."""
LEAST_SESSIONS = 3
"""Sessions that a group must have."""


@dataclass(frozen=True, slots=True)
class Head:
    """A head that a group of sessions begins with.

    Attributes:
        tokens: its length in full blocks.
        share: sessions of the group, of those looked at.
        last: hash of its last block, which stands for all of it.
        blocks: its length in blocks.
    """

    tokens: int
    share: float
    last: int = field(repr=False)
    blocks: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a workload, those of the most sessions first."""

    found: tuple[Head, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest head; 0 without one."""
        return max((head.tokens for head in self.found), default=0)

    @property
    def common(self) -> int:
        """Tokens of the longest head that at least half of the sessions begin with; 0 without one."""
        return max((head.tokens for head in self.found if 2 * head.share >= 1), default=0)

    def of(self, prompt: Hashes) -> Head | None:
        """Return the longest head that a prompt begins with."""
        held = [head for head in self.found if head.blocks <= len(prompt) and int(prompt[head.blocks - 1]) == head.last]
        return max(held, key=lambda head: head.blocks, default=None)

    @classmethod
    def in_workload(cls, workload: Workload) -> Heads:
        """Find the heads among the first prompts of the first :data:`HEAD_SESSIONS` sessions. Part of one pass."""
        firsts: dict[str, Hashes] = {}
        for number, request in enumerate(workload.requests()):
            firsts.setdefault(request.session or f"\0{number}", request.prompt.array)
            if len(firsts) == HEAD_SESSIONS:
                break
        prompts = list(firsts.values())
        fewest = max(2, min(LEAST_SESSIONS, len(prompts)), round(LEAST_SHARE * len(prompts)))
        size, every = workload.block_size, max(1, len(prompts))
        heads = [Head(depth * size, sessions / every, last, depth) for sessions, depth, last in _split(prompts, fewest)]
        return cls(tuple(sorted(heads, key=lambda head: (-head.share, -head.tokens, head.last))))


def _split(prompts: Sequence[Hashes], fewest: int) -> Iterator[tuple[int, int, int]]:
    """Yield the heads of prompts: (sessions, blocks, hash of the last block).

    A head ends where no ``fewest`` of its prompts go on alike; where several groups do, each has a head of its own, and
    so has the rest where it is a group itself.
    """
    groups = [(list(prompts), 0)]
    while groups:
        alike, depth = groups.pop()
        following = defaultdict(list)
        for prompt in alike:
            if len(prompt) > depth:
                following[int(prompt[depth])].append(prompt)
        large = [group for group in following.values() if len(group) >= fewest]
        groups += [(group, _agreed(group, depth + 1)) for group in large]
        rest = len(alike) - sum(map(len, large))
        if depth and (rest >= fewest or not large):
            yield rest, depth, int(alike[0][depth - 1])


def _agreed(prompts: Sequence[Hashes], depth: int) -> int:
    """Return how many blocks all of these prompts share, at least ``depth``. Chained hashes: bisection finds it."""
    low, high = depth, min(map(len, prompts))
    while low < high:
        middle = (low + high + 1) // 2
        if len({int(prompt[middle - 1]) for prompt in prompts}) == 1:
            low = middle
        else:
            high = middle - 1
    return low
