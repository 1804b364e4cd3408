"""Would a timed simulation of the same traffic advise another policy than an untimed one? Then which, and why."""

from __future__ import annotations

from dataclasses import replace

from prefixroute.advise.choice import METRIC, TTFT
from prefixroute.advise.facts import Facts
from prefixroute.advise.finding import Evidence, Finding
from prefixroute.advise.fleet import timed
from prefixroute.advise.question import Question
from prefixroute.advise.slo import promise_of
from prefixroute.advise.study import How, Study, compare_on
from prefixroute.costmodel import CostModel
from prefixroute.sim import Scenario


def with_clock(asked: Question, cost: CostModel) -> Scenario:
    """Return the fleet that timed advice simulates."""
    return replace(timed(asked.scenario, cost), promise=promise_of(asked.slos))


def other_clock(facts: Facts, study: Study, fleet: Scenario, how: How) -> list[Finding]:
    """Choose again as timed advice does where the study had no clock, though the workload spans time.

    Returns:
        A finding if that is another policy, with both beside each other; else nothing.
    """
    if fleet.engine is not None or fleet.replicas == 1 or facts.profile.span_s <= 0:
        return []
    again = compare_on(facts, with_clock(how.asked, how.cost), how.asked.further, how)
    chosen, other = study.choice.policy, again.choice.policy
    if chosen == other:
        return []
    rejected = {one.policy: one.why for one in again.choice.rejected}
    worse = any(again.comparison.gap(chosen, other, metric).low > 0 for metric in (METRIC, TTFT))
    untimed, row, instead = study.comparison.row(chosen), again.comparison.row(chosen), again.comparison.row(other)
    evidence: Evidence = {
        "policy": chosen,
        "timed": other,
        "why": rejected.get(chosen, "worse" if worse else "noise"),
        "load": study.chosen.load_signal,
        "load_timed": again.chosen.load_signal,
        "skew": untimed.skew,
        "skew_timed": row.skew,
        "skew_instead": instead.skew,
        "recompute_ratio": untimed.recompute_ratio,
        "recompute_ratio_timed": row.recompute_ratio,
        "recompute_ratio_instead": instead.recompute_ratio,
        "ttft_mean_s_timed": row.ttft_mean_s,
        "ttft_mean_s_instead": instead.ttft_mean_s,
        **_costlier(study, chosen, other, "untimed"),
        **_costlier(again, chosen, other, "timed"),
    }
    return [Finding("clock", "warning", evidence)]


def _costlier(study: Study, policy: str, other: str, clock: str) -> dict[str, float | None]:
    """Return how much more a policy costs at its busiest replica, with the interval.

    None where one of them was not run.
    """
    known = {policy, other} <= {row.policy for row in study.comparison.rows}
    gap = study.comparison.gap(policy, other, METRIC) if known else None
    ends = (None,) * 3 if gap is None else (gap.value, gap.low, gap.high)
    return dict(zip((f"usd_{clock}_{end}" for end in ("value", "low", "high")), ends, strict=True))
