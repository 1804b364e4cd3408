"""The steps of the decision tree: their questions, and the answers that the evidence gives."""

from __future__ import annotations

from collections.abc import Callable

from prefixroute.advise import Step
from prefixroute.advise.choice import NOTABLE
from prefixroute.report.figures import money_of, percent, replicas
from prefixroute.report.sentences import Evidence


def step(taken: Step) -> tuple[str, str]:
    """Return the question of a step and its answer."""
    question, answer = STEPS[taken.kind]
    return question, answer(taken.evidence)


def _own_replicas(found: Evidence) -> str:
    api, money = "", money_of([found["rent_usd_per_month"], *found.get("apis_usd_per_month", {}).values()])
    if "api" in found:
        less = "less" if found["api_usd_per_month"] < found["rent_usd_per_month"] else "no less"
        prices = found["apis_usd_per_month"]
        each = ", ".join(f"{name} {money.dollars(cost)}" for name, cost in prices.items())
        api = (
            f" A month of this traffic at the default model of each of {len(prices)} APIs: {each}. The cheapest, "
            f"{found['api']}, costs {less} than the replicas and reads {percent(found['api_hit_ratio'])} of the prompt "
            "tokens from its cache. It is another model than yours, and a price does not tell whether its answers are "
            "good enough."
        )
    return (
        f"This advice is for {'an ASSUMED fleet' if found['replicas_assumed'] else 'the fleet that you gave'}, "
        f"{replicas(found['replicas'])} of your own for {money.dollars(found['rent_usd_per_month'])} a month; it does "
        f"not choose between them and an API.{api} Behind an API (`--lifetimes`) nothing can be routed: send one of "
        "the calls that share a prefix first, so that its cache entry exists, and the others in parallel after it. "
        "`prefixroute plan compare` prices this traffic at other models, and on the fewest replicas that keep a "
        "promise."
    )


def _two_or_more(found: Evidence) -> str:
    if found["replicas"] == 1:
        return "No: one. The engine's own prefix cache is all there is, and it needs no router."
    return f"Yes, {found['replicas']}."


def _system_prompt(found: Evidence) -> str:
    beyond = found["shared_session"] + found["shared_others"] > NOTABLE
    answer = ("No, but routing gains too little from the rest" if beyond else "Yes") if found["alone"] else "No"
    measured = "" if found["policy"] == "round-robin" else f"{found['policy']} {percent(found['chosen'])}, "
    heads = f"{found['heads']} heads of up to" if found["heads"] > 1 else "a head of"
    return (
        f"{answer}. Of the prompt tokens {percent(found['shared_head'])} lie in {heads} {found['head_tokens']:,} "
        f"tokens; beyond that {percent(found['shared_session'])} are shared with the own session and "
        f"{percent(found['shared_others'])} with others. Round robin recomputes {percent(found['round_robin'])}, "
        f"{measured}the floor is {percent(found['floor'])}."
    )


def _conversations(found: Evidence) -> str:
    measured = (
        f"cache-aware recomputes {percent(found['cache_aware'])} at a request skew of {found['cache_aware_skew']:.2f}"
    )
    if found["session"] is None:
        return f"Not known: requests carry no session key. Measured: {measured}."
    but = "." if found["apart"] == found["by_session"] else ", but"
    keyed = f"session recomputes {percent(found['session'])} at a request skew of {found['session_skew']:.2f}"
    return f"{'Yes' if found['apart'] else 'No'}{but} {keyed}, {measured}."


def _shared_prefixes(found: Evidence) -> str:
    measured = (
        f"{found['policy']} recomputes {percent(found['recompute_ratio'])} at a request skew of {found['skew']:.2f}"
    )
    if found["across_sessions"]:
        return f"Yes: prefixes are shared across sessions. {measured}."
    return (
        "No, but keeping each conversation on one replica needs more capacity at the busiest, or requests carry no "
        f"key. {measured}."
    )


STEPS: dict[str, tuple[str, Callable[[Evidence], str]]] = {
    "own-replicas": ("An API, or your own replicas?", _own_replicas),
    "two-or-more": ("Two replicas or more?", _two_or_more),
    "system-prompt": ("Is a system prompt the only shared prefix?", _system_prompt),
    "conversations": ("Do prefixes split only by conversation?", _conversations),
    "shared-prefixes": ("Documents, agents or few-shot trees?", _shared_prefixes),
}
"""The question of each step of the decision tree, and its answer."""
