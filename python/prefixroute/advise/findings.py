"""What the advisor looks for beside the choice of a policy.

Faults that routing cannot fix, and settings that are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

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
from prefixroute.advise.finding import Evidence, Finding, Severity
from prefixroute.advise.profile import MIN_MATCH_TOKENS, Profile
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
        broken = whole.broken
        yield Finding(
            "broken-prefix",
            "fix first",
            {
                "tokens": broken.tokens,
                "block_size": broken.block_size,
                "share": broken.share,
                "floor": whole.floor,
                "floor_if_fixed": broken.floor_if_fixed,
            },
        )
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
        evidence: Evidence = {
            "who": hot.kind,
            "name": hot.name,
            "requests": hot.requests,
            "tokens": hot.tokens,
            "head_tokens": hot.head_tokens,
        }
        yield Finding("hottest", "note", evidence)


def volatile(known: Facts) -> Iterator[Finding]:
    """Yield what a text that changes near the start of prompts costs, and which prompts have it, where the trace knows of one."""
    head, profile, masked = known.workload.volatile, known.profile, known.masked_profile
    if head is None or masked is None or profile.floor - masked.floor < NOTABLE:
        return
    evidence: Evidence = {
        "what": head.kind,
        "tokens": head.tokens,
        "length": head.length,
        "gain": head.gain,
        "share": head.share,
        "floor": profile.floor,
        "floor_if_fixed": masked.floor,
    }
    first, others = known.affected[:1], known.affected[1:]
    named = first[0].to_dict() if first else {}
    yield Finding("volatile-head", "fix first", {**evidence, **named, "groups": len(known.affected)})
    yield from (Finding("volatile-group", "note", {"what": head.kind, **group.to_dict()}) for group in others)


def keys(profile: Profile, policy: str, *, inferred: bool) -> Iterator[Finding]:
    """Yield what stands in the way of a policy that needs a session key."""
    if policy == "session" and (inferred or profile.keyless > NOTABLE):
        yield Finding("session-key", "warning", {"inferred": inferred, "keyless": profile.keyless})


def measured(
    row: ResultRow, scenario: Scenario, *, most_preempted: float | None = MOST_PREEMPTIONS
) -> Iterator[Finding]:
    """Yield what the numbers of the advised policy tell. ``most_preempted``: preemptions a request that are borne."""
    if preempts(row, most_preempted):
        evidence: dict[str, float | int | str | bool | None] = {
            "policy": row.policy,
            "preempted": row.preempted,
            "most_preempted": most_preempted,
            "replicas": row.replicas,
            "capacity_tokens": scenario.capacity_tokens,
        }
        yield Finding("preemptions", "warning", evidence)
    beyond = row.recompute_ratio_infinite
    if beyond is not None and row.recompute_ratio - beyond > NOTABLE:
        evidence = {
            "capacity_tokens": scenario.capacity_tokens,
            "recompute_ratio": row.recompute_ratio,
            "recompute_ratio_infinite": beyond,
        }
        yield Finding("capacity", "warning", evidence)
    waiting = (row.queue_mean_s or 0.0) / row.ttft_mean_s if row.ttft_mean_s else 0.0
    if waiting > WAITING:
        evidence = {
            "waiting": waiting,
            "queue_mean_s": row.queue_mean_s,
            "ttft_mean_s": row.ttft_mean_s,
            "replicas": row.replicas,
        }
        yield Finding("overload", "warning", evidence)
    uneven = prefill_skew(row)
    if uneven > UNEVEN:
        yield Finding("skew", "warning", {"prefill_skew": uneven, "skew": row.skew})


def losses(comparison: Comparison, chosen: str) -> Iterator[Finding]:
    """Yield where the hits of the advised policy went, in shares, tokens and dollars per million requests."""
    split = comparison.lost(chosen)
    if split and comparison.row(chosen).recompute_ratio:
        figures = {f"{name}_{unit}": value for name, lost in split.items() for unit, value in lost.items()}
        yield Finding("losses", "note", {"policy": chosen, **figures})


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
            "recompute_ratio": changed.recompute_ratio,
            "recompute_ratio_default": default.recompute_ratio,
            "skew": changed.skew,
            "skew_default": default.skew,
            "ttft_mean_s": changed.ttft_mean_s,
            "ttft_mean_s_default": default.ttft_mean_s,
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
    evidence: dict[str, float | int | str | bool | None] = {"unequal": profile.unequal, "taken": chosen == BY_TOKENS}
    for name in ("recompute_ratio", "ttft_mean_s", "usd_per_million_requests_busiest"):
        evidence |= {name: getattr(changed, name), f"{name}_default": getattr(default, name)}
    yield Finding("load-signal", "note", evidence)


def coincidence(comparison: Comparison) -> Iterator[Finding]:
    """Yield a warning where round robin keeps sessions together only because they come in turns."""
    if by_coincidence(comparison):
        spread, other = comparison.row("round-robin"), comparison.row("least-loaded")
        evidence: Evidence = {"round_robin": spread.recompute_ratio, "least_loaded": other.recompute_ratio}
        yield Finding("coincidence", "warning", evidence)


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
        row = comparison.row(chosen)
        evidence: Evidence = {
            "policy": chosen,
            "behind": count,
            "replicas": row.replicas,
            "ttft_p99_s": row.ttft_p99_s,
        }
        yield Finding("behind", "warning", evidence)


def weighed(comparison: Comparison, choice: Choice) -> Iterator[Finding]:
    """Yield what would be better in some respects and worse in others, and what another objective would take."""
    for one in choice.tradeoffs:
        row, own = comparison.row(one.policy), comparison.row(choice.policy)
        evidence: Evidence = {
            "policy": one.policy,
            "chosen": choice.policy,
            "better": ",".join(one.better),
            "worse": ",".join(one.worse),
            "ttft_mean_s": row.ttft_mean_s,
            "ttft_mean_s_chosen": own.ttft_mean_s,
            "usd_per_million_requests_busiest": row.usd_per_million_requests_busiest,
            "usd_per_million_requests_busiest_chosen": own.usd_per_million_requests_busiest,
            "recompute_ratio": row.recompute_ratio,
            "recompute_ratio_chosen": own.recompute_ratio,
        }
        yield Finding("tradeoff", "note", evidence)
    others = {name: policy for name, policy in choice.by_objective.items() if policy != choice.policy}
    if others:
        yield Finding("objectives", "note", {"objective": choice.objective, "policy": choice.policy, **others})


def rejected(comparison: Comparison, choice: Choice, in_use: str) -> Iterator[Finding]:
    """Yield why what is in use is not kept, where no objective would: beside the advised policy, if that beats it."""
    for one in choice.rejected:
        if one.policy == in_use and one.why != "coincidence":
            evidence: dict[str, float | int | str | bool | None] = {
                "policy": one.policy,
                "policy_assumed": on_defaults(frozenset({CURRENT}), comparison.assumptions),
                "why": one.why,
            }
            if one.by is not None:
                by_chosen = beats(comparison, choice.policy, in_use)
                by, metrics = (choice.policy, by_chosen) if by_chosen else (one.by, one.metrics)
                evidence |= {"by": by, "metrics": ",".join(metrics)}
            evidence["ttft_mean_s"] = comparison.row(one.policy).ttft_mean_s
            yield Finding("not-kept", "note", evidence)


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
        evidence: Evidence = {
            "policy": best,
            "chosen": choice.policy,
            "metrics": ",".join(found[best]),
            "usd_per_million_requests": gap.value,
            "low": gap.low,
            "high": gap.high,
            "recompute_ratio": comparison.row(best).recompute_ratio,
        }
        yield Finding("another-policy", "note", evidence)


def agreement(tested: Backtest | None) -> Iterator[Finding]:
    """Yield a warning where the simulation does not explain the log."""
    if tested is not None and tested.verdict in ("disagrees", NO_HITS):
        evidence: Evidence = {
            "difference": tested.difference.value,
            "simulated": tested.simulated,
            "reported": tested.reported,
        }
        yield Finding("no-hits" if tested.reports_no_hits else "backtest", "warning", evidence)


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
