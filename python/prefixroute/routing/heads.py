"""The heads: which beginnings of prompts are shared, learned from where prompts leave what is known.

A prompt *branches* at the last block that some replica holds, if it goes on behind it. The next turn of a conversation
branches where the last answer ended, which nobody else does. Prompts that share a system prompt, a document or a set of
examples branch at its end again and again: that block is the end of a head.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prefixroute.routing.decision import Decision

WINDOW = 256
"""Beginnings that shares are counted over."""
LEAST_BEGINNINGS = 32
"""Beginnings under which a share says too little for a warning."""
HERD_SHARE = 0.5
"""Share of the last beginnings from which on a head at few replicas is worth a warning."""
REMEMBERED = 4_096
"""Branches that are remembered to recognize the second prompt that branches there, at about 200 bytes each."""


class Head(NamedTuple):
    """A beginning that prompts share.

    Attributes:
        tokens: its length.
        share: share of the last beginnings that branched behind it.
        holders: candidates that held it when a prompt last branched there.
        replicas: candidates that there were.
        beginnings: beginnings that the share is of.
    """

    tokens: int
    share: float
    holders: int
    replicas: int
    beginnings: int

    @property
    def herds(self) -> bool:
        """Whether it is so common, and at so few replicas, that who follows it sends most of the traffic there."""
        return (
            self.beginnings >= LEAST_BEGINNINGS
            and self.share >= HERD_SHARE
            and 2 * self.holders < self.share * self.replicas
        )


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
        self._heads: dict[int, tuple[int, int, int]] = {}

    def learn(self, decision: Decision) -> None:
        """Take in a request that is being booked, and of which no replica held all."""
        view, branch = decision.view, decision.branch
        is_first = bool(view.request.session) and view.binding is None
        if branch is not None:
            branches = self._branches
            seen = branches[branch] = branches.pop(branch, 0) + 1  # the latest is the last
            if seen == 1 and len(branches) > REMEMBERED:
                branches.popitem(last=False)
            if seen < 2 and not is_first:  # noqa: PLR2004  # a conversation that goes on
                return
            self._counts[branch] = self._counts.get(branch, 0) + 1
            hits = [view.hits[slot] for slot in view.slots]
            self._heads[branch] = decision.best_hit_tokens, hits.count(decision.best_hit_tokens), len(hits)
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
            self._heads.pop(branch, None)

    def share(self, branch: int | None) -> float:
        """Return the share of the last beginnings that branched at a block; 0 without a branch."""
        if branch is None or not self._latest:
            return 0.0
        return self._counts.get(branch, 0) / len(self._latest)

    def commonest(self) -> Head:
        """Return the head at which most of the last beginnings branched."""
        counts = dict(self._counts)
        branch = max(counts, key=counts.__getitem__, default=None)
        if branch is None:
            return Head(0, 0.0, 0, 0, 0)
        tokens, holders, replicas = self._heads.get(branch, (0, 0, 0))
        beginnings = len(self._latest)
        return Head(tokens, counts[branch] / max(1, beginnings), holders, replicas, beginnings)
