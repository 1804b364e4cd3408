"""Advice in sentences: the headline, what comes first, why, what to expect. One answer for text, page and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefixroute.advise import NO_ROUTER, Advice, FleetNeed, Flip, Remedy, Saving
from prefixroute.advise.choice import CURRENT, LOAD_ONLY, MATERIAL, METRIC, NOTABLE, ROUND_ROBIN, prefill_skew
from prefixroute.advise.finding import Finding
from prefixroute.advise.fleet import MOST_TIMES
from prefixroute.advise.reasons import better_throughout, why, why_not
from prefixroute.costmodel.assumption import MONEY, TIMED, defaults
from prefixroute.report.backtests import backtest_lines
from prefixroute.report.figures import money_of, percent, replicas, usd
from prefixroute.report.sentences import finding
from prefixroute.report.steps import step
from prefixroute.report.times import duration
from prefixroute.routing import DEFAULT_LOAD

BUSIEST = "busiest replica"
"""The basis of all dollars of an advice: prefill is bought for every replica as for the busiest."""
RATE = frozenset({"sessions_per_hour", "requests_per_day"})
"""Assumptions that the rate of requests rests on, and with it dollars a month."""
BEHIND = MONEY | RATE | {"replicas", CURRENT, "bytes_per_token"}
"""Assumptions that the figures of an advice rest on."""
LEAST_TOLD_USD = 0.5
"""US dollars a month below which a headline, in whole dollars, names no saving."""
TOLD_IN_THE_OPENING = frozenset({"fleet-size"})
"""Findings that the opening says."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The sentences of an advice.

    Attributes:
        headline: what to do, in a line.
        agreement: how far the simulation can be believed: its hits beside those that the log reports.
        opening: what comes before routing, why this policy, what it saves.
        deploy: the line to paste; empty without a router.
        expectation: what to expect, and what that rests on.
        steps: questions of the decision tree with their answers.
        findings: severity and text of what else was found.
        sensitivity: what would change the advice.
    """

    headline: str
    agreement: tuple[str, ...]
    opening: tuple[str, ...]
    deploy: str
    expectation: tuple[str, ...]
    steps: tuple[tuple[str, str], ...]
    findings: tuple[tuple[str, str], ...]
    sensitivity: tuple[str, ...]


def answer(advice: Advice) -> Answer:
    """Return an advice in sentences.

    Args:
        advice: of :func:`~prefixroute.advise.advise`.
    """
    return Answer(
        headline=headline(advice),
        agreement=() if advice.backtest is None else backtest_lines(advice.backtest),
        opening=tuple(_opening(advice)),
        deploy="" if advice.deployment is None else advice.deployment.python,
        expectation=tuple(_expectation(advice)),
        steps=tuple(step(one) for one in advice.steps),
        findings=tuple((one.severity, finding(one)) for one in remaining(advice)),
        sensitivity=tuple(_flip(one) for one in advice.sensitivity),
    )


def remaining(advice: Advice) -> tuple[Finding, ...]:
    """Return the findings that the opening does not say."""
    return tuple(one for one in advice.findings if one.kind not in TOLD_IN_THE_OPENING)


def advice_dict(advice: Advice) -> dict[str, Any]:
    """Return the object of ``advise --json``: the numbers, and the sentences beside them.

    Args:
        advice: of :func:`~prefixroute.advise.advise`.
    """
    said, document = answer(advice), advice.to_dict()
    document["advice"] = {
        "verdict": said.headline,
        "said": [*said.opening, *said.expectation],
        "policies": advised(advice),
        **document["advice"],
    }
    for one, (question, text) in zip(document["steps"], said.steps, strict=True):
        one |= {"question": question, "answer": text}
    for one, found in zip(document["findings"], advice.findings, strict=True):
        one["text"] = finding(found)
    return document


def fleet(advice: Advice) -> str:
    """Return the fleet advised on: ``8 replicas``, marked where nobody gave it."""
    return f"{replicas(advice.replicas)}{_mark(advice, 'replicas')}"


def _mark(advice: Advice, name: str) -> str:
    """Return the mark that stands behind a figure or a policy that is assumed; empty behind one that was given."""
    return " (ASSUMED)" if advice.assumes(name) else ""


def headline(advice: Advice) -> str:
    """Return what to do, in a line. What comes first comes first."""
    if advice.lifetimes:
        return "nothing to route: the model is behind an API"
    if _reports_no_hits(advice):
        return f"find out first why the log reports no hits; if caches are on, {_then(advice)}"
    return _then(advice)


def _reports_no_hits(advice: Advice) -> bool:
    return advice.backtest is not None and advice.backtest.reports_no_hits


def _then(advice: Advice) -> str:
    """Return what to do where the log can be believed."""
    chosen = "no router" if advice.policy == NO_ROUTER else _named(advice)
    if advice.remedy is not None:
        then = advice.remedy.policy or advice.policy
        now = "" if then == advice.policy else f"; until then {chosen}"
        return f"fix the prompt first, then {chosen if not now else then}{now}"
    kept = f"keep {chosen}" if advice.policy == advice.in_use else chosen
    need = advice.need
    if advice.is_overloaded:
        return f"{kept}; but {replicas(advice.replicas)} cannot keep up"
    if need is not None and need.is_smaller:
        return f"{kept}; {_fewer(advice, need)}{_saved_by_policy(advice, need)}"
    if need is not None and need.size.replicas != need.replicas:
        wanted = f"more than {MOST_TIMES * need.replicas}" if need.size.replicas is None else need.size.replicas
        return f"{kept}; with a reserve {wanted} replicas are needed, not {need.replicas}"
    return kept


def _named(advice: Advice) -> str:
    router = advice.deployment
    if router is None or not router.parameters:
        return advice.policy
    name, *settings = router.policy.split(":")
    settings += [] if router.load == DEFAULT_LOAD else [f"load={router.load}"]
    return f"{name} ({', '.join(settings)})"


def _fewer(advice: Advice, need: FleetNeed) -> str:
    """Return how many replicas are enough, whether with today's policy too, and what the others cost."""
    enough = f"{need.size.replicas} of {fleet(advice)} are enough"
    rent = f"${need.saved_usd_per_month:,.0f} of rent a month" if need.saved_usd_per_month else ""
    today = f"{need.today}{_mark(advice, CURRENT)}"
    if need.is_smaller_today:
        return f"{enough}, with {today} as well{f' (saves {rent})' if rent else ''}"
    only = "" if need.policy == need.today else f" (not with {today})"
    return f"{enough}{only}{f', which saves {rent}' if rent else ''}"


def _saved_by_policy(advice: Advice, need: FleetNeed) -> str:
    """Return the prefill that the policy saves a month, beside a rent that no policy saves.

    Empty where the fleet, the policy in use or the rate is assumed, and where the saving is within the noise.
    """
    saving = advice.saving
    if not need.is_smaller_today or saving is None or saving.usd_per_month is None:
        return ""
    apart = advice.comparison.gap(advice.row.policy, saving.against, METRIC).excludes_zero
    if saving.usd_per_month < LEAST_TOLD_USD or not apart or any(map(advice.assumes, ("replicas", CURRENT, *RATE))):
        return ""
    return f"; {advice.policy.partition(':')[0]} saves ${saving.usd_per_month:,.0f} of prefill a month"


def _opening(advice: Advice) -> Iterator[str]:
    """Yield what is said first."""
    if advice.lifetimes:
        yield from _api(advice)
        return
    if advice.remedy is not None:
        yield _remedy(advice.remedy, _rate(advice))
    need = None if advice.need is None else _needed(advice, advice.need)
    leads = need is not None and _leads(advice)
    if need is not None and leads:
        yield need
    yield because(advice)
    if advice.saving is not None:
        yield _saving(advice, advice.saving)
    if need is not None and not leads:
        yield need
    nearest = margin(advice)
    if nearest:
        yield nearest


def _leads(advice: Advice) -> bool:
    """Whether the number of replicas comes before the policy: a fleet that cannot keep up, or the larger saving."""
    need, saving = advice.need, advice.saving
    by_policy = 0.0 if saving is None else saving.usd_per_month or 0.0
    smaller = need is not None and need.is_smaller and (need.saved_usd_per_month or 0.0) > by_policy
    return advice.is_overloaded or (need is not None and need.now.is_overloaded) or smaller


def _needed(advice: Advice, need: FleetNeed) -> str:
    """Return how many replicas are needed.

    The busiest part says nothing of a fleet that falls behind over the whole.
    """
    if advice.is_overloaded and not need.then.is_overloaded:
        return f"{_behind(need)} Give more replicas, or more capacity, and ask again."
    return _need(advice, need, told=need.is_smaller and advice.remedy is None and not advice.is_overloaded)


def _behind(need: FleetNeed) -> str:
    return f"{replicas(need.replicas)} cannot keep up with {need.policy}: requests come faster than they are served."


def _api(advice: Advice) -> Iterator[str]:
    kept = "; ".join(f"{percent(one.recompute_ratio)} if kept for {duration(one.seconds)}" for one in advice.lifetimes)
    floor = advice.row.floor or 0.0
    yield f"Prompt tokens that are computed, by how long the API keeps a prefix after its last use: {kept}; {percent(floor)} if for ever."
    yield (
        "Send one of the calls that share a prefix first, so that its cache entry exists, and the others in parallel after it. "
        "`prefixroute plan` orders them."
    )


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
        f"{duration(other.ttft_mean_s)}. The busiest replica has {prefill_skew(row):.2f} times the mean of the prefill time "
        f"({than}: {prefill_skew(other):.2f})."
    )


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


def _remedy(remedy: Remedy, rate: str) -> str:
    saved = ""
    if remedy.usd_per_million_requests is not None:
        month = "" if remedy.usd_per_month is None else f", ${remedy.usd_per_month:,.0f} a month at {rate}"
        saved = (
            f", which saves ${usd(remedy.usd_per_million_requests)} of prefill per million requests{month} ({BUSIEST})"
        )
    routed = "" if remedy.policy is None else f" with {remedy.policy}"
    return (
        f"Fix the prompt first (see [fix first] below): {percent(remedy.recompute_ratio)} of the prompt tokens computed "
        f"become {percent(remedy.recompute_ratio_fixed)}{routed}{saved}. No routing can do that."
    )


def _saving(advice: Advice, saving: Saving) -> str:
    month = saving.usd_per_month
    monthly = "" if month is None else f", ${abs(month):,.0f} of prefill a month at {_rate(advice)}"
    less = f"{100 * abs(saving.share):.0f} % {'more' if saving.share < 0 else 'less'}"
    told_apart = advice.comparison.gap(advice.row.policy, saving.against, METRIC).excludes_zero
    return (
        f"Against {saving.against}{_mark(advice, CURRENT)}: {less} prefill capacity, ${usd(abs(saving.usd_per_million_requests))} per million "
        f"requests{monthly} ({BUSIEST}{'' if told_apart else '; within the noise'})."
    )


def _need(advice: Advice, need: FleetNeed, *, told: bool) -> str:
    """Return how many replicas are needed, and why; only why, where the headline has ``told`` how many."""
    enough = "" if told else _enough(advice, need)
    parts = [_today(need), enough, _times(advice, need), _spare(need), _routing(need), _looked_at(need)]
    return " ".join(filter(None, parts))


def _today(need: FleetNeed) -> str:
    if need.then.is_overloaded:
        return _behind(need)
    if need.now.is_overloaded:
        return (
            f"With {need.today}, requests come faster than they are served, so its times are no promise; with {need.policy} the "
            "fleet keeps up."
        )
    return ""


def _enough(advice: Advice, need: FleetNeed) -> str:
    size = need.size
    if size.replicas is None:
        return f"Up to {MOST_TIMES * need.replicas} replicas do not keep the promise."
    if need.is_smaller:
        return f"{_fewer(advice, need)}."
    if size.replicas == need.replicas:
        return f"All {need.replicas} replicas are needed."
    return f"{replicas(size.replicas)} are needed."


def _times(advice: Advice, need: FleetNeed) -> str:
    """Return the times on the fleet that is enough, beside today's; empty where no fleet is."""
    if need.size.replicas is None:
        return ""
    told = [at for at, seconds in enumerate(need.there.seconds) if seconds > 0]
    if not told:
        return f"With {need.policy} on {need.size.replicas} they keep up."

    def listed(seconds: Sequence[float]) -> str:
        named = (f"{need.asked[at].time.upper()} p{need.asked[at].percentile:g} {duration(seconds[at])}" for at in told)
        return ", ".join(named)

    policy, count = f"{need.today}{_mark(advice, CURRENT)}", f"{need.replicas}{_mark(advice, 'replicas')}"
    today = "" if need.now.is_overloaded else f" Today, with {policy} on {count}: {listed(need.now.seconds)}."
    return f"With {need.policy} on {need.size.replicas}: {listed(need.there.seconds)}.{today}"


def _spare(need: FleetNeed) -> str:
    """Return what of the fleet is reserve, a sentence for each part of it."""
    size, room = need.size, need.headroom
    if size.replicas is None or size.least is None or (not room.spare and room.utilization == 1):
        return ""
    parts = [f"Without a reserve, {replicas(size.least)} would be enough."]
    if room.utilization < 1:
        parts.append(
            f"For arrivals {1 / room.utilization:.3g} times as fast, the least is {replicas(size.at_peak or 0)}."
        )
    if room.spare:
        parts.append(f"{replicas(room.spare)} of the {size.replicas} may fail.")
    return " ".join(parts)


def _routing(need: FleetNeed) -> str:
    """Return whether routing is why fewer replicas would do; nothing where they would not."""
    if need.alike is None:
        return ""
    keeps, is_not = ("keeps these times too", "not ") if need.alike else ("does not keep these times", "")
    return f"On {need.size.replicas}, {need.today} {keeps}: routing is {is_not}the reason."


def _looked_at(need: FleetNeed) -> str:
    part = need.part
    basis = (
        "the whole trace"
        if part.whole
        else f"the busiest {part.requests:,} requests ({part.times_mean:.2f} times the mean rate of tokens)"
    )
    return f"This is a timed simulation of {basis}. `prefixroute size` answers for other times."


def _expectation(advice: Advice) -> Iterator[str]:
    """Yield what to expect of the advised policy, and what that rests on."""
    row = advice.row
    waiting = "prefill alone" if row.queue_mean_s is None else "waiting included"
    if not advice.lifetimes:
        yield (
            f"Expected: {percent(row.recompute_ratio)} of prompt tokens computed (no routing can go below "
            f"{percent(row.floor or 0)}), TTFT {duration(row.ttft_p50_s)} median and {duration(row.ttft_p99_s)} p99 "
            f"({waiting}), ${usd(row.usd_per_million_requests_busiest)} of prefill per million requests ({BUSIEST}, "
            f"with {prefill_skew(row):.2f} x the mean of prefill time)."
        )
    names = [item.name for item in defaults(BEHIND | TIMED if advice.need else BEHIND, advice.comparison.assumptions)]
    if names:
        yield f"ASSUMED behind these figures: {', '.join(names)}."


def _rate(advice: Advice) -> str:
    invented = ", ".join(item.name for item in defaults(RATE, advice.comparison.assumptions))
    return f"an assumed rate (ASSUMED {invented})" if invented else "the workload's rate"


def _flip(flip: Flip) -> str:
    value = "unlimited" if flip.value is None else f"{flip.value:,.6g}"
    units = {"capacity": " tokens per replica", "price": " $ per GPU and hour"}
    changed = f"{flip.setting} {value}{'' if flip.value is None else units.get(flip.setting, '')}"
    advised = f"would be {flip.policy}" if flip.flips else f"stays {flip.policy}"
    return (
        f"{changed}: {advised}, {percent(flip.recompute_ratio)} recomputed, ${usd(flip.usd_per_million_requests_busiest)} per "
        "million requests"
    )
