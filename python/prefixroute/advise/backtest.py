"""The simulator against the log: simulated hits beside the cached tokens that the engines themselves reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from prefixroute.advise.bootstrap import Interval, Ratio, ratio_intervals, sums_by_cluster
from prefixroute.advise.choice import IN_USE
from prefixroute.costmodel import Assumption, CostModel
from prefixroute.document import SCHEMA, ResultDocument
from prefixroute.errors import ConfigError
from prefixroute.policies import as_policy
from prefixroute.sim import Cell, Grid, Run, Scenario
from prefixroute.sim.grid import kept
from prefixroute.sim.pool import Jobs
from prefixroute.sim.progress import Progress, Work
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import assumed, assumptions_dict, left_out
from prefixroute.workload import Workload

AGREES, ROUGHLY = 0.05, 0.10
"""Differences of the hit ratio up to which the simulation agrees, and agrees roughly, with the log."""
NO_HITS = "no-hits"
"""The verdict on a log that reports 0 cached tokens throughout, where the simulation hits."""
SAME = 0.0005
"""Hit ratios that are no further apart than this are the same as shown: they do not tell two capacities apart."""
CLOSE = 1.03
"""Factor between two capacities at which a search between them ends."""
TOLD_APART = 1.1
"""Factor around the nearest capacity within which those of equal hits must lie for the log to tell it."""
BANDS = 4


@dataclass(frozen=True, slots=True)
class Band:
    """Requests of similar prompt length: a quarter of those reported. Ratios are hit tokens / prompt tokens."""

    shortest: int
    longest: int
    requests: int
    reported: float
    simulated: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way the log may have come about.

    Its hit ratio, how far that is from the reported one, and how far requests are.
    """

    policy: str
    capacity_tokens: int | None
    simulated: float
    difference: float
    mean_error_tokens: float


@dataclass(frozen=True, slots=True)
class Nearest:
    """The policy and capacity that explain a log best, request by request.

    Attributes:
        policy: its name.
        capacity_tokens: of one replica; None is unlimited.
        simulated: its hit ratio.
        mean_error_tokens: mean of ``|simulated - reported|`` over requests.
        low: the smallest capacity tried that has the same hits.
        high: the largest; None is unlimited.
        edge: ``smallest`` or ``largest`` where even that capacity is too large or too small to explain the hits; else
            None.
    """

    policy: str
    capacity_tokens: int | None
    simulated: float
    mean_error_tokens: float
    low: int | None
    high: int | None
    edge: str | None

    @property
    def told_apart(self) -> bool:
        """Whether the log tells the capacity: others that are more than a tenth away have other hits."""
        if self.edge or self.capacity_tokens is None or self.low is None or self.high is None:
            return False
        return self.capacity_tokens <= TOLD_APART * self.low and self.high <= TOLD_APART * self.capacity_tokens

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {**asdict(self), "capacity_told_apart": self.told_apart}


@dataclass(frozen=True, slots=True)
class Backtest(ResultDocument):
    """How well a scenario reproduces what a log reports.

    Attributes:
        workload: name of the workload.
        policy: the policy assumed to have routed the log.
        replicas: the fleet assumed.
        requests: requests of the log.
        compared: those with a report; the rest are unknown, not zero.
        reported: reported hit tokens / prompt tokens of these.
        simulated: the same simulated.
        difference: simulated less reported, with an interval over sessions.
        mean_error_tokens: mean of ``|simulated - reported|`` over requests.
        within_block: share of requests whose two counts differ by less than a block.
        verdict: ``agrees`` (within 5 points), ``roughly`` (10) or ``disagrees``; ``no-hits`` where the log reports 0
            cached tokens throughout and the simulation is more than 5 points off: caches are off, or hits are not
            reported.
        bands: by prompt length.
        search: other ways the log may have come about, nearest first; empty unless asked for.
        nearest: the policy and capacity that explain the log best; None unless asked for.
        assumptions: what the simulation rests on: the policy, the fleet, the capacity.
        notes: what had to be inferred or left out of the log.
    """

    workload: str
    policy: str
    replicas: int
    requests: int
    compared: int
    reported: float
    simulated: float
    difference: Interval
    mean_error_tokens: float
    within_block: float
    verdict: str
    bands: tuple[Band, ...]
    search: tuple[Candidate, ...] = ()
    nearest: Nearest | None = None
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def reports_no_hits(self) -> bool:
        """Whether the log reports 0 cached tokens throughout, where the simulation hits.

        There is nothing to agree with.
        """
        return self.verdict == NO_HITS

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``backtest --json``."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["reports_no_hits"] = self.reports_no_hits
        fields["difference"] = self.difference.to_dict()
        fields["bands"] = [asdict(band) for band in self.bands]
        fields["nearest"] = None if self.nearest is None else self.nearest.to_dict()
        fields["search"] = [asdict(candidate) for candidate in self.search]
        fields["assumptions"] = assumptions_dict(self.assumptions)
        fields["notes"] = list(self.notes)
        return {"schema": SCHEMA, **fields}


def backtest(
    workload: Workload,
    scenario: Scenario | None = None,
    *,
    search: Sequence[AnyPolicy] = (),
    cost: CostModel | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
) -> Backtest:
    """Simulate the fleet that wrote a log, and compare hits request by request.

    Args:
        workload: a trace whose requests have ``reported_hit_tokens``, some of them at least.
        scenario: the fleet and the policy that the log comes from, as far as they are known; ``None`` = the defaults,
            and the policy that is taken to be in use (:data:`~prefixroute.advise.choice.IN_USE`).
        search: policies to try besides, each with the capacity that explains the reported hits best: found by bisection
            between the longest request and caches that never evict.
        cost: prices and seconds, for policies that weigh seconds.
        jobs: processes, see :class:`~prefixroute.sim.grid.Grid`.
        progress: told the share of the runs that is done, and what is being tried.
        time_is_up: asked before the search and each of its rounds; then the rest is left out, which a note says.

    Returns:
        How far the simulated hits are from the reported ones, and whether they agree.

    Raises:
        ConfigError: no request has a report.
    """
    scenario, cost = scenario or Scenario(policy=IN_USE, given=frozenset()), cost or CostModel()
    workload = cast("Workload", kept(workload, jobs=jobs))
    reported = _reported(workload)
    known = ~np.isnan(reported)
    if not known.any():
        raise ConfigError(f"{workload.name} reports no cached tokens: there is nothing to compare with")
    work = Work(progress, 1.0 + ROUNDS * bool(search))
    grid = Grid(workload, (scenario.seed,), cost, jobs, work.part(1.0))
    own: _Hits = grid.run({0: Cell(scenario, _hits)}).runs[0][0]
    truth = _Truth(known, reported[known])
    found = _compared(workload, scenario, own, truth)
    rests_on = (*workload.assumptions, *_priced(scenario, cost), *assumed(scenario, "policy", "replicas"))
    found = replace(found, requests=len(reported), assumptions=rests_on, notes=workload.notes)
    if not search:
        return found
    if time_is_up():
        missing = [replace(scenario, policy=policy, label="").policy_name for policy in search]
        return replace(found, notes=(*found.notes, *left_out([f"the search over {', '.join(missing)}"])))
    grid = replace(grid, progress=work.part(ROUNDS))
    searched = _Search(grid, [replace(scenario, policy=policy, label="") for policy in search], truth, time_is_up)
    tried = searched.run()
    order = sorted(tried, key=lambda one: (one.mean_error_tokens, abs(one.difference)))
    if progress is not None:
        progress(1.0, f"{order[0].policy} is the nearest")
    notes = (*found.notes, *left_out(["further rounds of the search for the capacity"] * searched.was_cut))
    return replace(found, search=tuple(order), nearest=_nearest(order, found.reported), notes=notes)


ROUNDS = 10.0
"""Rounds of runs that a search takes, about."""


class _Hits(NamedTuple):
    """What a run leaves for comparison, in the order of the workload's requests."""

    prompt: NDArray[np.float64]
    hit: NDArray[np.float64]
    session: NDArray[np.int64]
    stored_tokens: int
    longest: int


def _hits(run: Run) -> _Hits:
    log = run.log
    prompt, hit, session = (log.in_order(log.column(name)) for name in ("prompt", "hit", "session"))
    stored = int((prompt - hit).sum()) + MOST_OUTPUT_TOKENS * len(prompt)
    return _Hits(
        prompt.astype(np.float64), hit.astype(np.float64), session.astype(np.int64), stored, int(prompt.max(initial=1))
    )


MOST_OUTPUT_TOKENS = 4_096
"""Tokens of an answer, generously: what a run stores beyond its prompts decides only where a search begins."""


class _Truth(NamedTuple):
    """Which requests have a report, and what it says of them."""

    known: NDArray[np.bool_]
    told: NDArray[np.float64]

    def candidate(self, scenario: Scenario, hits: _Hits) -> Candidate:
        """Return how well a run explains the reports."""
        prompt, hit = hits.prompt[self.known], hits.hit[self.known]
        ratio, reported = float(hit.sum() / prompt.sum()), float(self.told.sum() / prompt.sum())
        error = float(np.abs(hit - self.told).mean())
        return Candidate(scenario.policy_name, scenario.capacity_tokens, ratio, ratio - reported, error)


class _Search:
    """Bisection of the capacity for several policies side by side: one run of each in a round."""

    def __init__(self, grid: Grid, ways: Sequence[Scenario], truth: _Truth, time_is_up: Callable[[], bool]) -> None:
        self._grid, self._ways, self._truth, self._time_is_up = grid, ways, truth, time_is_up
        self.was_cut = False
        self._found: list[Candidate] = []
        self._rounds = 0

    def run(self) -> list[Candidate]:
        """Return every candidate that was tried."""
        open_ended = self._round({at: way.unlimited() for at, way in enumerate(self._ways)})
        bounds = {at: (hits.longest, max(hits.longest, hits.stored_tokens)) for at, (_, hits) in open_ended.items()}
        lowest = self._round({at: self._with(at, low) for at, (low, _) in bounds.items()})
        searching = {
            at: bounds[at] for at in bounds if lowest[at][0].difference < -SAME and open_ended[at][0].difference > SAME
        } | {at: bounds[at] for at in bounds if abs(open_ended[at][0].difference) <= SAME}
        while searching := {at: ends for at, ends in searching.items() if ends[1] > CLOSE * ends[0]}:
            if self._time_is_up():
                self.was_cut = True
                break
            middle = {at: round(math.sqrt(low * high)) for at, (low, high) in searching.items()}
            tried = self._round({at: self._with(at, capacity) for at, capacity in middle.items()})
            searching = {
                at: (middle[at], high) if tried[at][0].difference < -SAME / 2 else (low, middle[at])
                for at, (low, high) in searching.items()
            }
        return self._found

    def _with(self, at: int, capacity: int) -> Scenario:
        return replace(self._ways[at], capacity_tokens=capacity)

    def _round(self, cells: Mapping[int, Scenario]) -> dict[int, tuple[Candidate, _Hits]]:
        """Run one capacity of each policy that is still searched for."""
        progress, begun = self._grid.progress, self._rounds
        self._rounds += 1
        told = None
        if progress is not None:
            left = (1 - 1 / ROUNDS) ** begun
            told = lambda share, what: progress(1 - (1 - share / ROUNDS) * left, what)  # noqa: E731
        grid = replace(self._grid, progress=told)
        runs = grid.run({at: Cell(scenario, _hits) for at, scenario in cells.items()}).runs
        found = {at: (self._truth.candidate(scenario, runs[at][0]), runs[at][0]) for at, scenario in cells.items()}
        self._found += [candidate for candidate, _ in found.values()]
        return found


def _nearest(search: Sequence[Candidate], reported: float) -> Nearest:
    """Return the best of candidates, nearest first, and the range of capacities with the same hits."""
    best = search[0]
    own = sorted((one for one in search if one.policy == best.policy), key=_capacity)
    alike = [one.capacity_tokens for one in own if abs(one.simulated - best.simulated) <= SAME]
    edge = None
    if own[0].simulated > reported + SAME:
        edge = "smallest"
    elif own[-1].simulated < reported - SAME:
        edge = "largest"
    return Nearest(best.policy, best.capacity_tokens, best.simulated, best.mean_error_tokens, alike[0], alike[-1], edge)


def _capacity(candidate: Candidate) -> float:
    return math.inf if candidate.capacity_tokens is None else candidate.capacity_tokens


def _compared(workload: Workload, scenario: Scenario, hits: _Hits, truth: _Truth) -> Backtest:
    """Return how well one scenario reproduces the reports; the caller adds what it rests on."""
    prompt, hit, session = hits.prompt[truth.known], hits.hit[truth.known], hits.session[truth.known]
    size = int(session.max()) + 1
    gap = sums_by_cluster(hit - truth.told, session, size)
    (difference,) = ratio_intervals([Ratio(gap[None], sums_by_cluster(prompt, session, size))], seed=0)
    total, off = float(prompt.sum()), abs(difference.value)
    apart = np.abs(hit - truth.told)
    return Backtest(
        workload=workload.name,
        policy=scenario.policy_name,
        replicas=scenario.replicas,
        requests=len(truth.known),
        compared=int(truth.known.sum()),
        reported=float(truth.told.sum()) / total,
        simulated=float(hit.sum()) / total,
        difference=difference,
        mean_error_tokens=float(apart.mean()),
        within_block=float((apart < workload.block_size).mean()),
        verdict=_verdict(float(truth.told.sum()), off),
        bands=_bands(prompt, truth.told, hit),
    )


def _verdict(reported: float, off: float) -> str:
    """Return the verdict on hit ratios that are ``off`` apart, where the log has so many hit tokens."""
    if off > AGREES and not reported:
        return NO_HITS
    return "agrees" if off <= AGREES else "roughly" if off <= ROUGHLY else "disagrees"


def _reported(workload: Workload) -> NDArray[np.float64]:
    """Return reported hit tokens in order of arrival, NaN where there is no report."""
    values = (request.reported_hit_tokens for request in workload.requests())
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _bands(prompt: NDArray[np.float64], told: NDArray[np.float64], hit: NDArray[np.float64]) -> tuple[Band, ...]:
    order = np.argsort(prompt, kind="stable")
    parts = [part for part in np.array_split(order, BANDS) if len(part)]
    return tuple(
        Band(
            int(prompt[part].min()),
            int(prompt[part].max()),
            len(part),
            float(told[part].sum() / prompt[part].sum()),
            float(hit[part].sum() / prompt[part].sum()),
        )
        for part in parts
    )


def _priced(scenario: Scenario, cost: CostModel) -> tuple[Assumption, ...]:
    """Return the prices and seconds, where hits rest on them: timed, or under a policy that weighs seconds."""
    weighs = scenario.engine is not None or hasattr(as_policy(scenario.policy), "cost")
    return cost.assumptions if weighs else ()
