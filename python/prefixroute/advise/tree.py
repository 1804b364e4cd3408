"""The decision tree, walked with the numbers of a comparison: each question, its answer, and where the walk ends."""

from __future__ import annotations

from collections.abc import Iterator

from prefixroute.advise.advice import Step
from prefixroute.advise.choice import LOAD_ONLY, ROUND_ROBIN
from prefixroute.advise.compare import Comparison
from prefixroute.advise.findings import NOTABLE
from prefixroute.advise.profile import Profile
from prefixroute.sim.metrics import Row


def walk(profile: Profile, comparison: Comparison, chosen: str, replicas: int) -> Iterator[Step]:
    """Yield the questions down to the one where ``chosen`` is the answer."""
    if replicas == 1:
        answer = "No: one. The engine's own prefix cache is all there is, and it needs no router."
        yield Step("Two replicas or more?", answer, {"replicas": 1})
        return
    yield Step("Two replicas or more?", f"Yes, {replicas}.", {"replicas": replicas})
    yield _system_prompt(profile, comparison, chosen)
    if chosen in LOAD_ONLY:
        return
    sticky = comparison.row("session") if profile.keyless < 1.0 else None
    yield _conversations(profile, sticky, comparison.row("cache-aware"), chosen)
    if chosen not in ("session", "rendezvous"):
        yield _shared(profile, comparison.row(chosen))


def _system_prompt(profile: Profile, comparison: Comparison, chosen: str) -> Step:
    spread, row = comparison.row(ROUND_ROBIN), comparison.row(chosen)
    answer = "Yes, or routing cannot use the rest" if chosen in LOAD_ONLY else "No"
    measured = "" if chosen == ROUND_ROBIN else f"{chosen} {percent(row.recompute_ratio)}, "
    return Step(
        "Is a system prompt the only shared prefix?",
        f"{answer}. Of the prompt tokens {percent(profile.shared_head)} lie in a common head of {profile.head_tokens:,} "
        f"tokens; beyond it {percent(profile.shared_session)} are shared with the own session and "
        f"{percent(profile.shared_others)} with others. Round robin recomputes {percent(spread.recompute_ratio)}, "
        f"{measured}the floor is {percent(profile.floor)}.",
        {
            "head_tokens": profile.head_tokens,
            "shared_head": profile.shared_head,
            "shared_session": profile.shared_session,
            "shared_others": profile.shared_others,
            "floor": profile.floor,
            "round_robin": spread.recompute_ratio,
            "chosen": row.recompute_ratio,
        },
    )


def _conversations(profile: Profile, sticky: Row | None, aware: Row, chosen: str) -> Step:
    measured = f"cache-aware recomputes {percent(aware.recompute_ratio)} at a skew of {aware.skew:.2f}"
    if sticky is None:
        answer = f"Nobody knows: requests carry no session. Measured: {measured}."
    else:
        apart = profile.shared_others < NOTABLE
        but = "" if apart == (chosen in ("session", "rendezvous")) else ", but"
        keyed = f"session recomputes {percent(sticky.recompute_ratio)} at a skew of {sticky.skew:.2f}"
        answer = f"{'Yes' if apart else 'No'}{but or '.'} {keyed}, {measured}."
    return Step(
        "Do prefixes split only by conversation?",
        answer,
        {
            "shared_others": profile.shared_others,
            "session": None if sticky is None else sticky.recompute_ratio,
            "session_skew": None if sticky is None else sticky.skew,
            "cache_aware": aware.recompute_ratio,
            "cache_aware_skew": aware.skew,
        },
    )


def _shared(profile: Profile, row: Row) -> Step:
    measured = f"{row.policy} recomputes {percent(row.recompute_ratio)} at a skew of {row.skew:.2f}"
    answer = (
        f"Yes: prefixes are shared across sessions. {measured}."
        if profile.shared_others >= NOTABLE
        else "No, but keeping each conversation on one replica needs more capacity at the busiest, or nobody names them. "
        f"{measured}."
    )
    return Step(
        "Documents, agents or few-shot trees?",
        answer,
        {"shared_others": profile.shared_others, "recompute_ratio": row.recompute_ratio, "skew": row.skew},
    )


def because(comparison: Comparison, chosen: str, replicas: int) -> str:
    """Return the reason in a sentence."""
    row, spread = comparison.row(chosen), comparison.row(ROUND_ROBIN)
    if replicas == 1:
        return "One replica has nothing to route: its own prefix cache reuses what there is to reuse."
    if chosen in LOAD_ONLY:
        return "What a smarter policy would add is inside the noise, or not worth its trouble."
    return (
        f"It recomputes {percent(row.recompute_ratio)} of the prompt tokens where round robin recomputes "
        f"{percent(spread.recompute_ratio)}; its busiest replica gets {row.skew:.2f} times the mean."
    )


def margin(comparison: Comparison, chosen: str) -> str:
    """Return in sentences how far the others are, in dollars of prefill, capacity bought for the busiest replica."""
    if len(comparison.rows) == 1:
        return ""
    ties = [name for name in comparison.leaders if name != chosen]
    tied = f"The noise does not tell {chosen} from {', '.join(ties)}; {chosen} needs the least." if ties else ""
    if chosen not in comparison.leaders:
        more = comparison.difference(chosen).usd_per_million_requests_busiest.value
        return f"{comparison.reference} would cost ${more:,.2f} less per million requests: too little to be worth it."
    rest = [one for one in comparison.differences if one.verdict == "worse" and one.policy != chosen]
    if not rest:
        return tied
    near = min(rest, key=lambda one: one.usd_per_million_requests_busiest.value)
    gap = near.usd_per_million_requests_busiest
    least = comparison.reference if comparison.reference != chosen else "it"
    return (
        f"{near.policy} costs ${gap.value:,.2f} more per million requests than {least} "
        f"(95 % interval {gap.low:,.2f} to {gap.high:,.2f}). {tied}"
    ).strip()


def percent(share: float) -> str:
    """Return a share as text."""
    return f"{100 * share:.1f} %"
