"""A tree of every prefix seen so far, with who touched each block last: one cache of unlimited size, and its history.

Block hashes are chained, so equal hashes at a position mean equal prefixes up to it. The tree therefore keeps runs of
hashes, found by their first hash, and needs no parents: a prompt is walked from run to run, and where it ends or
leaves a run, that run is cut in two.

Touching a block touches every block before it. So last touches never get younger on the way down, and the blocks that
one request touched last lie together at the end of its path. A walk reports these stretches, which are few (the
amortised bound of link-cut trees: logarithmic), and not the blocks, which are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefixroute.hashing import BlockHashes, common_blocks

LONG_WALK = 8
"""Runs on one path from which on they are joined."""


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks that were touched last by one request. ``uses`` counts the prompts that contain them: 0, 1 or more (2)."""

    hashes: NDArray[np.uint64]
    last: int
    toucher: int
    uses: int


class Stretch(NamedTuple):
    """Blocks ``first`` up to ``last`` (exclusive) of a prompt, which the request ``toucher`` touched last."""

    toucher: int
    first: int
    last: int


class PrefixTree:
    """Every prefix ever touched. Memory: 8 bytes a distinct block, and one small object a run.

    Not safe for use by several threads at once.
    """

    def __init__(self, long_walk: int = LONG_WALK) -> None:
        """Start empty. ``long_walk`` changes speed and nothing else."""
        self._heads: dict[int, _Run] = {}
        self._long_walk = long_walk

    def touch(
        self, number: int, prompt: NDArray[np.uint64], context: NDArray[np.uint64] | None = None
    ) -> list[Stretch]:
        """Look up ``prompt``, then touch all blocks of ``context`` (the prompt's own unless given) as one request.

        Args:
            number: the request's number; never lower than that of a request before.
            prompt: chained block hashes, shape (n,).
            context: chained block hashes that begin with ``prompt``.

        Returns:
            The blocks of the context that were known, from its beginning, as stretches whose ``toucher`` never rises.
            A stretch may go on past the end of the prompt.
        """
        path = prompt if context is None else context
        known: list[Stretch] = []
        at = self._touch_known(number, prompt, 0, known, uses=1)
        if at < len(prompt):
            self._add(prompt[at:], number, uses=1)
            at = len(prompt)
        if at < len(path):
            at = self._touch_known(number, path, at, known, uses=0)
        if at < len(path):
            self._add(path[at:], number, uses=0)
        return known

    def leading(self, number: int, prompt: BlockHashes, context: BlockHashes) -> int:
        """Touch as :meth:`touch` does, and return how many leading blocks of the prompt were known."""
        known = self.touch(number, prompt.array, context.array)
        return min(known[-1].last, len(prompt)) if known else 0

    def _touch_known(self, number: int, path: NDArray[np.uint64], at: int, known: list[Stretch], *, uses: int) -> int:
        """Touch the runs on ``path`` from ``at`` on, append their stretches and return where they end."""
        runs = self._walk(path, at)
        for run in runs:
            end = at + len(run.hashes)
            if known and known[-1].toucher == run.toucher:
                known[-1] = Stretch(run.toucher, known[-1].first, end)
            else:
                known.append(Stretch(run.toucher, at, end))
            run.toucher = number
            run.uses = min(2, run.uses + uses)
            at = end
        if len(runs) > self._long_walk:
            self._join([run for run in runs if run.uses > 1])
        return at

    def _join(self, runs: list[_Run]) -> None:
        """Make one of runs that follow one another and have just been touched; a branch between them cuts it again.

        Without this a conversation of n turns would be walked in n steps.
        """
        if len(runs) > 1:
            for run in runs[1:]:
                del self._heads[int(run.hashes[0])]
            runs[0].hashes = np.concatenate([run.hashes for run in runs])
            runs[0].last = runs[-1].last

    def _walk(self, path: NDArray[np.uint64], at: int) -> list[_Run]:
        """Return the runs that ``path`` contains whole from position ``at`` on; a run it leaves half-way is cut."""
        heads, length = self._heads, len(path)
        runs = []
        while at < length:
            run = heads.get(int(path[at]))
            if run is None:
                break
            end = at + len(run.hashes)
            if end > length or int(path[end - 1]) != run.last:
                self._cut(run, common_blocks(run.hashes, path[at:end]))
            runs.append(run)
            at += len(run.hashes)
        return runs

    def _add(self, hashes: NDArray[np.uint64], number: int, uses: int) -> None:
        run = _Run(hashes.copy(), int(hashes[-1]), number, uses)
        self._heads[int(hashes[0])] = run

    def _cut(self, run: _Run, at: int) -> None:
        # Copies: a slice would keep the whole array alive.
        rest = run.hashes[at:].copy()
        self._heads[int(rest[0])] = _Run(rest, run.last, run.toucher, run.uses)
        run.hashes = run.hashes[:at].copy()
        run.last = int(run.hashes[-1])

    def forget(self, before: int) -> None:
        """Drop every block that no request from number ``before`` on has touched."""
        self._heads = {head: run for head, run in self._heads.items() if run.toucher >= before}

    def __len__(self) -> int:
        """Return how many distinct blocks there are."""
        return sum(len(run.hashes) for run in self._heads.values())

    def used_once(self) -> int:
        """Return how many of the blocks are in exactly one prompt."""
        return sum(len(run.hashes) for run in self._heads.values() if run.uses == 1)

    def used(self) -> int:
        """Return how many of the blocks are in a prompt (and not only in an answer)."""
        return sum(len(run.hashes) for run in self._heads.values() if run.uses)


class TouchCounts:
    """How many blocks each request touched last, summed over all later requests: a Fenwick tree that grows.

    Both calls take O(log requests).
    """

    def __init__(self) -> None:
        """Start with no request."""
        self._sums = [0] * 2
        self.total = 0

    def add(self, number: int, blocks: int) -> None:
        """Add to the blocks of request ``number`` (from 0); a negative figure takes away."""
        self.total += blocks
        at = number + 1
        while at >= len(self._sums):
            self._grow()
        size, sums = len(self._sums), self._sums
        while at < size:
            sums[at] += blocks
            at += at & -at

    def _grow(self) -> None:
        size = len(self._sums)
        self._sums += [0] * size
        # The one node of the new half that covers the old half; all others cover new requests only.
        self._sums[size] = self.total_to(size - 1)

    def total_to(self, number: int) -> int:
        """Return the blocks of the requests with numbers below ``number``."""
        sums, total = self._sums, 0
        at = number
        while at:
            total += sums[at]
            at &= at - 1
        return total

    def after(self, number: int) -> int:
        """Return the blocks that requests later than ``number`` touched last."""
        return self.total - self.total_to(number + 1)
