"""Policies that follow the longest match and spill when its holder is too busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import ClassVar

from prefixroute.columns import highest, lowest, nth
from prefixroute.draws import draw
from prefixroute.errors import ConfigError
from prefixroute.policies.base import Pick, Policy, resolve
from prefixroute.policies.keyed import TWO_CHOICES
from prefixroute.policies.view import View, least, less_loaded_of_two, one_of
from prefixroute.validation import shown

SPILLS = ("least", "candidate", "mean", "swing", "spread", "never")
LEAST_SWING = 4.0
"""Requests that loads differ by at least without meaning anything, whatever their mean (SMG 1.13)."""


@dataclass(frozen=True, slots=True)
class CacheAware(Policy):
    """Follow the longest match; leave it when its holder is much busier than another replica.

    Among the replicas with the longest match, the session's own stays if it is one of them, else the less loaded of two
    draws with replacement. It is left when ``load > spill_ratio * other`` **and** ``load - other > spill_gap``; before
    the request goes to a replica without the prefix, the least loaded of the other holders is tried by the same rule. A
    spilled request leaves the prefix at its new home too: hot prefixes replicate.

    Without a match the session stays at its replica under the same rule, and the fallback places what has no session. A
    match is none if it is a head that many new requests share (a system prompt) and that fewer replicas hold than should:
    with a share of 60 % over 8 replicas, 5 should. Heads are learned from the traffic, see :class:`View`. A match below
    ``min_match_tokens`` is one only as the prompt's own history: most replicas do not hold it, nobody else shares it, and
    it is not the first request of its session.

    Attributes:
        min_match_tokens: a shorter match may be a common head (SGLang's router: 1,024).
        min_match_ratio: nor is one of at most this share of the prompt (SMG's ``cache_threshold``; 0 = unused).
        spill: what the holder is compared with. ``least``: the least loaded of all. ``candidate``: a power-of-two pick
            among the others. ``mean``: the fleet's mean. ``swing``: the mean, with a gap of at most two standard deviations
            of a count with that mean, rounded up, or 4 if that is more. ``spread``: the mean plus ``spill_ratio`` standard deviations.
            ``never``: nothing (a hot prefix then takes its holder down).
        spill_ratio: multiple of the other load.
        spill_gap: difference to the other load, in units of the router's load signal.
        shorter: before leaving, try holders of shorter matches, longest first (AIBrix).
        gate_ratio: a gate on the whole fleet, off by default: if ``max > gate_ratio * min`` and ...
        gate_gap: ... ``max - min > gate_gap``, matches are ignored and the least loaded takes *every* request.
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
    gate_ratio: float = 0.0
    gate_gap: float = inf
    fallback: Policy = TWO_CHOICES
    adaptive: bool = True
    name: ClassVar[str] = "cache-aware"
    signals: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        """Check the form of the spill and the thresholds."""
        if self.spill not in SPILLS:
            raise ConfigError(f"cache-aware spill must be one of {', '.join(SPILLS)}, got {shown(self.spill)}")
        if self.min_match_tokens < 0 or not 0.0 <= self.min_match_ratio <= 1.0:
            raise ConfigError(
                "cache-aware needs min_match_tokens >= 0 and min_match_ratio in 0..1, "
                f"got {self.min_match_tokens} and {self.min_match_ratio}"
            )
        for name in ("spill_ratio", "spill_gap", "gate_ratio", "gate_gap"):
            if not getattr(self, name) >= 0.0:
                raise ConfigError(f"cache-aware {name} must be at least 0, got {getattr(self, name)}")

    def required_signals(self) -> frozenset[str]:
        """How many share the head, and the signals of the fallback."""
        own = frozenset({"shared"}) if self.adaptive else frozenset[str]()
        return own | self.fallback.required_signals()

    def decide(self, view: View) -> Pick:
        """Return the holder to follow, or the replica to spill to."""
        hits: Sequence[int] = view.hits
        loads = view.loads
        if len(view.slots) != len(hits):
            hits, loads = view.of_candidates(hits), view.of_candidates(loads)
        low = lowest(loads)[0]
        if self.gate_gap != inf and max(loads) - low > self.gate_gap and max(loads) > self.gate_ratio * low:
            return least(view, view.loads, 4), "imbalanced"
        at, reason = self._holder(view, hits, loads)
        if at < 0:
            return resolve(self.fallback.decide(view), view, self.fallback.name)[0], reason
        if loads[at] == low or self.spill == "never":
            return view.slots[at], reason
        if self.spill == "candidate":
            return self._candidate(view, at, reason)
        bound = self._bound(low) if self.spill == "least" else self._limit(loads)
        if loads[at] <= bound:
            return view.slots[at], reason
        return self._next(view, hits, loads, bound) if reason == "match" else (least(view, view.loads, 4), "spill")

    def _holder(self, view: View, hits: Sequence[int], loads: Sequence[float]) -> tuple[int, str]:
        """Return the position among the candidates of the replica to stay at, and why; -1 = there is none."""
        best, count, at = highest(hits)
        home, binding = -1, view.binding
        if self.adaptive and binding is not None and binding >= 0:
            slots = view.slots  # they ascend: if nothing is missing before it, it is at its own place
            if binding < len(slots) and slots[binding] == binding:
                home = binding
            elif binding in slots:
                home = slots.index(binding)
        if not self._is_match(view, best, count):
            return home, "no_match" if home < 0 else "bound"
        if home >= 0 and hits[home] == best:
            return home, "match"
        if count > 1:
            seed, number = view.seed, view.decision_id
            at, other = int(draw(seed, number, 2) * count), int(draw(seed, number, 3) * count)
            if count != len(hits):
                at, other = nth(hits, best, at), nth(hits, best, other)
            if loads[other] < loads[at]:
                at = other
        return at, "match"

    def _is_match(self, view: View, best: int, count: int) -> bool:
        """Return whether a longest match of ``best`` tokens at ``count`` replicas is one to follow."""
        if not best or (self.min_match_ratio and best <= self.min_match_ratio * view.prompt_tokens):
            return False
        if not self.adaptive:
            return best >= self.min_match_tokens
        shared, replicas = view.shared, len(view.slots)
        if shared and count < round(shared * replicas):
            return False
        if best >= self.min_match_tokens:
            return True
        is_first = view.binding is None and bool(view.request.session)
        return not shared and 2 * count <= replicas and not is_first

    def _candidate(self, view: View, at: int, reason: str) -> Pick:
        """Return the holder at position ``at`` of the candidates, or a power-of-two pick among the others."""
        slots = view.slots
        other = less_loaded_of_two(view, [slot for slot in slots if slot != slots[at]], 4)
        over = view.loads[slots[at]] > self._bound(view.loads[other])
        return (other, "spill") if over else (slots[at], reason)

    def _limit(self, loads: Sequence[float]) -> float:
        """Return the load up to which a holder is kept in a fleet with these loads."""
        count, total = len(loads), sum(loads)
        if self.spill != "spread":
            mean = total / count
            swing = inf if self.spill == "mean" else max(LEAST_SWING, ceil(2.0 * sqrt(mean)))
            return max(self.spill_ratio * mean, mean + min(self.spill_gap, swing))
        squares = sum([load * load for load in loads])
        spread = sqrt(max(0.0, count * squares - total * total))  # count standard deviations; exact for whole loads
        return (total + self.spill_ratio * spread) / count

    def _next(self, view: View, hits: Sequence[int], loads: Sequence[float], bound: float) -> Pick:
        """Return another holder that is not over the bound, of the longest match first, or else the least loaded."""
        slots = view.slots
        floor, count, _ = highest(hits)
        if self.shorter:
            floor = max(1, self.min_match_tokens)
        elif count == 1:
            return least(view, view.loads, 4), "spill"
        holders = [at for at, hit in enumerate(hits) if hit >= floor and loads[at] <= bound]
        if not holders:
            return least(view, view.loads, 4), "spill"
        first = min((-hits[at], loads[at]) for at in holders)
        return one_of(view, [slots[at] for at in holders if (-hits[at], loads[at]) == first], 4), "match"

    def _bound(self, other: float) -> float:
        """Return the load up to which a holder is kept beside another load."""
        return max(self.spill_ratio * other, other + self.spill_gap)
