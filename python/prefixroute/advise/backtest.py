"""The simulator against the log: simulated hits beside the cached tokens that the engines themselves reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from prefixroute.advise.bootstrap import Interval, Ratio, ratio_intervals, sums_by_cluster
from prefixroute.advise.choice import IN_USE
from prefixroute.costmodel import Assumption, CostModel
from prefixroute.errors import ConfigError
from prefixroute.policies import as_policy
from prefixroute.sim import RequestLog, Run, Scenario, simulate
from prefixroute.sim.grid import kept
from prefixroute.sim.progress import Progress, Work
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import SCHEMA, assumed, assumptions_dict
from prefixroute.workload import Workload

AGREES, ROUGHLY = 0.05, 0.10
"""Differences of the hit ratio up to which the simulation agrees, and agrees roughly, with the log."""
CAPACITY_FACTORS = (0.5, 1.0, 2.0)
"""Multiples of the capacity that a search tries."""
SAME = 0.0005
"""Hit ratios that are no further apart than this are the same as shown: they do not tell two capacities apart."""
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
    """A way the log may have come about, and how far its simulated hit ratio lies from the reported one."""

    policy: str
    capacity_tokens: int | None
    simulated: float
    difference: float


@dataclass(frozen=True, slots=True)
class Nearest:
    """The policy that explains a log best, and which of the capacities tried explain it equally well.

    ``capacity_tokens`` holds these, smallest first; None is unlimited. The log tells capacities apart only if it is one.
    """

    policy: str
    simulated: float
    capacity_tokens: tuple[int | None, ...]

    @classmethod
    def of(cls, search: Sequence[Candidate]) -> Nearest:
        """Find it in candidates, nearest first."""
        best = search[0]
        alike = [
            one.capacity_tokens
            for one in search
            if one.policy == best.policy and abs(one.simulated - best.simulated) <= SAME
        ]
        return cls(
            best.policy, best.simulated, tuple(sorted(alike, key=lambda one: float("inf") if one is None else one))
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        told = len(self.capacity_tokens) == 1
        return {**asdict(self), "capacity_tokens": list(self.capacity_tokens), "capacity_told_apart": told}

    def text(self) -> str:
        """Return it as a sentence."""
        least, most = self.capacity_tokens[0], self.capacity_tokens[-1]
        hits = f"{100 * self.simulated:.1f} %"
        if least == most:
            return f"Nearest of those tried: {self.policy} with {_tokens(least)} a replica, {hits}."
        up = "up" if most is None else f"to {_tokens(most)}"
        return (
            f"Nearest of those tried: {self.policy}, {hits}. The log does not tell the capacity: from {_tokens(least)} a "
            f"replica {up} the hits are the same."
        )


@dataclass(frozen=True, slots=True)
class Backtest:
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
        verdict: ``agrees`` (within 5 points), ``roughly`` (10) or ``disagrees``.
        bands: by prompt length.
        search: other ways the log may have come about, nearest first; empty unless asked for.
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
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def nearest(self) -> Nearest | None:
        """What explains the log best of what was searched; None where nothing was."""
        return Nearest.of(self.search) if self.search else None

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``backtest --json``."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["difference"] = self.difference.to_dict()
        fields["bands"] = [asdict(band) for band in self.bands]
        fields["nearest"] = self.nearest.to_dict() if self.nearest else None
        fields["search"] = [asdict(candidate) for candidate in self.search]
        fields["assumptions"] = assumptions_dict(self.assumptions)
        fields["notes"] = list(self.notes)
        return {"schema": SCHEMA, **fields}

    def to_json(self) -> str:
        """Return the object as text. Same inputs, same bytes."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def text(self) -> str:
        """Return the result in sentences."""
        share = 100 * self.compared / self.requests
        guessed = [item.name for item in self.assumptions if item.assumed and item.name in ("policy", "replicas")]
        marked = f" (ASSUMED {' and '.join(guessed)})" if guessed else ""
        lines = [
            (
                f"{self.compared:,} of {self.requests:,} requests ({share:.0f} %) report cached tokens: "
                f"{100 * self.reported:.1f} % of their prompt tokens. Simulated with {self.policy} on {self.replicas} "
                f"replica{'s' * (self.replicas != 1)}{marked}: {100 * self.simulated:.1f} %. The simulation {_VERDICTS[self.verdict]}."
            )
        ]
        if self.nearest:
            lines.append(self.nearest.text())
        return "\n".join(lines)


_VERDICTS = {
    "agrees": "agrees with the log",
    "roughly": "agrees with the log roughly",
    "disagrees": "disagrees with the log: do not trust advice before policy, replicas and capacity are those of the log",
}


def backtest(
    workload: Workload,
    scenario: Scenario | None = None,
    *,
    search: Sequence[AnyPolicy] = (),
    cost: CostModel | None = None,
    progress: Progress | None = None,
) -> Backtest:
    """Simulate the fleet that wrote a log, and compare hits request by request.

    Args:
        workload: a trace whose requests have ``reported_hit_tokens``, some of them at least.
        scenario: the fleet and the policy that the log comes from, as far as they are known; ``None`` = the defaults,
            and the policy that is taken to be in use (:data:`~prefixroute.advise.choice.IN_USE`).
        search: policies to try besides, each with half, once and twice the capacity, and with unlimited caches.
        cost: prices and seconds, for policies that weigh seconds.
        progress: told the share of the runs that is done, and what is being tried.

    Raises:
        ConfigError: no request has a report.
    """
    scenario, cost = scenario or Scenario(policy=IN_USE, given=frozenset()), cost or CostModel()
    workload = cast("Workload", kept(workload))
    reported = _reported(workload)
    known = ~np.isnan(reported)
    if not known.any():
        raise ConfigError(f"{workload.name} reports no cached tokens: there is nothing to compare with")
    workload = replace(workload, request_count=len(reported))
    tried = _tried(scenario, search)
    work = Work(progress, 1 + len(tried))
    run = _simulated(workload, scenario, cost, work)
    prompt, hit = (_ordered(run.log, name)[known] for name in ("prompt", "hit"))
    told, session = reported[known], np.asarray(run.log.in_order(run.log.column("session")), np.int64)[known]
    size = int(session.max()) + 1
    gap = sums_by_cluster(hit - told, session, size)
    (difference,) = ratio_intervals([Ratio(gap[None], sums_by_cluster(prompt, session, size))], seed=0)
    total, off = float(prompt.sum()), abs(difference.value)
    found = Backtest(
        workload=workload.name,
        policy=scenario.policy_name,
        replicas=scenario.replicas,
        requests=len(reported),
        compared=int(known.sum()),
        reported=float(told.sum()) / total,
        simulated=float(hit.sum()) / total,
        difference=difference,
        mean_error_tokens=float(np.abs(hit - told).mean()),
        within_block=float((np.abs(hit - told) < workload.block_size).mean()),
        verdict="agrees" if off <= AGREES else "roughly" if off <= ROUGHLY else "disagrees",
        bands=_bands(prompt, told, hit),
        assumptions=(*workload.assumptions, *_priced(scenario, cost), *assumed(scenario, "policy", "replicas")),
        notes=workload.notes,
    )
    candidates = [_candidate(_simulated(workload, way, cost, work), known, found.reported) for way in tried]
    return replace(found, search=tuple(sorted(candidates, key=lambda candidate: abs(candidate.difference))))


def _reported(workload: Workload) -> NDArray[np.float64]:
    """Return reported hit tokens in order of arrival, NaN where there is no report."""
    values = (request.reported_hit_tokens for request in workload.requests())
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _ordered(log: RequestLog, name: str) -> NDArray[np.float64]:
    return np.asarray(log.in_order(log.column(name)), np.float64)


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


def _tried(scenario: Scenario, policies: Sequence[AnyPolicy]) -> list[Scenario]:
    """Return other ways a log may have come about: each policy at several capacities."""
    base = scenario.capacity_tokens
    capacities = [None] if base is None else [*(round(base * factor) for factor in CAPACITY_FACTORS), None]
    return [
        replace(scenario, policy=policy, capacity_tokens=capacity, label="")
        for policy in policies
        for capacity in capacities
    ]


def _simulated(workload: Workload, way: Scenario, cost: CostModel, work: Work) -> Run:
    """Run one way, and say which."""
    report, count = work.part(1.0), workload.request_count or 1
    what = f"{way.policy_name} on {way.replicas} with {_tokens(way.capacity_tokens)}"
    return simulate(
        workload, way, cost=cost, progress=None if report is None else lambda done: report(done / count, what)
    )


def _candidate(run: Run, known: NDArray[np.bool_], reported: float) -> Candidate:
    hit, prompt = (_ordered(run.log, name)[known].sum() for name in ("hit", "prompt"))
    ratio = float(hit / prompt)
    return Candidate(run.outcome.policy, run.scenario.capacity_tokens, ratio, ratio - reported)


def _priced(scenario: Scenario, cost: CostModel) -> tuple[Assumption, ...]:
    """Return the prices and seconds, where hits rest on them: in time, or under a policy that weighs seconds."""
    weighs = scenario.engine is not None or hasattr(as_policy(scenario.policy), "cost")
    return cost.assumptions if weighs else ()


def _tokens(capacity: int | None) -> str:
    return "unlimited caches" if capacity is None else f"{capacity:,} tokens"
