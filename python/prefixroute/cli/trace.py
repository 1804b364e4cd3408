"""``prefixroute trace``: what a workload is like, and what any cache could make of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from prefixroute.cli import console, options
from prefixroute.cli.output import Output
from prefixroute.cli.table import show, show_assumed, show_notes
from prefixroute.costmodel import Assumption
from prefixroute.report.table import Table as TextTable
from prefixroute.report.table import facts, lost, remarks
from prefixroute.sim.grid import open_source
from prefixroute.sim.sweep import assumptions_dict
from prefixroute.workload import TraceStatistics, Workload, measure
from prefixroute.workload.statistics import KEPT_S

EXAMPLE = "Example: prefixroute trace day.jsonl.gz"

CURVE_POINTS = 9
"""Sizes of cache that the table shows; the JSON has all."""


@options.grouped
def command(  # noqa: PLR0917
    workload: options.WorkloadName,
    seed: options.Seed = 1,
    as_json: options.AsJson = False,
    report: options.ReportFile = None,
    png: options.PngFile = None,
    quiet: options.Quiet = False,
    *,
    machine: options.LogMachine,
    reading: options.LogReading,
) -> None:
    """Describe a workload: lengths, floor, where the hits went, reuse by time kept and by size of cache, prefixes in common."""
    output, cost = Output(report, png), machine.cost
    with console.progress(quiet=quiet) as told:
        opened = open_source(reading.source(workload, told, stream=True), seed)
        found = measure(opened)
        opened = opened.told()
    price = cost.usd_per_token(max(1.0, found.prompt_lengths.mean))
    rests_on = (*opened.assumptions, *cost.assumptions)
    where = lost(found, price, rests_on)
    if as_json:
        told_of = {
            "losses_usd_per_million_requests": found.losses_usd_per_million_requests(price),
            "usd_per_token": price,
            "volatile": None if opened.volatile is None else opened.volatile.to_dict(),
            "assumptions": assumptions_dict(rests_on),
            "notes": list(opened.notes),
        }
        print(json.dumps({"schema": 1, **found.to_dict(), **told_of}, indent=2))
    else:
        _show(found, opened, where, rests_on)
    if output:
        from prefixroute.report.traces import trace_charts, trace_page, trace_verdict

        output.write(
            lambda: trace_page(found, opened.notes, where, rests_on),
            f"{found.name}: what it shares",
            trace_charts(found),
            [trace_verdict(found)],
            remarks(rests_on, opened.notes),
        )


def _show(found: TraceStatistics, opened: Workload, where: TextTable, rests_on: Sequence[Assumption]) -> None:
    out = console.stdout()
    out.print(_table(("", ""), facts(found)))
    show(where, out)
    apart = _apart(found)
    if apart:
        console.say(f"  {apart}", out)
    out.print(_table(("blocks kept for", "hit ratio"), _kept(found)))
    out.print(_table(("one cache of", "recomputed"), _sizes(found)))
    show_assumed(rests_on, out)
    show_notes(opened.notes, out)
    if opened.volatile is not None and opened.volatile.example:
        console.note(f"it changes here: … {opened.volatile.example} …")


def _table(heads: tuple[str, str], rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_header=any(heads))
    table.add_column(heads[0])
    table.add_column(heads[1], justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _apart(trace: TraceStatistics) -> str:
    """Return why first sight is another figure than the floor, where the table shows two; empty where it shows one."""
    first_sight, floor = (f"{100 * share:.2f} %" for share in (trace.losses.share("first_sight"), trace.floor))
    if not trace.reported_requests or first_sight == floor:
        return ""
    return (
        f"First sight, {first_sight}, is not the floor, {floor}. The floor counts full blocks in one cache that begins empty. "
        f"First sight takes as seen what the log reports as cached, of {trace.reported_requests:,} requests."
    )


def _kept(trace: TraceStatistics) -> Iterator[tuple[str, str]]:
    for seconds in KEPT_S:
        yield f"{seconds:,} s", f"{100 * trace.hit_ratio_if_kept(seconds):.2f} %"


def _sizes(trace: TraceStatistics) -> Iterator[tuple[str, str]]:
    for tokens, ratio in zip(*trace.miss_ratio_curve(CURVE_POINTS), strict=True):
        yield f"{tokens:,} tokens", f"{100 * ratio:.2f} %"
