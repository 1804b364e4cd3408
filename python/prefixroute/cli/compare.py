"""``prefixroute compare``: policies side by side on one fleet, with intervals of the differences."""

from __future__ import annotations

from prefixroute.advise import compare
from prefixroute.advise.question import OTHERS
from prefixroute.cli import arguments, console, options
from prefixroute.cli.fleets import Course, FrontOptions, Simulated, scenario_of
from prefixroute.cli.groups import grouped, option
from prefixroute.cli.hardware import PricedHardware
from prefixroute.cli.output import Outputs
from prefixroute.cli.reading import TraceOptions, parts
from prefixroute.report.comparison import comparison_sheet

EXAMPLE = "Example: prefixroute compare day.jsonl.gz --replicas 8 --policies session,cache-aware,sglang-balanced"

EVERY_MECHANISM = ",".join(("round-robin", "least-loaded", "session", "prefix-hash", "cache-aware", *OTHERS))
"""One policy of each kind and other routers by their presets, where none is named."""


@grouped
def command(
    workload: options.WorkloadName,
    *,
    replicas: int | None = options.replicas(),
    policies: str = options.policies(EVERY_MECHANISM),
    metric: str = option(
        "recompute_ratio",
        "What decides: recompute_ratio, ttft_mean_s, ttft_p99_s, usd_per_million_requests or another that it lists.",
    ),
    seeds: int = options.seeds(3),
    seed: int = options.seed(1),
    runs: options.RunOptions,
    outputs: Outputs,
    simulated: Simulated,
    front: FrontOptions,
    course: Course,
    hardware: PricedHardware,
    reading: TraceOptions,
) -> None:
    """Compare policies on equal terms. A winner is named only outside of the noise: 95 % intervals over sessions."""
    chosen, time_is_up = arguments.policies(policies, workload), runs.deadline()
    scenario = scenario_of(hardware, simulated, front, replicas=replicas, **course.settings(hardware.cost))
    with console.progress(quiet=outputs.quiet) as told:
        read, run = parts(workload, told)
        found = compare(
            reading.source(workload, read),
            chosen,
            scenario=scenario,
            seeds=range(seed, seed + seeds),
            metric=metric,
            infinite=True,
            cost=hardware.cost,
            jobs=runs.jobs,
            progress=run,
            time_is_up=time_is_up,
            load_parts=options.LOAD_PARTS if outputs.draws else 0,
        )
    outputs.give(comparison_sheet(found), found.to_dict)
