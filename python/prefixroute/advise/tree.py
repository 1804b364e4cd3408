"""The decision tree, walked with the numbers of a comparison.

Each question with its evidence, down to where the walk ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prefixroute.advise.choice import LOAD_ONLY, NOTABLE, ROUND_ROBIN
from prefixroute.advise.compare import Comparison
from prefixroute.advise.finding import Step, figures
from prefixroute.advise.own_or_api import Offer
from prefixroute.advise.profile import Profile
from prefixroute.costmodel.assumption import on_defaults
from prefixroute.sim.metrics import ResultRow


def walk(
    profile: Profile, comparison: Comparison, chosen: str, replicas: int, *, rent: float, apis: Sequence[Offer]
) -> Iterator[Step]:
    """Yield the questions down to the one where ``chosen`` is the answer.

    Args:
        profile: what the traffic shares.
        comparison: of the policies.
        chosen: the policy.
        replicas: of the fleet.
        rent: US dollars a month of the fleet.
        apis: the default model of every API, the cheapest first; empty where the traffic has no rate.
    """
    yield _own_or_api(replicas, rent, apis, assumed=on_defaults(frozenset({"replicas"}), comparison.assumptions))
    yield Step("two-or-more", {"replicas": replicas})
    if replicas == 1:
        return
    yield _system_prompt(profile, comparison, chosen)
    if chosen in LOAD_ONLY:
        return
    sticky = comparison.row("session") if profile.keyless < 1.0 else None
    yield _conversations(profile, sticky, comparison.row("cache-aware"), chosen)
    if chosen not in ("session", "rendezvous"):
        shared = {"across_sessions": profile.shared_others >= NOTABLE, **figures(profile, "shared_others")}
        row = comparison.row(chosen)
        yield Step("shared-prefixes", {**shared, "policy": chosen, **figures(row, "recompute_ratio", "skew")})


def _own_or_api(replicas: int, rent: float, apis: Sequence[Offer], *, assumed: bool) -> Step:
    evidence: dict[str, Any] = {"replicas": replicas, "replicas_assumed": assumed, "rent_usd_per_month": rent}
    if apis:
        best = apis[0]
        evidence |= {"api": best.name, "api_hit_ratio": best.hit_ratio, "api_usd_per_month": best.usd_per_month}
        evidence["apis_usd_per_month"] = {offer.provider: offer.usd_per_month for offer in apis}
    return Step("own-replicas", evidence)


def _system_prompt(profile: Profile, comparison: Comparison, chosen: str) -> Step:
    return Step(
        "system-prompt",
        {
            "alone": chosen in LOAD_ONLY,
            "policy": chosen,
            "heads": len(profile.heads),
            "head_tokens": profile.longest_head,
            **figures(profile, "shared_head", "shared_session", "shared_others"),
            "floor": comparison.row(chosen).floor,
            "round_robin": comparison.row(ROUND_ROBIN).recompute_ratio,
            "chosen": comparison.row(chosen).recompute_ratio,
        },
    )


def _conversations(profile: Profile, sticky: ResultRow | None, aware: ResultRow, chosen: str) -> Step:
    return Step(
        "conversations",
        {
            "apart": profile.shared_others < NOTABLE,
            "by_session": chosen in ("session", "rendezvous"),
            "shared_others": profile.shared_others,
            "session": None if sticky is None else sticky.recompute_ratio,
            "session_skew": None if sticky is None else sticky.skew,
            "cache_aware": aware.recompute_ratio,
            "cache_aware_skew": aware.skew,
        },
    )
