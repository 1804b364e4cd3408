"""Counters: what a router has done since it was made, for metrics and statistics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

BUCKETS_S = (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2.5e-2)
"""Upper bounds of the histogram of decision times, in seconds."""


MAX_REASONS, MAX_REASON = 64, 64
"""Reasons that metrics tell apart, and characters of each: what a policy of one's own says is bounded."""
OTHER = "other"
"""The label of all further reasons."""


class Counters:
    """Totals since the router was made. Not thread-safe: the router's lock guards it."""

    def __init__(self) -> None:
        """Start at zero."""
        self.decisions: Counter[tuple[str, str, str]] = Counter()
        self.prompt_tokens = self.best_hit_tokens = 0
        self.hit_tokens: Counter[tuple[str, str]] = Counter()
        self.reasons: set[str] = set()
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0

    def count_new(self, policy: str, reason: str, replica: str) -> None:
        """Count a committed decision of a kind that may be new; of the reasons of a policy of one's own, some are told apart."""
        if reason not in self.reasons and len(self.reasons) >= MAX_REASONS:
            reason = OTHER
        elif len(reason) > MAX_REASON:
            reason = reason[:MAX_REASON]
        self.reasons.add(reason)
        self.decisions[policy, reason, replica] += 1

    def retire(self, name: str) -> None:
        """Fold a removed replica's counters into replica="", so that the number of labels stays bounded."""
        for policy, reason, replica in [key for key in self.decisions if key[2] == name]:
            self.decisions[policy, reason, ""] += self.decisions.pop((policy, reason, replica))
        for replica, medium in [key for key in self.hit_tokens if key[0] == name]:
            self.hit_tokens["", medium] += self.hit_tokens.pop((replica, medium))

    def time(self, seconds: float) -> None:
        """Count a decision's time."""
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
