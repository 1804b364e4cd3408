"""The advisor: measures, walks the decision tree, and takes the simplest policy that noise and price allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from prefixroute.advise import findings, sensitivity, tree
from prefixroute.advise.advice import NO_ROUTER, Advice, Finding, Remedy, Saving
from prefixroute.advise.backtest import Backtest, backtest
from prefixroute.advise.choice import (
    AWARE,
    CURRENT,
    FAR_SLOWER,
    IN_USE,
    MATERIAL,
    METRIC,
    ROUND_ROBIN,
    candidates,
    choose,
    simplicity,
)
from prefixroute.advise.compare import Comparison, compare_scenarios
from prefixroute.advise.fleet import in_time, read, smaller_fleet
from prefixroute.advise.profile import Profile, profile
from prefixroute.costmodel import Assumption, CostModel
from prefixroute.costmodel.cost import HOURS_PER_MONTH
from prefixroute.sim import Row, Scenario
from prefixroute.sim.grid import Source, kept, open_source, seeds_of
from prefixroute.sim.progress import Progress, Work
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import assumed
from prefixroute.workload import Workload

SIZINGS = 6
"""Runs that the search for a smaller fleet takes, about."""
LOOKS = 3
"""Runs in time that a choice takes, about: of what is in use, and of what is chosen."""
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
        current: the policy in use: savings are against it, and the backtest assumes it; ``None`` = :data:`IN_USE`, assumed.
        policies: further policies and presets to compare, beside :data:`OTHERS`; an empty sequence = not even these.
        vary: figures to change, to see whether the advice stands: ``capacity``, ``price``, ``replicas``.
        seeds: runs of each policy, counted from 1, or the seeds themselves.

    Raises:
        ConfigError: no seed, or something to vary that cannot be.
    """

    scenario: Scenario = Scenario()  # noqa: RUF009 - frozen
    current: AnyPolicy | None = None
    policies: Sequence[AnyPolicy] | None = None
    vary: Sequence[str] = ()
    seeds: int | Sequence[int] = 3

    def __post_init__(self) -> None:
        """Check what is varied, and the seeds."""
        sensitivity.check(self.vary)
        seeds_of(self.seeds)

    @property
    def runs(self) -> int:
        """How many runs each policy gets."""
        return len(seeds_of(self.seeds))

    @property
    def variants(self) -> int:
        """How many fleets the figures to vary make."""
        return sum(1 for setting in self.vary for _ in sensitivity.variants(setting, self.scenario))

    @property
    def named(self) -> str | None:
        """Name of the policy in use, as rows have it; None where nobody said."""
        return None if self.current is None else replace(self.scenario, policy=self.current, label="").policy_name

    @property
    def in_use(self) -> str:
        """Name of the policy in use, or of what is taken to be."""
        return self.named or IN_USE

    @property
    def further(self) -> list[AnyPolicy]:
        """Policies to compare beside the advisor's own."""
        others = () if self.policies is not None and not self.policies else OTHERS
        return [*([] if self.current is None else [self.current]), *others, *(self.policies or ())]


def advise(
    source: Source,
    question: Question | None = None,
    *,
    cost: CostModel | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Advice:
    """Advise on how to route a workload.

    Args:
        source: a workload, or a function from a seed to one.
        question: the fleet, and what is known of it.
        cost: prices and seconds.
        jobs: processes, see :class:`~prefixroute.sim.grid.Grid`.
        progress: told the share of all runs that is done, and what is being run.

    Raises:
        ConfigError: what the parts refuse.
        TraceError: a bad line of a trace that was not checked when it was opened.
    """
    inquiry = _Inquiry(source, question or Question(), cost or CostModel(), jobs, progress)
    return inquiry.advice()


class _Inquiry:
    """A question under way: the traffic's facts, the policies that were run on it, and the one that is taken."""

    def __init__(self, source: Source, asked: Question, cost: CostModel, jobs: int, progress: Progress | None) -> None:
        self.source, self.asked, self.cost, self.jobs = kept(source, sent=jobs > 1), asked, cost, jobs
        self.base = asked.scenario
        self.workload = open_source(self.source, seeds_of(asked.seeds)[0])
        self.facts = profile(self.workload)
        head = self.workload.volatile
        self.masked = None if head is None else kept(head.masked, sent=jobs > 1)
        self.mended = None if self.masked is None else profile(open_source(self.masked, 1))
        self.inferred = any("inferred" in note for note in self.workload.notes)
        self.scenarios = self._candidates(self.facts, self.base, asked.further)
        further = [policy for policy in asked.further if policy not in OTHERS]
        self.after = [] if self.mended is None else self._candidates(self.mended, self.base, further)
        self.work = Work(progress, _length(asked, self.facts, self.scenarios) + len(self.after) * asked.runs)
        self.comparison = self.compare(self.scenarios, 2 * len(self.scenarios) * asked.runs, infinite=True)
        current = Assumption(CURRENT, asked.in_use, "", _origin(asked), assumed=asked.current is None)
        self.comparison = replace(self.comparison, assumptions=(*self.comparison.assumptions, current))
        self.chosen, self.slow = self._settled(self.scenarios, self.comparison, self.workload)
        self.scenario = next(one for one in self.scenarios if one.policy_name == self.chosen)

    def _candidates(self, facts: Profile, fleet: Scenario, further: Sequence[AnyPolicy]) -> list[Scenario]:
        match = findings.other_match(facts) if fleet.replicas > 1 else None
        return candidates(facts, fleet, further, match)

    def _settled(
        self, scenarios: Sequence[Scenario], comparison: Comparison, workload: Workload
    ) -> tuple[str, dict[str, findings.Late]]:
        """Choose among policies that were run; one that answers far later in time than what is in use gives way to the next.

        Returns:
            The policy, and those that gave way.
        """
        late: dict[str, findings.Late] = {}
        today = None
        while True:
            chosen = choose(
                comparison, keys=not self.inferred, in_use=self.asked.named, slow=late, among=_own(scenarios)
            )
            scenario = next(one for one in scenarios if one.policy_name == chosen)
            if scenario.replicas == 1 or self.facts.span_s <= 0 or chosen in late or chosen == self.asked.in_use:
                return chosen, late
            if today is None:
                in_use = replace(scenario, policy=self.asked.current or IN_USE, label="")
                today = read(workload, in_use, self.cost, self.asked.seeds, self.work.part(self.asked.runs)).ttft_s
            ttft = read(workload, scenario, self.cost, self.asked.seeds, self.work.part(self.asked.runs)).ttft_s
            if ttft <= FAR_SLOWER * today:
                return chosen, late
            late[chosen] = findings.Late(ttft, today)

    def compare(
        self,
        scenarios: list[Scenario],
        runs: int,
        *,
        infinite: bool = False,
        source: Source | None = None,
        metric: str = METRIC,
    ) -> Comparison:
        """Run scenarios, once on other traffic where a ``source`` is given; ``runs`` is about how many that takes."""
        return compare_scenarios(
            source or self.source,
            scenarios,
            seeds=self.asked.seeds,
            metric=metric,
            among=_own(scenarios),
            infinite=infinite,
            cost=self.cost,
            jobs=self.jobs,
            progress=self.work.part(runs),
            load_parts=LOAD_PARTS if infinite else 0,
        )

    def advice(self) -> Advice:
        """Look for what else there is to say, and join it all."""
        fleet = self._fleet()
        asked, base, facts, chosen = self.asked, self.base, self.facts, self.chosen
        tested = _tested(self.workload, asked, self.cost, self.work) if facts.reported else None
        policy = chosen if base.replicas > 1 else NO_ROUTER
        found = [*self._findings(policy), *findings.agreement(tested), *self._fronts(), *fleet]
        comparison = self.comparison
        return Advice(
            workload=self.workload.name,
            replicas=base.replicas,
            policy=policy,
            parameters=_parameters(self.scenario.policy),
            because=tree.because(comparison, chosen, asked.in_use),
            margin=tree.margin(comparison, chosen, simplicity(keys=not self.inferred)),
            row=comparison.row(chosen),
            saving=_saving(facts, comparison, chosen, asked),
            steps=tuple(tree.walk(facts, comparison, chosen, base.replicas)),
            findings=tuple(sorted(found, key=lambda finding: _URGENCY[finding.severity])),
            profile=facts,
            comparison=comparison,
            backtest=tested,
            remedy=self._remedy(found),
            sensitivity=tuple(sensitivity.vary(asked.vary, base, self.cost.usd_per_gpu_hour, self._decide)),
        )

    def _findings(self, policy: str) -> Iterator[Finding]:
        """Yield what the facts and the comparison tell."""
        facts, comparison, chosen = self.facts, self.comparison, self.chosen
        yield from findings.facts(facts, self.workload, self.mended)
        yield from findings.coincidence(comparison)
        yield from findings.volatile(self.workload, facts, self.mended)
        yield from findings.measured(comparison.row(chosen), self.scenario)
        yield from findings.late(self.slow, self.asked.in_use)
        yield from findings.keys(facts, policy, inferred=self.inferred)
        yield from self._matches()
        yield from findings.idle(comparison, chosen)
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
        better = other < default * (1 - MATERIAL) and self.compare(pair, 2 * self.asked.runs).winner == name
        yield from findings.minimum_match(self.facts, self.comparison, name, better=better, chosen=self.chosen)

    def _fronts(self) -> Iterator[Finding]:
        """Try several routers behind either front."""
        if self.base.routers > 1 and self.base.replicas > 1 and self.facts.keyless < 1.0:
            compared = self.compare(findings.both_fronts(self.scenario), 2 * self.asked.runs, metric="recompute_ratio")
            yield findings.fronts(compared, self.base.routers)

    def _fleet(self) -> list[Finding]:
        """Look for a smaller fleet, in time; what that rests on joins the assumptions."""
        if self.base.replicas == 1 or self.facts.span_s <= 0:
            return []
        asked = self.asked
        found = smaller_fleet(
            self.workload,
            self.scenario,
            asked.current or IN_USE,
            cost=self.cost,
            seeds=asked.seeds,
            progress=self.work.part(SIZINGS * asked.runs),
        )
        known = {item.name for item in self.comparison.assumptions}
        more = tuple(item for item in assumed(in_time(self.base, self.cost)) if item.name not in known)
        self.comparison = replace(self.comparison, assumptions=(*self.comparison.assumptions, *more))
        return [found]

    def _remedy(self, found: Sequence[Finding]) -> Remedy | None:
        """Return what mending the prompts would give; simulated where the trace has their text."""
        first = next((one for one in found if one.severity == "fix first"), None)
        if first is None:
            return None
        before = self.comparison.row(self.asked.in_use if self.base.replicas > 1 else self.chosen)
        head = self.workload.volatile
        if first.kind != "volatile-head" or head is None or self.masked is None:
            fixed = first.evidence["floor_if_fixed"]
            return Remedy(first.kind, before.recompute_ratio, float(fixed or 0.0))
        compared = self.compare(self.after, len(self.after) * self.asked.runs, source=self.masked)
        policy, _ = self._settled(self.after, compared, open_source(self.masked, 1))
        after = compared.row(policy)
        saved = before.usd_per_million_requests_busiest - after.usd_per_million_requests_busiest
        then = policy if self.base.replicas > 1 else NO_ROUTER
        return Remedy(
            first.kind, before.recompute_ratio, after.recompute_ratio, then, saved, _per_month(saved, self.facts)
        )

    def _decide(self, fleet: Scenario) -> tuple[str, Row]:
        """Return what would be advised for another fleet."""
        compared, best = self.comparison, self.chosen
        if fleet is not self.base:
            scenarios = self._candidates(self.facts, fleet, self.asked.further)
            compared = self.compare(scenarios, len(scenarios) * self.asked.runs)
            best, _ = self._settled(scenarios, compared, self.workload)
        return (best if fleet.replicas > 1 else NO_ROUTER), compared.row(best)


def _own(scenarios: Sequence[Scenario]) -> list[str]:
    """Return the names of all policies but other routers' presets."""
    return [one.policy_name for one in scenarios if one.policy not in OTHERS]


def _parameters(policy: AnyPolicy) -> Mapping[str, Any]:
    """Return the parameters of a policy object that differ from their defaults."""
    if isinstance(policy, str) or not is_dataclass(policy):
        return {}
    named = {field.name: field.default for field in fields(policy)}
    return {name: getattr(policy, name) for name, usual in named.items() if getattr(policy, name) != usual}


def _length(asked: Question, facts: Profile, scenarios: Sequence[Scenario]) -> int:
    """Return how many runs an answer takes, about: for whoever waits."""
    own = 2 * len(scenarios) * asked.runs + 2 * asked.runs * (len(scenarios) > 1)
    fronts = 2 * asked.runs * (asked.scenario.routers > 1)
    return (
        own
        + fronts
        + (SIZINGS + LOOKS * (1 + asked.variants)) * asked.runs * (facts.span_s > 0)
        + BACKTESTS * bool(facts.reported)
        + len(scenarios) * asked.runs * asked.variants
    )


def _tested(workload: Workload, asked: Question, cost: CostModel, work: Work) -> Backtest:
    """Backtest; without a current policy, look for one that explains the log."""
    search = () if asked.current is not None else (ROUND_ROBIN, "least-loaded", "cache-aware")
    given = asked.scenario.given
    if asked.current is not None and given is not None:
        given |= {"policy"}
    scenario = replace(asked.scenario, policy=asked.current or IN_USE, label="", given=given)
    return backtest(workload, scenario, search=search, cost=cost, progress=work.part(BACKTESTS))


def _saving(facts: Profile, comparison: Comparison, chosen: str, asked: Question) -> Saving | None:
    """Price the way from the current policy, or from round robin, to the chosen one; None if that is no way."""
    against = asked.in_use
    if against == chosen or asked.scenario.replicas == 1:
        return None
    before, after = (comparison.row(name).usd_per_million_requests_busiest for name in (against, chosen))
    share = (before - after) / before if before else 0.0
    return Saving(against, before - after, share, _per_month(before - after, facts))


def _per_month(usd_per_million_requests: float, facts: Profile) -> float | None:
    """Return dollars a month at the rate of the traffic; None where it spans no time."""
    rate = facts.requests_per_s
    return None if rate is None else usd_per_million_requests * rate * HOUR_S * HOURS_PER_MONTH / MILLION


def _origin(asked: Question) -> str:
    return "what load balancers do as they come" if asked.current is None else "given by the user"
