"""``prefixroute simulate``: every policy on every fleet, in order of arrival, without a clock."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from prefixroute.cli import arguments, console
from prefixroute.cli.table import show
from prefixroute.costmodel import CostModel
from prefixroute.report import Study
from prefixroute.sim import Scenario, sweep
from prefixroute.sim.scenario import ARTICLE_CAPACITY_TOKENS

EXAMPLE = (
    "Example: prefixroute simulate chat --replicas 4,8 --policies round-robin,session,cache-aware --report report.html"
)


ORDERED_NOTE = "Requests are served one after another, without a clock: TTFT is prefill time alone, without queueing."
ENTRIES_NOTE = (
    "Cache `entries` is the seed article's model. It stores the shared system prompt once per conversation and so "
    "overstates pressure at 1 to 4 replicas; `--cache blocks` stores it once, as engines do."
)


class Cache(StrEnum):
    """Kinds of simulated cache."""

    BLOCKS = "blocks"
    ENTRIES = "entries"


def command(  # noqa: PLR0917
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="chat, documents, or a trace: FILE (.jsonl, .jsonl.gz).")
    ],
    replicas: Annotated[str, typer.Option(metavar="N,...", help="Numbers of replicas.")] = "1,2,4,8",
    policies: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Policies and presets: see `prefixroute policies`.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each policy, with seeds counted up from --seed.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="First seed. The same seed gives the same bytes.")] = 1,
    cache: Annotated[
        Cache, typer.Option(help="blocks: as vLLM keeps them. entries: whole prompts, the seed article's model.")
    ] = Cache.BLOCKS,
    capacity: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="KV cache of one replica, or `unlimited`.", show_default="300k")
    ] = None,
    observe: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="What tells the router of the caches: history, perfect, events, events:LOSS."),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU of a replica.", show_default="H100")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model served: a known name, or a config.json.", show_default="Qwen3-8B")
    ] = None,
    price: Annotated[
        float | None, typer.Option(metavar="USD", help="Dollars per GPU and hour.", show_default="of the GPU")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a self-contained page.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Write a picture.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to run in.")] = 1,
) -> None:
    """Simulate policies over numbers of replicas: recomputed tokens, skew, dollars, time to first token."""
    arguments.writable(report, what="--report")
    arguments.writable(png, what="--png")
    if report or png:
        importlib.import_module("prefixroute.report.charts")  # a missing extra is named before the runs
    cost = CostModel(gpu, model, usd_per_gpu_hour=price)
    capacity_tokens = _capacity(capacity, cost, computed=bool(gpu or model))
    with console.progress() as told:
        found = sweep(
            arguments.source(workload),
            policies=arguments.policies(policies, workload),
            replicas=arguments.counts(replicas, what="--replicas"),
            seeds=range(seed, seed + seeds),
            scenario=Scenario(
                cache=cache.value, capacity_tokens=capacity_tokens, observe=arguments.observation(observe)
            ),
            cost=cost,
            jobs=jobs,
            progress=told,
        )
    found = replace(found, notes=(*found.notes, ORDERED_NOTE, *((ENTRIES_NOTE,) if cache is Cache.ENTRIES else ())))
    _write(Study.of(found), report, png)
    if as_json:
        sys.stdout.write(found.to_json())
    else:
        show(Study.of(found), console.stdout())


def _capacity(text: str | None, cost: CostModel, *, computed: bool) -> int | None:
    """Return the tokens of one cache: as given, else what the given GPU leaves beside the model, else 300,000."""
    if text == "unlimited":
        return None
    if text is not None:
        return arguments.count(text, what="--capacity")
    return cost.capacity_tokens if computed else ARTICLE_CAPACITY_TOKENS


def _write(study: Study, report: Path | None, png: Path | None) -> None:
    """Write page and picture, and say where they lie."""
    if report is not None:
        from prefixroute.report.page import page

        report.write_text(page(study), encoding="utf-8")
        console.note(f"report: {report}")
    if png is not None:
        from prefixroute.report.charts import png as picture

        png.write_bytes(picture(study))
        console.note(f"picture: {png}")
