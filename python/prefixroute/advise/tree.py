"""The decision tree, walked with the numbers of a comparison: each question, its answer, and where the walk ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prefixroute.advise.advice import Step
from prefixroute.advise.choice import LOAD_ONLY, MATERIAL, ROUND_ROBIN, by_coincidence, prefill_skew
from prefixroute.advise.compare import Comparison
from prefixroute.advise.findings import NOTABLE
from prefixroute.advise.profile import Profile
from prefixroute.sim.metrics import Row


def walk(profile: Profile, comparison: Comparison, chosen: str, replicas: int) -> Iterator[Step]:
    """Yield the questions down to the one where ``chosen`` is the answer."""
    yield Step(
        "An API, or your own replicas?",
        f"Your own, {replicas}. Behind an API nobody else's router is yours to choose: send one call of those that share a "
        "prefix first, so that its cache entry is there, and then the others in parallel.",
        {"replicas": replicas},
    )
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
    measured = f"cache-aware recomputes {percent(aware.recompute_ratio)} at a request skew of {aware.skew:.2f}"
    if sticky is None:
        answer = f"Nobody knows: requests carry no session. Measured: {measured}."
    else:
        apart = profile.shared_others < NOTABLE
        but = "" if apart == (chosen in ("session", "rendezvous")) else ", but"
        keyed = f"session recomputes {percent(sticky.recompute_ratio)} at a request skew of {sticky.skew:.2f}"
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
    measured = f"{row.policy} recomputes {percent(row.recompute_ratio)} at a request skew of {row.skew:.2f}"
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


def because(comparison: Comparison, chosen: str, in_use: str) -> str:
    """Return the reason in a sentence: what is chosen beside what is in use."""
    row = comparison.row(chosen)
    if row.replicas == 1:
        return "One replica has nothing to route: its own prefix cache reuses what there is to reuse."
    if chosen in LOAD_ONLY:
        best = min(comparison.rows, key=lambda other: other.recompute_ratio)
        if row.recompute_ratio - best.recompute_ratio > NOTABLE:
            dearer = best.usd_per_million_requests_busiest > row.usd_per_million_requests_busiest
            but = (
                "costs more at its busiest replica" if dearer else "is not told from it by the noise, or answers later"
            )
            return (
                f"{best.policy} would recompute {percent(best.recompute_ratio)} of the prompt tokens instead of "
                f"{percent(row.recompute_ratio)}, but {but}."
            )
        return "No prefix-aware routing is needed: what it would add is inside the noise, or not worth its trouble."
    other = comparison.row(ROUND_ROBIN if chosen == in_use else in_use)
    than = "round robin" if other.policy == ROUND_ROBIN else other.policy
    saves = (
        percent(row.recompute_ratio) != percent(other.recompute_ratio) and row.recompute_ratio < other.recompute_ratio
    )
    if chosen == in_use:
        why = "What is in use is good"
    elif saves:
        why = "It saves prefill"
    elif prefill_skew(row) < prefill_skew(other):
        why = "It shares prefill out better"
    else:
        why = "It does not rest on the order of the requests"
    return (
        f"{why}: {percent(row.recompute_ratio)} of the prompt tokens are computed again where {than} recomputes "
        f"{percent(other.recompute_ratio)}, and its busiest replica has {prefill_skew(row):.2f} times the mean of the prefill "
        f"time ({than}: {prefill_skew(other):.2f})."
    )


def margin(comparison: Comparison, chosen: str, order: Sequence[str]) -> str:
    """Return in sentences how far the others are, in dollars of prefill, capacity bought for the busiest replica.

    Args:
        comparison: the policies that were run.
        chosen: the one advised.
        order: policies by how little they need.
    """
    cost = {row.policy: row.usd_per_million_requests_busiest for row in comparison.rows}
    own, sentences = cost[chosen], []
    gaps = {name: cost[name] - own for name in cost if name != chosen}
    tied = [name for name in gaps if name in comparison.leaders and chosen in comparison.leaders]
    dear = [name for name in tied if gaps[name] > MATERIAL * own and name in order[: _place(chosen, order)]]
    alike = [name for name in tied if name not in dear]
    if chosen != comparison.reference and gaps[comparison.reference] < 0:
        less, name = -gaps[comparison.reference], comparison.reference
        lucky = name == ROUND_ROBIN and by_coincidence(comparison)
        noise = "inside the noise" if chosen in comparison.leaders else "too little to be worth it"
        sentences.append(
            f"{name} would cost ${less:,.2f} less per million requests, "
            f"{'but by the order of these requests alone' if lucky else f'{noise}; {chosen} is simpler'}."
        )
        alike = [one for one in alike if one != name]
    if alike:
        sentences.append(f"The noise does not tell {chosen} from {', '.join(alike)} either way.")
    sentences += [
        f"{name} is simpler and its interval is wide, but by the point estimate it costs {100 * gaps[name] / own:.0f} % more."
        for name in dear
    ]
    worse = [one.policy for one in comparison.differences if one.verdict == "worse" and gaps.get(one.policy, 0) > 0]
    if worse:
        near = min(worse, key=gaps.__getitem__)
        gap = comparison.difference(near).usd_per_million_requests_busiest
        sentences.append(
            f"The next that is dearer beyond the noise, {near}, costs ${gaps[near]:,.2f} more per million requests (95 % "
            f"interval {gap.low:,.2f} to {gap.high:,.2f})."
            if chosen == comparison.reference
            else f"{near} is dearer than {comparison.reference} beyond the noise, and costs ${gaps[near]:,.2f} more than "
            f"{chosen} by the point estimate."
        )
    return " ".join(sentences)


def _place(policy: str, order: Sequence[str]) -> int:
    return order.index(policy) if policy in order else len(order)


def percent(share: float) -> str:
    """Return a share as text."""
    return f"{100 * share:.1f} %"
