"""Checks of caches: whether they are on, large enough, kept long enough, and reused as much as they could be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from prefixroute.lint.case import Case
from prefixroute.lint.rules import LintFinding, found

MATERIAL = 0.02
"""Share of prompt tokens, or of cost, below which a difference is not worth a finding."""
REACHED = 0.8
"""Share of the possible reuse from which on a log has reached it: estimates of tokens are no better."""


def lifetime(case: Case) -> Iterator[LintFinding]:
    """Yield whether another lifetime would cost less."""
    plan, asked = case.plan, case.lifetime
    if plan is None or asked is None:
        return
    now, best = plan.total.kept[asked.name], plan.total.best
    saved = now.usd - best.usd
    if saved <= MATERIAL * now.usd:
        return
    if best is plan.total.uncached:
        month = case.usd_monthly(saved)
        yield found("written-for-nothing", usd_per_month=month, lifetime=asked.name, ratio=plan.total.ratio(now))
    else:
        yield found(
            "lifetime",
            usd_per_month=case.usd_monthly(saved),
            lifetime=asked.name,
            ratio=plan.total.ratio(now),
            best=best.lifetime,
            best_ratio=plan.total.ratio(best),
        )


def cache_off(case: Case) -> Iterator[LintFinding]:
    """Yield engines whose prefix cache is off, and bodies without breakpoints at a provider that needs them."""
    lost = case.ideal_ratio * case.statistics.prompt_tokens
    engines = case.settings.engines
    for engine in engines:
        if engine.prefix_caching is False and case.ideal_ratio > MATERIAL:
            share = lost / len(engines)
            yield found("cache-off", usd_per_month=case.monthly(share), engine=engine.name, ratio=case.ideal_ratio)
    plan, model = case.plan, case.model
    if plan is None or model is None or model.mode().kind != "marks" or not case.entries:
        return
    saved = plan.total.uncached.usd - plan.total.best.usd
    if not any(entry.marked for entry in case.entries) and saved > 0:
        yield found(
            "no-marks",
            usd_per_month=case.usd_monthly(saved),
            line=case.entries[0].line,
            bodies=len(case.entries),
            model=model.id,
            best=plan.total.best.lifetime,
            ratio=plan.total.ratio(plan.total.best),
        )


def cache_too_small(case: Case) -> Iterator[LintFinding]:
    """Yield whether all engines' caches together hold less than the log reuses."""
    sizes = [engine.capacity_tokens for engine in case.settings.engines if engine.capacity_tokens is not None]
    if not sizes or case.model is not None:
        return
    total = sum(sizes)
    ratio = float(case.statistics.hit_ratios_of_cache(np.array([total]))[0])
    ideal = case.statistics.ideal_hit_ratio
    if ideal - ratio > MATERIAL:
        lost = (ideal - ratio) * case.statistics.prompt_tokens
        yield found(
            "cache-too-small",
            usd_per_month=case.monthly(lost),
            capacity=total,
            engines=len(sizes),
            ratio=ratio,
            ideal=ideal,
        )


def miss_diagnosed(case: Case) -> Iterator[LintFinding]:
    """Yield each reason for which the provider says that it missed, the most frequent first."""
    told = [(entry.diagnosis, entry.line) for entry in case.entries if entry.diagnosis is not None]
    counts = Counter(diagnosis.reason for diagnosis, _ in told)
    for reason, count in counts.most_common():
        missed = sum(diagnosis.missed_tokens or 0 for diagnosis, _ in told if diagnosis.reason == reason)
        line = next(line for diagnosis, line in told if diagnosis.reason == reason)
        yield found(
            "miss-diagnosed",
            usd_per_month=case.monthly(missed * case.statistics.requests / len(case.entries)),
            line=line,
            reason=reason,
            count=count,
            responses=len(case.entries),
            missed_tokens=missed,
        )


def reuse_not_reached(case: Case) -> Iterator[LintFinding]:
    """Yield whether the log reports far fewer cached tokens than could be reused, or none at all."""
    statistics = case.statistics
    if not statistics.reported_requests or not statistics.reported_prompt_tokens:
        return
    reported = statistics.reported_hit_tokens / statistics.reported_prompt_tokens
    ideal = case.ideal_ratio
    if ideal - reported > MATERIAL and reported < REACHED * ideal:
        lost = (ideal - reported) * statistics.prompt_tokens
        if not statistics.reported_hit_tokens:
            yield found(
                "no-hits-reported", usd_per_month=case.monthly(lost), requests=statistics.reported_requests, ideal=ideal
            )
            return
        yield found("reuse-not-reached", usd_per_month=case.monthly(lost), reported=reported, ideal=ideal)
