"""``prefixroute simulate``: every policy on every fleet, in order of arrival, without a clock."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from prefixroute.cli import arguments, console, options
from prefixroute.cli.output import Output
from prefixroute.cli.table import ORDERED_NOTE, show
from prefixroute.report import Study
from prefixroute.report.table import remarks
from prefixroute.sim import sweep
from prefixroute.sim.grid import open_source
from prefixroute.workload import measure

EXAMPLE = (
    "Example: prefixroute simulate chat --replicas 4,8 --policies round-robin,session,cache-aware --report report.html"
)


LOAD_PARTS = 60
"""Parts of a run in the chart of the load."""
ENTRIES_NOTE = (
    "Cache `entries` is the seed article's model. It stores the shared system prompt once per conversation and so "
    "overstates pressure at 1 to 4 replicas; `--cache blocks` stores it once, as engines do."
)


@options.grouped
def command(  # noqa: PLR0917
    workload: options.WorkloadName,
    replicas: Annotated[str, typer.Option(metavar="N,...", help="Numbers of replicas.")] = "1,2,4,8",
    policies: options.Policies = None,
    seeds: options.Seeds = 3,
    seed: options.Seed = 1,
    cache: options.CacheKind = None,
    infinite: Annotated[bool, typer.Option("--infinite", help="Run each policy with unlimited caches too.")] = False,
    jobs: options.Jobs = 1,
    as_json: options.AsJson = False,
    report: options.ReportFile = None,
    png: options.PngFile = None,
    quiet: options.Quiet = False,
    *,
    simulated: options.Simulated,
    front: options.Front,
    hardware: options.PricedHardware,
    reading: options.Reading,
) -> None:
    """Simulate policies over numbers of replicas: recomputed tokens, skew, dollars, time to first token."""
    output = Output(report, png)
    chosen = arguments.policies(policies, workload)
    scenario = options.scenario(hardware, simulated, front, cache=cache)
    with console.progress(quiet=quiet) as told:
        opened = reading.source(workload, told)
        found = sweep(
            opened,
            policies=chosen,
            replicas=arguments.counts(replicas, what="--replicas"),
            seeds=range(seed, seed + seeds),
            scenario=scenario,
            cost=hardware.cost,
            infinite=infinite,
            jobs=jobs,
            progress=told,
            load_parts=LOAD_PARTS if output else 0,
        )
    found = replace(found, notes=(*found.notes, *_notes(timed=simulated.timed, entries=cache is options.Cache.ENTRIES)))
    study = Study.of(found)
    if as_json:
        sys.stdout.write(found.to_json())
    else:
        show(study, console.stdout())
    if output:
        from prefixroute.report.charts import charts
        from prefixroute.report.page import page

        trace = measure(open_source(opened, seed))
        said = remarks(study.assumptions, study.notes)
        output.write(lambda: page(study, trace), f"{study.workload}: what each policy costs", charts(study), said)


def _notes(*, timed: bool, entries: bool) -> tuple[str, ...]:
    return (*(() if timed else (ORDERED_NOTE,)), *((ENTRIES_NOTE,) if entries else ()))
