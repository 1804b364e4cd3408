"""Calibration: predicted against reported cached tokens, and which replicas' belief is not to be believed."""

from __future__ import annotations

import logging
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.validation import check_int

_LOG = logging.getLogger("prefixroute")
ZERO_STREAK = 20
"""Reports of no cached token in a row, against a predicted hit, after which a replica's belief counts for nothing."""


def wrong_report(hit_tokens: Any, prompt_tokens: Any) -> ConfigError | None:
    """Return what is wrong with cached tokens and prompt tokens as an engine reports them; ``None`` is not reported."""
    if type(hit_tokens) is int and hit_tokens >= 0 and prompt_tokens is None:
        return None  # the hot path
    for name, tokens in (("reported_hit_tokens", hit_tokens), ("reported_prompt_tokens", prompt_tokens)):
        if tokens is not None:
            try:
                check_int(name, tokens, 0)
            except ConfigError as error:
                return error
    return None


class Record:
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
        self.records: dict[int, Record] = {}
        self.distrusted: set[int] = set()
        self.unreported = 0

    def learn(self, slot: int, name: str, predicted: int, reported: int | None) -> None:
        """Take in one finished request. ``predicted``: its hit tokens by the belief, 0 while distrusted."""
        if reported is None:
            self.unreported += 1
            return
        record = self.records.get(slot)
        if record is None:
            record = self.records[slot] = Record()
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
