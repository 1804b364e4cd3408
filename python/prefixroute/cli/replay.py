"""``prefixroute replay``: a workload sent to real endpoints under several policies, beside the simulator's figures."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from prefixroute.cli import arguments, console, options
from prefixroute.cli.fleets import Simulated, scenario_of
from prefixroute.cli.groups import grouped, option
from prefixroute.cli.hardware import Hardware
from prefixroute.cli.output import Outputs, check_writable
from prefixroute.cli.reading import TraceOptions, parts
from prefixroute.replay import (
    Predictions,
    Replayed,
    ReplaySettings,
    RequestSlo,
    Schedule,
    compared,
    predict,
    replay,
    write_rows,
)
from prefixroute.report.replays import replay_notes, replay_sheet
from prefixroute.sim.grid import open_source
from prefixroute.sim.sweep import assumptions_dict

EXAMPLE = (
    "Example: prefixroute replay day.jsonl.gz --endpoint http://10.0.0.1:8000 --endpoint http://10.0.0.2:8000 "
    "--policy session --policy cache-aware --requests 5000"
)
_option = partial(option, panel="Replay")


@dataclass(frozen=True, slots=True)
class Sending:
    """How requests are sent."""

    speed: float = _option(1.0, "How many times as fast as recorded.")
    parts: int = _option(1, "Parts of the trace, each sent under every policy in turn.", min=1)
    warmup: int = _option(0, "Requests of each part that are sent and not counted.", min=0)
    engine_block_size: int = _option(16, "Tokens in a block of the engines.", min=1)
    dictate: bool = _option(False, "Tell the engines what to answer: fake engines only.", "--dictate")
    no_reset: bool = _option(False, "Leave the engines' caches as they are.", "--no-reset")
    timeout: float = _option(600.0, "Seconds for an answer.")
    time_budget: float | None = options.time_budget(
        "Begin no further part after 90s, 5m or 1h; what is left out is named. The first part is always sent."
    )


@grouped
def command(
    workload: options.WorkloadName,
    endpoint: Annotated[
        list[str], typer.Option(metavar="URL", help="An OpenAI-compatible engine, without /v1. Once for each.")
    ],
    *,
    policy: list[str] | None = option(
        None, "A policy or preset. The first is compared with the others.", metavar="NAME"
    ),
    requests: int = option(1_000, "Requests to send, from the first.", min=1, metavar="N"),
    slo_ttft: float | None = option(None, "Seconds to the first token that are good."),
    slo_tpot: float | None = option(None, "Seconds for each further token that are good."),
    served_model: str | None = option(
        None, "The model's name at the endpoints; default: the first they list.", metavar="NAME"
    ),
    rows: Path | None = option(None, "Write a row for each request.", metavar="FILE.csv"),
    seed: int = options.seed(1),
    sending: Sending,
    outputs: Outputs,
    hardware: Hardware,
    reading: TraceOptions,
) -> None:
    """Send a workload to real endpoints under each policy, time it, and compare it with what simulate predicts.

    Prompts are made up from the workload's block hashes, so a private trace will do. The API key is read from
    PREFIXROUTE_API_KEY. Ctrl-C ends it and shows what was measured until then.
    """
    time_is_up = console.deadline(sending.time_budget)
    if rows is not None:
        check_writable("--rows", rows)
    for name in policy or []:
        arguments.policies(name, workload)
    capacity = hardware.settings.get("capacity_tokens")
    settings = ReplaySettings(
        endpoints=tuple(endpoint),
        policies=tuple(policy or ["session", "cache-aware"]),
        speed=sending.speed,
        parts=sending.parts,
        warmup=sending.warmup,
        block_size=sending.engine_block_size,
        dictate=sending.dictate,
        reset=not sending.no_reset,
        model=served_model,
        timeout_s=sending.timeout,
        slo=RequestSlo(slo_ttft, slo_tpot),
        seed=seed,
        api_key=os.environ.get("PREFIXROUTE_API_KEY"),
        **({} if capacity is None else {"capacity_tokens": capacity}),
    )
    with console.progress(quiet=outputs.quiet) as told:
        read, run = parts(workload, told)
        source = open_source(reading.source(workload, read), seed).head(requests)
        schedule = Schedule.of(source, settings)
        if not outputs.quiet:
            _announce(schedule, settings)
        replayed = asyncio.run(replay(source, settings, progress=run, time_is_up=time_is_up))
    if rows is not None:
        with rows.open("w", newline="", encoding="utf-8") as out:
            write_rows(replayed.rows, out)
        console.note(f"rows: {rows}")
    scenario = scenario_of(hardware, Simulated(), timed=True)
    predictions = predict(source, settings, scenario, measured=replayed)
    sheet = replay_sheet(source.name, replayed, predictions, rows)
    outputs.give(sheet, lambda: to_dict(replayed, predictions, schedule))


def _announce(schedule: Schedule, settings: ReplaySettings) -> None:
    """Say on stderr what is sent and how long that takes, before it begins."""
    policies = len(settings.policies)
    under = f", each under {policies} policies," if policies > 1 else ""
    console.note(
        f"{schedule.requests:,} requests{under} at {settings.speed:g} times their own pace: about "
        f"{console.lasting(schedule.seconds)} until the last is sent"
    )


def to_dict(replayed: Replayed, predictions: Predictions, schedule: Schedule) -> dict[str, Any]:
    """Return the JSON object; the API key is not in it."""
    settings = asdict(replayed.settings)
    del settings["api_key"]
    return {
        "schema": 1,
        "settings": settings,
        "schedule": asdict(schedule),
        "interrupted": replayed.interrupted,
        "parts_begun": replayed.parts,
        "caches_reset": replayed.reset,
        "assumptions": assumptions_dict(predictions.assumptions),
        "rows": compared(replayed, predictions),
        "differences": [one.to_dict() for one in replayed.differences],
        "notes": replay_notes(replayed),
    }
