"""Policies that look at turns and loads only: round robin, random, least loaded, power of two choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prefixroute.columns import Kernel
from prefixroute.policies.base import Compiled, check_parameters
from prefixroute.validation import check_choice


@dataclass(frozen=True, slots=True)
class RoundRobin(Compiled):
    """Take turns over the candidates. The seed is where they begin: several routers do not walk in step."""

    name: ClassVar[str] = "round-robin"
    matches: ClassVar[bool] = False

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.round_robin()


@dataclass(frozen=True, slots=True)
class Random(Compiled):
    """Draw a replica uniformly."""

    name: ClassVar[str] = "random"
    matches: ClassVar[bool] = False

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.random()


_MEASURES = {
    "load": frozenset[str](),
    "requests": frozenset({"in_flight"}),
    "uncached-tokens": frozenset({"queued"}),
    "kv-use": frozenset({"reports"}),
    "held-tokens": frozenset({"held"}),
    "seconds": frozenset({"reports", "queued"}),
}


@dataclass(frozen=True, slots=True)
class LeastLoaded(Compiled):
    """Take the least loaded replica. Replicas that a measure cannot tell apart are told apart by load, then drawn.

    Attributes:
        by: what is compared. ``load`` (the router's load signal), ``requests`` in flight, ``uncached-tokens`` waiting,
            ``held-tokens`` in the belief (the smallest cache), ``kv-use`` as reported, ``seconds`` (queued tokens /
            throughput + 0.15 k/(1-k), as SMG's least_load). A measure that is not known of every candidate is not used
            at all: the load signal decides.
    """

    by: str = "load"
    name: ClassVar[str] = "least-loaded"
    matches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the measure."""
        check_parameters(self)
        check_choice("least-loaded by", self.by, _MEASURES)

    def required_signals(self) -> frozenset[str]:
        """Only the signals of the chosen measure."""
        return _MEASURES[self.by]

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.least(self.by)


LEAST_LOADED = LeastLoaded()
"""What decides where only load matters."""


@dataclass(frozen=True, slots=True)
class PowerOfTwo(Compiled):
    """Draw two distinct replicas and take the less loaded.

    Attributes:
        by: ``load`` compares the router's load signal. ``ranks`` compares, as SGLang's router does, waiting uncached
            tokens, waiting requests, running requests and own requests in flight, in this order; reports count
            only if every candidate has a fresh one.
    """

    by: str = "load"
    name: ClassVar[str] = "power-of-two"
    matches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the measure."""
        check_parameters(self)
        check_choice("power-of-two by", self.by, ("load", "ranks"))

    def required_signals(self) -> frozenset[str]:
        """Only the signals of the chosen measure."""
        return frozenset({"reports", "in_flight"}) if self.by == "ranks" else frozenset()

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.of_two(self.by == "ranks")


POWER_OF_TWO = PowerOfTwo()
"""The usual fallback: what decides when a policy has nothing to go by."""
