"""What the advisor looks for beside the choice of a policy: faults that routing cannot mend, and settings that are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from prefixroute.advise.advice import Finding
from prefixroute.advise.backtest import Backtest
from prefixroute.advise.choice import FAR_SLOWER, MATERIAL, by_coincidence, prefill_skew
from prefixroute.advise.compare import Comparison
from prefixroute.advise.profile import MIN_MATCH_TOKENS, Profile
from prefixroute.advise.times import duration
from prefixroute.policies import CacheAware
from prefixroute.sim import Scenario
from prefixroute.sim.metrics import Row
from prefixroute.workload import Workload

NOTABLE = 0.05
"""Share of prompt tokens (or of requests) from which something is worth a line."""
WAITING = 0.5
"""Share of the mean TTFT that is waiting above which a fleet has no reserve."""
LEAST_HEAD = 4
"""Tokens that prompts must have in common to be worth a line: fewer are the name of a role."""
SOONER = 0.1
"""Share of the mean TTFT by which another policy must be faster, noise included, to be worth a line."""
UNEVEN = 1.25
"""Skew of prefill time from which a busiest replica is worth a line."""


def facts(profile: Profile, workload: Workload, mended: Profile | None) -> Iterator[Finding]:
    """Yield what the workload alone tells.

    ``mended`` is the profile with a constant in place of the date or id that the text shows, where it shows one: turns
    that break for that reason alone are whole in it, and one cause is named once.
    """
    whole = profile if mended is None else mended
    if whole.broken is not None:
        broken = whole.broken
        yield Finding(
            "broken-prefix",
            "fix first",
            f"{100 * broken.share:.0f} % of the turns after a session's first stop being equal to their own history after "
            f"{broken.tokens:,} tokens, inside the next {broken.block_size}: look for a date, an id or a shuffled list "
            f"there, and move it to the end. The floor would fall from {100 * whole.floor:.1f} % to "
            f"{100 * broken.floor_if_fixed:.1f} % recomputed. Routing cannot mend this.",
            {
                "tokens": broken.tokens,
                "share": broken.share,
                "floor": whole.floor,
                "floor_if_fixed": broken.floor_if_fixed,
            },
        )
    if profile.models > 1:
        yield Finding(
            "several-models",
            "note",
            f"Requests ask for {profile.models} models. All are priced as one here, and every replica is taken to serve them "
            "all: where each has replicas of its own, take the trace apart and ask for each.",
            {"models": profile.models},
        )
    if profile.short > NOTABLE:
        yield Finding(
            "shorter-than-a-block",
            "warning",
            f"{100 * profile.short:.0f} % of the prompts are shorter than one block of {profile.block_size} tokens: "
            f"nothing of them is ever cached.",
            {"share": profile.short, "block_size": profile.block_size},
        )
    head, size = workload.head_tokens or 0, profile.block_size
    if LEAST_HEAD <= head < size and not profile.head_tokens:
        share = head * profile.requests / max(1, profile.prompt_tokens)
        yield Finding(
            "head-shorter-than-a-block",
            "warning" if share > NOTABLE else "note",
            f"Prompts begin with about {head:,} tokens in common, {100 * share:.0f} % of them, which is less than one block of "
            f"{size}: engines cache whole blocks, so nothing of it is shared, whatever the routing.",
            {"head_tokens": head, "block_size": size, "share": share},
        )


def volatile(workload: Workload, profile: Profile, mended: Profile | None) -> Iterator[Finding]:
    """Yield what a date or an id near the start of the prompts costs, where the trace has their text."""
    head = workload.volatile
    if head is None or mended is None:
        return
    fixed = mended.floor
    article = "an" if head.kind[0] in "aeiou" else "a"
    if profile.floor - fixed < NOTABLE:
        return
    yield Finding(
        "volatile-head",
        "fix first",
        f"{100 * head.share:.0f} % of the prompts have {article} {head.kind} that changes, about {head.tokens:,} tokens after their "
        f"start, and nothing behind it is shared. With a constant in its place the floor falls from "
        f"{100 * profile.floor:.1f} % to {100 * fixed:.1f} % recomputed: move it to the end. Routing cannot mend this.",
        {
            "kind": head.kind,
            "tokens": head.tokens,
            "share": head.share,
            "floor": profile.floor,
            "floor_if_fixed": fixed,
        },
    )


class Late(NamedTuple):
    """The p95 of TTFT of a policy, and of the one in use, on the same fleet: seconds."""

    ttft_s: float
    today_s: float


def late(passed_over: Mapping[str, Late], in_use: str) -> Iterator[Finding]:
    """Yield the policies that were passed over because they answer far later in time than what is in use."""
    for policy, found in passed_over.items():
        yield Finding(
            "slower",
            "note",
            f"{policy} was passed over: in time, 95 % of the requests have their first token within {duration(found.ttft_s)}, "
            f"more than {FAR_SLOWER:g} times the {duration(found.today_s)} with {in_use}.",
            {"policy": policy, "ttft_p95_s": found.ttft_s, "ttft_p95_today_s": found.today_s},
        )


def keys(profile: Profile, policy: str, *, inferred: bool) -> Iterator[Finding]:
    """Yield what stands in the way of a policy that needs a session key."""
    if policy != "session":
        return
    if inferred:
        yield Finding(
            "session-key",
            "warning",
            "Requests carry no session key, or hardly any do: sessions were inferred from prompts that extend earlier ones. The session "
            "policy needs a key in the request (a header, a user or conversation id).",
        )
    elif profile.keyless > NOTABLE:
        yield Finding(
            "session-key",
            "warning",
            f"{100 * profile.keyless:.0f} % of the requests have no session key and are routed by load alone.",
            {"keyless": profile.keyless},
        )


def measured(row: Row, scenario: Scenario) -> Iterator[Finding]:
    """Yield what the numbers of the advised policy tell."""
    beyond = row.recompute_ratio_infinite
    if beyond is not None and row.recompute_ratio - beyond > NOTABLE:
        yield Finding(
            "capacity",
            "warning",
            f"A cache of {scenario.capacity_tokens:,} tokens a replica is too small for this traffic: caches that never "
            f"evict would recompute {100 * beyond:.1f} % instead of {100 * row.recompute_ratio:.1f} %. More memory, "
            f"more replicas or a CPU tier gain what routing cannot.",
            {"recompute_ratio": row.recompute_ratio, "recompute_ratio_infinite": beyond},
        )
    waiting = (row.queue_mean_s or 0.0) / row.ttft_mean_s if row.ttft_mean_s else 0.0
    if waiting > WAITING:
        yield Finding(
            "overload",
            "warning",
            f"{100 * waiting:.0f} % of the time to first token is waiting for one of the {row.replicas} replicas: the fleet "
            f"has no reserve at this rate. See `prefixroute size`.",
            {"waiting": waiting, "queue_mean_s": row.queue_mean_s, "ttft_mean_s": row.ttft_mean_s},
        )
    uneven = prefill_skew(row)
    if uneven > UNEVEN:
        yield Finding(
            "skew",
            "warning",
            f"The busiest replica has {uneven:.2f} times the mean of the prefill time, and {row.skew:.2f} times the mean of "
            "the requests: capacity must be bought for it.",
            {"prefill_skew": uneven, "skew": row.skew},
        )


def other_match(profile: Profile) -> CacheAware | None:
    """Return ``cache-aware`` with another minimum match where the default cannot be right for this traffic.

    It should lie just above the common head: below it every replica matches every prompt, and a match says nothing;
    far above it, prefixes that could be shared are routed by load.
    """
    tokens = profile.head_tokens + profile.block_size
    if profile.head_tokens >= MIN_MATCH_TOKENS or (profile.short_hits > NOTABLE and tokens < MIN_MATCH_TOKENS):
        return replace(CacheAware(), min_match_tokens=tokens)
    return None


def minimum_match(
    profile: Profile, comparison: Comparison, other: str, *, better: bool, chosen: str
) -> Iterator[Finding]:
    """Yield what the other minimum match, the row named ``other``, gave; nothing where the figures are equal as shown.

    Args:
        profile: facts of the traffic.
        comparison: the policies that were run.
        other: the row of ``cache-aware`` with the other minimum match.
        better: it is cheaper, materially and beyond the noise.
        chosen: the policy that is advised; only if that is one of the two does its minimum match matter.
    """
    default, changed = comparison.row("cache-aware"), comparison.row(other)
    tokens = profile.head_tokens + profile.block_size
    told = [
        f"{what} {after} instead of {before}"
        for what, before, after in (
            ("recomputes", f"{100 * default.recompute_ratio:.1f} %", f"{100 * changed.recompute_ratio:.1f} %"),
            ("has a request skew of", f"{default.skew:.2f}", f"{changed.skew:.2f}"),
        )
        if before != after
    ]
    if not told:
        return
    why = (
        f"Most prompts share a head of {profile.head_tokens:,} tokens, so a match of {MIN_MATCH_TOKENS:,} says nothing"
        if profile.head_tokens >= MIN_MATCH_TOKENS
        else f"{100 * profile.short_hits:.0f} % of prompt tokens lie in shared prefixes below {MIN_MATCH_TOKENS:,} tokens"
    )
    advised = chosen in {"cache-aware", other}
    if better:
        verdict = "use it"
    elif chosen == other:
        verdict = "use it, though the noise does not tell the two apart"
    else:
        verdict = "it is not cheaper beyond the noise, keep the default"
    yield Finding(
        "minimum-match",
        "warning" if better and advised else "note",
        f"{why}. With a minimum match of {tokens:,} tokens cache-aware {' and '.join(told)}"
        f"{f': {verdict}' if advised else ''}.",
        {
            "min_match_tokens": tokens,
            "recompute_ratio": changed.recompute_ratio,
            "recompute_ratio_default": default.recompute_ratio,
            "skew": changed.skew,
            "skew_default": default.skew,
        },
    )


def coincidence(comparison: Comparison) -> Iterator[Finding]:
    """Yield a warning where round robin keeps sessions together only because they come in turns."""
    if by_coincidence(comparison):
        spread, other = comparison.row("round-robin"), comparison.row("least-loaded")
        yield Finding(
            "coincidence",
            "warning",
            f"Round robin recomputes {100 * spread.recompute_ratio:.1f} % and least-loaded, which knows as little, "
            f"{100 * other.recompute_ratio:.1f} %: sessions come in turns that happen to fit the number of replicas. "
            "Another number, or one request more, would end that.",
            {"round_robin": spread.recompute_ratio, "least_loaded": other.recompute_ratio},
        )


def noise(comparison: Comparison) -> Iterator[Finding]:
    """Yield a warning where the traffic is too little to tell any two policies apart."""
    if len(comparison.rows) > 1 and len(comparison.leaders) == len(comparison.rows):
        yield Finding(
            "noise",
            "note",
            f"{comparison.clusters:,} sessions do not tell any of the policies apart: either nothing is shared that routing "
            f"could use, or the trace is too short.",
            {"sessions": comparison.clusters},
        )


def idle(comparison: Comparison, chosen: str) -> Iterator[Finding]:
    """Yield the policies that leave replicas nearly idle; urgent where it is the one advised."""
    for one in comparison.idle:
        yield Finding(
            "idle-replicas",
            "warning" if one.policy == chosen else "note",
            one.text(),
            {"policy": one.policy, "idle": one.idle, "replicas": one.replicas},
        )


def faster(comparison: Comparison, chosen: str) -> Iterator[Finding]:
    """Yield a policy that costs more and answers faster, beyond the noise and by a tenth at least; in time only."""
    row = comparison.row(chosen)
    if row.queue_mean_s is None or chosen != comparison.reference:
        return
    sooner = [one for one in comparison.differences if one.ttft_mean_s.high < -SOONER * row.ttft_mean_s]
    if sooner:
        best = min(sooner, key=lambda one: one.ttft_mean_s.value)
        other, dearer = comparison.row(best.policy), best.usd_per_million_requests_busiest.value
        yield Finding(
            "ttft",
            "note",
            f"{best.policy} answers sooner: {duration(other.ttft_mean_s)} to the first token on average instead of "
            f"{duration(row.ttft_mean_s)}, for ${abs(dearer):,.2f} {'less' if dearer < 0 else 'more'} per million requests.",
            {"policy": best.policy, "ttft_mean_s": other.ttft_mean_s, "ttft_mean_s_chosen": row.ttft_mean_s},
        )


def elsewhere(comparison: Comparison) -> Iterator[Finding]:
    """Yield another router's policy that is cheaper than the best of the advisor's own, materially and beyond the noise."""
    least = MATERIAL * comparison.row(comparison.reference).usd_per_million_requests_busiest
    better = [
        one
        for one in comparison.differences
        if one.verdict == "better" and one.usd_per_million_requests_busiest.value < -least
    ]
    if better:
        best = min(better, key=lambda one: one.usd_per_million_requests_busiest.value)
        gap = best.usd_per_million_requests_busiest
        yield Finding(
            "another-policy",
            "note",
            f"{best.policy} costs ${-gap.value:,.2f} less per million requests than {comparison.reference} (95 % interval "
            f"{-gap.high:,.2f} to {-gap.low:,.2f}): worth a look.",
            {"policy": best.policy, "usd_per_million_requests": gap.value},
        )


def agreement(tested: Backtest | None) -> Iterator[Finding]:
    """Yield a warning where the simulation does not explain the log."""
    if tested is not None and tested.verdict == "disagrees":
        yield Finding(
            "backtest",
            "warning",
            f"The simulation does not explain the log: {100 * tested.simulated:.1f} % of prompt tokens hit instead of "
            f"{100 * tested.reported:.1f} %. The rest is as good as policy, replicas and capacity are those of the log.",
            {"difference": tested.difference.value, "simulated": tested.simulated, "reported": tested.reported},
        )


def both_fronts(scenario: Scenario) -> list[Scenario]:
    """Return a scenario of several routers behind either front."""
    return [
        replace(scenario, front="round-robin", label="round-robin front"),
        replace(scenario, front="sticky", label="sticky front"),
    ]


def fronts(comparison: Comparison, routers: int) -> Finding:
    """Return what a round-robin front before several routers costs against a sticky one."""
    spread, sticky = comparison.row("round-robin front"), comparison.row("sticky front")
    told = comparison.difference("round-robin front").verdict == "worse"
    worse = told and spread.recompute_ratio > (1 + MATERIAL) * sticky.recompute_ratio
    small = "small" if told else "inside the noise"
    needed = "The front must be sticky, too" if worse else f"The front need not be sticky: the difference is {small}"
    return Finding(
        "several-routers",
        "warning" if worse else "note",
        f"{routers} routers that share nothing recompute {100 * spread.recompute_ratio:.1f} % behind a round-robin front and "
        f"{100 * sticky.recompute_ratio:.1f} % behind one that keeps a session on one router. {needed}.",
        {"round_robin": spread.recompute_ratio, "sticky": sticky.recompute_ratio, "routers": routers},
    )
