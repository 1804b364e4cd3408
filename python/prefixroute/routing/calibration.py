"""Calibration: predicted against reported cached tokens, and which replicas' belief is not to be believed."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("prefixroute")
ZERO_STREAK = 20
"""Reports of no cached token in a row, against a predicted hit, after which a replica's belief counts for nothing."""


class HitRecord:
    """One replica's predicted and reported hits."""

    __slots__ = ("predicted", "reported", "requests", "streak")

    def __init__(self) -> None:
        """Start with nothing reported."""
        self.predicted = self.reported = self.requests = self.streak = 0


class Calibration:
    """Compares what the belief predicted with the cached tokens that engines report.

    A replica that reports zero for ``ZERO_STREAK`` predicted hits in a row is distrusted: its prefix caching is off, its
    hashes differ, or its cache is far smaller than assumed. Its hits then count as zero until it reports one.
    A request without a report is counted and says nothing.
    """

    def __init__(self) -> None:
        """Start trusting everyone."""
        self.records: dict[int, HitRecord] = {}
        self.distrusted: set[int] = set()
        self.unreported = 0

    def learn(self, slot: int, name: str, predicted: int, reported: int | None) -> None:
        """Take in one finished request. ``predicted``: its hit tokens by the belief, 0 while distrusted."""
        if reported is None:
            self.unreported += 1
            return
        record = self.records.get(slot)
        if record is None:
            record = self.records[slot] = HitRecord()
        record.predicted += predicted
        record.reported += reported
        record.requests += 1
        if reported > 0:
            record.streak = 0
            if slot in self.distrusted:
                self.distrusted.discard(slot)
                _LOG.info("replica %r reports cached tokens again: its belief counts", name)
        elif predicted > 0:
            record.streak += 1
            if record.streak == ZERO_STREAK:
                self.distrusted.add(slot)
                _LOG.warning(
                    "replica %r reported no cached token for %d predicted hits: belief ignored", name, ZERO_STREAK
                )

    def reset(self, slot: int) -> None:
        """Forget a slot: another process has it."""
        self.records.pop(slot, None)
        self.distrusted.discard(slot)
