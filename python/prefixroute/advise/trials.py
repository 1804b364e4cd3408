"""The search for the smallest fleet of one policy that keeps the promises: any number of fleets, each run once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from prefixroute.advise.slo import Slo, SloMeter, SloReading, worst
from prefixroute.costmodel import CostModel, Link
from prefixroute.sim import Cell, Grid, Scenario, Split
from prefixroute.sim.grid import Source
from prefixroute.sim.pool import Jobs
from prefixroute.sim.progress import Progress

Fleet: TypeAlias = tuple[int, ...]
"""Replicas of each kind: one kind that does both, or those that prefill and those that decode."""
MIXED, APART = 1, 2
"""Kinds of replicas in a fleet."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs fleets of one policy; the worst seed counts.

    Attributes:
        scenario: the policy and all but the fleet.
        link: between replicas that prefill and decode apart; None = each does both.
        traffic: what is served, and the same at its peak.
        slos: the promises, read at the traffic's own rate.
        seeds: of the runs.
        cost: prices and seconds.
        jobs: processes.
    """

    scenario: Scenario
    link: Link | None
    traffic: tuple[Source, Source]
    slos: tuple[Slo, ...]
    seeds: tuple[int, ...]
    cost: CostModel
    jobs: Jobs

    def __call__(self, fleet: Fleet, peak: bool, progress: Progress | None) -> SloReading:  # noqa: FBT001 - a key
        """Return what a fleet tells; at the peak without percentiles."""
        grid = Grid(self.traffic[peak], self.seeds, self.cost, self.jobs, progress)
        if self.link is None:
            one = replace(self.scenario, replicas=fleet[0])
        else:
            prefill, decode = fleet
            one = Split(prefill, decode, self.link).of(self.scenario)
        return worst(grid.run({fleet: Cell(one, SloMeter(() if peak else self.slos))}).runs[fleet])


@dataclass(frozen=True, slots=True)
class Trials:
    """Fleets of one policy, tried on the traffic and on its peak, each once.

    Attributes:
        policy: its name, for whoever waits.
        run: returns what a fleet tells, at the peak or not.
        slos: the promises.
        most_preempted: preemptions a request that are borne; None = not looked at.
        most: replicas beyond which no fleet is tried.
        kinds: :data:`MIXED` or :data:`APART`.
        progress: told how far the search is on the traffic, and at the peak.
    """

    policy: str
    run: Callable[[Fleet, bool, Progress | None], SloReading]
    slos: tuple[Slo, ...]
    most_preempted: float | None
    most: int
    kinds: int = MIXED
    progress: tuple[Progress | None, Progress | None] = (None, None)
    _told: dict[tuple[bool, Fleet], SloReading] = field(default_factory=dict, init=False)

    @classmethod
    def of(
        cls, runs: Runs, most_preempted: float | None, most: int, progress: tuple[Progress | None, Progress | None]
    ) -> Trials:
        """Return the trials that these runs make."""
        kinds = MIXED if runs.link is None else APART
        return cls(runs.scenario.policy_name, runs, runs.slos, most_preempted, most, kinds, progress)

    def at(self, fleet: Fleet, *, peak: bool = False, left: int = 0) -> SloReading:
        """Return what a fleet tells. ``left``: runs that will follow if it keeps the promises, about."""
        if (peak, fleet) not in self._told:
            self._told[peak, fleet] = self.run(fleet, peak, self._reporting(fleet, 1 + left, peak=peak))
        return self._told[peak, fleet]

    def keeps(self, fleet: Fleet, *, peak: bool = False, left: int = 0) -> bool:
        """Whether a fleet keeps the promises, or keeps up at the peak."""
        return self.at(fleet, peak=peak, left=left).keeps(() if peak else self.slos, self.most_preempted)

    def smallest(self, least: Fleet | None = None, *, peak: bool = False) -> Fleet | None:
        """Return the smallest fleet from ``least`` on; more replicas of any kind never break a promise.

        All kinds double until the promises are kept; then each shrinks by bisection. Where there are two, one more of
        the first is tried in the place of two of the second.
        """
        least = least or (1,) * self.kinds
        fleet = least
        while not self.keeps(fleet, peak=peak, left=max(0, max(fleet).bit_length() - 2)):
            if sum(fleet) >= self.most:
                return None
            fleet = tuple(min(2 * count, self.most - (sum(fleet) - count)) for count in fleet)
        if self.kinds == MIXED:
            return self._shrunk(fleet, 0, max(fleet[0] // 2 + 1, least[0]), peak=peak)
        fleet = self._shrunk(self._shrunk(fleet, 0, least[0], peak=peak), 1, least[1], peak=peak)
        while fleet[1] - 2 >= least[1] and self.keeps((fleet[0] + 1, fleet[1] - 2), peak=peak):
            fleet = self._shrunk((fleet[0] + 1, fleet[1] - 2), 1, least[1], peak=peak)
        return fleet

    def _shrunk(self, fleet: Fleet, kind: int, low: int, *, peak: bool) -> Fleet:
        """Return a fleet that keeps the promises with the fewest replicas of one kind, ``low`` or more."""
        bad = low - 1
        while fleet[kind] - bad > 1:
            middle = (fleet[kind] + bad) // 2
            smaller = (*fleet[:kind], middle, *fleet[kind + 1 :])
            if self.keeps(smaller, peak=peak, left=(fleet[kind] - bad).bit_length() - 2):
                fleet = smaller
            else:
                bad = middle
        return fleet

    def _reporting(self, fleet: Fleet, left: int, *, peak: bool) -> Progress | None:
        progress, done = self.progress[peak], sum(at_peak == peak for at_peak, _ in self._told)
        if progress is None:
            return None
        what = f"{self.policy}: trying {'+'.join(map(str, fleet))} replica{'s' * (sum(fleet) > 1)}"
        return lambda share, _: progress((done + share) / (done + left), what)
