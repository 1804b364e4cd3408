"""``prefixroute trace``: what a workload is like, and what any cache could make of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import Console

from prefixroute.cli import console, options
from prefixroute.cli.groups import grouped
from prefixroute.cli.hardware import LogMachine
from prefixroute.cli.output import Outputs
from prefixroute.cli.reading import LogOptions
from prefixroute.cli.table import show, show_assumed, show_notes
from prefixroute.costmodel import Assumption
from prefixroute.document import SCHEMA
from prefixroute.errors import TraceError
from prefixroute.report.behind import remarks
from prefixroute.report.table import Table, pairs
from prefixroute.report.workloads import facts, lost, no_hits_notes
from prefixroute.sim.grid import open_source
from prefixroute.sim.sweep import assumptions_dict
from prefixroute.workload import TraceStatistics, Workload, measure
from prefixroute.workload.selection import LEFT_OUT
from prefixroute.workload.statistics import KEPT_S

EXAMPLE = "Example: prefixroute trace day.jsonl.gz"

CURVE_POINTS = 9
"""Sizes of cache that the table shows; the JSON has all."""


@grouped
def command(
    workload: options.WorkloadName,
    *,
    seed: options.Seed = 1,
    outputs: Outputs,
    machine: LogMachine,
    reading: LogOptions,
) -> None:
    """Describe a workload: lengths, floor, where the hits went, reuse by time kept and by size of cache, prefixes in common."""
    cost = machine.cost
    with console.progress(quiet=outputs.quiet) as told:
        opened = open_source(reading.source(workload, told, stream=True), seed)
        try:
            found = measure(opened)
        except TraceError as error:
            if reading.only_model is None or LEFT_OUT.format(name="model") not in str(error):
                raise
            raise TraceError(f"{error}; --model chooses requests here, --served-model prices their tokens") from error
        opened = opened.told()
    price = cost.usd_per_token(max(1.0, found.prompt_lengths.mean))
    rests_on = (*opened.assumptions, *cost.assumptions)
    document = {
        "schema": SCHEMA,
        **found.to_dict(),
        "losses_usd_per_million_requests": found.losses_usd_per_million_requests(price),
        "usd_per_token": price,
        "volatile": None if opened.volatile is None else opened.volatile.to_dict(),
        "assumptions": assumptions_dict(rests_on),
        "notes": list(opened.notes),
    }
    where = lost(found, price, rests_on)
    outputs.answer(lambda: document, partial(_show, found, opened, where, rests_on))
    if outputs.draws:
        from prefixroute.report.traces import trace_page, trace_picture

        notes = (*no_hits_notes(found), *opened.notes)
        outputs.draw(
            lambda: trace_page(found, notes, where, rests_on),
            lambda: trace_picture(found, remarks(rests_on, notes)),
        )


def _show(found: TraceStatistics, opened: Workload, where: Table, rests_on: Sequence[Assumption], out: Console) -> None:
    show(pairs(("", ""), facts(found)), out)
    show(where, out)
    apart = _apart(found)
    if apart:
        console.say(f"  {apart}", out)
    show(pairs(("blocks kept for", "hit ratio"), _kept(found)), out)
    show(pairs(("one cache of", "recomputed"), _sizes(found)), out)
    show_assumed(rests_on, out)
    show_notes((*no_hits_notes(found), *opened.notes), out)
    if opened.volatile is not None and opened.volatile.example:
        console.note(f"it changes here: … {opened.volatile.example} …")


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
