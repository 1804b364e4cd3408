"""``prefixroute advise``, ``backtest`` and ``size``: what to do about a trace, and whether to believe it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from prefixroute.advise import IN_USE, Question, Sizing, Slo, advise, backtest, size
from prefixroute.cli import arguments, console, options
from prefixroute.cli.output import Output
from prefixroute.cli.table import show_assumptions
from prefixroute.costmodel.assumption import MONEY, SECONDS, SHARES, on_defaults
from prefixroute.report.table import usd
from prefixroute.sim.grid import open_source

ADVISE_EXAMPLE = "Example: prefixroute advise day.jsonl.gz --replicas 8 --current round-robin"
BACKTEST_EXAMPLE = "Example: prefixroute backtest day.jsonl.gz --replicas 8 --policies round-robin,least-loaded"
SIZE_EXAMPLE = "Example: prefixroute size day.jsonl.gz --slo ttft_p95=1.5s"

SIZE_HEADS = {
    "replicas": SECONDS,
    "GPUs": SECONDS,
    "$ / month": MONEY,
    "TTFT s": SECONDS,
    "with one less": SECONDS,
    "recomputed %": SHARES,
    "busy %": SECONDS,
}
"""Columns of ``size``, and the assumptions that each rests on."""

Current = Annotated[
    str | None, typer.Option(metavar="NAME", help="Policy in use now: savings are against it.", show_default=IN_USE)
]


@options.grouped
def advise_command(  # noqa: PLR0917
    workload: options.WorkloadName,
    replicas: options.Replicas = None,
    current: Current = None,
    policies: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Further policies and presets to compare.")
    ] = None,
    sensitivity: Annotated[
        str | None, typer.Option(metavar="WHAT,...", help="Would it change with another capacity, price, replicas?")
    ] = None,
    seeds: options.Seeds = 3,
    seed: options.Seed = 1,
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
    """Advise on routing: the decision tree with measured numbers at each branch, what to fix first, what it would save."""
    output = Output(report, png)
    question = Question(
        scenario=options.scenario(hardware, simulated, front, replicas=replicas),
        current=current,
        policies=None if policies is None else arguments.policies(policies, workload),
        vary=() if sensitivity is None else arguments.names(sensitivity, what="--sensitivity"),
        seeds=range(seed, seed + seeds),
    )
    with console.progress(quiet=quiet) as told:
        found = advise(reading.source(workload, told), question, cost=hardware.cost, jobs=jobs, progress=told)
    if as_json:
        sys.stdout.write(found.to_json())
    else:
        console.say(found.text().rstrip("\n"), console.stdout())
    if output:
        from prefixroute.report.advice import advice_page, advice_picture

        output.write(lambda: advice_page(found), *advice_picture(found))


@options.grouped
def backtest_command(  # noqa: PLR0917
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A log that reports cached tokens.")],
    replicas: options.Replicas = None,
    current: Annotated[
        str | None, typer.Option(metavar="NAME", help="Policy that routed the log.", show_default=IN_USE)
    ] = None,
    policies: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Policies to try, at several capacities, as explanations.")
    ] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    *,
    simulated: options.Simulated,
    hardware: options.Hardware,
    reading: options.Reading,
) -> None:
    """Test the simulator: simulated hits against the cached tokens that the log itself reports."""
    policy = None if current is None else arguments.policies(current, trace)[0]
    scenario = options.scenario(hardware, simulated, replicas=replicas, policy=policy)
    scenario = replace(scenario, policy=policy or IN_USE)
    search = () if policies is None else arguments.policies(policies, trace)
    with console.progress(quiet=quiet) as told:
        opened = open_source(reading.source(trace, told), 1)
        found = backtest(opened, scenario, search=search, cost=hardware.cost, progress=told)
    if as_json:
        sys.stdout.write(found.to_json())
        return
    out = console.stdout()
    console.say(found.text(), out)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in ("prompt tokens", "requests", "reported hits %", "simulated hits %"):
        table.add_column(head, justify="right")
    for band in found.bands:
        lengths = f"{band.shortest:,} to {band.longest:,}"
        table.add_row(lengths, f"{band.requests:,}", f"{100 * band.reported:.1f}", f"{100 * band.simulated:.1f}")
    out.print(table)
    notes = list(found.notes)
    if found.verdict == "disagrees" and policies is None:
        notes.append(
            "--current, --replicas and --capacity say what the log comes from; --policies NAME,... tries others."
        )
    show_assumptions(found.assumptions, notes, out)


@options.grouped
def size_command(  # noqa: PLR0917
    workload: options.WorkloadName,
    slo: Annotated[
        str, typer.Option(metavar="ttft_pNN=SECONDS", help="The promise: ttft_p95=1.5 (or 1.5s), ttft_p99=800ms.")
    ],
    policies: options.Policies = None,
    seeds: options.Seeds = 1,
    seed: options.Seed = 1,
    most: Annotated[int, typer.Option(min=1, help="Replicas beyond which no fleet is tried.")] = 256,
    jobs: options.Jobs = 1,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    *,
    hardware: options.PricedHardware,
    reading: options.Reading,
) -> None:
    """Size a fleet: the fewest replicas and GPUs that keep a promise on time to first token, under each policy."""
    promise, chosen = Slo.parse(slo), arguments.policies(policies, workload)
    scenario = options.scenario(hardware, options.Simulated(timed=True))
    with console.progress(quiet=quiet) as told:
        found = size(
            reading.source(workload, told),
            promise,
            chosen,
            scenario=scenario,
            seeds=range(seed, seed + seeds),
            most=most,
            cost=hardware.cost,
            jobs=jobs,
            progress=told,
        )
    if as_json:
        sys.stdout.write(found.to_json())
        return
    out = console.stdout()
    out.print(_sizes(found, most))
    if any(fleet.replicas is None for fleet in found.fleets):
        console.say(
            f"  Beside more than {most} stands the TTFT with {most}, and with one replica it is "
            + ", ".join(f"{one.ttft_one_s:.2f} s ({one.policy})" for one in found.fleets if one.replicas is None)
            + ". Where more replicas hardly help, prefill alone takes that long, or the policy uses few of them.\n",
            out,
        )
    show_assumptions(found.assumptions, found.notes, out)


def _sizes(found: Sizing, most: int) -> Table:
    title = f"{found.workload}: the smallest fleet with {found.slo}"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for head, rests_on in SIZE_HEADS.items():
        mark = "\nASSUMED" if on_defaults(rests_on, found.assumptions) else ""
        table.add_column(head + mark, justify="right")
    for fleet in found.fleets:
        if fleet.replicas is None:
            table.add_row(fleet.policy, f"more than {most}", "", "", f"{fleet.ttft_s:.2f}")
            continue
        less = "" if fleet.ttft_one_less_s is None else f"{fleet.ttft_one_less_s:.2f}"
        cells = (fleet.replicas, fleet.gpus, usd(fleet.usd_per_month or 0), f"{fleet.ttft_s:.2f}", less)
        shares = (f"{100 * (fleet.recompute_ratio or 0):.1f}", f"{100 * (fleet.busy or 0):.0f}")
        table.add_row(fleet.policy, *map(str, cells), *shares)
    return table
