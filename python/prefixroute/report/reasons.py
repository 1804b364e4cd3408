"""Why a policy is taken and others are not, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prefixroute.advise import Advice
from prefixroute.advise.choice import LOAD_ONLY, MATERIAL, METRIC, NOTABLE, ROUND_ROBIN, prefill_skew
from prefixroute.advise.reasons import better_throughout, why, why_not
from prefixroute.report.figures import money_of, percent
from prefixroute.report.times import duration

WHY: Mapping[str, str] = {
    "overloaded": "Nothing that was compared keeps up, and this is the least evil",
    "in-use": "Nothing is better than what is in use by enough to change it",
    "keeps-up": "It keeps up, and what is in use does not",
    "remembers": "It preempts fewer requests than what is in use",
    "coincidence": "It does not rest on the order of requests",
    "saves": "It saves prefill",
    "cheaper": "It costs less at the busiest replica",
    "earlier": "It answers earlier",
    "simpler": "It is within the noise of what is in use, and simpler or better by the mean",
    "weighed": "It is better in what the objective weighs, though worse in something else",
}
"""Why a policy is taken, in words."""
WHY_NOT: Mapping[str, str] = {
    "elsewhere": "it is another router's rule, which was compared and cannot be advised",
    "overloaded": "requests come faster than its busiest replica serves them",
    "preempts": "it preempts more requests than are borne",
    "coincidence": "only because of the order in which these requests come",
    "beaten": "another policy is better in something and worse in nothing",
    "noise": "the difference is within the noise",
    "costlier": "it costs more at its busiest replica",
    "later": "it answers later",
    "recomputes": "it computes more again",
    "weighed": "it is no better by the objective, or too little better for a less simple policy",
}
"""Why a policy is not taken, in words."""


NOT_ADVISED: Mapping[str, str] = {
    "elsewhere": "another router's rule",
    "overloaded": "cannot keep up",
    "preempts": "preempts too often",
    "coincidence": "good by the order of requests alone",
    "beaten": "worse than {by}",
    "noise": "within the noise of {chosen}",
    "costlier": "costs more than {chosen}",
    "later": "answers later than {chosen}",
    "recomputes": "computes more than {chosen}",
    "weighed": "not better by the objective, {objective}",
}
"""Why a policy is not taken, in a few words."""


def because(advice: Advice) -> str:
    """Return the reason in a sentence: what is chosen beside what is in use."""
    row, choice, compared = advice.row, advice.choice, advice.comparison
    if row.replicas == 1 or choice is None:
        return "One replica has nothing to route: its own prefix cache reuses what there is to reuse."
    chosen = row.policy
    other = compared.row(ROUND_ROBIN if chosen == advice.in_use else advice.in_use)
    if chosen in LOAD_ONLY and not compared.is_overloaded(chosen):
        best = min(compared.rows, key=lambda one: one.recompute_ratio)
        saved = row.recompute_ratio - best.recompute_ratio
        beyond = (
            compared.gap(best.policy, chosen, "recompute_ratio").high < 0 and saved > MATERIAL * row.recompute_ratio
        )
        if saved > NOTABLE or beyond:
            return (
                f"{best.policy} would recompute {percent(best.recompute_ratio)} of the prompt tokens instead of "
                f"{percent(row.recompute_ratio)}, but {WHY_NOT[why_not(compared, choice, best.policy)]}."
            )
        return "No prefix-aware routing is needed: what it would save is within the noise, or too little to matter."
    than = "round robin" if other.policy == ROUND_ROBIN else other.policy
    kind = why(compared, choice, advice.in_use)
    return (
        f"{WHY[kind]}: {percent(row.recompute_ratio)} of the prompt tokens are computed, {than} recomputes "
        f"{percent(other.recompute_ratio)}. Mean time to first token: {duration(row.ttft_mean_s)} instead of "
        f"{duration(other.ttft_mean_s)}. The busiest replica has {prefill_skew(row):.2f} times the mean of the prefill "
        f"time ({than}: {prefill_skew(other):.2f})."
    )


def advised(advice: Advice) -> dict[str, str]:
    """Return of each policy of the table whether it is advised, or why not."""
    choice, found = advice.choice, advice.comparison
    if choice is None:
        return {row.policy: "nothing to choose on one replica" for row in found.rows}
    beaten_by = {one.policy: one.by for one in choice.rejected}

    def told(policy: str) -> str:
        if policy == choice.policy:
            return "advised"
        words = NOT_ADVISED[why_not(found, choice, policy)]
        return words.format(by=beaten_by.get(policy), chosen=choice.policy, objective=choice.objective)

    return {row.policy: told(row.policy) for row in found.rows}


def _but(advice: Advice, policy: str) -> str:
    return WHY_NOT["noise" if advice.choice is None else why_not(advice.comparison, advice.choice, policy)]


def margin(advice: Advice) -> str:
    """Return how far the next policies are, in dollars of prefill with capacity bought for the busiest replica."""
    compared, chosen = advice.comparison, advice.row.policy
    own = advice.row.usd_per_million_requests_busiest
    gaps = {row.policy: compared.gap(row.policy, chosen, METRIC) for row in compared.rows if row.policy != chosen}
    alike = [name for name, gap in gaps.items() if not gap.excludes_zero and abs(gap.value) <= 0.1 * own]
    lines = [] if advice.choice is None else _better_throughout(advice, better_throughout(compared, advice.choice))
    if alike:
        lines.append(f"By cost, {', '.join(alike)} {'is' if len(alike) == 1 else 'are'} within the noise of {chosen}.")
    cheaper = [name for name, gap in gaps.items() if gap.high < 0 and gap.value < -MATERIAL * own]
    if cheaper:
        money = money_of(gaps[name].value for name in cheaper)
        told = "; ".join(
            f"{name} ({money.dollars(-gaps[name].value)} less), but {_but(advice, name)}" for name in cheaper
        )
        lines.append(f"Cheaper per million requests, beyond the noise: {told}.")
    worse = [name for name, gap in gaps.items() if gap.low > 0]
    if worse:
        near = min(worse, key=lambda name: gaps[name].value)
        gap = gaps[near]
        money = money_of([gap.value, gap.low, gap.high])
        lines.append(
            f"The next that costs more, {near}: {money.dollars(gap.value)} per million requests "
            f"(95 % interval {money.figure(gap.low)} to {money.figure(gap.high)})."
        )
    return " ".join(lines)


def _better_throughout(advice: Advice, policies: Sequence[str]) -> list[str]:
    """Return why policies with better figures in all that is judged are not taken, in a sentence if there are any."""
    told = "; ".join(f"{name}, but {_but(advice, name)}" for name in policies)
    return [f"Lower in recomputed tokens, mean time to first token and dollars: {told}."] if told else []
