"""Advice as data: what to do, the questions that led there with their numbers, and what else was found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from prefixroute.advise.backtest import Backtest
from prefixroute.advise.choice import Choice
from prefixroute.advise.compare import Comparison
from prefixroute.advise.deployment import Deployment
from prefixroute.advise.finding import Finding, Step
from prefixroute.advise.fleet import FleetNeed
from prefixroute.advise.profile import Profile
from prefixroute.advise.sensitivity import Flip
from prefixroute.costmodel.assumption import on_defaults
from prefixroute.document import SCHEMA, ResultDocument
from prefixroute.sim.metrics import ResultRow
from prefixroute.sim.sweep import assumptions_dict

NO_ROUTER = "none"
"""Name of the advice to use no router at all."""


@dataclass(frozen=True, slots=True)
class Saving:
    """What the advised policy saves against another, in prefill: capacity bought for the busiest replica.

    ``usd_per_month`` is None where the trace spans no time, so that nobody knows its rate.
    """

    against: str
    usd_per_million_requests: float
    share: float
    usd_per_month: float | None


@dataclass(frozen=True, slots=True)
class Remedy:
    """What correcting the prompts gives, before any routing.

    Attributes:
        kind: of the finding that says what is to be corrected.
        recompute_ratio: prompt tokens computed again now, with the policy in use.
        recompute_ratio_fixed: the same with corrected prompts: simulated with ``policy``, or the floor where there is
            none.
        policy: what to route with then; None where the trace has no text to correct, so that it was not simulated.
        usd_per_million_requests: prefill saved, by the busiest replica; None as for ``policy``.
        usd_per_month: the same; None where nobody knows the rate, too.
    """

    kind: str
    recompute_ratio: float
    recompute_ratio_fixed: float
    policy: str | None = None
    usd_per_million_requests: float | None = None
    usd_per_month: float | None = None


@dataclass(frozen=True, slots=True)
class UsualLifetime:
    """What an API that keeps each prefix for so long after its last use computes again."""

    seconds: float
    recompute_ratio: float


@dataclass(frozen=True, slots=True)
class Advice(ResultDocument):
    """The advisor's answer. :mod:`prefixroute.report` turns it into text, a page and the sentences of its JSON.

    Attributes:
        workload: name of the workload.
        replicas: the fleet advised on.
        policy: what to use, or ``none`` for no router.
        in_use: the policy in use, or what is taken to be.
        deployment: the router that was simulated under it; None without a router.
        choice: what was weighed; None without a choice.
        row: expected numbers of the advised policy.
        saving: against the policy in use.
        steps: the decision tree, as far as it was walked.
        findings: what else was found, most urgent first.
        profile: facts of the workload.
        comparison: every policy that was run, against the advised one.
        need: how many replicas the advised policy needs; None where the workload spans no time, or for one replica.
        backtest: agreement with the log, where it reports cached tokens.
        sensitivity: what would change the advice.
        apart: the advised policy on the fleet, timed, and on splits of as many replicas; None unless asked for.
        remedy: what correcting the prompts gives, where that comes before routing.
        lifetimes: what an API would compute again, where the model is behind one.
    """

    workload: str
    replicas: int
    policy: str
    in_use: str
    deployment: Deployment | None
    choice: Choice | None
    row: ResultRow
    saving: Saving | None
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
    profile: Profile
    comparison: Comparison
    need: FleetNeed | None = None
    backtest: Backtest | None = None
    sensitivity: tuple[Flip, ...] = ()
    apart: Comparison | None = None
    remedy: Remedy | None = None
    lifetimes: tuple[UsualLifetime, ...] = ()

    @property
    def is_overloaded(self) -> bool:
        """Whether the fleet, or one of its replicas, cannot keep up under the advised policy.

        Over all, or in the busiest part.
        """
        then = self.need is not None and self.need.then.is_overloaded
        return then or self.comparison.is_overloaded(self.row.policy)

    def assumes(self, name: str) -> bool:
        """Whether a figure behind the advice is a default that nobody gave: ``replicas``, ``current_policy``.

        Args:
            name: of the assumption.

        Returns:
            True if the figure is an assumption, False if it was given or measured.
        """
        return on_defaults(frozenset({name}), self.comparison.assumptions)

    def finding(self, kind: str) -> Finding | None:
        """Return the first finding of a kind.

        Args:
            kind: of the finding, e.g. ``volatile-head``.
        """
        return next((one for one in self.findings if one.kind == kind), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of ``advise --json``; :func:`prefixroute.report.advice_dict` adds the sentences."""
        return {
            "schema": SCHEMA,
            "workload": self.workload,
            "replicas": self.replicas,
            "advice": {
                "policy": self.policy,
                "deploy": None if self.deployment is None else self.deployment.to_dict(),
                "choice": None if self.choice is None else asdict(self.choice),
                "expected": self.row.to_dict(),
                "saving": None if self.saving is None else asdict(self.saving),
                "fix_first": None if self.remedy is None else asdict(self.remedy),
                "fleet": None if self.need is None else self.need.to_dict(),
                "lifetimes": [asdict(one) for one in self.lifetimes],
            },
            "backtest": None if self.backtest is None else self.backtest.to_dict(),
            "steps": [asdict(step) for step in self.steps],
            "findings": [asdict(finding) for finding in self.findings],
            "sensitivity": [asdict(flip) for flip in self.sensitivity],
            **({} if self.apart is None else {"apart": self.apart.to_dict()}),
            "profile": self.profile.to_dict(),
            "comparison": self.comparison.to_dict(),
            "assumptions": assumptions_dict(self.comparison.assumptions),
            "notes": list(self.comparison.notes),
        }
