"""``prefixroute replay``: a workload sent to real endpoints under several policies, beside the simulator's prediction."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from prefixroute.cli import arguments, console, options
from prefixroute.cli.output import Output
from prefixroute.cli.table import show, show_assumed, show_end, show_notes
from prefixroute.replay import Predictions, Replayed, ReplaySettings, Slo, compared, predict, replay, write_rows
from prefixroute.report.replays import (
    difference_table,
    measured_table,
    prediction_table,
    replay_notes,
    replay_title,
    replay_verdict,
)
from prefixroute.sim.grid import open_source
from prefixroute.sim.sweep import assumptions_dict

EXAMPLE = (
    "Example: prefixroute replay day.jsonl.gz --endpoint http://10.0.0.1:8000 --endpoint http://10.0.0.2:8000 "
    "--policy session --policy cache-aware --requests 5000"
)
REPLAY = "Replay"


@options.grouped
def command(  # noqa: PLR0917
    workload: options.WorkloadName,
    endpoint: Annotated[
        list[str], typer.Option(metavar="URL", help="An OpenAI-compatible engine, without /v1. Once for each.")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A policy or preset. The first is compared with the others."),
    ] = None,
    requests: Annotated[int, typer.Option(min=1, metavar="N", help="Requests to send, from the first.")] = 1_000,
    speed: Annotated[float, typer.Option(help="How many times as fast as recorded.", rich_help_panel=REPLAY)] = 1.0,
    parts: Annotated[
        int,
        typer.Option(min=1, help="Parts of the trace, each sent under every policy in turn.", rich_help_panel=REPLAY),
    ] = 1,
    warmup: Annotated[
        int, typer.Option(min=0, help="Requests of each part that are sent and not counted.", rich_help_panel=REPLAY)
    ] = 0,
    slo_ttft: Annotated[float | None, typer.Option(help="Seconds to the first token that are good.")] = None,
    slo_tpot: Annotated[float | None, typer.Option(help="Seconds for each further token that are good.")] = None,
    engine_block_size: Annotated[
        int, typer.Option(min=1, help="Tokens in a block of the engines.", rich_help_panel=REPLAY)
    ] = 16,
    served_model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model's name at the endpoints; default: the first they list."),
    ] = None,
    dictate: Annotated[
        bool,
        typer.Option("--dictate", help="Tell the engines what to answer: fake engines only.", rich_help_panel=REPLAY),
    ] = False,
    no_reset: Annotated[
        bool, typer.Option("--no-reset", help="Leave the engines' caches as they are.", rich_help_panel=REPLAY)
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds for an answer.", rich_help_panel=REPLAY)] = 600.0,
    rows: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="Write a row for each request.")] = None,
    seed: options.Seed = 1,
    time_budget: options.ReplayBudget = None,
    as_json: options.AsJson = False,
    report: options.ReportFile = None,
    png: options.PngFile = None,
    quiet: options.Quiet = False,
    *,
    hardware: options.Hardware,
    reading: options.Reading,
) -> None:
    """Send a workload to real endpoints under each policy, time it, and compare it with what simulate predicts.

    Prompts are made up from the workload's block hashes, so a private trace will do. The API key is read from
    PREFIXROUTE_API_KEY. Ctrl-C ends it and shows what was measured until then.
    """
    output, time_is_up = Output(report, png), console.deadline(time_budget)
    for name in policy or []:
        arguments.policies(name, workload)
    capacity = hardware.settings.get("capacity_tokens")
    settings = ReplaySettings(
        endpoints=tuple(endpoint),
        policies=tuple(policy or ["session", "cache-aware"]),
        speed=speed,
        parts=parts,
        warmup=warmup,
        block_size=engine_block_size,
        dictate=dictate,
        reset=not no_reset,
        model=served_model,
        timeout_s=timeout,
        slo=Slo(slo_ttft, slo_tpot),
        seed=seed,
        api_key=os.environ.get("PREFIXROUTE_API_KEY"),
        **({} if capacity is None else {"capacity_tokens": capacity}),
    )
    with console.progress(quiet=quiet) as told:
        read, run = options.parts(workload, told)
        source = open_source(reading.source(workload, read), seed).head(requests)
        replayed = asyncio.run(replay(source, settings, progress=run, time_is_up=time_is_up))
    if rows is not None:
        with rows.open("w", newline="", encoding="utf-8") as out:
            write_rows(replayed.rows, out)
        console.note(f"rows: {rows}")
    scenario = options.scenario(hardware, options.Simulated(), timed=True)
    predictions = predict(source, settings, scenario, parts=replayed.parts)
    if as_json:
        print(json.dumps(to_dict(replayed, predictions), indent=2))
    else:
        show_replay(source.name, replayed, predictions, console.stdout(), rows)
    if output:
        from prefixroute.report.replay_page import replay_page, replay_picture

        told_of = source.name, replayed, predictions
        output.write(lambda: replay_page(*told_of), *replay_picture(*told_of))


def to_dict(replayed: Replayed, predictions: Predictions) -> dict[str, Any]:
    """Return the JSON object; the API key is not in it."""
    settings = asdict(replayed.settings)
    del settings["api_key"]
    return {
        "schema": 1,
        "settings": settings,
        "interrupted": replayed.interrupted,
        "parts_begun": replayed.parts,
        "caches_reset": replayed.reset,
        "assumptions": assumptions_dict(predictions.assumptions),
        "rows": compared(replayed, predictions),
        "differences": [{**asdict(one), "within_noise": one.is_noise} for one in replayed.differences],
        "notes": replay_notes(replayed),
    }


def show_replay(
    name: str, replayed: Replayed, predictions: Predictions, out: Console, rows: Path | None = None
) -> None:
    """Print the tables of a replay. ``rows``: the file that its rows are in."""
    show(measured_table(replayed, replay_title(name, replayed)), out)
    if replayed.differences:
        show(difference_table(replayed), out)
    show(prediction_table(replayed, predictions), out)
    show_assumed(predictions.assumptions, out)
    show_notes(replay_notes(replayed), out)
    file, hint = ("ROWS.csv", "; --rows ROWS.csv writes the file") if rows is None else (shlex.quote(str(rows)), "")
    following = f"prefixroute fit {file}   (the cost model fitted to what was measured{hint})"
    show_end(replay_verdict(replayed), following, out)
