"""Options that several commands share, each written once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from prefixroute.advise import Headroom
from prefixroute.advise.behind import MOST_PREEMPTIONS
from prefixroute.advise.size import PEAK_UTILIZATION, SPARE_REPLICAS
from prefixroute.cli import arguments, console
from prefixroute.cli.groups import OUTPUT, option, parser, shared
from prefixroute.costmodel import DEFAULT_LINK, links
from prefixroute.sim.pool import check_jobs
from prefixroute.workload import GENERATORS

LOAD_PARTS = 60
"""Parts of a run in the chart of the load."""


class Cache(StrEnum):
    """Kinds of simulated cache."""

    BLOCKS = "blocks"
    ENTRIES = "entries"


WorkloadName = Annotated[
    list[str],
    typer.Argument(
        metavar="WORKLOAD",
        help=f"{', '.join(GENERATORS)}, or a trace (JSON lines, a JSON document or CSV, plain, gzip or zstd; - is "
        "standard input). Several files, or a pattern, are one log. With settings: chat,turns=20,arrivals=poisson:20 "
        "or day.jsonl,speed=2,sample=0.1.",
    ),
]
policies = shared(
    "Policies, NAME or NAME:PARAMETER=VALUE:..., and presets: see `prefixroute policies`.", metavar="NAME,..."
)
replicas = shared("Replicas of the fleet.", parser=parser(arguments.fleet), metavar="N", show_default="8")
seeds = shared("Runs of each policy, with seeds counted up from --seed.", min=1)
seed = shared("First seed. The same seed gives the same bytes.", min=0)
cache = shared("blocks: as vLLM keeps them. entries: whole prompts, the article's model.", show_default="blocks")
tiers = shared(
    "A memory below the GPU's, such as CPU:2M:50, fastest first. May be repeated.", metavar="MEDIUM:TOKENS:GB_PER_S"
)
link = shared(
    f"What keys and values move over from prefill to decode: {', '.join(links())}, or GB a second of a replica; with a "
    "latency: rdma:5ms.",
    "--link",
    metavar="NAME|GB/s",
    show_default=DEFAULT_LINK,
)
slos = shared(
    "Promises: ttft_p95=1.5s, tpot_p95=50ms (per further token, of an answer), itl_p99=100ms (between any two tokens), "
    "e2e_p99=20s (to the last token).",
    "--slo",
    metavar="TIME_pNN=SECONDS,...",
)
prices = shared("Prices of your own; they come first.", metavar="FILE.toml")
as_json = shared("Print one JSON object instead of the table.", "--json", panel=OUTPUT)
quiet = shared("Show no progress.", "--quiet", "-q", panel=OUTPUT)
time_budget = partial(
    option, None, parser=parser(arguments.seconds, what="--time-budget"), metavar="TIME", panel=OUTPUT
)


def _jobs(text: str | int) -> int | str:
    jobs = int(text) if str(text).isdecimal() else text
    check_jobs(jobs)
    return jobs


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where runs are made, and for how long."""

    jobs: Any = option(
        1,
        "Processes to run in, or ray: all CPUs of a Ray cluster (extra ray).",
        parser=parser(_jobs),
        metavar="N|ray",
        show_default="1",
    )
    time_budget: float | None = time_budget(
        "Begin no further run after 90s, 5m or 1h; what is left out is named. The first seed is always run."
    )

    def deadline(self) -> Callable[[], bool]:
        """Return what says whether the time is up, counted from now."""
        return console.deadline(self.time_budget)


@dataclass(frozen=True, slots=True)
class Reserve:
    """What a fleet has to carry beyond the traffic."""

    spare: int = option(
        SPARE_REPLICAS, "Replicas that may fail: the others keep the promises at the traffic's own rate.", min=0
    )
    peak_utilization: float = option(
        PEAK_UTILIZATION,
        "Share of what the fleet can carry that the traffic may take: it keeps up with arrivals 1/SHARE times as fast.",
        metavar="SHARE",
    )
    preemptions: float = option(
        MOST_PREEMPTIONS,
        "Preemptions a request that are borne: with more, the fleet has too little memory for its answers.",
        metavar="SHARE",
        min=0.0,
    )

    @property
    def headroom(self) -> Headroom:
        """The reserve as the search for a fleet wants it."""
        return Headroom(self.peak_utilization, self.spare, self.preemptions)
