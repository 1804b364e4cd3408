"""Many runs joined into rows: policies x fleets x seeds. The digits do not depend on ``jobs``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, methodcaller
from typing import Any

from prefixroute.costmodel import DEFAULT_LINK, Assumption, CostModel, Link, find_link
from prefixroute.costmodel.assumption import GIVEN, LEFT_BY_WEIGHTS, WITH_CLOCK, WITHOUT_CLOCK
from prefixroute.document import SCHEMA, ResultDocument
from prefixroute.errors import ConfigError
from prefixroute.sim.engine import CHUNK_TOKENS, MAX_RUNNING
from prefixroute.sim.grid import Cell, Grid, Source, open_source, seeds_of
from prefixroute.sim.metrics import Outcome, ResultRow
from prefixroute.sim.pool import Jobs
from prefixroute.sim.progress import Progress
from prefixroute.sim.scenario import ARTICLE_CAPACITY_TOKENS, AnyPolicy, Scenario
from prefixroute.sim.split import Split

OUTCOME = attrgetter("outcome")
"""What a sweep keeps of a run."""


@dataclass(frozen=True, slots=True)
class Sweep(ResultDocument):
    """Rows over policies and fleets, and what they rest on."""

    workload: str
    rows: tuple[ResultRow, ...]
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


def sweep(
    source: Source,
    *,
    policies: Sequence[AnyPolicy] = ("round-robin", "session", "cache-aware"),
    replicas: Sequence[int] = (1, 2, 4, 8),
    splits: Sequence[Split] = (),
    seeds: int | Sequence[int] = 3,
    scenario: Scenario | None = None,
    cost: CostModel | None = None,
    infinite: bool = False,
    jobs: Jobs = 1,
    progress: Progress | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
    load_parts: int = 0,
) -> Sweep:
    """Run every policy on every fleet with every seed.

    Args:
        source: a workload, or a function from a seed to one (``chat``); the same seed also fixes
            the draws of the routers.
        policies: names or objects; rows come in this order, within a fleet.
        replicas: sizes of the fleet; rows come in this order.
        splits: fleets that prefill and decode apart, timed; their rows come behind those of mixed fleets of the same
            size.
        seeds: how many, counted from 1, or the seeds themselves.
        scenario: every other setting.
        cost: prices and seconds.
        infinite: run each policy with unlimited caches too, for ``recompute_ratio_infinite``.
        jobs: processes, see :class:`~prefixroute.sim.grid.Grid`.
        progress: told the share of the work that is done.
        time_is_up: asked between runs; then unlimited caches and further seeds are left out, which a note says.
        load_parts: parts of a run for which rows keep the load of the fleet, for pictures; 0 keeps none.

    Returns:
        A row for each policy and fleet, over all seeds.

    Raises:
        ConfigError: no policy, fleet or seed; or ``jobs`` is neither a number nor ``ray``, or cannot be had with this
            source.
    """
    base, chosen = scenario or Scenario(), seeds_of(seeds)
    for name, given in (("policies", policies), ("replicas", replicas)):
        if not given:
            raise ConfigError(f"a sweep needs at least one of {name}, got none")
    grid = Grid(source, chosen, cost or CostModel(), jobs, progress, time_is_up)
    measure = methodcaller("outcome_with_load", load_parts) if load_parts else OUTCOME
    limited = list(_fleets(base, policies, replicas, splits))
    cells = {(at, False): Cell(one, measure) for at, one in enumerate(limited)}
    if infinite:
        cells |= {(at, True): Cell(one.unlimited(), OUTCOME, optional=True) for at, one in enumerate(limited)}
    results = grid.run(cells, floor=(base.cache, base.warmup))
    rows = tuple(
        ResultRow.over(results.runs[at, False], results.floor, beyond(results.runs.get((at, True))))
        for at in range(len(limited))
    )
    workload = open_source(grid.source, chosen[0])
    rests_on = (*workload.assumptions, *grid.cost.assumptions, *assumed(base), *_links(base, splits, grid.cost))
    notes = (*workload.notes, *overload(rows), *left_out(results.left_out))
    return Sweep(workload.name, rows, rests_on, notes)


def _fleets(
    base: Scenario, policies: Sequence[AnyPolicy], replicas: Sequence[int], splits: Sequence[Split]
) -> Iterator[Scenario]:
    """Yield what is run: every policy on mixed fleets of each size, then on split ones of that size."""
    for count in dict.fromkeys((*replicas, *(split.replicas for split in splits))):
        mixed = [replace(base, replicas=count, policy=policy) for policy in policies]
        if count in replicas:
            yield from mixed
        for split in splits:
            if split.replicas == count:
                yield from map(split.of, mixed)


def beyond(unlimited: Sequence[Outcome] | None) -> float | None:
    """Return the recompute ratio of runs with unlimited caches; None where there was none."""
    return ResultRow.over(unlimited).recompute_ratio if unlimited else None


def left_out(what: Sequence[str]) -> tuple[str, ...]:
    """Return a note that says what there was no time for, if there was any."""
    return (f"left out, because the time budget was used up: {'; '.join(what)}",) if what else ()


def overload(rows: Sequence[ResultRow]) -> tuple[str, ...]:
    """Return notes that name the fleets to which requests come faster than they are served, or may."""
    over = [
        f"{row.policy} on {row.replicas} serves {row.requests_per_s:,.3g} of {row.arrivals_per_s:,.3g} requests/s"
        for row in rows
        if row.is_overloaded
    ]
    notes = (f"overloaded, so that TTFT grows for as long as requests come: {', '.join(over)}",) if over else ()
    short = [row for row in rows if row.is_too_short]
    if short:
        span_s = max(row.requests / row.arrivals_per_s for row in short if row.arrivals_per_s)
        names = ", ".join(f"{row.policy} on {row.replicas}" for row in short)
        told = f"too short to tell whether these keep up, since few requests come, for {span_s:.3g} s, less than one takes: {names}"
        notes = (*notes, told)
    return notes


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
        return Assumption.of(setting, value, unit, source, given=scenario.is_given(setting))

    capacity, article = scenario.capacity_tokens, ARTICLE_CAPACITY_TOKENS
    rows = {
        "policy": row("policy", scenario.policy_name, "", "the default"),
        "replicas": row("replicas", scenario.replicas, "", "the default"),
        "capacity_tokens": row(
            "capacity_tokens",
            "unlimited" if capacity is None else capacity,
            "tokens per replica",
            "reference article, 2026-11: 44.2 GB for Qwen3-8B in bf16" if capacity == article else LEFT_BY_WEIGHTS,
        ),
        "cache": row("cache", scenario.cache, "", "vLLM's rules"),
        "observe": row("observe", str(scenario.observation), "", "path from truth to belief"),
        "load": row("load", scenario.load_signal, "", "signal that every policy balances"),
    }
    extra = {"policy", "replicas"} - set(also)
    clock = Assumption(
        "clock", WITH_CLOCK if scenario.engine else WITHOUT_CLOCK, "", "how it was simulated", assumed=False
    )
    told = (item for name, item in rows.items() if name not in extra)
    return (*told, clock, *_batching(scenario), *_routers(scenario))


def link_assumed(cost: CostModel, link: Link, *, given: bool = False) -> Assumption:
    """Return what keys and values move over from prefill to decode, marked where it is the default that nobody gave."""
    default = not given and link.name == DEFAULT_LINK
    per_token_s = (cost.transfer_seconds(1_000_000, link) - link.latency_s) / 1_000_000
    unit = f"({1e6 * per_token_s:.3g} ms per 1,000 tokens)"
    return Assumption.of("link", link.name, unit, link.source, given=not default)


def _links(scenario: Scenario, splits: Sequence[Split], cost: CostModel) -> Iterator[Assumption]:
    """Yield each link once; those after the first have a number."""
    given = "link" in (scenario.given or ())
    for at, link in enumerate(dict.fromkeys(find_link(split.link) for split in splits), 1):
        one = link_assumed(cost, link, given=given)
        yield one if at == 1 else replace(one, name=f"{one.name}_{at}")


def _routers(scenario: Scenario) -> Iterator[Assumption]:
    """Yield what stands before the fleet, where that is more than one router."""
    if scenario.routers == 1:
        return
    yield Assumption("routers", scenario.routers, "", GIVEN, assumed=False)
    front, usual = scenario.front, "the default, spreads requests over the routers"
    yield Assumption.of("front", front, "", usual, given=front != "round-robin")
    if scenario.peer_delay_s is not None:
        yield Assumption("peer_delay_s", scenario.peer_delay_s, "s", GIVEN, assumed=False)


def _batching(scenario: Scenario) -> Iterator[Assumption]:
    """Yield how an engine fills its steps, timed."""
    if scenario.engine is None:
        return
    for name, default in (("chunk_tokens", CHUNK_TOKENS), ("max_running", MAX_RUNNING)):
        value = getattr(scenario.engine, name)
        given = value != default or name in (scenario.given or ())
        yield Assumption.of(name, value, "", "vLLM's default", given=given)
