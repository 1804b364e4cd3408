"""Checks of a log and its settings: what stands in the way of prefix caches, what it costs, how to fix it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prefixroute.costmodel import Assumption, CostModel
from prefixroute.lint import caches, fleet, prompts
from prefixroute.lint.case import Case
from prefixroute.lint.log import LogEntry, read_entries
from prefixroute.lint.rules import ERROR, LEVELS, NOTE, RULES, WARNING, LintFinding, LintRule
from prefixroute.lint.settings import ApiSettings, LintSettings, RouterSettings, ServingSettings
from prefixroute.plan.burst import figures_assumed
from prefixroute.providers import Model
from prefixroute.workload import Workload

CHECKS: tuple[Callable[[Case], Iterator[LintFinding]], ...] = (
    prompts.volatile_head,
    prompts.prefix_too_short,
    prompts.reordered,
    caches.lifetime,
    caches.cache_off,
    caches.cache_too_small,
    caches.miss_diagnosed,
    caches.reuse_not_reached,
    fleet.hash_seeds,
    fleet.routers,
    fleet.keys,
    fleet.workspaces,
    fleet.binding,
)
"""Every check, in the order in which what they find should be fixed."""


@dataclass(frozen=True, slots=True)
class LintReport:
    """What was found.

    Attributes:
        log: the log's name.
        findings: the gravest first, then the most expensive.
        requests: of the log.
        span_s: seconds from its first request to its last, whose rate dollars a month take for the whole month.
        bodies: request bodies that could be looked at.
        assumptions: figures behind the dollars.
        notes: of the log.
    """

    log: str
    findings: tuple[LintFinding, ...]
    requests: int
    span_s: float
    bodies: int
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]

    def worst(self) -> str | None:
        """Return the gravest level of a finding, or None if there is none."""
        return max((one.rule.level for one in self.findings), key=LEVELS.index, default=None)

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        return {
            "log": self.log,
            "requests": self.requests,
            "span_s": self.span_s,
            "bodies": self.bodies,
            "worst": self.worst(),
            "findings": [finding.to_dict() for finding in self.findings],
        }


def lint(
    workload: Workload,
    *,
    entries: Sequence[LogEntry] = (),
    settings: LintSettings | None = None,
    model: Model | None = None,
    cost: CostModel | None = None,
) -> LintReport:
    """Run every check.

    Args:
        workload: the log.
        entries: its request bodies, see :func:`read_entries`; without them prompts are not checked.
        settings: of engines, router and API.
        model: the model of an API; without it, engines of one's own are taken to serve the log.
        cost: prices of one's own engines.

    Returns:
        The findings, the gravest first and then the most expensive.

    Raises:
        TraceError: a bad line, or no request.
        ConfigError: settings name a lifetime that the model has not.
    """
    case = Case(workload, entries, settings or LintSettings(), model, cost or CostModel())
    findings = [finding for check in CHECKS for finding in check(case)]
    findings.sort(key=lambda one: (-LEVELS.index(one.rule.level), -(one.usd_per_month or 0.0)))
    figures = case.cost.assumptions if model is None else figures_assumed(model)
    return LintReport(
        workload.name,
        tuple(findings),
        case.statistics.requests,
        case.statistics.span_s,
        len(entries),
        (*workload.assumptions, *figures),
        workload.notes,
    )


__all__ = [
    "CHECKS",
    "ERROR",
    "LEVELS",
    "NOTE",
    "RULES",
    "WARNING",
    "ApiSettings",
    "Case",
    "LintFinding",
    "LintReport",
    "LintRule",
    "LintSettings",
    "LogEntry",
    "RouterSettings",
    "ServingSettings",
    "lint",
    "read_entries",
]
