"""``prefixroute simulate``: every policy on every fleet; untimed, or with a clock."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from prefixroute.cli import arguments, console, options
from prefixroute.cli.fleets import Apart, Course, Front, Simulated, scenario_of
from prefixroute.cli.groups import grouped
from prefixroute.cli.hardware import PricedHardware
from prefixroute.cli.output import Outputs
from prefixroute.cli.reading import TraceOptions, parts
from prefixroute.cli.table import UNTIMED_NOTE, show, show_assumed, show_end, show_notes
from prefixroute.errors import ConfigError
from prefixroute.report import Study
from prefixroute.report.fleets import arrangement
from prefixroute.sim import sweep
from prefixroute.sim.grid import open_source
from prefixroute.workload import measure

EXAMPLE = (
    "Example: prefixroute simulate chat --replicas 4,8 --policies round-robin,session,cache-aware --report report.html"
)

ENTRIES_NOTE = (
    "Cache `entries` is the seed article's model. It stores the shared system prompt once per conversation and so "
    "overstates pressure at 1 to 4 replicas; `--cache blocks` stores it once, as engines do."
)


@grouped
def command(
    workload: options.WorkloadName,
    *,
    replicas: Annotated[
        str | None,
        typer.Option(
            metavar="N,...",
            help="Numbers of replicas.",
            show_default="1,2,4,8; with --prefill-replicas as many as those and these have together",
        ),
    ] = None,
    policies: options.Policies = None,
    seeds: options.Seeds = 3,
    seed: options.Seed = 1,
    cache: options.CacheKind = None,
    infinite: Annotated[bool, typer.Option("--infinite", help="Run each policy with unlimited caches too.")] = False,
    runs: options.Runs,
    outputs: Outputs,
    simulated: Simulated,
    apart: Apart,
    front: Front,
    course: Course,
    hardware: PricedHardware,
    reading: TraceOptions,
) -> None:
    """Simulate policies over numbers of replicas: recomputed tokens, skew, dollars, time to first token."""
    chosen, time_is_up = arguments.policies(policies, workload), runs.deadline()
    scenario = scenario_of(hardware, simulated, front, cache=cache, **course.settings(hardware.cost))
    splits = apart.splits
    if splits and not simulated.timed:
        raise ConfigError("--prefill-replicas and --decode-replicas speak of a timed simulation: give --timed too")
    if apart.link is not None:
        scenario = replace(scenario, given=frozenset({*(scenario.given or ()), "link"}))
    if replicas is not None:
        counts = arguments.counts(replicas, what="--replicas")
    else:
        counts = [split.replicas for split in splits] or [1, 2, 4, 8]
    with console.progress(quiet=outputs.quiet) as told:
        read, run = parts(workload, told)
        opened = reading.source(workload, read)
        found = sweep(
            opened,
            policies=chosen,
            replicas=counts,
            splits=splits,
            seeds=range(seed, seed + seeds),
            scenario=scenario,
            cost=hardware.cost,
            infinite=infinite,
            jobs=runs.jobs,
            progress=run,
            time_is_up=time_is_up,
            load_parts=options.LOAD_PARTS if outputs.draws else 0,
        )
    found = replace(found, notes=(*found.notes, *_notes(timed=simulated.timed, entries=cache is options.Cache.ENTRIES)))
    study = Study.of(found)
    outputs.answer(found.to_dict, partial(show_study, study))
    if outputs.draws:
        from prefixroute.report.page import page, study_picture

        outputs.draw(lambda: page(study, measure(open_source(opened, seed))), lambda: study_picture(study))


def show_study(study: Study, out: Console) -> None:
    """Print the table of a study with its floor, notes and verdict."""
    seeds = study.rows[0]["seeds"]
    title = f"{study.workload}: {study.rows[0]['requests']:,} requests, {seeds} seed{'s' * (seeds > 1)}, cache {study.cache}"
    title += arrangement(study.assumptions)
    show_assumed(study.assumptions, out)
    show(study.table(title), out)
    show_notes(study.notes, out)
    hint = "what to do; on a log of yours: its path"
    following = f"prefixroute advise {study.workload} --replicas {max(study.replicas)}   ({hint})"
    show_end(study.summary(), following, out)


def _notes(*, timed: bool, entries: bool) -> tuple[str, ...]:
    return (*(() if timed else (UNTIMED_NOTE,)), *((ENTRIES_NOTE,) if entries else ()))
