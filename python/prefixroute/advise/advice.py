"""Advice as data: what to do, the questions that led there with their measured answers, and what else was found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from prefixroute.advise.backtest import Backtest
from prefixroute.advise.choice import CURRENT, prefill_skew
from prefixroute.advise.compare import Comparison
from prefixroute.advise.profile import Profile
from prefixroute.advise.times import duration, unit_of
from prefixroute.costmodel.assumption import MONEY, SECONDS, SHARES, TIMED, defaults, on_defaults
from prefixroute.sim.metrics import Row
from prefixroute.sim.sweep import SCHEMA, assumptions_dict

Severity = Literal["fix first", "warning", "note"]
NO_ROUTER = "none"
"""Name of the advice to use no router at all."""
BUSIEST = "busiest replica"
"""The basis of all dollars of an advice: prefill is bought for every replica as for the busiest."""
RATE = frozenset({"sessions_per_hour", "requests_per_day"})
"""Assumptions that the rate of requests rests on, and with it dollars a month."""
BEHIND = MONEY | RATE | {"replicas", CURRENT, "bytes_per_token"}
"""Assumptions that the figures of an advice rest on."""
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

    @property
    def changed(self) -> str:
        """What is changed to what, as people say it: ``capacity 150,000 tokens a replica``."""
        value = "unlimited" if self.value is None else f"{self.value:,.6g}"
        units = {"capacity": " tokens a replica", "price": " $ per GPU and hour"}
        return f"{self.setting} {value}{'' if self.value is None else units.get(self.setting, '')}"


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
class Remedy:
    """What mending the prompts gives, before any routing.

    Attributes:
        kind: of the finding that says what is to be mended.
        recompute_ratio: prompt tokens computed again now, with the policy in use.
        recompute_ratio_fixed: the same with mended prompts: simulated with ``policy``, or the floor where there is none.
        policy: what to route with then; None where the trace has no text to mend, so that it was not simulated.
        usd_per_million_requests: prefill saved, by the busiest replica; None as for ``policy``.
        usd_per_month: the same; None where nobody knows the rate, too.
    """

    kind: str
    recompute_ratio: float
    recompute_ratio_fixed: float
    policy: str | None = None
    usd_per_million_requests: float | None = None
    usd_per_month: float | None = None

    def text(self, rate: str) -> str:
        """Return it as a sentence; ``rate`` says whose rate a month has."""
        saved = ""
        if self.usd_per_million_requests is not None:
            month = "" if self.usd_per_month is None else f", ${self.usd_per_month:,.0f} a month at {rate}"
            saved = f", which saves ${self.usd_per_million_requests:,.2f} of prefill per million requests{month} ({BUSIEST})"
        routed = "" if self.policy is None else f" with {self.policy}"
        return (
            f"Fix the prompt first (see [fix first] below): {100 * self.recompute_ratio:.1f} % of the prompt tokens computed "
            f"again become {100 * self.recompute_ratio_fixed:.1f} %{routed}{saved}. No routing can do that."
        )


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
        remedy: what mending the prompts gives, where that comes before routing.
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
    remedy: Remedy | None = None

    @property
    def verdict(self) -> str:
        """What to do, in a line: what comes first comes first."""
        given = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        chosen = "no router" if self.policy == NO_ROUTER else self.policy + (f" ({given})" if given else "")
        if self.remedy is not None:
            then = self.remedy.policy or self.policy
            now = "" if then == self.policy else f"; until then {chosen}"
            return f"fix the prompt first, then {chosen if not now else then}{now}"
        found = self.fleet_first
        if found is None or self.policy == NO_ROUTER:
            return chosen
        if found.evidence["overloaded"]:
            return f"{chosen}; but {self.fleet} cannot keep up"
        enough = found.evidence["replicas"]
        return (
            f"{chosen}; but {'1 replica would do, without a router' if enough == 1 else f'{enough} replicas would do'}"
        )

    @property
    def fleet(self) -> str:
        """The fleet advised on, as people say it."""
        return f"{self.replicas} replica{'s' * (self.replicas != 1)}"

    @property
    def fleet_first(self) -> Finding | None:
        """The finding that the fleet cannot keep up, or that fewer replicas would do; None where neither was found."""
        found = next((one for one in self.findings if one.kind == "fleet-size"), None)
        if found is None:
            return None
        enough = found.evidence["replicas"]
        return found if found.evidence["overloaded"] or (isinstance(enough, int) and enough < self.replicas) else None

    @property
    def agreement(self) -> tuple[str, ...]:
        """How far the simulation can be believed, which comes before all else: its hits beside those that the log reports."""
        return () if self.backtest is None else tuple(self.backtest.text().splitlines())

    @property
    def opening(self) -> tuple[str, ...]:
        """What is said first, as sentences: what comes before routing, why this policy, and what it saves."""
        lines = [] if self.remedy is None else [self.remedy.text(self._rate)]
        lines += [] if self.fleet_first is None else [self.fleet_first.text]
        return (*lines, self.because, *([] if self.saving is None else [self._against(self.saving)]), self.margin)

    @property
    def expectation(self) -> tuple[str, ...]:
        """What to expect of the advised policy, and what that rests on, as sentences."""
        row = self.row
        if row is None:
            return ()
        waiting = "prefill alone" if row.queue_mean_s is None else "waiting included"
        expected = (
            f"Expected: {100 * row.recompute_ratio:.1f} % of prompt tokens computed again (no routing can go below "
            f"{100 * (row.floor or 0):.1f} %), TTFT {duration(row.ttft_p50_s)} median and {duration(row.ttft_p99_s)} p99 "
            f"({waiting}), ${row.usd_per_million_requests_busiest:,.2f} of prefill per million requests ({BUSIEST}, "
            f"with {prefill_skew(row):.2f} x the mean of prefill time)."
        )
        sized = any(one.kind == "fleet-size" for one in self.findings)  # in time, whatever the rest was
        names = [item.name for item in defaults(BEHIND | TIMED if sized else BEHIND, self.comparison.assumptions)]
        return (expected, *([f"ASSUMED behind these figures: {', '.join(names)}."] if names else []))

    @property
    def remaining(self) -> tuple[Finding, ...]:
        """The findings that the opening has not told yet."""
        return tuple(one for one in self.findings if one is not self.fleet_first)

    @property
    def _rate(self) -> str:
        invented = ", ".join(item.name for item in defaults(RATE, self.comparison.assumptions))
        return f"a rate that nobody gave (ASSUMED {invented})" if invented else "the workload's rate"

    def _against(self, saving: Saving) -> str:
        month = saving.usd_per_month
        monthly = "" if month is None else f", ${abs(month):,.0f} a month at {self._rate}"
        return (
            f"Against {saving.against}: {saving.less} prefill capacity, "
            f"${abs(saving.usd_per_million_requests):,.2f} per million requests{monthly} ({BUSIEST})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``advise --json``."""
        return {
            "schema": SCHEMA,
            "workload": self.workload,
            "replicas": self.replicas,
            "advice": {
                "verdict": self.verdict,
                "policy": self.policy,
                "parameters": dict(self.parameters),
                "because": self.because,
                "margin": self.margin,
                "expected": None if self.row is None else self.row.to_dict(),
                "saving": None if self.saving is None else _fields(self.saving),
                "fix_first": None if self.remedy is None else _fields(self.remedy),
            },
            "backtest": None if self.backtest is None else self.backtest.to_dict(),
            "steps": [_fields(step) for step in self.steps],
            "findings": [_fields(finding) for finding in self.findings],
            "sensitivity": [_fields(flip) for flip in self.sensitivity],
            "profile": self.profile.to_dict(),
            "comparison": self.comparison.to_dict(),
            "assumptions": assumptions_dict(self.comparison.assumptions),
            "notes": list(self.comparison.notes),
        }

    def to_json(self) -> str:
        """Return the object as text. Same inputs, same bytes."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def text(self) -> str:
        """Return the report: the answer first, then why, then what to look at, in plain lines."""
        headline = f"Advice for {self.workload} on {self.fleet}: {self.verdict}."
        parts = [
            *self.agreement,
            headline,
            *filter(None, self.opening),
            *self.expectation,
            "",
            "Why",
            *_steps(self.steps),
        ]
        if self.remaining:
            parts += ["", "Also found"]
            parts += [f"  [{finding.severity}] {finding.text}" for finding in self.remaining]
        parts += ["", f"Compared ({VERDICT_BY})", *_table(self.comparison), "", *_times(self.comparison)]
        if self.sensitivity:
            parts += ["", "What would change this", *(_flip(flip) for flip in self.sensitivity)]
        if self.comparison.notes:
            parts += ["", "Notes", *(f"  {note}" for note in self.comparison.notes)]
        assumed = [item for item in self.comparison.assumptions if item.assumed]
        parts += ["", "Assumed (nobody gave these)", *(f"  {item}" for item in assumed)]
        return "\n".join(parts) + "\n"


def _fields(value: Any) -> dict[str, Any]:
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
    return {name: dict(item) if isinstance(item, Mapping) else item for name, item in fields.items()}


def _steps(steps: tuple[Step, ...]) -> list[str]:
    return [f"  {number}. {step.question} {step.answer}" for number, step in enumerate(steps, 1)]


def _table(comparison: Comparison) -> list[str]:
    width = max(len(row.policy) for row in comparison.rows) + 2
    share, time, money = (
        "ASSUMED" if on_defaults(names, comparison.assumptions) else "" for names in (SHARES, SECONDS, MONEY)
    )
    lines = [
        f"  {'policy':<{width}}{'recompute':>10}{'unlimited':>11}{'skew':>7}{'TTFT p50':>11}{'TTFT p99':>11}{'$/M, busiest':>14}  verdict"
    ]
    if money:
        lines.append(f"  {'':<{width}}{share:>10}{'':>18}{time:>11}{time:>11}{money:>14}")
    for row in comparison.rows:
        infinite = row.recompute_ratio_infinite
        unlimited = "" if infinite is None else f"{100 * infinite:.1f}%"
        lines.append(
            f"  {row.policy:<{width}}{100 * row.recompute_ratio:>9.1f}%{unlimited:>11}{row.skew:>7.2f}{duration(row.ttft_p50_s):>11}"
            f"{duration(row.ttft_p99_s):>11}{row.usd_per_million_requests_busiest:>14,.2f}  {comparison.judgement(row.policy)}"
        )
    return lines


def _times(comparison: Comparison) -> list[str]:
    """Return how far each policy's times to first token are from the reference's, with intervals."""
    others = [one for one in comparison.differences if one.policy != comparison.reference]
    if not others:
        return []
    shown = {"mean": "ttft_mean_s", "p50": "ttft_p50_s", "p90": "ttft_p90_s", "p99": "ttft_p99_s"}
    units = {field: unit_of(getattr(one, field).value for one in others) for field in shown.values()}
    heads = ["policy", *(f"{name}, {units[field].name}" for name, field in shown.items())]
    rows = [
        [one.policy, *(getattr(one, field).text(unit.per_second) for field, unit in units.items())] for one in others
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [
        "  ".join(
            [f"{first:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))]
        )
        for first, *rest in (heads, *rows)
    ]
    return [
        f"Time to first token, more than {comparison.reference} (95 % intervals over {comparison.clusters:,} sessions)",
        *(f"  {line}" for line in lines),
    ]


def _flip(flip: Flip) -> str:
    change = f"would be {flip.policy}" if flip.flips else f"stays {flip.policy}"
    return (
        f"  {flip.changed}: {change}, {100 * flip.recompute_ratio:.1f} % recomputed, "
        f"${flip.usd_per_million_requests_busiest:,.2f} per million requests"
    )
