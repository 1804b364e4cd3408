"""Policies that look at turns and loads only: round robin, random, least loaded, power of two choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from prefixroute.columns import Kernel, lowest
from prefixroute.errors import ConfigError
from prefixroute.policies.base import Pick, Policy, check_parameters, compiled
from prefixroute.policies.view import View, least, less_loaded_of_two
from prefixroute.types import LoadReport
from prefixroute.validation import shown

KV_WEIGHT = 0.15
"""Weight of k/(1-k), k the share of the KV cache in use, in the seconds estimate (SMG's least_load)."""
ASSUMED_TOKENS_PER_S = 2_000.0
"""Prefill throughput of a replica that reports none (SMG's least_load)."""
MEAN_PREFILL_TOKENS = 1_024
"""Tokens that a waiting request stands for when no token count is reported (SMG's least_load)."""


@dataclass(frozen=True, slots=True)
class RoundRobin(Policy):
    """Take turns over the candidates. The seed is where they begin: several routers do not walk in step."""

    name: ClassVar[str] = "round-robin"
    signals: ClassVar[frozenset[str]] = frozenset()
    matches: ClassVar[bool] = False

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.round_robin()

    def decide(self, view: View) -> Pick:
        """Return the slot whose turn it is."""
        return compiled(self.kernel(), view)


@dataclass(frozen=True, slots=True)
class Random(Policy):
    """Draw a replica uniformly."""

    name: ClassVar[str] = "random"
    signals: ClassVar[frozenset[str]] = frozenset()
    matches: ClassVar[bool] = False

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.random()

    def decide(self, view: View) -> Pick:
        """Return a slot drawn at random."""
        return compiled(self.kernel(), view)


_MEASURES = {
    "load": frozenset[str](),
    "requests": frozenset({"in_flight"}),
    "uncached-tokens": frozenset({"queued"}),
    "kv-use": frozenset({"reports"}),
    "held-tokens": frozenset({"held"}),
    "seconds": frozenset({"reports", "queued"}),
}


@dataclass(frozen=True, slots=True)
class LeastLoaded(Policy):
    """Take the least loaded replica. Replicas that a measure cannot tell apart are told apart by load, then drawn.

    Attributes:
        by: what is compared. ``load`` (the router's load signal), ``requests`` in flight, ``uncached-tokens`` waiting,
            ``held-tokens`` in the belief (the smallest cache), ``kv-use`` as reported, ``seconds`` (queued tokens /
            throughput + 0.15 k/(1-k), as SMG's least_load). A measure that is not known of every candidate is not used
            at all: the load signal decides.
    """

    by: str = "load"
    name: ClassVar[str] = "least-loaded"
    signals: ClassVar[frozenset[str]] = frozenset()
    matches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the measure."""
        check_parameters(self)
        if self.by not in _MEASURES:
            raise ConfigError(f"least-loaded by must be one of {', '.join(_MEASURES)}, got {shown(self.by)}")

    def required_signals(self) -> frozenset[str]:
        """Only the signals of the chosen measure."""
        return _MEASURES[self.by]

    def kernel(self) -> Kernel | None:
        """Return the rule for loads, compiled."""
        return Kernel.least_loaded() if self.by == "load" else None

    def decide(self, view: View) -> Pick:
        """Return the slot where the measure is smallest."""
        kernel = self.kernel()
        if kernel is not None:
            return compiled(kernel, view)
        values = self._measure(view)
        if values is None:
            return least(view, view.loads, 0), "unreported"
        low, count, first = lowest(view.of_candidates(values))
        if count == 1:
            return view.slots[first], "least"
        equal = tuple(slot for slot in view.slots if values[slot] == low)
        return least(view._replace(slots=equal), view.loads, 0), "least"

    def _measure(self, view: View) -> Sequence[float] | None:
        if self.by == "requests":
            return view.in_flight
        if self.by == "uncached-tokens":
            return view.queued
        if self.by == "held-tokens":
            return view.held
        reports = view.reports or ()
        queued = view.queued or [0] * len(reports)
        values = [0.0] * len(reports)
        for slot in view.slots:
            report = reports[slot]
            value = None if report is None else self._reported(report, queued[slot])
            if value is None:
                return None
            values[slot] = value
        return values

    def _reported(self, report: LoadReport, queued: int) -> float | None:
        return report.kv_use if self.by == "kv-use" else start_seconds(report, queued)


LEAST_LOADED = LeastLoaded()
"""What decides where only load matters."""


def start_seconds(report: LoadReport, queued: int) -> float | None:
    """Return the seconds until a new request would start: SMG's least_load estimate.

    ``None`` = not enough is reported.
    """
    waiting = report.waiting_tokens
    if waiting is None and report.waiting is not None:
        waiting = report.waiting * MEAN_PREFILL_TOKENS
    if waiting is None or report.kv_use is None:
        return None
    use = min(report.kv_use, 0.999)
    return max(waiting, queued) / (report.tokens_per_s or ASSUMED_TOKENS_PER_S) + KV_WEIGHT * use / (1.0 - use)


@dataclass(frozen=True, slots=True)
class PowerOfTwo(Policy):
    """Draw two distinct replicas and take the less loaded.

    Attributes:
        by: ``load`` compares the router's load signal. ``ranks`` compares, as SGLang's router does, waiting uncached
            tokens, waiting requests, running requests and own requests in flight, in this order; reports count
            only if every candidate has a fresh one.
    """

    by: str = "load"
    name: ClassVar[str] = "power-of-two"
    signals: ClassVar[frozenset[str]] = frozenset()
    matches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the measure."""
        check_parameters(self)
        if self.by not in {"load", "ranks"}:
            raise ConfigError(f"power-of-two by must be 'load' or 'ranks', got {shown(self.by)}")

    def required_signals(self) -> frozenset[str]:
        """Only the signals of the chosen measure."""
        return frozenset({"reports", "in_flight"}) if self.by == "ranks" else frozenset()

    def decide(self, view: View) -> Pick:
        """Return the better of two drawn slots."""
        return self.among(view, view.slots), "power_of_two"

    def among(self, view: View, slots: Sequence[int]) -> int:
        """Return the better of two slots drawn from ``slots``."""
        if self.by == "load":
            return less_loaded_of_two(view, slots, 0)
        reports, in_flight = view.reports or [], view.in_flight or []
        if any(reports[slot] is None for slot in slots):
            return less_loaded_of_two(view, slots, 0, in_flight.__getitem__)
        return less_loaded_of_two(view, slots, 0, lambda slot: _rank(reports[slot], in_flight[slot]))


POWER_OF_TWO = PowerOfTwo()
"""The usual fallback: what decides when a policy has nothing to go by."""


def _rank(report: LoadReport | None, in_flight: int) -> tuple[float, ...]:
    """Return the lexicographic rank of SGLang's router; what is not reported sorts last, since unknown is not zero."""
    values = (None,) * 3 if report is None else (report.waiting_tokens, report.waiting, report.running)
    return (*(inf if value is None else value for value in values), in_flight)
