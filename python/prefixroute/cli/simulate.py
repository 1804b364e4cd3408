"""``prefixroute simulate``: every policy on every fleet; untimed, or with a clock."""

from __future__ import annotations

from dataclasses import replace

from prefixroute.cli import arguments, console, options
from prefixroute.cli.fleets import Apart, Course, FrontOptions, Simulated, scenario_of
from prefixroute.cli.groups import grouped, option
from prefixroute.cli.hardware import PricedHardware
from prefixroute.cli.output import Outputs
from prefixroute.cli.reading import TraceOptions, parts
from prefixroute.errors import ConfigError
from prefixroute.report.comparison import UNTIMED_NOTE
from prefixroute.report.study import sweep_sheet
from prefixroute.sim import sweep
from prefixroute.sim.grid import open_source
from prefixroute.workload import measure

EXAMPLE = (
    "Example: prefixroute simulate chat --replicas 4,8 --policies round-robin,session,cache-aware --report report.html"
)

ENTRIES_NOTE = (
    "Cache `entries` is the reference article's model. It stores the shared system prompt once per conversation and so "
    "overstates pressure at 1 to 4 replicas; `--cache blocks` stores it once, as engines do."
)


@grouped
def command(
    workload: options.WorkloadName,
    *,
    replicas: str | None = option(
        None,
        "Numbers of replicas.",
        metavar="N,...",
        show_default="1,2,4,8; with --prefill-replicas as many as those and these have together",
    ),
    policies: str | None = options.policies(),
    seeds: int = options.seeds(3),
    seed: int = options.seed(1),
    cache: options.Cache | None = options.cache(),
    infinite: bool = option(False, "Run each policy with unlimited caches too.", "--infinite"),
    runs: options.RunOptions,
    outputs: Outputs,
    simulated: Simulated,
    apart: Apart,
    front: FrontOptions,
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
    notes = (UNTIMED_NOTE,) * (not simulated.timed) + (ENTRIES_NOTE,) * (cache is options.Cache.ENTRIES)
    found = replace(found, notes=(*found.notes, *notes))
    outputs.give(sweep_sheet(found, lambda: measure(open_source(opened, seed))), found.to_dict)
