"""``prefixroute trace``: what a workload is like, and what any cache could make of it."""

from __future__ import annotations

from prefixroute.cli import console, options
from prefixroute.cli.groups import grouped
from prefixroute.cli.hardware import LogMachine
from prefixroute.cli.output import Outputs
from prefixroute.cli.reading import LogOptions
from prefixroute.document import SCHEMA
from prefixroute.errors import TraceError
from prefixroute.report.workloads import trace_sheet
from prefixroute.sim.grid import open_source
from prefixroute.sim.sweep import assumptions_dict
from prefixroute.workload import measure
from prefixroute.workload.selection import LEFT_OUT

EXAMPLE = "Example: prefixroute trace day.jsonl.gz"


@grouped
def command(
    workload: options.WorkloadName,
    *,
    seed: int = options.seed(1),
    outputs: Outputs,
    machine: LogMachine,
    reading: LogOptions,
) -> None:
    """Describe a workload: lengths, shared prefixes, floor, where the hits went, reuse by time and by cache size."""
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
    outputs.give(trace_sheet(found, price, rests_on, opened.notes), lambda: document)
    if opened.volatile is not None and opened.volatile.example and not outputs.as_json:
        console.note(f"it changes here: … {opened.volatile.example} …")
