"""The heads: which beginnings of prompts are shared, learned from where prompts leave what is known.

A prompt *branches* at the last block that some replica holds, if it goes on behind it. The next turn of a conversation
branches where the last answer ended, which nobody else does. Prompts that share a system prompt, a document or a set of
examples branch at its end again and again: that block is the end of a head.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefixroute.routing.decision import Decision

WINDOW = 256
"""Beginnings that shares are counted over."""
REMEMBERED = 4_096
"""Branches that are remembered to recognize the second prompt that branches there, at about 200 bytes each."""


class Heads:
    """Counts, over the last beginnings, at which block they branched.

    A *beginning* is a request that no replica holds anything of, the first of its session, or one that branches where
    another has branched before. Not thread-safe: the router's lock guards it.
    """

    def __init__(self) -> None:
        """Start without heads."""
        self._branches: OrderedDict[int, int] = OrderedDict()
        self._latest: deque[int | None] = deque()
        self._counts: dict[int, int] = {}

    def learn(self, decision: Decision) -> None:
        """Take in a request that is being booked, and of which no replica held all."""
        view, branch = decision.view, decision.branch
        is_first = bool(view.request.session) and view.binding is None
        if branch is not None:
            branches = self._branches
            seen = branches[branch] = branches.get(branch, 0) + 1
            branches.move_to_end(branch)
            while len(branches) > REMEMBERED:
                branches.popitem(last=False)
            if seen < 2 and not is_first:  # noqa: PLR2004  # a conversation that goes on
                return
            self._counts[branch] = self._counts.get(branch, 0) + 1
        self._latest.append(branch)
        while len(self._latest) > WINDOW:
            self._forget(self._latest.popleft())

    def _forget(self, branch: int | None) -> None:
        if branch is None:
            return
        left = self._counts.get(branch, 0) - 1
        if left > 0:
            self._counts[branch] = left
        else:
            self._counts.pop(branch, None)

    def share(self, branch: int | None) -> float:
        """Return the share of the last beginnings that branched at a block; 0 without a branch."""
        if branch is None or not self._latest:
            return 0.0
        return self._counts.get(branch, 0) / len(self._latest)

    def commonest(self) -> tuple[int | None, float]:
        """Return the block at which most of the last beginnings branched, and their share."""
        counts = dict(self._counts)
        if not counts:
            return None, 0.0
        branch = max(counts, key=counts.__getitem__)
        return branch, counts[branch] / max(1, len(self._latest))
