"""What the advisor looks for beside the choice of a policy.

Faults that routing cannot fix, and settings that are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from prefixroute.advise.backtest import NO_HITS, Backtest
from prefixroute.advise.behind import MOST_PREEMPTIONS
from prefixroute.advise.choice import (
    AWARE,
    BY_TOKENS,
    CURRENT,
    MATERIAL,
    METRIC,
    NOTABLE,
    Choice,
    beats,
    by_coincidence,
    preempts,
    prefill_skew,
)
from prefixroute.advise.compare import Comparison
from prefixroute.advise.facts import Facts
from prefixroute.advise.finding import Evidence, Finding, Severity, figures
from prefixroute.advise.profile import MIN_MATCH_TOKENS, Profile
from prefixroute.costmodel import HOURS_PER_MONTH, SHORT_SPAN_S
from prefixroute.costmodel.assumption import on_defaults
from prefixroute.sim import ResultRow, Scenario
from prefixroute.workload import Workload

WAITING = 0.5
"""Share of the mean TTFT that is waiting above which a fleet has no reserve."""
LEAST_HEAD = 4
"""Tokens that prompts must have in common to be worth a line: fewer are the name of a role."""
LARGE_BLOCK = 256
"""Tokens of a block from which the smallest useful prefix is worth a line: engines' blocks have 16 to 128."""
UNEVEN = 1.25
"""Skew of prefill time from which a busiest replica is worth a line."""


def facts(profile: Profile, workload: Workload, masked: Profile | None) -> Iterator[Finding]:
    """Yield what the workload alone tells.

    ``masked`` is the profile with a constant in place of the date or id that the text shows, where it shows one: turns
    that break for that reason alone are whole in it, and one cause is named once.
    """
    whole = profile if masked is None else masked
    if whole.broken is not None:
        place = figures(whole.broken, "tokens", "block_size", "share")
        floors = {"floor": whole.floor, "floor_if_fixed": whole.broken.floor_if_fixed}
        yield Finding("broken-prefix", "fix first", {**place, **floors})
    if profile.models > 1:
        yield Finding("several-models", "note", {"models": profile.models})
    if profile.short > NOTABLE:
        yield Finding("shorter-than-a-block", "warning", {"share": profile.short, "block_size": profile.block_size})
    if profile.block_size >= LARGE_BLOCK:
        yield Finding("large-blocks", "note", {"block_size": profile.block_size})
    head, size = workload.head_tokens or 0, profile.block_size
    if LEAST_HEAD <= head < size and not profile.head_tokens:
        share = head * profile.requests / max(1, profile.prompt_tokens)
        severity: Severity = "warning" if share > NOTABLE else "note"
        yield Finding("head-shorter-than-a-block", severity, {"head_tokens": head, "block_size": size, "share": share})
    for hot in profile.hottest:
        shares = figures(hot, "name", "requests", "tokens", "head_tokens")
        yield Finding("hottest", "note", {"who": hot.kind, **shares})


def span(known: Facts) -> Iterator[Finding]:
    """Yield that a log is too short for dollars a month; the rate of a made workload is a setting of it."""
    seconds = known.profile.span_s
    if isinstance(known.source, Workload) and 0 < seconds < SHORT_SPAN_S:
        per_month = HOURS_PER_MONTH * 3_600 / seconds
        yield Finding(
            "short-span", "warning", {"span_s": seconds, "enough_s": SHORT_SPAN_S, "times_a_month": round(per_month)}
        )


def volatile(known: Facts) -> Iterator[Finding]:
    """Yield what a text that changes near the start of prompts costs, and which prompts have it."""
    head, profile, masked = known.workload.volatile, known.profile, known.masked_profile
    if head is None or masked is None or profile.floor - masked.floor < NOTABLE:
        return
    text = {"what": head.kind, **figures(head, "tokens", "length", "gain", "share")}
    floors = {"floor": profile.floor, "floor_if_fixed": masked.floor}
    first, *others = map(asdict, known.affected) if known.affected else [{}]
    yield Finding("volatile-head", "fix first", {**text, **floors, **first, "groups": len(known.affected)})
    yield from (Finding("volatile-group", "note", {"what": head.kind, **group}) for group in others)


def keys(profile: Profile, policy: str, *, inferred: bool) -> Iterator[Finding]:
    """Yield what stands in the way of a policy that needs a session key."""
    if policy == "session" and (inferred or profile.keyless > NOTABLE):
        yield Finding("session-key", "warning", {"inferred": inferred, "keyless": profile.keyless})


def measured(
    row: ResultRow, scenario: Scenario, *, most_preempted: float | None = MOST_PREEMPTIONS
) -> Iterator[Finding]:
    """Yield what the numbers of the advised policy tell. ``most_preempted``: preemptions a request that are borne."""
    capacity = figures(scenario, "capacity_tokens")
    if preempts(row, most_preempted):
        told = {**figures(row, "policy", "preempted"), "most_preempted": most_preempted, **figures(row, "replicas")}
        yield Finding("preemptions", "warning", {**told, **capacity})
    beyond = row.recompute_ratio_infinite
    if beyond is not None and row.recompute_ratio - beyond > NOTABLE:
        ratios = figures(row, "recompute_ratio", "recompute_ratio_infinite")
        yield Finding("capacity", "warning", {**capacity, **ratios})
    waiting = (row.queue_mean_s or 0.0) / row.ttft_mean_s if row.ttft_mean_s else 0.0
    if waiting > WAITING:
        told = figures(row, "queue_mean_s", "ttft_mean_s", "replicas")
        yield Finding("overload", "warning", {"waiting": waiting, **told})
    uneven = prefill_skew(row)
    if uneven > UNEVEN:
        yield Finding("skew", "warning", {"prefill_skew": uneven, "skew": row.skew})


def losses(comparison: Comparison, chosen: str) -> Iterator[Finding]:
    """Yield where the hits of the advised policy went, in shares, tokens and dollars per million requests."""
    split = comparison.lost(chosen)
    if split and comparison.row(chosen).recompute_ratio:
        named = {f"{name}_{unit}": value for name, lost in split.items() for unit, value in lost.items()}
        yield Finding("losses", "note", {"policy": chosen, **named})


def minimum_match(profile: Profile, comparison: Comparison, other: str, *, chosen: str) -> Iterator[Finding]:
    """Yield what the other minimum match, the row named ``other``, gave beside the default.

    Args:
        profile: facts of the traffic.
        comparison: the policies that were run.
        other: the row of ``cache-aware`` with the other minimum match.
        chosen: the policy that is advised.
    """
    default, changed = comparison.row(AWARE), comparison.row(other)
    cheaper = comparison.gap(other, AWARE, METRIC)
    dear = default.usd_per_million_requests_busiest
    better = cheaper.high < 0 and cheaper.value < -MATERIAL * dear
    yield Finding(
        "minimum-match",
        "warning" if chosen == other or (better and chosen == AWARE) else "note",
        {
            "min_match_tokens": profile.longest_head + profile.block_size,
            "default_tokens": MIN_MATCH_TOKENS,
            "head_tokens": profile.longest_head,
            "heads": len(profile.heads),
            "short_hits": profile.short_hits,
            **_beside_default(changed, default, "recompute_ratio", "skew", "ttft_mean_s"),
            "better": better,
            "taken": chosen == other,
            "advised": chosen in {AWARE, other},
        },
    )


def load_signal(profile: Profile, comparison: Comparison, *, chosen: str) -> Iterator[Finding]:
    """Yield what balancing tokens that wait gave beside balancing requests, where both were run."""
    names = {row.policy for row in comparison.rows}
    if not {AWARE, BY_TOKENS} <= names:
        return
    default, changed = comparison.row(AWARE), comparison.row(BY_TOKENS)
    told = _beside_default(changed, default, "recompute_ratio", "ttft_mean_s", METRIC)
    yield Finding("load-signal", "note", {"unequal": profile.unequal, "taken": chosen == BY_TOKENS, **told})


def _beside_default(changed: ResultRow, default: ResultRow, *names: str) -> dict[str, Any]:
    """Return figures with another setting, each followed by that with the default."""
    pairs = [figures(changed, name) | figures(default, name, suffix="_default") for name in names]
    return {name: value for pair in pairs for name, value in pair.items()}


def coincidence(comparison: Comparison) -> Iterator[Finding]:
    """Yield a warning where round robin keeps sessions together only because they come in turns."""
    if by_coincidence(comparison):
        spread, other = comparison.row("round-robin"), comparison.row("least-loaded")
        ratios = {"round_robin": spread.recompute_ratio, "least_loaded": other.recompute_ratio}
        yield Finding("coincidence", "warning", ratios)


def noise(comparison: Comparison) -> Iterator[Finding]:
    """Yield a note where the traffic is too little to tell any two policies apart, in anything that is judged."""
    names = [row.policy for row in comparison.rows]
    apart = any(beats(comparison, one, other) for one in names for other in names if one != other)
    if len(names) > 1 and not apart:
        yield Finding("noise", "note", {"sessions": comparison.clusters})


def idle(comparison: Comparison, chosen: str) -> Iterator[Finding]:
    """Yield the policies that leave replicas nearly idle; urgent where it is the one advised."""
    for one in comparison.idle:
        yield Finding("idle-replicas", "warning" if one.policy == chosen else "note", one.evidence)


def behind(comparison: Comparison, chosen: str) -> Iterator[Finding]:
    """Yield that single replicas cannot keep up under the advised policy, though the fleet may."""
    count = comparison.behind.get(chosen, 0)
    if count:
        told = figures(comparison.row(chosen), "replicas", "ttft_p99_s")
        yield Finding("behind", "warning", {"policy": chosen, "behind": count, **told})


def weighed(comparison: Comparison, choice: Choice) -> Iterator[Finding]:
    """Yield what would be better in some respects and worse in others, and what another objective would take."""
    for one in choice.tradeoffs:
        row, own = comparison.row(one.policy), comparison.row(choice.policy)
        told = {"policy": one.policy, "chosen": choice.policy}
        told |= {"better": ",".join(one.better), "worse": ",".join(one.worse)}
        for name in ("ttft_mean_s", METRIC, "recompute_ratio"):
            told |= figures(row, name) | figures(own, name, suffix="_chosen")
        yield Finding("tradeoff", "note", told)
    others = {name: policy for name, policy in choice.by_objective.items() if policy != choice.policy}
    if others:
        yield Finding("objectives", "note", {"objective": choice.objective, "policy": choice.policy, **others})


def rejected(comparison: Comparison, choice: Choice, in_use: str) -> Iterator[Finding]:
    """Yield why what is in use is not kept, where no objective would: beside the advised policy, if that beats it."""
    for one in choice.rejected:
        if one.policy == in_use and one.why != "coincidence":
            assumed = on_defaults(frozenset({CURRENT}), comparison.assumptions)
            told: dict[str, Any] = {"policy": one.policy, "policy_assumed": assumed, "why": one.why}
            if one.by is not None:
                by_chosen = beats(comparison, choice.policy, in_use)
                by, metrics = (choice.policy, by_chosen) if by_chosen else (one.by, one.metrics)
                told |= {"by": by, "metrics": ",".join(metrics)}
            yield Finding("not-kept", "note", {**told, **figures(comparison.row(one.policy), "ttft_mean_s")})


def elsewhere(comparison: Comparison, choice: Choice, among: Sequence[str]) -> Iterator[Finding]:
    """Yield another router's policy that is plainly better than the advised one."""
    found = {
        row.policy: metrics
        for row in comparison.rows
        if row.policy not in among and (metrics := beats(comparison, row.policy, choice.policy))
    }
    if found:
        best = min(found, key=lambda name: comparison.row(name).usd_per_million_requests_busiest)
        gap = comparison.gap(best, choice.policy, METRIC)
        names = {"policy": best, "chosen": choice.policy, "metrics": ",".join(found[best])}
        dollars = {"usd_per_million_requests": gap.value, **figures(gap, "low", "high")}
        yield Finding(
            "another-policy", "note", {**names, **dollars, **figures(comparison.row(best), "recompute_ratio")}
        )


def agreement(tested: Backtest | None) -> Iterator[Finding]:
    """Yield a warning where the simulation does not explain the log."""
    if tested is not None and tested.verdict in ("disagrees", NO_HITS):
        told = {"difference": tested.difference.value, **figures(tested, "simulated", "reported")}
        yield Finding("no-hits" if tested.reports_no_hits else "backtest", "warning", told)


def both_fronts(scenario: Scenario) -> list[Scenario]:
    """Return a scenario of several routers behind either front."""
    return [
        replace(scenario, front="round-robin", label="round-robin front"),
        replace(scenario, front="sticky", label="sticky front"),
    ]


def fronts(comparison: Comparison, routers: int) -> Finding:
    """Return what a round-robin front before several routers costs against a sticky one."""
    spread, sticky = comparison.row("round-robin front"), comparison.row("sticky front")
    told_apart = comparison.gap("round-robin front", "sticky front", "recompute_ratio").low > 0
    worse = told_apart and spread.recompute_ratio > (1 + MATERIAL) * sticky.recompute_ratio
    evidence: Evidence = {
        "round_robin": spread.recompute_ratio,
        "sticky": sticky.recompute_ratio,
        "routers": routers,
        "needed": worse,
        "told_apart": told_apart,
    }
    return Finding("several-routers", "warning" if worse else "note", evidence)
