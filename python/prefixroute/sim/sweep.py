"""Many runs joined into rows: policies x fleets x seeds. The digits do not depend on ``jobs``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product, repeat
from operator import attrgetter, methodcaller
from typing import Any

from prefixroute.costmodel import Assumption, CostModel
from prefixroute.costmodel.assumption import IN_ORDER, IN_TIME, LEFT_BY_WEIGHTS
from prefixroute.errors import ConfigError
from prefixroute.sim.engine import CHUNK_TOKENS, MAX_RUNNING
from prefixroute.sim.metrics import Row
from prefixroute.sim.scenario import ARTICLE_CAPACITY_TOKENS, AnyPolicy, Scenario
from prefixroute.sim.tasks import FloorTask, Report, RunTask, Source, open_source, run_tasks

SCHEMA = 1
"""Version of the JSON object. Fields may be added under it; a changed meaning raises it."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rows over policies and fleets, and what they rest on."""

    workload: str
    rows: tuple[Row, ...]
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``simulate --json``."""
        return {
            "schema": SCHEMA,
            "workload": self.workload,
            "assumptions": assumptions_dict(self.assumptions),
            "notes": list(self.notes),
            "rows": [row.to_dict() for row in self.rows],
        }

    def to_json(self) -> str:
        """Return the object as text. Same inputs, same bytes."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def sweep(
    source: Source,
    *,
    policies: Sequence[AnyPolicy] = ("round-robin", "session", "cache-aware"),
    replicas: Sequence[int] = (1, 2, 4, 8),
    seeds: int | Sequence[int] = 3,
    scenario: Scenario | None = None,
    cost: CostModel | None = None,
    infinite: bool = False,
    jobs: int = 1,
    progress: Report | None = None,
    load_parts: int = 0,
) -> Sweep:
    """Run every policy on every fleet with every seed.

    Args:
        source: a workload, or a function from a seed to one (``chat``, ``Trace(path)``); the same seed also
            fixes the draws of the routers.
        policies: names or objects; rows come in this order, within a fleet.
        replicas: sizes of the fleet; rows come in this order.
        seeds: how many, counted from 1, or the seeds themselves.
        scenario: every other setting.
        cost: prices and seconds.
        infinite: run each policy with unlimited caches too, for ``recompute_ratio_infinite``.
        jobs: processes, see :func:`~prefixroute.sim.tasks.run_tasks`.
        progress: told the share of the work that is done.
        load_parts: parts of a run for which rows keep the load of the fleet, for pictures; 0 keeps none.

    Raises:
        ConfigError: no policy, fleet or seed; or ``jobs`` is below one, or cannot be had with this source.
    """
    base, cost, chosen = scenario or Scenario(), cost or CostModel(), seeds_of(seeds)
    for name, given in (("policies", policies), ("replicas", replicas)):
        if not given:
            raise ConfigError(f"a sweep needs at least one of {name}, got none")
    limited = [replace(base, replicas=count, policy=policy) for count, policy in product(replicas, policies)]
    scenarios = limited + [one.unlimited() for one in limited] * infinite
    floors = [FloorTask(source, seed, base.cache, base.warmup) for seed in chosen]
    measure = methodcaller("outcome_with_load", load_parts) if load_parts else attrgetter("outcome")
    runs = [RunTask(source, replace(one, seed=seed), cost, measure) for one in scenarios for seed in chosen]
    results = list(run_tasks([*floors, *runs], jobs, progress))
    recomputed, prompt = (sum(column) for column in zip(*results[: len(chosen)], strict=True))
    bottom = recomputed / prompt if prompt else 0.0
    groups = [results[first : first + len(chosen)] for first in range(len(chosen), len(results), len(chosen))]
    beyond: list[float | None] = [Row.over(group).recompute_ratio for group in groups[len(limited) :]]
    rows = [Row.over(*both) for both in zip(groups, repeat(bottom), beyond or repeat(None))]
    workload = open_source(source, chosen[0])
    rests_on = (*workload.assumptions, *cost.assumptions, *assumed(base))
    return Sweep(workload.name, tuple(rows), rests_on, (*workload.notes, *overload(rows)))


def overload(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return a note that names the fleets to which requests come faster than they are served, if there are any."""
    over = [
        f"{row.policy} on {row.replicas} serves {row.requests_per_s:,.3g} of {row.arrivals_per_s:,.3g} requests/s"
        for row in rows
        if row.is_overloaded
    ]
    if not over:
        return ()
    return (f"overloaded, so that TTFT grows for as long as requests come: {', '.join(over)}",)


def seeds_of(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds meant: a number counts from 1."""
    chosen = tuple(range(1, seeds + 1)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen:
        raise ConfigError(f"at least one of seeds is needed, got {seeds}")
    if len(set(chosen)) < len(chosen):
        raise ConfigError(f"seeds must differ, got {', '.join(map(str, chosen))}")
    return chosen


def assumptions_dict(assumptions: Sequence[Assumption]) -> dict[str, dict[str, Any]]:
    """Return the ``assumptions`` object of a JSON result."""
    return {
        item.name: {"value": item.value, "unit": item.unit, "source": item.source, "assumed": item.assumed}
        for item in assumptions
    }


def assumed(scenario: Scenario, *also: str) -> tuple[Assumption, ...]:
    """Return the figures that a scenario adds to a result's assumptions, marked where nobody gave them.

    Args:
        scenario: what was simulated.
        also: further settings that the result rests on: ``replicas``, ``policy``.
    """

    def row(setting: str, value: float | str, unit: str, source: str) -> Assumption:
        given = scenario.is_given(setting)
        return Assumption(setting, value, unit, "given by the user" if given else source, not given)

    capacity, article = scenario.capacity_tokens, ARTICLE_CAPACITY_TOKENS
    rows = {
        "policy": row("policy", scenario.policy_name, "", "the default"),
        "replicas": row("replicas", scenario.replicas, "", "the default"),
        "capacity_tokens": row(
            "capacity_tokens",
            "unlimited" if capacity is None else capacity,
            "tokens a replica",
            "seed article, 2026-11: 44.2 GB for Qwen3-8B in bf16" if capacity == article else LEFT_BY_WEIGHTS,
        ),
        "cache": row("cache", scenario.cache, "", "vLLM's rules"),
        "observe": row("observe", repr(scenario.observation), "", "path from truth to belief"),
        "load": row("load", scenario.load_signal, "", "signal that every policy balances"),
    }
    extra = {"policy", "replicas"} - set(also)
    clock = Assumption("clock", IN_TIME if scenario.engine else IN_ORDER, "", "how it was simulated", assumed=False)
    return (*(item for name, item in rows.items() if name not in extra), clock, *_batching(scenario))


def _batching(scenario: Scenario) -> Iterator[Assumption]:
    """Yield how an engine fills its steps, in time."""
    if scenario.engine is None:
        return
    for name, default in (("chunk_tokens", CHUNK_TOKENS), ("max_running", MAX_RUNNING)):
        value = getattr(scenario.engine, name)
        given = value != default or name in (scenario.given or ())
        source = "given by the user" if given else "vLLM's default"
        yield Assumption(name, value, "", source, not given)
