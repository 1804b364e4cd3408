"""Policies that follow the longest match and spill when its holder is too busy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import ClassVar

from prefixroute.columns import Kernel
from prefixroute.policies.base import Compiled, Policy, check_parameters, kernel_of
from prefixroute.policies.keyed import TWO_CHOICES
from prefixroute.policies.spread import LEAST_LOADED
from prefixroute.validation import check_choice, check_fields, check_float


@dataclass(frozen=True, slots=True)
class CacheAware(Compiled):
    """Follow the longest match; leave it when its holder is much busier than another replica.

    Among the replicas with the longest match, the session's own stays if it is one of them, else (by ``holders``) the
    less loaded of two draws with replacement. It is left when ``load > spill_ratio * other`` **and**
    ``load - other > spill_gap``; before the request goes to a replica without the prefix, the least loaded of the other
    holders is tried by the same rule. A spilled request leaves the prefix at its new home too: hot prefixes replicate.

    Without a match the session stays at its replica under the same rule, and the fallback places what has no session. A
    match is none if it is a head that many new requests share (a system prompt) and that fewer replicas hold than
    should: with a share of 60 % over 8 replicas, 5 should. Heads are learned from the traffic, see :class:`View`. A
    match below ``min_match_tokens`` is one only as the prompt's own history: most replicas do not hold it, nobody else
    shares it, and it is not the first request of its session.

    Attributes:
        min_match_tokens: a shorter match may be a common head (SGLang's router: 1,024).
        min_match_ratio: nor is one of at most this share of the prompt (SMG's ``cache_threshold``; 0 = unused).
        spill: what the holder is compared with. ``least``: the least loaded of all. ``candidate``: a power-of-two pick
            among the others. ``mean``: the fleet's mean. ``swing``: the mean, with a gap of at most two standard
            deviations of a count with that mean, rounded up, or 4 if that is more. ``spread``: the mean plus
            ``spill_ratio`` standard deviations.
            ``never``: nothing (a hot prefix then takes its holder down).
        spill_ratio: multiple of the other load.
        spill_gap: difference to the other load, in units of the router's load signal.
        shorter: before leaving, try holders of shorter matches, longest first (AIBrix).
        holders: which of several holders of the longest match is followed. ``two``: the less loaded of two draws.
            ``least``: the least loaded. ``one``: one draw.
        gate_ratio: a gate on the whole fleet, off by default: if ``max > gate_ratio * min`` and ...
        gate_gap: ... ``max - min > gate_gap``, matches are ignored and ...
        gated: ... this policy decides about *every* request.
        fallback: policy of requests without a match.
        adaptive: learn common heads and keep sessions at their replicas; without it every match of ``min_match_tokens``
            is followed, none below it, and sessions are not looked at.
    """

    min_match_tokens: int = 1_024
    min_match_ratio: float = 0.0
    spill: str = "least"
    spill_ratio: float = 2.0
    spill_gap: float = 10.0
    shorter: bool = False
    holders: str = "two"
    gate_ratio: float = 0.0
    gate_gap: float = inf
    gated: Policy = LEAST_LOADED
    fallback: Policy = TWO_CHOICES
    adaptive: bool = True
    name: ClassVar[str] = "cache-aware"

    def __post_init__(self) -> None:
        """Check the form of the spill and the thresholds."""
        check_parameters(self)
        check_choice("cache-aware spill", self.spill, Kernel.SPILLS)
        check_choice("cache-aware holders", self.holders, Kernel.HOLDERS)
        check_float("cache-aware min_match_ratio", self.min_match_ratio, 0, 1)
        bounds = ("spill_ratio", "spill_gap", "gate_ratio", "gate_gap")
        check_fields(self, check_float, *bounds, called="cache-aware {}", low=0, endless=True)

    def required_signals(self) -> frozenset[str]:
        """How many share the head, and the signals of the policies that decide without a match or when gated."""
        own = frozenset({"shared"}) if self.adaptive else frozenset[str]()
        return own | self.fallback.required_signals() | self.gated.required_signals()

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return Kernel.cache_aware(**own | {"fallback": kernel_of(self.fallback), "gated": kernel_of(self.gated)})

    def otherwise(self, reason: str) -> Policy:
        """Return the policy of requests without a match, or of all while the gate is closed."""
        return self.gated if reason == "imbalanced" else self.fallback
