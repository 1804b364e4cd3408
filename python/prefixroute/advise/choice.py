"""Which policies are worth a run on some traffic, and which of those compared is the one to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prefixroute.advise.compare import Comparison
from prefixroute.advise.profile import Profile
from prefixroute.policies import CacheAware
from prefixroute.sim import Scenario
from prefixroute.sim.scenario import AnyPolicy

METRIC = "usd_per_million_requests_busiest"
"""What decides: prefill dollars with capacity bought for the busiest replica. It weighs recompute and skew as bills do."""
ROUND_ROBIN = "round-robin"
LOAD_ONLY = (ROUND_ROBIN, "random", "least-loaded", "power-of-two")
"""Policies that know nothing of prefixes, by how little they need."""
KEYED = ("session", "rendezvous", "document")
"""Policies that need a key and no index."""
AWARE = "cache-aware"
COINCIDENCE = 0.05
"""Recompute by which two policies that know nothing of prefixes differ only where the order of requests makes them."""
MATERIAL = 0.03
"""A policy this much dearer than the best is not worth a more complicated one (3 % of prefill)."""


def candidates(
    profile: Profile, base: Scenario, further: Sequence[AnyPolicy] = (), match: CacheAware | None = None
) -> list[Scenario]:
    """Return a scenario for every policy worth a run, each policy once.

    Args:
        profile: facts of the traffic: without session keys no ``session``, without document keys no ``document``.
        base: the fleet. On one replica there is nothing to choose.
        further: policies to run besides.
        match: ``cache-aware`` with another minimum match.
    """
    policies: list[AnyPolicy] = [ROUND_ROBIN]
    if base.replicas > 1:
        policies += ["least-loaded"]
        policies += ["session"] * (profile.keyless < 1.0)
        policies += ["document"] * (profile.documents > 0)
        policies += [AWARE, *further]
    scenarios = [replace(base, policy=policy, label="") for policy in policies]
    if match is not None:
        label = f"cache-aware, minimum match {match.min_match_tokens:,}"
        scenarios.append(replace(base, policy=match, label=label))
    return list({one.policy_name: one for one in scenarios}.values())


def by_coincidence(comparison: Comparison) -> bool:
    """Whether round robin reuses prefixes that ``least-loaded``, which knows as little of them, does not."""
    ratios = {row.policy: row.recompute_ratio for row in comparison.rows}
    if not {ROUND_ROBIN, "least-loaded"} <= ratios.keys():
        return False
    return ratios["least-loaded"] - ratios[ROUND_ROBIN] > COINCIDENCE


def choose(comparison: Comparison, *, keys: bool = True) -> str:
    """Return the simplest policy that is as cheap as the cheapest, but for noise and for what is not material.

    Simplest is what knows nothing of prefixes, then what hashes a key, then ``cache-aware``. Anything else (a preset,
    other parameters) is taken only if it alone is cheap. Round robin is not taken where it is good by coincidence.

    Args:
        comparison: the policies that were run.
        keys: the traffic has session keys. Where they were inferred, ``cache-aware`` comes first: it needs none.
    """
    order = (*LOAD_ONLY, *KEYED, AWARE) if keys else (*LOAD_ONLY, AWARE, *KEYED)
    rows, reference = comparison.rows, comparison.row(comparison.reference)
    if by_coincidence(comparison):
        rows = tuple(row for row in rows if row.policy != ROUND_ROBIN)
        if reference.policy == ROUND_ROBIN:
            own = [row for row in rows if row.policy in order]
            reference = min(own, key=lambda row: row.usd_per_million_requests_busiest)
    limit = reference.usd_per_million_requests_busiest * (1 + MATERIAL)
    good = {
        row.policy for row in rows if row.policy in comparison.leaders or row.usd_per_million_requests_busiest <= limit
    }
    return next((name for name in order if name in good), reference.policy)
