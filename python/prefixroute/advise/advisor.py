"""The advisor: measures, walks the decision tree, and takes the simplest policy that noise and price allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from prefixroute.advise import findings, sensitivity, tree
from prefixroute.advise.advice import NO_ROUTER, Advice, Finding, Saving
from prefixroute.advise.backtest import Backtest, backtest
from prefixroute.advise.choice import AWARE, MATERIAL, METRIC, ROUND_ROBIN, candidates, choose
from prefixroute.advise.compare import Comparison, compare_scenarios
from prefixroute.advise.fleet import in_time, smaller_fleet
from prefixroute.advise.profile import Profile, profile
from prefixroute.advise.stages import Stages
from prefixroute.costmodel import CostModel
from prefixroute.costmodel.cost import HOURS_PER_MONTH
from prefixroute.sim import Row, Scenario
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import assumed
from prefixroute.sim.tasks import Report, Source, open_source
from prefixroute.workload import Workload

SIZINGS = 6
"""Runs that the search for a smaller fleet takes, about."""
LOAD_PARTS = 60
"""Parts of a run for which the load of the fleet is kept, for the page."""
BACKTESTS = 13
"""Runs that a backtest takes, at most: of what is said, and of three policies at four capacities."""
OTHERS = ("sglang-balanced", "smg-2026-08", "dynamo")
"""Other routers, by their presets, that stand beside every advice."""
HOUR_S = 3_600
MILLION = 1_000_000
_URGENCY = {"fix first": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What advice is sought for.

    Args:
        scenario: the fleet and all that is simulated of it; its policy is not used. With an engine, in time.
        current: the policy in use, if there is one: savings are against it, and the backtest assumes it.
        policies: further policies and presets to compare; ``None`` = :data:`OTHERS`.
        vary: figures to change, to see whether the advice stands: ``capacity``, ``price``, ``replicas``.
        seeds: runs of each policy.

    Raises:
        ConfigError: something to vary that cannot be.
    """

    scenario: Scenario = Scenario()  # noqa: RUF009 - frozen
    current: AnyPolicy | None = None
    policies: Sequence[AnyPolicy] | None = None
    vary: Sequence[str] = ()
    seeds: int = 3

    def __post_init__(self) -> None:
        """Check what is varied."""
        sensitivity.check(self.vary)

    @property
    def variants(self) -> int:
        """How many fleets the figures to vary make."""
        return sum(1 for setting in self.vary for _ in sensitivity.variants(setting, self.scenario))

    @property
    def further(self) -> list[AnyPolicy]:
        """Policies to compare beside the advisor's own."""
        further = OTHERS if self.policies is None else self.policies
        return [*([] if self.current is None else [self.current]), *further]


def advise(
    source: Source,
    question: Question | None = None,
    *,
    cost: CostModel | None = None,
    jobs: int = 1,
    progress: Report | None = None,
) -> Advice:
    """Advise on how to route a workload.

    Args:
        source: a workload, or a function from a seed to one.
        question: the fleet, and what is known of it.
        cost: prices and seconds.
        jobs: processes, see :func:`~prefixroute.sim.tasks.run_tasks`.
        progress: told the share of all runs that is done, and what is being run.

    Raises:
        ConfigError: what the parts refuse.
        TraceError: a bad line of a trace that was not checked when it was opened.
    """
    inquiry = _Inquiry(source, question or Question(), cost or CostModel(), jobs, progress)
    return inquiry.advice()


class _Inquiry:
    """A question under way: the traffic's facts, the policies that were run on it, and the one that is taken."""

    def __init__(self, source: Source, asked: Question, cost: CostModel, jobs: int, progress: Report | None) -> None:
        self.source, self.asked, self.cost, self.jobs = source, asked, cost, jobs
        self.base = base = asked.scenario
        self.workload = open_source(source, 1)
        self.facts = profile(self.workload)
        self.inferred = any("inferred" in note for note in self.workload.notes)
        match = findings.other_match(self.facts) if base.replicas > 1 else None
        self.scenarios = candidates(self.facts, base, asked.further, match)
        self.work = Stages(progress, _length(asked, self.facts, self.scenarios))
        self.comparison = self.compare(self.scenarios, len(self.scenarios) * (asked.seeds + 1), infinite=True)
        self.chosen = choose(self.comparison, keys=not self.inferred)
        self.scenario = next(one for one in self.scenarios if one.policy_name == self.chosen)

    def compare(self, scenarios: list[Scenario], runs: int, *, infinite: bool = False) -> Comparison:
        """Run scenarios; ``runs`` is about how many that takes."""
        return compare_scenarios(
            self.source,
            scenarios,
            seeds=self.asked.seeds,
            metric=METRIC,
            among=[one.policy_name for one in scenarios if one.policy not in OTHERS],
            infinite=infinite,
            cost=self.cost,
            jobs=self.jobs,
            progress=self.work.runs(runs),
            load_parts=LOAD_PARTS if infinite else 0,
        )

    def advice(self) -> Advice:
        """Look for what else there is to say, and join it all."""
        asked, base, facts, chosen = self.asked, self.base, self.facts, self.chosen
        tested = _tested(self.workload, asked, self.cost, self.work) if facts.reported else None
        policy = chosen if base.replicas > 1 else NO_ROUTER
        found = [*self._findings(policy), *findings.agreement(tested), *self._fronts(), *self._fleet()]
        comparison = self.comparison
        return Advice(
            workload=self.workload.name,
            replicas=base.replicas,
            policy=policy,
            parameters=_parameters(self.scenario.policy),
            because=tree.because(comparison, chosen, base.replicas),
            margin=tree.margin(comparison, chosen),
            row=comparison.row(chosen),
            saving=_saving(facts, comparison, chosen, asked),
            steps=tuple(tree.walk(facts, comparison, chosen, base.replicas)),
            findings=tuple(sorted(found, key=lambda finding: _URGENCY[finding.severity])),
            profile=facts,
            comparison=comparison,
            backtest=tested,
            sensitivity=tuple(sensitivity.vary(asked.vary, base, self.cost.usd_per_gpu_hour, self._decide)),
        )

    def _findings(self, policy: str) -> Iterator[Finding]:
        """Yield what the facts and the comparison tell."""
        facts, comparison, chosen = self.facts, self.comparison, self.chosen
        yield from findings.facts(facts, self.workload)
        yield from findings.coincidence(comparison)
        yield from findings.volatile(self.workload, facts)
        yield from findings.measured(comparison.row(chosen), self.scenario)
        yield from findings.keys(facts, policy, inferred=self.inferred)
        yield from self._matches()
        yield from findings.faster(comparison, chosen)
        yield from findings.noise(comparison)
        yield from findings.elsewhere(comparison)

    def _matches(self) -> Iterator[Finding]:
        """Judge the other minimum match, where one was tried: it must be cheaper, materially and beyond the noise."""
        names = ((one, one.policy_name) for one in self.scenarios)
        pair = [one for one, name in names if name == AWARE or name.startswith(f"{AWARE}, ")]
        if len(pair) < 2:  # noqa: PLR2004
            return
        rows = (self.comparison.row(one.policy_name) for one in pair)
        default, other = (row.usd_per_million_requests_busiest for row in rows)
        name = pair[1].policy_name
        better = other < default * (1 - MATERIAL) and self.compare(pair, 2 * self.asked.seeds).winner == name
        yield findings.minimum_match(self.facts, self.comparison, name, better=better)

    def _fronts(self) -> Iterator[Finding]:
        """Try several routers behind either front."""
        if self.base.routers > 1 and self.base.replicas > 1 and self.facts.keyless < 1.0:
            compared = self.compare(findings.both_fronts(self.scenario), 2 * self.asked.seeds)
            yield findings.fronts(compared, self.base.routers)

    def _fleet(self) -> Iterator[Finding]:
        """Look for a smaller fleet, in time; what that rests on joins the assumptions."""
        if self.base.replicas == 1 or self.facts.span_s <= 0:
            return
        today = ROUND_ROBIN if self.asked.current is None else self.asked.current
        told = self.work.runs(SIZINGS)
        yield smaller_fleet(self.workload, self.scenario, today, cost=self.cost, progress=told)
        known = {item.name for item in self.comparison.assumptions}
        more = tuple(item for item in assumed(in_time(self.base, self.cost)) if item.name not in known)
        self.comparison = replace(self.comparison, assumptions=(*self.comparison.assumptions, *more))

    def _decide(self, fleet: Scenario) -> tuple[str, Row]:
        """Return what would be advised for another fleet."""
        compared = self.comparison
        if fleet is not self.base:
            others = candidates(self.facts, fleet, self.asked.further)
            compared = self.compare(others, len(others) * self.asked.seeds)
        best = choose(compared, keys=not self.inferred)
        return (best if fleet.replicas > 1 else NO_ROUTER), compared.row(best)


def _parameters(policy: AnyPolicy) -> Mapping[str, Any]:
    """Return the parameters of a policy object that differ from their defaults."""
    if isinstance(policy, str) or not is_dataclass(policy):
        return {}
    named = {field.name: field.default for field in fields(policy)}
    return {name: getattr(policy, name) for name, usual in named.items() if getattr(policy, name) != usual}


def _length(asked: Question, facts: Profile, scenarios: Sequence[Scenario]) -> int:
    """Return how many runs an answer takes, about: for whoever waits."""
    own = len(scenarios) * (asked.seeds + 1) + 2 * asked.seeds * (len(scenarios) > 1)
    fronts = 2 * asked.seeds * (asked.scenario.routers > 1)
    return (
        own
        + fronts
        + SIZINGS * (facts.span_s > 0)
        + BACKTESTS * bool(facts.reported)
        + len(scenarios) * asked.seeds * asked.variants
    )


def _tested(workload: Workload, asked: Question, cost: CostModel, work: Stages) -> Backtest:
    """Backtest; without a current policy, look for one that explains the log."""
    search = () if asked.current is not None else (ROUND_ROBIN, "least-loaded", "cache-aware")
    given = asked.scenario.given
    if asked.current is not None and given is not None:
        given |= {"policy"}
    scenario = replace(asked.scenario, policy=asked.current or ROUND_ROBIN, label="", given=given)
    return backtest(workload, scenario, search=search, cost=cost, progress=work.runs(BACKTESTS))


def _saving(facts: Profile, comparison: Comparison, chosen: str, asked: Question) -> Saving | None:
    """Price the way from the current policy, or from round robin, to the chosen one; None if that is no way."""
    current = asked.current
    against = ROUND_ROBIN if current is None else replace(asked.scenario, policy=current, label="").policy_name
    if against == chosen:
        return None
    before, after = (comparison.row(name).usd_per_million_requests_busiest for name in (against, chosen))
    rate = facts.requests_per_s
    month = None if rate is None else (before - after) * rate * HOUR_S * HOURS_PER_MONTH / MILLION
    return Saving(against, before - after, (before - after) / before if before else 0.0, month)
