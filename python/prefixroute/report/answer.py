"""Advice in sentences: the headline, what comes first, why, what to expect. One answer for text, page and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prefixroute.advise import NO_ROUTER, Advice, Flip, Remedy, Saving
from prefixroute.advise.choice import CURRENT, METRIC, prefill_skew
from prefixroute.advise.finding import Finding
from prefixroute.advise.fleet import MOST_TIMES
from prefixroute.costmodel.assumption import TIMED, defaults
from prefixroute.report.backtests import backtest_lines
from prefixroute.report.basis import BEHIND, BUSIEST, mark, rate
from prefixroute.report.figures import percent, replicas, usd
from prefixroute.report.needs import fewer, leads, needed, saved_by_policy
from prefixroute.report.reasons import advised, because, margin
from prefixroute.report.sentences import finding
from prefixroute.report.steps import step
from prefixroute.report.times import duration
from prefixroute.routing import DEFAULT_LOAD

TOLD_IN_THE_OPENING = frozenset({"fleet-size"})
"""Findings that the opening says."""


@dataclass(frozen=True, slots=True)
class AdviceAnswer:
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


def answer(advice: Advice) -> AdviceAnswer:
    """Return an advice in sentences.

    Args:
        advice: of :func:`~prefixroute.advise.advise`.
    """
    return AdviceAnswer(
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
        return f"{kept}; {fewer(advice, need)}{saved_by_policy(advice, need)}"
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


def _opening(advice: Advice) -> Iterator[str]:
    """Yield what is said first."""
    if advice.lifetimes:
        yield from _api(advice)
        return
    if advice.remedy is not None:
        yield _remedy(advice.remedy, rate(advice))
    need = None if advice.need is None else needed(advice, advice.need)
    first = need is not None and leads(advice)
    if need is not None and first:
        yield need
    yield because(advice)
    if advice.saving is not None:
        yield _saving(advice, advice.saving)
    if need is not None and not first:
        yield need
    nearest = margin(advice)
    if nearest:
        yield nearest


def _api(advice: Advice) -> Iterator[str]:
    kept = "; ".join(f"{percent(one.recompute_ratio)} if kept for {duration(one.seconds)}" for one in advice.lifetimes)
    floor = advice.row.floor or 0.0
    yield (
        f"Prompt tokens that are computed, by how long the API keeps a prefix after its last use: {kept}; "
        f"{percent(floor)} if for ever."
    )
    yield (
        "Send one of the calls that share a prefix first, so that its cache entry exists, and the others in parallel "
        "after it. `prefixroute plan` orders them."
    )


def _remedy(remedy: Remedy, rate: str) -> str:
    saved = ""
    if remedy.usd_per_million_requests is not None:
        month = "" if remedy.usd_per_month is None else f", ${remedy.usd_per_month:,.0f} a month at {rate}"
        saved = (
            f", which saves ${usd(remedy.usd_per_million_requests)} of prefill per million requests{month} ({BUSIEST})"
        )
    routed = "" if remedy.policy is None else f" with {remedy.policy}"
    return (
        f"Fix the prompt first (see [fix first] below): {percent(remedy.recompute_ratio)} of the prompt tokens "
        f"computed become {percent(remedy.recompute_ratio_fixed)}{routed}{saved}. No routing can do that."
    )


def _saving(advice: Advice, saving: Saving) -> str:
    month = saving.usd_per_month
    monthly = "" if month is None else f", ${abs(month):,.0f} of prefill a month at {rate(advice)}"
    less = f"{100 * abs(saving.share):.0f} % {'more' if saving.share < 0 else 'less'}"
    told_apart = advice.comparison.gap(advice.row.policy, saving.against, METRIC).excludes_zero
    return (
        f"Against {saving.against}{mark(advice, CURRENT)}: {less} prefill capacity, "
        f"${usd(abs(saving.usd_per_million_requests))} per million "
        f"requests{monthly} ({BUSIEST}{'' if told_apart else '; within the noise'})."
    )


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


def _flip(flip: Flip) -> str:
    value = "unlimited" if flip.value is None else f"{flip.value:,.6g}"
    units = {"capacity": " tokens per replica", "price": " $ per GPU and hour"}
    changed = f"{flip.setting} {value}{'' if flip.value is None else units.get(flip.setting, '')}"
    advised = f"would be {flip.policy}" if flip.flips else f"stays {flip.policy}"
    return (
        f"{changed}: {advised}, {percent(flip.recompute_ratio)} recomputed, "
        f"${usd(flip.usd_per_million_requests_busiest)} per million requests"
    )
