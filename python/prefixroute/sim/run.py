"""One run: a workload under a scenario, priced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel import CostModel
from prefixroute.policies import as_policy, preset_of
from prefixroute.sim.fleet import SimulatedFleet
from prefixroute.sim.floor import check_warmup
from prefixroute.sim.garbage import collected_rarely
from prefixroute.sim.metrics import LoadCurve, Outcome, Timings, TokenGaps
from prefixroute.sim.replica import duplicated_tokens
from prefixroute.sim.request_log import RequestLog
from prefixroute.sim.scenario import Promise, Scenario
from prefixroute.sim.split import Split, role_of
from prefixroute.sim.stores import BlockStore
from prefixroute.sim.timed import TimedRun
from prefixroute.sim.untimed import UntimedRun
from prefixroute.types import DECODE, PREFILL
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
        retried: requests that a replica's death sent elsewhere (timed).
        gaps: between tokens of answers; none untimed.
    """

    scenario: Scenario
    outcome: Outcome
    log: RequestLog = field(repr=False, compare=False)
    names: tuple[str, ...]
    retried: int = 0
    gaps: TokenGaps = field(default_factory=lambda: TokenGaps.of(()), repr=False, compare=False)

    def load(self, buckets: int = 60) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what each replica had to do over the run, in ``buckets`` equal parts of it.

        Args:
            buckets: how many parts.

        Returns:
            The ends of the parts, shape ``[buckets + 1]``, and the load, shape ``[buckets, replicas]``: timed, the
            mean of requests in flight, parts in seconds; untimed, requests received, parts in requests.

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
        """Return the numbers of the run with its load in ``parts`` equal parts of it.

        Args:
            parts: how many; 0 = none.
        """
        edges, load = self.load(parts)
        curve = LoadCurve.of(edges, load, timed=self.scenario.engine is not None)
        return replace(self.outcome, load=curve)

    def prefill_seconds(self, cost: CostModel) -> NDArray[np.float64]:
        """Return the seconds of prefill of each request alone on a replica, in the log's order.

        Args:
            cost: of a replica.
        """
        return prefill_seconds(self.log, cost)


def simulate(
    workload: Workload,
    scenario: Scenario | None = None,
    *,
    cost: CostModel | None = None,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Run a workload under a scenario: untimed, or timed if the scenario has an engine.

    Meanwhile Python's cyclic garbage collector looks less often, see :mod:`prefixroute.sim.garbage`.

    Args:
        workload: read once, from its start.
        scenario: the default is ``cache-aware`` on 8 replicas, untimed.
        cost: prices and seconds; the default GPU and model unless given. A policy that weighs seconds and is given by
            its name uses it too; an object keeps what it has.
        progress: told now and then how many requests have been routed.

    Returns:
        The log of the run, and its numbers.

    Raises:
        ConfigError: the scenario does not fit the workload: all of its requests are warm-up.
        TraceError: a bad line of a trace that was not checked when it was opened.
    """
    scenario = scenario or Scenario()
    if cost is not None:
        scenario = _priced(scenario, cost)
    size, engine = workload.block_size, scenario.engine
    run = UntimedRun(scenario, size) if engine is None else TimedRun(scenario, size, engine)
    with collected_rarely():
        run.run(workload.requests(), progress)
    _check_counted(workload, scenario, run.log)
    timed = run if isinstance(run, TimedRun) else None
    outcome = _outcome(scenario, run.log, run.fleet, cost or CostModel(), timed)
    found = Run(scenario, outcome, run.log, tuple(run.fleet.names))
    return found if timed is None else replace(found, retried=timed.retried, gaps=timed.gaps)


def _check_counted(workload: Workload, scenario: Scenario, log: RequestLog) -> None:
    """Refuse a run of which no request counts, because all of them were warm-up."""
    if scenario.warmup and not len(log):
        check_warmup(workload, sum(1 for _ in workload.requests()), scenario.warmup)


def _priced(scenario: Scenario, cost: CostModel) -> Scenario:
    """Return the scenario with the run's prices in a policy that weighs seconds, if it was given by its name."""
    if not isinstance(scenario.policy, str) or preset_of(scenario.policy):
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
    scenario: Scenario, log: RequestLog, fleet: SimulatedFleet, cost: CostModel, timed: TimedRun | None
) -> Outcome:
    names, split = fleet.names, scenario.split
    roles = [role_of(name, split) for name in names]
    computing = [number for number, role in enumerate(roles) if role != DECODE]
    seconds = prefill_seconds(log, cost)
    count, prompt = len(log), int(log.column("prompt").sum())
    measured: dict[str, Any] = {"ttft": Timings.of(seconds)}
    if timed is not None and count:
        measured = _on_the_clock(log, timed, scenario.promise)
    if split is not None and timed is not None:
        measured |= _apart(log, timed, split, roles)
    stores = [store.cache for store in fleet.stores.values() if isinstance(store, BlockStore)]
    if stores and scenario.capacity_tokens is not None:
        tokens = duplicated_tokens(stores)
        measured["kv_duplicated_gb"] = tokens * cost.model.kv_bytes_per_token / 1e9
    busiest = float(np.bincount(log.column("replica"), weights=seconds, minlength=len(names)).max()) * len(computing)
    return Outcome(
        policy=scenario.policy_name,
        replicas=scenario.replicas,
        seed=scenario.seed,
        requests=count,
        prompt_tokens=prompt,
        recomputed_tokens=prompt - int(log.column("hit").sum()),
        served=tuple(np.bincount(log.column("replica"), minlength=len(names))[computing].tolist()),
        usd_per_million_requests=cost.usd(float(seconds.sum())) / count * MILLION if count else 0.0,
        usd_per_million_requests_busiest=cost.usd(busiest) / count * MILLION if count else 0.0,
        **measured,
    )


def _apart(log: RequestLog, timed: TimedRun, split: Split, roles: Sequence[str]) -> dict[str, Any]:
    """Return the numbers of a run whose replicas prefill and decode apart."""
    names = timed.fleet.names
    pools = {role: {name for name, own in zip(names, roles, strict=True) if own == role} for role in (PREFILL, DECODE)}
    decoding = [number for number, role in enumerate(roles) if role == DECODE]
    waited = log.column("first_token") - log.column("prefilled")
    return {
        "prefill_replicas": split.prefill,
        "decode_replicas": split.decode,
        "decoded": tuple(np.bincount(log.column("decode"), minlength=len(names))[decoding].tolist()),
        "prefill_busy": timed.busy(pools[PREFILL]),
        "decode_busy": timed.busy(pools[DECODE]),
        "handover_mean_s": float(waited.mean()) if len(log) else 0.0,
        "moved_tokens": int(log.column("moved").sum()),
    }


def promise_kept(log: RequestLog, promise: Promise) -> NDArray[np.bool_]:
    """Return which requests of a timed run kept every time that is promised, in the log's order."""
    columns = ("arrival", "first_token", "finish", "output")
    arrival, first, finish, output = (np.asarray(log.column(name), np.float64) for name in columns)
    gaps = (output - 1).clip(0)
    kept = 100 * log.column("late") <= (100 - promise.itl_percentile) * gaps
    limits = (
        (first - arrival, promise.ttft_s),
        (np.where(gaps > 0, (finish - first) / np.maximum(gaps, 1), 0.0), promise.tpot_s),
        (finish - arrival, promise.e2e_s),
    )
    for times, most in limits:
        if most is not None:
            kept &= times <= most
    return np.asarray(kept, np.bool_)


def _on_the_clock(log: RequestLog, timed: TimedRun, promise: Promise | None) -> dict[str, Any]:
    """Return the numbers of a timed run."""
    columns = ("arrival", "start", "first_token", "finish")
    arrival, start, first, finish = (np.asarray(log.column(name), np.float64) for name in columns)
    count, span, arriving = len(log), float(finish.max() - arrival.min()), float(arrival.max() - arrival.min())
    gaps = log.column("output") - 1
    ttft, e2e, decode = first - arrival, finish - arrival, finish - first
    tpot = decode / np.maximum(gaps, 1)
    measured: dict[str, Any] = {
        "ttft": Timings.of(ttft),
        "tpot": Timings.of(tpot[gaps > 0]),
        "itl": timed.gaps.timings(float(decode.sum() / max(1, gaps[gaps > 0].sum()))),
        "e2e": Timings.of(e2e),
        "queue_mean_s": float((start - arrival + first - log.column("prefilled")).mean()),
        "requests_per_s": count / span if span else 0.0,
        "arrivals_per_s": count / arriving if arriving else 0.0,
        "busy": timed.busy(set(timed.fleet.names)),
        "preemptions": timed.preemptions,
    }
    if promise is not None:
        kept = int(promise_kept(log, promise).sum())
        measured |= {"goodput_per_s": kept / span if span else 0.0, "missed_ratio": 1.0 - kept / count}
    return measured
