"""One fleet: the policies worth a run on it are compared, and one is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prefixroute.advise.choice import METRIC, Choice, candidates, choose
from prefixroute.advise.compare import Comparison, compare, informed
from prefixroute.advise.facts import Facts
from prefixroute.advise.profile import Profile
from prefixroute.advise.question import OTHERS, Question
from prefixroute.costmodel import CostModel
from prefixroute.sim import Scenario
from prefixroute.sim.grid import Source
from prefixroute.sim.pool import Jobs
from prefixroute.sim.progress import Work
from prefixroute.sim.scenario import AnyPolicy

LOAD_PARTS = 60
"""Parts of a run for which the load of the fleet is kept, for the page."""


@dataclass(frozen=True, slots=True)
class Study:
    """Policies that were compared on one fleet, and the one to take."""

    scenarios: tuple[Scenario, ...]
    comparison: Comparison
    choice: Choice

    @property
    def chosen(self) -> Scenario:
        """The scenario of the policy that is taken."""
        return self.scenario(self.choice.policy)

    def scenario(self, policy: str) -> Scenario:
        """Return the scenario of a policy that was compared."""
        return next(one for one in self.scenarios if one.policy_name == policy)

    @property
    def own(self) -> list[str]:
        """Names of all policies but other routers' presets."""
        return _own(self.scenarios)


@dataclass(frozen=True, slots=True)
class How:
    """How runs are made, whatever they are of."""

    asked: Question
    cost: CostModel
    jobs: Jobs
    work: Work
    time_is_up: Callable[[], bool]


def compare_on(
    facts: Facts,
    fleet: Scenario,
    further: Sequence[AnyPolicy],
    how: How,
    *,
    traffic: tuple[Source, Profile] | None = None,
    pictures: bool = False,
) -> Study:
    """Compare the policies worth a run on a fleet, and choose.

    Args:
        facts: of the traffic.
        fleet: what is simulated.
        further: policies to compare besides.
        how: how runs are made.
        traffic: other traffic to run, and its profile; None = that of the facts.
        pictures: with unlimited caches, and the load of the fleet kept.
    """
    source, shared = traffic or (facts.source, facts.profile)
    scenarios = candidates(shared, fleet, further)
    compared = compare(
        source,
        scenarios,
        seeds=how.asked.seeds,
        metric=METRIC,
        among=_own(scenarios),
        infinite=pictures,
        cost=how.cost,
        jobs=how.jobs,
        progress=how.work.part((1 + pictures) * len(scenarios) * how.asked.runs + pictures * len(informed(scenarios))),
        time_is_up=how.time_is_up,
        load_parts=LOAD_PARTS if pictures else 0,
    )
    choice = choose(
        compared,
        objective=how.asked.objective,
        keys=not facts.inferred,
        in_use=how.asked.named,
        among=_own(scenarios),
        most_preempted=how.asked.headroom.preemptions,
    )
    return Study(tuple(scenarios), compared, choice)


def _own(scenarios: Sequence[Scenario]) -> list[str]:
    """Return the names of all policies but other routers' presets."""
    return [one.policy_name for one in scenarios if one.policy not in OTHERS]
