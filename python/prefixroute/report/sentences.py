"""Findings as sentences: one function for each kind, whatever shows them. The numbers are those of the evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefixroute.advise import Finding
from prefixroute.report.backtests import ZEROS
from prefixroute.report.compared import ALWAYS_SHOWN
from prefixroute.report.figures import kinds, money_of, percent, usd
from prefixroute.report.times import duration

Evidence = Any
"""A mapping of one kind of finding; each function below knows the names that its kind has."""

SHORT = {
    "recompute_ratio": "recomputed tokens",
    "ttft_mean_s": "mean time to first token",
    "usd_per_million_requests_busiest": "dollars",
    "itl_mean_s": "mean time between tokens",
    "e2e_mean_s": "mean time to the last token",
    "missed_ratio": "requests that break a promise",
}
"""What is judged, in a word."""


def finding(found: Finding) -> str:
    """Return a finding as sentences.

    Args:
        found: of an advice.
    """
    return FINDINGS[found.kind](found.evidence)


def _broken_prefix(found: Evidence) -> str:
    return (
        f"{100 * found['share']:.0f} % of the turns after a session's first differ from their own history after "
        f"{found['tokens']:,} tokens, within the next {found['block_size']}. Look for a date, an id or a shuffled list there, and "
        f"move it to the end. The floor would fall from {percent(found['floor'])} to {percent(found['floor_if_fixed'])} recomputed. "
        "Routing cannot correct this."
    )


def _volatile_head(found: Evidence) -> str:
    article = "an" if found["what"][0] in "aeiou" else "a"
    return (
        f"{100 * found['share']:.0f} % of the prompts have {article} {found['what']} of about {found['length']} tokens that changes, about "
        f"{found['tokens']:,} tokens after their start. Nothing behind it is shared, though about {found['gain']:,} tokens behind it "
        "are those of the nearest earlier prompt. With a constant in its place the floor falls from "
        f"{percent(found['floor'])} to {percent(found['floor_if_fixed'])} recomputed: move it to the end. Routing cannot correct this."
        + (f" {_who(found)}" if found["groups"] else "")
    )


def _volatile_group(found: Evidence) -> str:
    return f"Another group of prompts has such {'an' if found['what'][0] in 'aeiou' else 'a'} {found['what']}. {_who(found)}"


def _who(found: Evidence) -> str:
    """Return which group of prompts has a text that changes, by what a log and a private trace have alike."""
    head = (
        f"begin alike for {found['head_tokens']:,} tokens without it (hash {found['head'][:8]})"
        if found["head"]
        else "have no head in common"
    )
    of = [f"{name} {found[name]}" for name in ("tenant", "model") if found[name] is not None]
    session = "" if found["session"] is None else f", of session {found['session']}"
    return (
        f"{percent(found['share_of_affected'])} of the prompts that have it {head}: {found['prompts']:,} prompts, "
        f"{percent(found['share_of_group'])} of those that begin so{''.join(f', {name}' for name in of)}. The first is request "
        f"{found['first_request']:,} of the log{session}."
    )


def _several_models(found: Evidence) -> str:
    return (
        f"Requests ask for {found['models']} models. All are priced as one here, and every replica is taken to serve them all. "
        "Where each model has replicas of its own, split the trace and ask for each."
    )


def _shorter_than_a_block(found: Evidence) -> str:
    return (
        f"{100 * found['share']:.0f} % of the prompts are shorter than one block of {found['block_size']} tokens: nothing of them "
        "is ever cached."
    )


def _large_blocks(found: Evidence) -> str:
    return (
        f"The smallest useful prefix is one block of {found['block_size']:,} tokens. Prompts that share less gain nothing, "
        "whatever the routing."
    )


def _head_shorter_than_a_block(found: Evidence) -> str:
    return (
        f"Prompts begin with about {found['head_tokens']:,} tokens in common, {100 * found['share']:.0f} % of them, which is less "
        f"than one block of {found['block_size']}: engines cache whole blocks, so nothing of it is shared, whatever the routing."
    )


def _hottest(found: Evidence) -> str:
    who = (
        f"The hottest head ({found['head_tokens']:,} tokens, hash {found['name'][:8]})"
        if found["who"] == "head"
        else f"The hottest {found['who']}, {found['name']},"
    )
    return (
        f"{who} has {percent(found['requests'])} of the requests and {percent(found['tokens'])} of the prompt tokens."
    )


def _session_key(found: Evidence) -> str:
    if found["inferred"]:
        return (
            "Requests carry no session key, or hardly any do: sessions were inferred from prompts that extend earlier ones. The "
            "session policy needs a key in the request (a header, a user or conversation id)."
        )
    return f"{100 * found['keyless']:.0f} % of the requests have no session key and are routed by load alone."


def _capacity(found: Evidence) -> str:
    return (
        f"A cache of {found['capacity_tokens']:,} tokens a replica is too small for this traffic: caches that never evict would "
        f"recompute {percent(found['recompute_ratio_infinite'])} instead of {percent(found['recompute_ratio'])}. More memory, more "
        "replicas or a CPU tier gain what routing cannot."
    )


def _overload(found: Evidence) -> str:
    return (
        f"{100 * found['waiting']:.0f} % of the time to first token is waiting for one of the {found['replicas']} replicas: the "
        "fleet has no reserve at this rate. See `prefixroute size`."
    )


def _skew(found: Evidence) -> str:
    return (
        f"The busiest replica has {found['prefill_skew']:.2f} times the mean of the prefill time, and {found['skew']:.2f} times the "
        "mean of the requests: capacity must be bought for it."
    )


def _behind(found: Evidence) -> str:
    return (
        f"{found['policy']} sends requests to {found['behind']} of {found['replicas']} replicas faster than they serve them. Waiting "
        f"there grows with the length of the log: p99 of {duration(found['ttft_p99_s'])} is no bound."
    )


def _preemptions(found: Evidence) -> str:
    return (
        f"{found['replicas']} replicas of {found['capacity_tokens']:,} tokens preempt {percent(found['preempted'])} of the requests with "
        f"{found['policy']}, counted each time, and compute their prompts again: answers need more memory. "
        f"`--preemptions` says how many are borne, {percent(found['most_preempted'])} here."
    )


def _losses(found: Evidence) -> str:
    parts = (
        ("first_sight", "new to every replica"),
        ("volatile", "new only because a head changes"),
        ("elsewhere", "held by another replica"),
        ("unknown", "held where the router did not know"),
        ("evicted", "held and evicted"),
    )
    named = [name for name, _ in parts if found[f"{name}_tokens"] or name in ALWAYS_SHOWN]
    money = money_of(found[f"{name}_usd_per_million_requests_busiest"] for name in named)
    said = ", ".join(
        f"{percent(found[f'{name}_share'])} {words} ({found[f'{name}_tokens']:,} tokens, "
        f"{money.dollars(found[f'{name}_usd_per_million_requests_busiest'])})"
        for name, words in parts
        if name in named
    )
    return f"Prompt tokens that {found['policy']} computes, and dollars per million requests by the busiest replica: {said}."


def _not_kept(found: Evidence) -> str:
    policy = f"{found['policy']}, which is {'assumed to be ' if found['policy_assumed'] else ''}in use,"
    if found["why"] == "overloaded":
        return f"{policy} cannot keep up: requests come faster than it serves them, so its times are no promise."
    if found["why"] == "preempts":
        return f"{policy} preempts more requests than are borne, for want of memory; others do not."
    better = " and ".join(SHORT[metric] for metric in found["metrics"].split(","))
    return f"{policy} is worse than {found['by']} in {better}, and better in nothing, beyond the noise."


def _tradeoff(found: Evidence) -> str:
    costs = [found[f"usd_per_million_requests_busiest{one}"] for one in ("", "_chosen")]
    own_usd, other_usd = map(money_of(costs).dollars, costs)
    said = {
        "recompute_ratio": (percent(found["recompute_ratio"]), percent(found["recompute_ratio_chosen"]), "recomputed"),
        "ttft_mean_s": (duration(found["ttft_mean_s"]), duration(found["ttft_mean_s_chosen"]), "mean TTFT"),
        "usd_per_million_requests_busiest": (own_usd, other_usd, "per million requests"),
    }

    def listed(metrics: str) -> str:
        figures = (said[metric] for metric in metrics.split(","))
        return " and ".join(f"{unit} {own} instead of {other}" for own, other, unit in figures)

    return (
        f"{found['policy']} is better than {found['chosen']} in some respects ({listed(found['better'])}) and worse in others "
        f"({listed(found['worse'])})."
    )


def _objectives(found: Evidence) -> str:
    other = [f"`--objective {name}` takes {found[name]}" for name in ("cost", "ttft", "balanced") if name in found]
    return f"Objectives disagree. {found['objective']} takes {found['policy']}; {', '.join(other)}."


def _minimum_match(found: Evidence) -> str:
    told = [
        f"{what} {after} instead of {before}"
        for what, before, after in (
            ("recomputes", percent(found["recompute_ratio_default"]), percent(found["recompute_ratio"])),
            ("has a request skew of", f"{found['skew_default']:.2f}", f"{found['skew']:.2f}"),
            ("has a mean TTFT of", duration(found["ttft_mean_s_default"]), duration(found["ttft_mean_s"])),
        )
        if before != after
    ]
    heads = (
        f"{found['heads']} groups of prompts share heads of up to"
        if found["heads"] > 1
        else "Most prompts share a head of"
    )
    why = (
        f"{heads} {found['head_tokens']:,} tokens, so a match of {found['default_tokens']:,} says nothing"
        if found["head_tokens"] >= found["default_tokens"]
        else f"{100 * found['short_hits']:.0f} % of prompt tokens lie in shared prefixes below {found['default_tokens']:,} tokens"
    )
    if found["taken"]:
        verdict = ": use it"
    elif not found["advised"]:
        verdict = ""
    elif found["better"]:
        verdict = ": it is cheaper, but not better by the objective"
    else:
        verdict = ": it is no better beyond the noise, keep the default"
    return (
        f"{why}. With a minimum match of {found['min_match_tokens']:,} tokens cache-aware "
        f"{' and '.join(told) or 'gives the same'}{verdict}."
    )


def _load_signal(found: Evidence) -> str:
    costs = [found[f"usd_per_million_requests_busiest{one}"] for one in ("", "_default")]
    own, other = map(money_of(costs).dollars, costs)
    told = (
        f"recomputes {percent(found['recompute_ratio'])} instead of {percent(found['recompute_ratio_default'])}, has a mean TTFT of "
        f"{duration(found['ttft_mean_s'])} instead of {duration(found['ttft_mean_s_default'])} and costs "
        f"{own} instead of {other} per million requests"
    )
    return (
        f"Prompts bring very unequal numbers of new tokens (standard deviation {found['unequal']:.2f} times the mean), so that counts of "
        f'requests say little of a replica\'s load. By the prompt tokens that wait (`load="uncached_tokens"`), cache-aware {told}'
        f"{': use it' if found['taken'] else ''}."
    )


def _coincidence(found: Evidence) -> str:
    return (
        f"Round robin recomputes {percent(found['round_robin'])} and least-loaded, which knows as little, "
        f"{percent(found['least_loaded'])}: sessions come in an order that happens to fit the number of replicas. Another number "
        "of replicas, or one request more, would end that."
    )


def _noise(found: Evidence) -> str:
    return (
        f"{found['sessions']:,} sessions do not tell any of the policies apart: either nothing is shared that routing could use, or "
        "the trace is too short."
    )


def _idle_replicas(found: Evidence) -> str:
    return idle(found["policy"], found["idle"], found["replicas"], found.get("why"), found)


def idle(policy: str, count: int, replicas: int, why: str | None, figures: Any) -> str:
    """Return that a policy leaves replicas idle, and why where it is known (``tokens`` and ``head_tokens`` are in ``figures``)."""
    shared = "the {head_tokens:,} tokens that most prompts begin with"
    reasons = {
        "minimum-match": f": its minimum match of {{tokens:,}} tokens is within {shared}, so that any prompt follows the first",
        "hashed-head": f": it hashes {{tokens:,}} tokens, which is within {shared}",
    }
    because = reasons[why].format(tokens=figures["tokens"], head_tokens=figures["head_tokens"]) if why else ""
    return f"{policy} leaves {count} of {replicas} replicas nearly idle{because}."


def _another_policy(found: Evidence) -> str:
    better = " and ".join(SHORT[metric] for metric in found["metrics"].split(","))
    gap = found["usd_per_million_requests"]
    return (
        f"{found['policy']}, another router's rule, is better than {found['chosen']} in {better} and worse in nothing, beyond the "
        f"noise: {percent(found['recompute_ratio'])} recomputed, ${usd(abs(gap))} {'less' if gap < 0 else 'more'} per million requests."
    )


def _backtest(found: Evidence) -> str:
    return (
        f"The simulation does not explain the log: {percent(found['simulated'])} of prompt tokens hit instead of "
        f"{percent(found['reported'])}. The rest is only as good as policy, replicas and capacity are those of the log."
    )


def _no_hits(found: Evidence) -> str:
    return f"The log reports 0 cached tokens throughout, the simulation hits {percent(found['simulated'])} of the prompt tokens. {ZEROS}"


def _several_routers(found: Evidence) -> str:
    small = "small" if found["told_apart"] else "within the noise"
    needed = (
        "The front must be sticky, too"
        if found["needed"]
        else f"The front need not be sticky: the difference is {small}"
    )
    return (
        f"{found['routers']} routers that share nothing recompute {percent(found['round_robin'])} behind a round-robin front and "
        f"{percent(found['sticky'])} behind one that keeps a session on one router. {needed}."
    )


CLOCKED = {
    "overloaded": "a replica cannot keep up under it",
    "preempts": "it preempts more requests than are borne",
    "coincidence": "it is good only by the order of the requests",
    "beaten": "it is worse in something, better in nothing",
    "worse": "it costs more or answers later, beyond the noise",
    "noise": "the two are within the noise of each other, and the simpler or cheaper one is taken",
}
"""Why timed runs do not advise what untimed runs do, in words."""


def _clock(found: Evidence) -> str:
    there = (
        ""
        if found["usd_untimed_value"] is None
        else f", and costs {_dollars(found, 'untimed')} beside {found['timed']}"
    )
    return (
        f"Timed runs advise {found['timed']} instead of {found['policy']}: {CLOCKED[found['why']]}. Untimed, {found['policy']} "
        f"balances `{found['load']}`, has skew {found['skew']:.2f}, recomputes {percent(found['recompute_ratio'])}{there}. "
        f"Timed, with queues and `{found['load_timed']}`, {found['policy']} has skew {found['skew_timed']:.2f} "
        f"({found['timed']}: {found['skew_instead']:.2f}), recomputes {percent(found['recompute_ratio_timed'])} "
        f"({percent(found['recompute_ratio_instead'])}), answers after {duration(found['ttft_mean_s_timed'])} in the mean "
        f"({duration(found['ttft_mean_s_instead'])}), and costs {_dollars(found, 'timed')} beside it. Trust the timed runs."
    )


def _dollars(found: Evidence, clock: str) -> str:
    value, low, high = (found[f"usd_{clock}_{end}"] for end in ("value", "low", "high"))
    money = money_of([value, low, high])
    return f"{money.dollars(abs(value))} {'less' if value < 0 else 'more'} [{money.figure(low)}, {money.figure(high)}]"


def _apart(found: Evidence) -> str:
    """Return whether a split wins, in a line."""
    split = kinds(*map(int, found["split"].split("+")))
    figures = "; ".join(
        f"{SHORT[metric]} {duration(found[metric])} instead of {duration(found[f'{metric}_mixed'])} "
        f"({_signed(found[f'{metric}_low'])} to {_signed(found[f'{metric}_high'])})"
        for metric in ("ttft_mean_s", "itl_mean_s", "e2e_mean_s")
    )
    if "missed_ratio" in found:
        missed = f"{percent(found['missed_ratio'])} of the requests break a promise instead of {percent(found['missed_ratio_mixed'])}"
        figures = f"{missed}; {figures}"
    if found["wins"]:
        better = " and ".join(SHORT[metric] for metric in found["better"].split(","))
        return f"A split into {split} wins beyond the noise, by its {better}: {figures}."
    fit = ", which cannot keep up" if found["overloaded"] else ""
    return f"No split of the same GPUs wins; {split} come nearest{fit}: {figures}."


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"


def _fleet_size(found: Evidence) -> str:
    if found["overloaded"]:
        return "The fleet cannot keep up under the advised policy."
    return f"{found['replicas']} replicas are enough." if found["smaller"] else "The fleet is needed as it is."


FINDINGS: dict[str, Callable[[Evidence], str]] = {
    "another-policy": _another_policy,
    "apart": _apart,
    "backtest": _backtest,
    "behind": _behind,
    "broken-prefix": _broken_prefix,
    "capacity": _capacity,
    "clock": _clock,
    "coincidence": _coincidence,
    "fleet-size": _fleet_size,
    "head-shorter-than-a-block": _head_shorter_than_a_block,
    "hottest": _hottest,
    "idle-replicas": _idle_replicas,
    "large-blocks": _large_blocks,
    "load-signal": _load_signal,
    "losses": _losses,
    "minimum-match": _minimum_match,
    "no-hits": _no_hits,
    "noise": _noise,
    "not-kept": _not_kept,
    "objectives": _objectives,
    "overload": _overload,
    "preemptions": _preemptions,
    "session-key": _session_key,
    "several-models": _several_models,
    "several-routers": _several_routers,
    "shorter-than-a-block": _shorter_than_a_block,
    "skew": _skew,
    "tradeoff": _tradeoff,
    "volatile-group": _volatile_group,
    "volatile-head": _volatile_head,
}
"""The sentences of each kind of finding."""
