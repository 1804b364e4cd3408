"""Policies that follow the longest match and spill when its holder is too busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import pstdev
from typing import ClassVar

from prefixroute.errors import ConfigError
from prefixroute.policies.base import Pick, Policy, settle
from prefixroute.policies.spread import POWER_OF_TWO
from prefixroute.policies.view import View, least, less_loaded_of_two, one_of

SPILLS = ("least", "candidate", "mean", "spread", "fleet", "never")


@dataclass(frozen=True, slots=True)
class CacheAware(Policy):
    """Follow the longest match; leave it when its holder is much busier than another replica.

    Among the replicas with the longest match, two draws with replacement are made and the less loaded stays. It is
    left when ``load > spill_ratio * other`` **and** ``load - other > spill_gap``; before the request goes to a replica
    without the prefix, the least loaded of the other holders is tried by the same rule. Without a match of at least
    ``min_match_tokens`` the fallback decides.

    Attributes:
        min_match_tokens: a shorter match is no match (SGLang's router: 1,024).
        min_match_ratio: likewise as a share of the prompt (SMG's ``cache_threshold``; 0 = unused).
        spill: what the holder is compared with. ``least``: the least loaded of all. ``candidate``: a power-of-two pick
            among the others. ``mean``: the mean over the fleet, ``spill_ratio * mean`` and ``mean + spill_gap``.
            ``spread``: as ``mean``, but the bound is ``mean + spill_ratio * standard deviation``.
            ``fleet``: a gate on the fleet, ``max > spill_ratio * min`` and ``max - min > spill_gap``, which sends
            *every* request to the least loaded. ``never``: no spill (a hot prefix then takes one replica down).
            A spilled request leaves the prefix at its new home too: hot prefixes replicate.
        spill_ratio: multiple of the other load.
        spill_gap: difference to the other load, in units of the router's load signal.
        fallback: policy of requests without a match.
    """

    min_match_tokens: int = 1_024
    min_match_ratio: float = 0.0
    spill: str = "least"
    spill_ratio: float = 2.0
    spill_gap: float = 10.0
    fallback: Policy = POWER_OF_TWO
    name: ClassVar[str] = "cache-aware"
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        """Check the form of the spill and the thresholds."""
        if self.spill not in SPILLS:
            msg = f"cache-aware spill must be one of {', '.join(SPILLS)}, got {self.spill!r}"
            raise ConfigError(msg)
        if self.min_match_tokens < 0 or not 0.0 <= self.min_match_ratio <= 1.0:
            msg = (
                "cache-aware needs min_match_tokens >= 0 and min_match_ratio in 0..1, "
                f"got {self.min_match_tokens} and {self.min_match_ratio}"
            )
            raise ConfigError(msg)
        if self.spill_ratio < 0.0 or self.spill_gap < 0.0:
            msg = f"cache-aware needs spill_ratio and spill_gap >= 0, got {self.spill_ratio} and {self.spill_gap}"
            raise ConfigError(msg)

    @property
    def wants(self) -> frozenset[str]:
        """Signals of the fallback."""
        return self.fallback.wants

    def decide(self, view: View) -> Pick:
        """Return the holder to follow, or the replica to spill to."""
        hits, loads = view.offered(view.hits), view.offered(view.loads)
        low = min(loads)
        if self.spill == "fleet" and self._over(max(loads), low):
            return Pick(least(view, view.loads, 2), "imbalanced")
        best = max(hits)
        if best < self.min_match_tokens or best <= self.min_match_ratio * view.prompt_tokens:
            return Pick(settle(self.fallback.decide(view), view, self.fallback.name)[0], "no_match")
        count = hits.count(best)
        if count == 1:
            at = hits.index(best)
            if not self._may_spill(loads[at], low):
                return Pick(view.slots[at], "match")
            return self._spill(view, loads, [at], at)
        owners = [at for at, hit in enumerate(hits) if hit == best]
        at, other = owners[int(view.draw(2) * count)], owners[int(view.draw(3) * count)]
        if loads[other] < loads[at]:
            at = other
        if not self._may_spill(loads[at], low):
            return Pick(view.slots[at], "match")
        return self._spill(view, loads, owners, at)

    def _over(self, load: float, other: float) -> bool:
        return load > self.spill_ratio * other and load - other > self.spill_gap

    def _may_spill(self, load: float, low: float) -> bool:
        """Return whether any form of the rule could be met: none is, unless the least loaded is far below."""
        if self.spill in {"mean", "spread"}:
            return load > low
        return self.spill in {"least", "candidate"} and self._over(load, low)

    def _spill(self, view: View, loads: Sequence[float], owners: Sequence[int], at: int) -> Pick:
        """Return where the request goes when the drawn holder may be too busy; positions in the offer come in."""
        slots = view.slots
        if self.spill == "candidate":
            others = [slot for slot in slots if slot != slots[at]]
            other = less_loaded_of_two(view, others, 4)
            over = self._over(loads[at], view.loads[other])
            return Pick(other, "spill") if over else Pick(slots[at], "match")
        bound = self._bound(loads)
        if loads[at] <= bound:
            return Pick(slots[at], "match")
        lightest = min(loads[owner] for owner in owners)
        if lightest <= bound:
            return Pick(one_of(view, [slots[owner] for owner in owners if loads[owner] == lightest], 5), "match")
        return Pick(least(view, view.loads, 4), "spill")

    def _bound(self, loads: Sequence[float]) -> float:
        """Return the load above which a holder is left."""
        if self.spill == "least":
            low = min(loads)
            return max(self.spill_ratio * low, low + self.spill_gap)
        mean = sum(loads) / len(loads)
        if self.spill == "mean":
            return max(self.spill_ratio * mean, mean + self.spill_gap)
        return mean + self.spill_ratio * pstdev(loads)
