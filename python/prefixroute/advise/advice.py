"""Advice as data: what to do, the questions that led there with their measured answers, and what else was found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from prefixroute.advise.backtest import Backtest
from prefixroute.advise.compare import Comparison
from prefixroute.advise.profile import Profile
from prefixroute.costmodel.assumption import MONEY, SECONDS, SHARES, Assumption, on_defaults
from prefixroute.sim.metrics import Row
from prefixroute.sim.sweep import SCHEMA, assumptions_dict

Severity = Literal["fix first", "warning", "note"]
NO_ROUTER = "none"
"""Name of the advice to use no router at all."""
BUSIEST = "busiest replica"
"""The basis of all dollars of an advice: prefill is bought for every replica as for the busiest."""
VERDICT_BY = f"all dollars by the {BUSIEST}: prefill bought for every replica as for the busiest"
"""What decides an advice: recomputing least is not enough if one replica has to do most of it."""


@dataclass(frozen=True, slots=True)
class Step:
    """A question of the decision tree, its answer, and the numbers that the answer rests on."""

    question: str
    answer: str
    evidence: Mapping[str, float | int | str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found on the way: what kind, how urgent, a sentence, and its numbers."""

    kind: str
    severity: Severity
    text: str
    evidence: Mapping[str, float | int | str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flip:
    """A changed assumption, and what would be advised under it."""

    setting: str
    value: float | int | None
    policy: str
    recompute_ratio: float
    usd_per_million_requests_busiest: float
    flips: bool


@dataclass(frozen=True, slots=True)
class Saving:
    """What the advised policy saves against another, in prefill: capacity bought for the busiest replica.

    ``usd_per_month`` is None where the trace spans no time, so that nobody knows its rate.
    """

    against: str
    usd_per_million_requests: float
    share: float
    usd_per_month: float | None

    @property
    def less(self) -> str:
        """The share as people say it: ``8 % less``, ``2 % more``."""
        return f"{100 * abs(self.share):.0f} % {'more' if self.share < 0 else 'less'}"


@dataclass(frozen=True, slots=True)
class Advice:
    """The advisor's answer.

    Attributes:
        workload: name of the workload.
        replicas: the fleet advised on.
        policy: what to use, or ``none`` for no router.
        parameters: those of its parameters that differ from their defaults.
        because: one sentence.
        margin: how sure: the distance of the next policy that is worse, as a sentence.
        row: expected numbers of the advised policy; None without a fleet to route over.
        saving: against the current policy, or round robin where none is named.
        steps: the decision tree, as far as it was walked.
        findings: what else was found, most urgent first.
        profile: facts of the workload.
        comparison: every policy that was run.
        backtest: agreement with the log, where it reports cached tokens.
        sensitivity: what would change the advice.
    """

    workload: str
    replicas: int
    policy: str
    parameters: Mapping[str, Any]
    because: str
    margin: str
    row: Row | None
    saving: Saving | None
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
    profile: Profile
    comparison: Comparison
    backtest: Backtest | None = None
    sensitivity: tuple[Flip, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the object of ``advise --json``."""
        return {
            "schema": SCHEMA,
            "workload": self.workload,
            "replicas": self.replicas,
            "advice": {
                "policy": self.policy,
                "parameters": dict(self.parameters),
                "because": self.because,
                "margin": self.margin,
                "expected": None if self.row is None else self.row.as_dict(),
                "saving": None if self.saving is None else _fields(self.saving),
            },
            "backtest": None if self.backtest is None else self.backtest.as_dict(),
            "steps": [_fields(step) for step in self.steps],
            "findings": [_fields(finding) for finding in self.findings],
            "sensitivity": [_fields(flip) for flip in self.sensitivity],
            "profile": self.profile.as_dict(),
            "comparison": self.comparison.as_dict(),
            "assumptions": assumptions_dict(self.comparison.assumptions),
            "notes": list(self.comparison.notes),
        }

    def to_json(self) -> str:
        """Return the object as text. Same inputs, same bytes."""
        return json.dumps(self.as_dict(), indent=2, allow_nan=False) + "\n"

    def text(self) -> str:
        """Return the report: the answer first, then why, then what to look at, in plain lines."""
        parts = [self._headline(), *self._agreement(), *self._expected(), "", "Why", *_steps(self.steps)]
        if self.findings:
            parts += ["", "Also found"]
            parts += [f"  [{finding.severity}] {finding.text}" for finding in self.findings]
        parts += ["", f"Compared ({VERDICT_BY})", *_table(self.comparison), "", *_times(self.comparison)]
        if self.sensitivity:
            parts += ["", "What would change this", *(_flip(flip) for flip in self.sensitivity)]
        if self.comparison.notes:
            parts += ["", "Notes", *(f"  {note}" for note in self.comparison.notes)]
        assumed = [item for item in self.comparison.assumptions if item.assumed]
        parts += ["", "Assumed (nobody gave these)", *(f"  {item}" for item in assumed)]
        return "\n".join(parts) + "\n"

    def _headline(self) -> str:
        parameters = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        chosen = "no router" if self.policy == NO_ROUTER else self.policy + (f" ({parameters})" if parameters else "")
        return f"Advice for {self.workload} on {self.replicas} replicas: {chosen}.\n{self.because} {self.margin}"

    def _agreement(self) -> list[str]:
        return [self.backtest.text()] if self.backtest is not None else []

    def _expected(self) -> list[str]:
        if self.row is None:
            return []
        row, lines = self.row, []
        waiting = "prefill alone" if row.queue_mean_s is None else "waiting included"
        lines.append(
            f"Expected: {100 * row.recompute_ratio:.1f} % of prompt tokens computed again (no routing can go below "
            f"{100 * (row.floor or 0):.1f} %), TTFT {_seconds(row.ttft_p50_s)} median and {_seconds(row.ttft_p99_s)} p99 "
            f"({waiting}), ${row.usd_per_million_requests_busiest:,.2f} of prefill per million requests ({BUSIEST}, "
            f"with {row.skew:.2f} x the mean)."
        )
        if self.saving is not None:
            month = self.saving.usd_per_month
            monthly = "" if month is None else f", ${abs(month):,.0f} a month at the trace's rate"
            lines.append(
                f"Against {self.saving.against}: {self.saving.less} prefill capacity, "
                f"${abs(self.saving.usd_per_million_requests):,.2f} per million requests{monthly} ({BUSIEST})."
            )
        lines += assumed_behind(self.comparison.assumptions)
        return lines


def assumed_behind(assumptions: Sequence[Assumption]) -> list[str]:
    """Return a line that names the defaults which dollars, seconds and shares rest on; none where all were given."""
    names = [item.name for item in assumptions if item.assumed and item.name in MONEY]
    return [f"ASSUMED behind these figures: {', '.join(names)}."] if names else []


def _fields(value: Any) -> dict[str, Any]:
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
    return {name: dict(item) if isinstance(item, Mapping) else item for name, item in fields.items()}


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


def _steps(steps: tuple[Step, ...]) -> list[str]:
    return [f"  {number}. {step.question} {step.answer}" for number, step in enumerate(steps, 1)]


def _table(comparison: Comparison) -> list[str]:
    width = max(len(row.policy) for row in comparison.rows) + 2
    share, time, money = (
        "ASSUMED" if on_defaults(names, comparison.assumptions) else "" for names in (SHARES, SECONDS, MONEY)
    )
    lines = [
        f"  {'policy':<{width}}{'recompute':>10}{'unlimited':>11}{'skew':>7}{'TTFT p50':>10}{'TTFT p99':>10}{'$/M, busiest':>14}  verdict"
    ]
    if money:
        lines.append(f"  {'':<{width}}{share:>10}{'':>18}{time:>10}{time:>10}{money:>14}")
    for row, difference in zip(comparison.rows, comparison.differences, strict=True):
        infinite = row.recompute_ratio_infinite
        unlimited = "" if infinite is None else f"{100 * infinite:.1f}%"
        lines.append(
            f"  {row.policy:<{width}}{100 * row.recompute_ratio:>9.1f}%{unlimited:>11}{row.skew:>7.2f}{_seconds(row.ttft_p50_s):>10}"
            f"{_seconds(row.ttft_p99_s):>10}{row.usd_per_million_requests_busiest:>14,.2f}  {_VERDICTS[difference.verdict]}"
        )
    return lines


def _times(comparison: Comparison) -> list[str]:
    """Return how far each policy's times to first token are from the reference's, with intervals."""
    if len(comparison.rows) == 1:
        return []
    width = max(len(row.policy) for row in comparison.rows) + 2
    shown = {"mean": "ttft_mean_s", "p50": "ttft_p50_s", "p90": "ttft_p90_s", "p99": "ttft_p99_s"}
    lines = [
        f"Time to first token, ms more than {comparison.reference} (95 % intervals over {comparison.clusters:,} sessions)",
        f"  {'policy':<{width}}{''.join(f'{name:>36}' for name in shown)}",
    ]
    for one in comparison.differences:
        if one.policy != comparison.reference:
            cells = "".join(f"{getattr(one, field).text(1e3):>36}" for field in shown.values())
            lines.append(f"  {one.policy:<{width}}{cells}")
    return lines


_VERDICTS = {"reference": "lowest", "tie": "inside the noise", "worse": "worse", "better": "better"}


def _flip(flip: Flip) -> str:
    value = "unlimited" if flip.value is None else f"{flip.value:,.6g}"
    change = f"would be {flip.policy}" if flip.flips else f"stays {flip.policy}"
    return (
        f"  {flip.setting} {value}: {change}, {100 * flip.recompute_ratio:.1f} % recomputed, "
        f"${flip.usd_per_million_requests_busiest:,.2f} per million requests"
    )
