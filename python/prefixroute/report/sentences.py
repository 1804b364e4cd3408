"""Findings as sentences, whatever shows them. The numbers are those of the evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prefixroute.advise import Finding
from prefixroute.advise.idle import Idle
from prefixroute.report.backtests import ZEROS
from prefixroute.report.compared import ALWAYS_SHOWN
from prefixroute.report.figures import filled, kinds, money_of, percent, usd
from prefixroute.report.times import duration

Evidence = Mapping[str, Any]
"""The figures of one kind of finding; its sentence knows the names that its kind has."""

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
    said = FINDINGS[found.kind]
    return filled(said, found.evidence) if isinstance(said, str) else said(found.evidence)


def idle(found: Idle) -> str:
    """Return that a policy leaves replicas idle, and why where it is known."""
    return _idle_replicas(found.evidence)


def _volatile(found: Evidence) -> str:
    article = "an" if found["what"][0] in "aeiou" else "a"
    return filled(VOLATILE, {**found, "article": article}) + (f" {_who(found)}" if found["groups"] else "")


def _volatile_group(found: Evidence) -> str:
    return (
        f"Another group of prompts has such {'an' if found['what'][0] in 'aeiou' else 'a'} {found['what']}. "
        f"{_who(found)}"
    )


def _who(found: Evidence) -> str:
    """Return which group of prompts has a text that changes, by what a log and a private trace have alike."""
    head = (
        f"begin alike for {found['head_tokens']:,} tokens without it (hash {found['head'][:8]})"
        if found["head"]
        else "have no head in common"
    )
    of = [f", {name} {found[name]}" for name in ("tenant", "model") if found[name] is not None]
    session = "" if found["session"] is None else f", of session {found['session']}"
    return (
        f"{percent(found['share_of_affected'])} of the prompts that have it {head}: {found['prompts']:,} prompts, "
        f"{percent(found['share_of_group'])} of those that begin so{''.join(of)}. The first is request "
        f"{found['first_request']:,} of the log{session}."
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
            "Requests carry no session key, or hardly any do: sessions were inferred from prompts that extend earlier "
            "ones. The session policy needs a key in the request (a header, a user or conversation id)."
        )
    return f"{100 * found['keyless']:.0f} % of the requests have no session key and are routed by load alone."


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
    return (
        f"Prompt tokens that {found['policy']} computes, and dollars per million requests by the busiest replica: "
        f"{said}."
    )


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
        f"{found['policy']} is better than {found['chosen']} in some respects ({listed(found['better'])}) and worse in "
        f"others ({listed(found['worse'])})."
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
        else f"{100 * found['short_hits']:.0f} % of prompt tokens lie in shared prefixes below "
        f"{found['default_tokens']:,} tokens"
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
    return filled(LOAD_SIGNAL, {**found, "usd": own, "usd_default": other, "taken": ": use it" * found["taken"]})


def _idle_replicas(found: Evidence) -> str:
    because = IDLE_BECAUSE.get(found.get("why", ""), "")
    return filled(f"{{policy}} leaves {{idle}} of {{replicas}} replicas nearly idle{because}.", found)


def _another_policy(found: Evidence) -> str:
    better = " and ".join(SHORT[metric] for metric in found["metrics"].split(","))
    gap = found["usd_per_million_requests"]
    return (
        f"{found['policy']}, another router's rule, is better than {found['chosen']} in {better} and worse in nothing, "
        f"beyond the noise: {percent(found['recompute_ratio'])} recomputed, ${usd(abs(gap))} "
        f"{'less' if gap < 0 else 'more'} per million requests."
    )


def _several_routers(found: Evidence) -> str:
    small = "small" if found["told_apart"] else "within the noise"
    needed = "must be sticky, too" if found["needed"] else f"need not be sticky: the difference is {small}"
    return filled(ROUTERS, {**found, "front": needed})


def _clock(found: Evidence) -> str:
    known = found["usd_untimed_value"] is not None
    there = f", and costs {_dollars(found, 'untimed')} beside {found['timed']}" if known else ""
    return filled(CLOCK, {**found, "because": CLOCKED[found["why"]], "there": there, "usd": _dollars(found, "timed")})


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
        missed = (
            f"{percent(found['missed_ratio'])} of the requests break a promise instead of "
            f"{percent(found['missed_ratio_mixed'])}"
        )
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


VOLATILE = (
    "{share:whole} of the prompts have {article} {what} of about {length} tokens that changes, about {tokens:count} "
    "tokens after their start. Nothing behind it is shared, though about {gain:count} tokens behind it are those of "
    "the nearest earlier prompt. With a constant in its place the floor falls from {floor:share} to "
    "{floor_if_fixed:share} recomputed: move it to the end. Routing cannot correct this."
)
LOAD_SIGNAL = (
    "Prompts bring very unequal numbers of new tokens (standard deviation {unequal:ratio} times the mean), so that "
    'counts of requests say little of a replica\'s load. By the prompt tokens that wait (`load="uncached_tokens"`), '
    "cache-aware recomputes {recompute_ratio:share} instead of {recompute_ratio_default:share}, has a mean TTFT of "
    "{ttft_mean_s:time} instead of {ttft_mean_s_default:time} and costs {usd} instead of {usd_default} per million "
    "requests{taken}."
)
IDLE_BECAUSE = {
    "minimum-match": ": its minimum match of {tokens:count} tokens is within the {head_tokens:count} tokens that most "
    "prompts begin with, so that any prompt follows the first",
    "hashed-head": ": it hashes {tokens:count} tokens, which is within the {head_tokens:count} tokens that most "
    "prompts begin with",
}
"""Why a policy leaves replicas idle, in words."""
ROUTERS = (
    "{routers} routers that share nothing recompute {round_robin:share} behind a round-robin front and {sticky:share} "
    "behind one that keeps a session on one router. The front {front}."
)
CLOCK = (
    "Timed runs advise {timed} instead of {policy}: {because}. Untimed, {policy} balances `{load}`, has skew "
    "{skew:ratio}, recomputes {recompute_ratio:share}{there}. Timed, with queues and `{load_timed}`, {policy} has skew "
    "{skew_timed:ratio} ({timed}: {skew_instead:ratio}), recomputes {recompute_ratio_timed:share} "
    "({recompute_ratio_instead:share}), answers after {ttft_mean_s_timed:time} in the mean "
    "({ttft_mean_s_instead:time}), and costs {usd} beside it. Trust the timed runs."
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
FINDINGS: Mapping[str, str | Callable[[Evidence], str]] = {
    "another-policy": _another_policy,
    "apart": _apart,
    "backtest": "The simulation does not explain the log: {simulated:share} of prompt tokens hit instead of "
    "{reported:share}. The rest is only as good as policy, replicas and capacity are those of the log.",
    "behind": "{policy} sends requests to {behind} of {replicas} replicas faster than they serve them. Waiting there "
    "grows with the length of the log: p99 of {ttft_p99_s:time} is no bound.",
    "broken-prefix": "{share:whole} of the turns after a session's first differ from their own history after "
    "{tokens:count} tokens, within the next {block_size}. Look for a date, an id or a shuffled list there, and "
    "move it to the end. The floor would fall from {floor:share} to {floor_if_fixed:share} recomputed. Routing "
    "cannot correct this.",
    "capacity": "A cache of {capacity_tokens:count} tokens a replica is too small for this traffic: caches that never "
    "evict would recompute {recompute_ratio_infinite:share} instead of {recompute_ratio:share}. More memory, more "
    "replicas or a CPU tier gain what routing cannot.",
    "clock": _clock,
    "coincidence": "Round robin recomputes {round_robin:share} and least-loaded, which knows as little, "
    "{least_loaded:share}: sessions come in an order that happens to fit the number of replicas. Another number of "
    "replicas, or one request more, would end that.",
    "fleet-size": _fleet_size,
    "head-shorter-than-a-block": "Prompts begin with about {head_tokens:count} tokens in common, {share:whole} of "
    "them, which is less than one block of {block_size}: engines cache whole blocks, so nothing of it is shared, "
    "whatever the routing.",
    "hottest": _hottest,
    "idle-replicas": _idle_replicas,
    "large-blocks": "The smallest useful prefix is one block of {block_size:count} tokens. Prompts that share less "
    "gain nothing, whatever the routing.",
    "load-signal": _load_signal,
    "losses": _losses,
    "minimum-match": _minimum_match,
    "no-hits": "The log reports 0 cached tokens throughout, the simulation hits {simulated:share} of the prompt "
    "tokens. " + ZEROS,
    "noise": "{sessions:count} sessions do not tell any of the policies apart: either nothing is shared that routing "
    "could use, or the trace is too short.",
    "not-kept": _not_kept,
    "objectives": _objectives,
    "overload": "{waiting:whole} of the time to first token is waiting for one of the {replicas} replicas: the fleet "
    "has no reserve at this rate. See `prefixroute size`.",
    "preemptions": "{replicas} replicas of {capacity_tokens:count} tokens preempt {preempted:share} of the requests "
    "with {policy}, counted each time, and compute their prompts again: answers need more memory. `--preemptions` "
    "says how many are borne, {most_preempted:share} here.",
    "session-key": _session_key,
    "several-models": "Requests ask for {models} models. All are priced as one here, and every replica is taken to "
    "serve them all. Where each model has replicas of its own, split the trace and ask for each.",
    "several-routers": _several_routers,
    "shorter-than-a-block": "{share:whole} of the prompts are shorter than one block of {block_size} tokens: nothing "
    "of them is ever cached.",
    "short-span": "The log covers {span_s:time}. Dollars a month repeat it {times_a_month:count} times, although traffic "
    "rises and falls over a day. Believe dollars per million requests, or give a log of a day or more.",
    "skew": "The busiest replica has {prefill_skew:ratio} times the mean of the prefill time, and {skew:ratio} times "
    "the mean of the requests: capacity must be bought for it.",
    "tradeoff": _tradeoff,
    "volatile-group": _volatile_group,
    "volatile-head": _volatile,
}
"""What is said of each kind of finding: a sentence with its figures in braces, or what makes it where words differ."""
