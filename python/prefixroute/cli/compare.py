"""``prefixroute compare``: policies side by side on one fleet, with intervals of the differences."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from prefixroute.advise import Comparison, compare
from prefixroute.advise.question import OTHERS
from prefixroute.cli import arguments, console, options
from prefixroute.cli.fleets import Course, Front, Simulated, scenario_of
from prefixroute.cli.groups import grouped
from prefixroute.cli.hardware import PricedHardware
from prefixroute.cli.output import Outputs
from prefixroute.cli.reading import TraceOptions, parts
from prefixroute.cli.table import UNTIMED_NOTE, show, show_assumed, show_end, show_notes
from prefixroute.report.behind import floor_line
from prefixroute.report.compared import compared, details
from prefixroute.report.figures import replicas as fleet
from prefixroute.report.fleets import arrangement
from prefixroute.report.sentences import idle
from prefixroute.report.verdicts import verdict

EXAMPLE = "Example: prefixroute compare day.jsonl.gz --replicas 8 --policies session,cache-aware,sglang-balanced"

EVERY_MECHANISM = ",".join(("round-robin", "least-loaded", "session", "prefix-hash", "cache-aware", *OTHERS))
"""One policy of each kind and other routers by their presets, where none is named."""


@grouped
def command(
    workload: options.WorkloadName,
    *,
    replicas: options.Replicas = None,
    policies: options.Policies = EVERY_MECHANISM,
    metric: Annotated[
        str,
        typer.Option(
            help="What decides: recompute_ratio, ttft_mean_s, ttft_p99_s, usd_per_million_requests or another that it lists."
        ),
    ] = "recompute_ratio",
    seeds: options.Seeds = 3,
    seed: options.Seed = 1,
    runs: options.Runs,
    outputs: Outputs,
    simulated: Simulated,
    front: Front,
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
    outputs.answer(found.to_dict, partial(show_comparison, found))
    if outputs.draws:
        from prefixroute.report.comparison import comparison_page, comparison_picture

        outputs.draw(lambda: comparison_page(found), lambda: comparison_picture(found))


def show_comparison(found: Comparison, out: Console) -> None:
    """Print the tables of a comparison with its floor, notes and verdict."""
    count = found.rows[0].replicas
    title = f"{found.workload} on {fleet(count)}: differences from {found.reference}, intervals over {found.clusters:,} sessions"
    title += arrangement(found.assumptions)
    show_assumed(found.assumptions, out)
    show(compared(found, title), out)
    for table in details(found):
        show(table, out)
    floor = found.rows[0].floor
    if floor is not None:
        console.say(f"  {floor_line(floor, found.assumptions)}", out)
    for one in found.idle:
        why = None if one.why is None else one.why.kind
        figures = {} if one.why is None else {"tokens": one.why.tokens, "head_tokens": one.why.head_tokens}
        show_notes([idle(one.policy, one.idle, one.replicas, why, figures)], out)
    show_notes((*found.notes, *(() if found.timed else (UNTIMED_NOTE,))), out)
    following = f"prefixroute advise {found.workload} --replicas {count}   (what to do about it, and what it saves)"
    show_end([verdict(found)], following, out)
