"""Which policies are worth a run on some traffic, and which of those compared is the one to take."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from prefixroute.advise.compare import Comparison
from prefixroute.advise.profile import Profile
from prefixroute.errors import ConfigError
from prefixroute.policies import CacheAware, as_policy
from prefixroute.sim import Scenario
from prefixroute.sim.metrics import Row
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
IN_USE = ROUND_ROBIN
"""The policy that is taken to be in use where nobody named one: what load balancers do as they come."""
CURRENT = "current_policy"
"""Name of the assumption that says which policy is in use."""
MATERIAL = 0.03
"""A policy this much dearer than the best is not worth a more complicated one (3 % of prefill)."""
NOISY = 0.10
"""How much dearer a policy may be that the noise does not tell from the best: few sessions make any interval wide."""
FAR_SLOWER = 1.5
"""Times the seconds to first token of the policy in use from which a policy is not taken, whatever it saves."""


def candidates(
    profile: Profile, base: Scenario, further: Sequence[AnyPolicy] = (), match: CacheAware | None = None
) -> list[Scenario]:
    """Return a scenario for every policy worth a run, each policy once.

    Args:
        profile: facts of the traffic: without session keys no ``session``, without document keys no ``document``.
        base: the fleet. On one replica there is nothing to choose.
        further: policies to run besides.
        match: ``cache-aware`` with another minimum match.

    Raises:
        ConfigError: two different policies have one name.
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
    named: dict[str, Scenario] = {}
    for one in scenarios:
        other = named.setdefault(one.policy_name, one)
        if as_policy(other.policy) != as_policy(one.policy):
            raise ConfigError(f"policies must have names of their own, got two that are called {one.policy_name!r}")
    return list(named.values())


def by_coincidence(comparison: Comparison) -> bool:
    """Whether round robin reuses prefixes that ``least-loaded``, which knows as little of them, does not."""
    ratios = {row.policy: row.recompute_ratio for row in comparison.rows}
    if not {ROUND_ROBIN, "least-loaded"} <= ratios.keys():
        return False
    return ratios["least-loaded"] - ratios[ROUND_ROBIN] > COINCIDENCE


def simplicity(*, keys: bool = True) -> tuple[str, ...]:
    """Return the policies that may be advised for their simplicity, by how little they need.

    First what knows nothing of prefixes, then what hashes a key, then ``cache-aware``. Where sessions were inferred
    (``keys`` is False), ``cache-aware`` comes before what needs a key that requests do not have.
    """
    return (*LOAD_ONLY, *KEYED, AWARE) if keys else (*LOAD_ONLY, AWARE, *KEYED)


def prefill_skew(row: Row) -> float:
    """Return prefill time at the busiest replica over the mean of all: what its dollars are multiplied by."""
    mean = row.usd_per_million_requests
    return row.usd_per_million_requests_busiest / mean if mean else 1.0


def choose(
    comparison: Comparison,
    *,
    keys: bool = True,
    in_use: str | None = None,
    slow: Collection[str] = (),
    among: Collection[str] = (),
) -> str:
    """Return the simplest policy that is as cheap as the cheapest, but for noise and for what is not material.

    That is: at most :data:`MATERIAL` dearer than the cheapest, or inside the noise and at most :data:`NOISY` dearer by the
    point estimate; and neither dearer nor far slower (in time) than what is in use. Anything not in :func:`simplicity`
    (other parameters) is taken only if it alone is cheap. Where nothing is left, what is in use stays. Round robin is
    not taken where it is good by coincidence, unless it is named as what is in use.

    Args:
        comparison: the policies that were run.
        keys: the traffic has session keys, see :func:`simplicity`.
        in_use: the policy in use; None = nobody said, and :data:`IN_USE` is taken to be.
        slow: policies known from elsewhere to be far slower than what is in use.
        among: the policies that may be the reference; none given means those of :func:`simplicity`.
    """
    rows = {row.policy: row for row in comparison.rows}
    order, reference = simplicity(keys=keys), rows[comparison.reference]
    today = rows.get(in_use or IN_USE)
    if in_use != ROUND_ROBIN and by_coincidence(comparison):
        del rows[ROUND_ROBIN]
        today = None if in_use is None else today
        if reference.policy == ROUND_ROBIN:
            own = [row for name, row in rows.items() if name in (among or order)]
            reference = min(own, key=lambda row: row.usd_per_million_requests_busiest)
    good = [
        name
        for name, row in rows.items()
        if _is_cheap(row, reference, noisy=name in comparison.leaders)
        and (today is None or (name not in slow and _is_no_loss(row, today)))
    ]
    preferred = next((name for name in (*order, reference.policy) if name in good), None)
    return preferred or (reference if today is None else today).policy


def _is_cheap(row: Row, reference: Row, *, noisy: bool) -> bool:
    limit = reference.usd_per_million_requests_busiest * (1 + (NOISY if noisy else MATERIAL))
    return row.usd_per_million_requests_busiest <= limit


def _is_no_loss(row: Row, today: Row) -> bool:
    """Whether a policy is neither dearer than what is in use nor, where there is a clock, far slower."""
    slower = row.queue_mean_s is not None and row.ttft_mean_s > FAR_SLOWER * today.ttft_mean_s
    return row.usd_per_million_requests_busiest <= today.usd_per_million_requests_busiest and not slower
