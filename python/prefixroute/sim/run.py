"""One run: a workload under a scenario, priced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel import CostModel
from prefixroute.policies import as_policy, presets
from prefixroute.sim.garbage import collected_rarely
from prefixroute.sim.metrics import LoadCurve, Outcome, RequestLog, Timings
from prefixroute.sim.ordered import OrderedRun
from prefixroute.sim.scenario import Scenario
from prefixroute.sim.timed import TimedRun
from prefixroute.validation import check_int
from prefixroute.workload import Workload

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    Attributes:
        scenario: what was simulated.
        outcome: the numbers of the run.
        log: a line per request; its ``replica`` column indexes ``names``.
        names: every replica that lived during the run.
        retried: requests that a replica's death sent elsewhere (time mode).
    """

    scenario: Scenario
    outcome: Outcome
    log: RequestLog = field(repr=False, compare=False)
    names: tuple[str, ...]
    retried: int = 0

    def load(self, buckets: int = 60) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what each replica had to do over the run, in ``buckets`` equal parts of it.

        Returns:
            The ends of the parts, shape ``[buckets + 1]``, and the load, shape ``[buckets, replicas]``: in time, the
            mean of requests in flight, parts in seconds; in order, requests received, parts in requests.

        Raises:
            ConfigError: less than one part.
        """
        check_int("buckets", buckets, 1)
        log, replicas = self.log, len(self.names)
        replica = log.column("replica")
        if self.scenario.engine is None:
            edges = np.linspace(0, len(log), buckets + 1)
            parts = np.minimum(np.arange(len(log)) * buckets // max(len(log), 1), buckets - 1)
            counts = np.bincount(parts * replicas + replica, minlength=buckets * replicas)
            return edges, counts.reshape(buckets, replicas).astype(np.float64)
        arrival, stay = log.column("arrival"), log.column("finish") - log.column("arrival")
        edges = np.linspace(arrival.min(initial=0.0), log.column("finish").max(initial=1.0), buckets + 1)
        spent = [np.bincount(replica, np.clip(edge - arrival, 0.0, stay), replicas) for edge in edges]
        return edges, np.diff(spent, axis=0) / np.diff(edges)[:, None]

    def outcome_with_load(self, parts: int) -> Outcome:
        """Return the numbers of the run with its load in ``parts`` equal parts of it."""
        edges, load = self.load(parts)
        curve = LoadCurve.of(edges, load, in_time=self.scenario.engine is not None)
        return replace(self.outcome, load=curve)

    def prefill_seconds(self, cost: CostModel) -> NDArray[np.float64]:
        """Return the seconds of prefill of each request alone on a replica, in the log's order."""
        return prefill_seconds(self.log, cost)


def simulate(
    workload: Workload,
    scenario: Scenario | None = None,
    *,
    cost: CostModel | None = None,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Run a workload under a scenario: in order, or in time if the scenario has an engine.

    Meanwhile Python's cyclic garbage collector looks less often, see :mod:`prefixroute.sim.garbage`.

    Args:
        workload: read once, from its start.
        scenario: the default is ``cache-aware`` on 8 replicas in order.
        cost: prices and seconds; the default GPU and model unless given. A policy that weighs seconds and is given by
            its name uses it too; an object keeps what it has.
        progress: told now and then how many requests have been routed.

    Raises:
        ConfigError: the scenario does not fit the workload.
        TraceError: a bad line of a trace that was not checked when it was opened.
    """
    scenario = scenario or Scenario()
    if cost is not None:
        scenario = _priced(scenario, cost)
    cost = cost or CostModel()
    if scenario.engine is None:
        ordered = OrderedRun(scenario, workload.block_size)
        with collected_rarely():
            ordered.run(workload.requests(), progress)
        outcome = _outcome(scenario, ordered.log, ordered.fleet.names, cost)
        return Run(scenario, outcome, ordered.log, tuple(ordered.fleet.names))
    timed = TimedRun(scenario, workload.block_size, scenario.engine)
    with collected_rarely():
        timed.run(workload.requests(), progress)
    outcome = _outcome(scenario, timed.log, timed.fleet.names, cost, timed)
    return Run(scenario, outcome, timed.log, tuple(timed.fleet.names), timed.retried)


def _priced(scenario: Scenario, cost: CostModel) -> Scenario:
    """Return the scenario with the run's prices in a policy that weighs seconds, if it was given by its name."""
    if not isinstance(scenario.policy, str) or scenario.policy in presets():
        return scenario
    policy = as_policy(scenario.policy)
    if not hasattr(policy, "cost"):
        return scenario
    return replace(scenario, policy=replace(policy, cost=cost), label=scenario.policy_name)  # type: ignore[type-var]


def prefill_seconds(log: RequestLog, cost: CostModel) -> NDArray[np.float64]:
    """Return the seconds of prefill of each logged request alone on a replica."""
    hit = log.column("hit")
    return cost.prefill_seconds(log.column("prompt") - hit, hit)


def _outcome(
    scenario: Scenario, log: RequestLog, names: list[str], cost: CostModel, timed: TimedRun | None = None
) -> Outcome:
    seconds = prefill_seconds(log, cost)
    ttft: NDArray[np.float64] = seconds
    count, prompt = len(log), int(log.column("prompt").sum())
    clocked: dict[str, float] = {}
    if timed is not None and count:
        ttft = np.asarray(log.column("first_token") - log.column("arrival"), np.float64)
        arrival = log.column("arrival")
        span, arriving = (float(last.max() - arrival.min()) for last in (log.column("finish"), arrival))
        clocked = {
            "queue_mean_s": float((log.column("start") - log.column("arrival")).mean()),
            "requests_per_s": count / span if span else 0.0,
            "arrivals_per_s": count / arriving if arriving else 0.0,
            "busy": timed.busy_s / timed.alive_s if timed.alive_s else 0.0,
        }
    busiest = float(np.bincount(log.column("replica"), weights=seconds, minlength=len(names)).max())
    return Outcome(
        policy=scenario.policy_name,
        replicas=scenario.replicas,
        seed=scenario.seed,
        requests=count,
        prompt_tokens=prompt,
        recomputed_tokens=prompt - int(log.column("hit").sum()),
        served=tuple(np.bincount(log.column("replica"), minlength=len(names)).tolist()),
        ttft=Timings.of(ttft),
        usd_per_million_requests=cost.usd(float(seconds.sum())) / count * MILLION if count else 0.0,
        usd_per_million_requests_busiest=cost.usd(busiest * len(names)) / count * MILLION if count else 0.0,
        load=None,
        **clocked,
    )
