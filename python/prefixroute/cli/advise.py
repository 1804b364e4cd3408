"""``prefixroute advise``, ``backtest`` and ``size``: what to do about a trace, and whether to believe it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from prefixroute.advise import Question, Sizing, Slo, advise, backtest, size
from prefixroute.cli import arguments, console, options
from prefixroute.cli.output import Output
from prefixroute.cli.table import show_assumptions
from prefixroute.report.table import MONEY, on_defaults, usd

ADVISE_EXAMPLE = "Example: prefixroute advise day.jsonl.gz --replicas 8 --current round-robin"
BACKTEST_EXAMPLE = "Example: prefixroute backtest day.jsonl.gz --replicas 8 --policies round-robin,least-loaded"
SIZE_EXAMPLE = "Example: prefixroute size day.jsonl.gz --slo ttft_p95=1.5s"

Current = Annotated[str | None, typer.Option(metavar="NAME", help="Policy in use now: savings are against it.")]


def advise_command(  # noqa: PLR0917
    workload: options.WorkloadName,
    replicas: options.Replicas = 8,
    current: Current = None,
    policies: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Further policies and presets to compare.")
    ] = None,
    sensitivity: Annotated[
        str | None, typer.Option(metavar="WHAT,...", help="Would it change with another capacity, price, replicas?")
    ] = None,
    seeds: options.Seeds = 3,
    observe: options.Observe = None,
    timed: options.Timed = False,
    routers: options.Routers = 1,
    sticky: options.Sticky = False,
    jobs: options.Jobs = 1,
    capacity: options.Capacity = None,
    gpu: options.Gpu = None,
    model: options.Model = None,
    tensor_parallel: options.TensorParallel = None,
    price: options.Price = None,
    form: options.Format = None,
    fields: options.Fields = None,
    block_size: options.BlockSize = None,
    as_json: options.AsJson = False,
    report: options.ReportFile = None,
) -> None:
    """Advise on routing: the decision tree with measured numbers at each branch, what to fix first, what it would save."""
    output = Output(report, None)
    hardware = options.Hardware(gpu, model, tensor_parallel, price, capacity)
    question = Question(
        scenario=hardware.scenario(replicas=replicas, observe=observe, timed=timed, routers=routers, sticky=sticky),
        current=current,
        policies=None if policies is None else arguments.policies(policies, workload),
        vary=() if sensitivity is None else arguments.names(sensitivity, what="--sensitivity"),
        seeds=seeds,
    )
    source = options.source(workload, form, fields, block_size)
    with console.progress() as told:
        found = advise(source, question, cost=hardware.cost, jobs=jobs, progress=told)
    if as_json:
        sys.stdout.write(found.to_json())
    else:
        console.stdout().print(found.text(), markup=False, end="")
    if output:
        from prefixroute.report.advice import advice_page

        output.write(lambda: advice_page(found))


def backtest_command(  # noqa: PLR0917
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A log that reports cached tokens.")],
    replicas: options.Replicas = 8,
    current: Current = None,
    policies: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Policies to try, at several capacities, as explanations.")
    ] = None,
    observe: options.Observe = None,
    timed: options.Timed = False,
    capacity: options.Capacity = None,
    gpu: options.Gpu = None,
    model: options.Model = None,
    tensor_parallel: options.TensorParallel = None,
    form: options.Format = None,
    fields: options.Fields = None,
    block_size: options.BlockSize = None,
    as_json: options.AsJson = False,
) -> None:
    """Test the simulator: simulated hits against the cached tokens that the log itself reports."""
    hardware = options.Hardware(gpu, model, tensor_parallel, None, capacity)
    scenario = hardware.scenario(replicas=replicas, observe=observe, timed=timed)
    found = backtest(
        options.source(trace, form, fields, block_size)(1),
        scenario if current is None else replace(scenario, policy=arguments.policies(current, trace)[0]),
        search=() if policies is None else arguments.policies(policies, trace),
        cost=hardware.cost,
    )
    if as_json:
        sys.stdout.write(found.to_json())
        return
    out = console.stdout()
    out.print(found.text(), markup=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in ("prompt tokens", "requests", "reported hits %", "simulated hits %"):
        table.add_column(head, justify="right")
    for band in found.bands:
        lengths = f"{band.shortest:,} to {band.longest:,}"
        table.add_row(lengths, f"{band.requests:,}", f"{100 * band.reported:.1f}", f"{100 * band.simulated:.1f}")
    out.print(table)
    if found.verdict == "disagrees" and policies is None:
        out.print(
            "  Note: --current, --replicas and --capacity say what the log comes from; --policies NAME,... tries others.",
            markup=False,
        )


def size_command(  # noqa: PLR0917
    workload: options.WorkloadName,
    slo: Annotated[str, typer.Option(metavar="ttft_pNN=SECONDS", help="The promise: ttft_p95=1.5s, ttft_p99=800ms.")],
    policies: options.Policies = None,
    seeds: options.Seeds = 1,
    seed: options.Seed = 1,
    most: Annotated[int, typer.Option(min=1, help="Replicas beyond which no fleet is tried.")] = 256,
    jobs: options.Jobs = 1,
    capacity: options.Capacity = None,
    gpu: options.Gpu = None,
    model: options.Model = None,
    tensor_parallel: options.TensorParallel = None,
    price: options.Price = None,
    form: options.Format = None,
    fields: options.Fields = None,
    block_size: options.BlockSize = None,
    as_json: options.AsJson = False,
) -> None:
    """Size a fleet: the fewest replicas and GPUs that keep a promise on time to first token, under each policy."""
    hardware = options.Hardware(gpu, model, tensor_parallel, price, capacity)
    found = size(
        options.source(workload, form, fields, block_size),
        Slo.parse(slo),
        arguments.policies(policies, workload),
        scenario=hardware.scenario(timed=True),
        seeds=range(seed, seed + seeds),
        most=most,
        cost=hardware.cost,
        jobs=jobs,
    )
    if as_json:
        sys.stdout.write(found.to_json())
        return
    out = console.stdout()
    out.print(_sizes(found, most))
    show_assumptions(found.assumptions, found.notes, out)


def _sizes(found: Sizing, most: int) -> Table:
    title = f"{found.workload}: the smallest fleet with {found.slo}"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    mark = "\nASSUMED" if on_defaults(MONEY, found.assumptions) else ""
    table.add_column("policy", no_wrap=True)
    for head in ("replicas", "GPUs", "$ / month", "TTFT s", "with one less", "recomputed %", "busy %"):
        table.add_column(head + mark, justify="right")
    for fleet in found.fleets:
        if fleet.replicas is None:
            table.add_row(fleet.policy, f"more than {most}")
            continue
        less = "" if fleet.ttft_one_less_s is None else f"{fleet.ttft_one_less_s:.2f}"
        cells = (fleet.replicas, fleet.gpus, usd(fleet.usd_per_month or 0), f"{fleet.ttft_s:.2f}", less)
        shares = (f"{100 * (fleet.recompute_ratio or 0):.1f}", f"{100 * (fleet.busy or 0):.0f}")
        table.add_row(fleet.policy, *map(str, cells), *shares)
    return table
