"""``prefixroute compare``: policies side by side on one fleet, with intervals of the differences."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from prefixroute.advise import Comparison, compare
from prefixroute.advise.compare import VERDICTS
from prefixroute.advise.times import unit_of
from prefixroute.cli import arguments, console, options
from prefixroute.cli.table import ORDERED_NOTE, show_assumptions
from prefixroute.costmodel.assumption import MONEY, RUN, SECONDS, SHARES, on_defaults
from prefixroute.report.table import floor_line, usd

EXAMPLE = "Example: prefixroute compare day.jsonl.gz --replicas 8 --policies session,cache-aware,sglang-balanced"

EVERY_MECHANISM = "round-robin,least-loaded,session,prefix-hash,cache-aware,sglang-balanced,smg-2026-08,dynamo"
"""One policy of each kind and three other routers by their presets, where none is named."""
HEADS: dict[str, frozenset[str]] = {
    "policy": frozenset(),
    "recomputed %": SHARES,
    "unlimited %": RUN,
    "difference, points": SHARES,
    "$ / 1M": MONEY,
    "difference, $": MONEY,
    "skew": SHARES,
    "verdict": frozenset(),
}
"""Columns, and the assumptions that each rests on."""
TIMES = {"mean": "ttft_mean_s", "p50": "ttft_p50_s", "p90": "ttft_p90_s", "p99": "ttft_p99_s"}
"""What is shown of the time to first token."""
DISPENSABLE = ("mean", "p90", "p50")
"""Times that a narrow terminal does without, the first first."""
WORDS = {
    "recompute_ratio": "the share of prompt tokens computed again",
    "ttft_mean_s": "the mean time to first token",
    "ttft_p50_s": "the median time to first token",
    "ttft_p90_s": "the p90 of time to first token",
    "ttft_p99_s": "the p99 of time to first token",
    "usd_per_million_requests": "dollars of prefill",
    "usd_per_million_requests_busiest": "dollars of prefill, bought for the busiest replica",
}
"""What decides, in words."""


@options.grouped
def command(  # noqa: PLR0917
    workload: options.WorkloadName,
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
    jobs: options.Jobs = 1,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    *,
    simulated: options.Simulated,
    front: options.Front,
    hardware: options.PricedHardware,
    reading: options.Reading,
) -> None:
    """Compare policies on equal terms. A winner is named only outside of the noise: 95 % intervals over sessions."""
    chosen = arguments.policies(policies, workload)
    scenario = options.scenario(hardware, simulated, front, replicas=replicas)
    with console.progress(quiet=quiet) as told:
        found = compare(
            reading.source(workload, told),
            chosen,
            scenario=scenario,
            seeds=range(seed, seed + seeds),
            metric=metric,
            infinite=True,
            cost=hardware.cost,
            jobs=jobs,
            progress=told,
        )
    if as_json:
        sys.stdout.write(found.to_json())
    else:
        show(found, console.stdout())


def show(found: Comparison, out: Console) -> None:
    """Print the tables of a comparison with its floor, its verdict, assumptions and notes."""
    count = found.rows[0].replicas
    fleet = f"{count} replica{'s' * (count != 1)}"
    title = (
        f"{found.workload} on {fleet}: differences from {found.reference}, intervals over {found.clusters:,} sessions"
    )
    out.print(_table(found, title))
    times, left_out = _fitting(found, out)
    out.print(times)
    if left_out:
        console.say(f"  The terminal is too narrow for {', '.join(left_out)}.", out)
    floor = found.rows[0].floor
    if floor is not None:
        console.say(f"  {floor_line(floor, found.assumptions)}", out)
    said = (
        f"{found.winner} is {_best(found)}"
        if found.winner
        else f"no winner: {', '.join(found.leaders)} are inside the noise"
    )
    if len(found.rows) == 1:
        said = f"{found.reference} stands alone: name a second policy to compare it with"
    console.say(f"  By {WORDS[found.metric]}, {said}.\n", out)
    for one in found.idle:
        console.say(f"  Note: {one.text()}", out)
    in_time = found.rows[0].queue_mean_s is not None
    show_assumptions(found.assumptions, (*found.notes, *(() if in_time else (ORDERED_NOTE,))), out)


def _best(found: Comparison) -> str:
    """Return what the winner is, with what it leaves idle in the same breath."""
    judged = found.judgement(found.reference)
    return judged.replace(VERDICTS["reference"], "best", 1)


def _table(found: Comparison, title: str) -> Table:
    busiest = found.metric.endswith("_busiest")
    money = "usd_per_million_requests_busiest" if busiest else "usd_per_million_requests"
    heads = {f"{name}, busiest" if busiest and name == "$ / 1M" else name: basis for name, basis in HEADS.items()}
    table = _headed(title, heads, found)
    for row, difference in zip(found.rows, found.differences, strict=True):
        infinite = row.recompute_ratio_infinite
        table.add_row(
            row.policy,
            f"{100 * row.recompute_ratio:.2f}",
            "" if infinite is None else f"{100 * infinite:.2f}",
            difference.recompute_ratio.text(100),
            usd(getattr(row, money)),
            getattr(difference, money).text(),
            f"{row.skew:.3f}",
            found.judgement(row.policy),
        )
    return table


def _fitting(found: Comparison, out: Console) -> tuple[Table, list[str]]:
    """Return the table of as many times as the console is wide enough for, and those that are left out for it."""
    shown, left_out = dict(TIMES), []
    table = _times(found, shown)
    unbound = out.options.update(max_width=10 * out.width)
    for name in DISPENSABLE:
        if out.measure(table, options=unbound).maximum <= out.width:
            break
        left_out.append(name)
        del shown[name]
        table = _times(found, shown)
    return table, left_out


def _times(found: Comparison, times: Mapping[str, str]) -> Table:
    """Return the table of times to first token, each with its difference from the reference."""
    units = {field: unit_of(getattr(row, field) for row in found.rows) for field in times.values()}
    heads = {"policy": frozenset[str]()}
    for name, field in times.items():
        heads |= {f"{name}, {units[field].name}": SECONDS, f"{name} difference": SECONDS}
    table = _headed("time to first token", heads, found)
    for row, difference in zip(found.rows, found.differences, strict=True):
        pairs = ((unit, getattr(row, field), getattr(difference, field)) for field, unit in units.items())
        cells = (cell for unit, time, gap in pairs for cell in (unit.figure(time), gap.text(unit.per_second)))
        table.add_row(row.policy, *cells)
    return table


def _headed(title: str, heads: dict[str, frozenset[str]], found: Comparison) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for head, rests_on in heads.items():
        mark = "\nASSUMED" if on_defaults(rests_on, found.assumptions) else ""
        side: Literal["left", "right"] = "left" if head in ("policy", "verdict") else "right"
        table.add_column(head.replace(" difference", "\ndifference") + mark, justify=side, no_wrap=head == "policy")
    return table
