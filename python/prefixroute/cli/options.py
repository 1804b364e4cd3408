"""Options that several commands share, each written once, and the objects that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from prefixroute.cli import arguments
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim import EngineModel, Scenario, Trace
from prefixroute.sim.scenario import ARTICLE_CAPACITY_TOKENS
from prefixroute.workload import GENERATORS, FieldMap, Options, Spec, Workload, read_trace

TRACE, MODEL, OUTPUT = "Trace", "Hardware", "Output"
"""Panels of the help."""


class Cache(StrEnum):
    """Kinds of simulated cache."""

    BLOCKS = "blocks"
    ENTRIES = "entries"


WorkloadName = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help=f"{', '.join(GENERATORS)}, or a trace (.jsonl, .jsonl.gz, .csv); with settings: "
        "chat,turns=20,arrivals=poisson:20 or day.jsonl,speed=2,sample=0.1.",
    ),
]
Policies = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Policies and presets: see `prefixroute policies`.")
]
Replicas = Annotated[int, typer.Option(min=1, help="Replicas of the fleet.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each policy, with seeds counted up from --seed.")]
Seed = Annotated[int, typer.Option(min=0, help="First seed. The same seed gives the same bytes.")]
CacheKind = Annotated[
    Cache, typer.Option(help="blocks: as vLLM keeps them. entries: whole prompts, the seed article's model.")
]
Observe = Annotated[
    str | None,
    typer.Option(metavar="HOW", help="What tells the router of the caches: history, perfect, events, events:LOSS."),
]
Timed = Annotated[
    bool, typer.Option("--timed", help="Simulate in time: arrivals, queues, batches and decode, not only the order.")
]
Routers = Annotated[int, typer.Option(min=1, help="Routers that share nothing.")]
Sticky = Annotated[
    bool, typer.Option("--sticky-front", help="What stands before several routers keeps a session on one of them.")
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes to run in.")]

Capacity = Annotated[
    str | None,
    typer.Option(
        metavar="TOKENS",
        help="KV cache of one replica, or `unlimited`. With --gpu or --model: what these leave.",
        show_default="300k",
        rich_help_panel=MODEL,
    ),
]
Gpu = Annotated[str | None, typer.Option(help="GPU of a replica.", show_default="H100", rich_help_panel=MODEL)]
Model = Annotated[
    str | None,
    typer.Option(help="Model: a known name, or a config.json.", show_default="Qwen3-8B", rich_help_panel=MODEL),
]
TensorParallel = Annotated[
    int | None, typer.Option(min=1, help="GPUs of a replica.", show_default="1", rich_help_panel=MODEL)
]
Price = Annotated[
    float | None,
    typer.Option(metavar="USD", help="Dollars per GPU and hour.", show_default="of the GPU", rich_help_panel=MODEL),
]

Format = Annotated[
    str | None,
    typer.Option("--format", help="Format of the trace.", show_default="recognised", rich_help_panel=TRACE),
]
Fields = Annotated[
    Path | None,
    typer.Option(metavar="FILE.toml", help="Where a gateway log has what: its field map.", rich_help_panel=TRACE),
]
BlockSize = Annotated[
    int | None, typer.Option(min=1, help="Tokens a block.", show_default="of the format", rich_help_panel=TRACE)
]

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of the table.", rich_help_panel=OUTPUT)
]
ReportFile = Annotated[
    Path | None, typer.Option(metavar="FILE.html", help="Write a self-contained page.", rich_help_panel=OUTPUT)
]
PngFile = Annotated[Path | None, typer.Option(metavar="FILE.png", help="Write a picture.", rich_help_panel=OUTPUT)]


UNCHANGED = Spec("")


@dataclass(frozen=True, slots=True)
class TraceFile(Trace):
    """A trace with what the user says of it. Picklable and hashable: it names the field map's file, not its content."""

    format: str | None = None
    fields: Path | None = None
    block_size: int | None = None
    spec: Spec = UNCHANGED

    def __call__(self, seed: int) -> Workload:
        """Open the file; the requests are the same for every seed."""
        del seed
        return self.spec.change(read_trace(self.path, self.options))

    @property
    def options(self) -> Options:
        """What the user says of the file; reads the field map."""
        fields = None if self.fields is None else FieldMap.read(self.fields)
        return self.spec.options(Options(format=self.format, fields=fields, block_size=self.block_size))


def source(name: str, form: str | None, fields: Path | None, block_size: int | None) -> Callable[[int], Workload]:
    """Return the workload that ``name`` names, as a function of the seed."""
    spec = Spec.parse(name)
    if spec.is_made:
        if (form, fields, block_size) != (None, None, None):
            raise ConfigError(f"--format, --fields and --block-size speak of a trace, {name!r} is made up")
        return spec
    path = Path(spec.name)
    if not path.is_file():
        known = ", ".join(GENERATORS)
        raise ConfigError(f"a workload is {known} or the path of a trace; there is no file {spec.name!r}")
    return TraceFile(path, form, fields, block_size, spec)


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPU, model, price and cache of a replica, as far as the user says."""

    gpu: str | None
    model: str | None
    tensor_parallel: int | None
    price: float | None
    capacity: str | None

    @property
    def cost(self) -> CostModel:
        """The cost model; what was not given is a default and marked so."""
        return CostModel(self.gpu, self.model, usd_per_gpu_hour=self.price, tensor_parallel=self.tensor_parallel)

    @property
    def capacity_tokens(self) -> int | None:
        """Tokens of one cache: as given, else what the given hardware leaves beside the model, else 300,000."""
        if self.capacity == "unlimited":
            return None
        if self.capacity is not None:
            return arguments.count(self.capacity, what="--capacity")
        known = self.gpu or self.model or self.tensor_parallel
        return self.cost.capacity_tokens if known else ARTICLE_CAPACITY_TOKENS

    def scenario(
        self,
        *,
        replicas: int = 8,
        observe: str | None = None,
        timed: bool = False,
        routers: int = 1,
        sticky: bool = False,
        cache: Cache = Cache.BLOCKS,
    ) -> Scenario:
        """Return what is simulated of a fleet of this hardware."""
        return Scenario(
            replicas=replicas,
            cache=cache.value,
            capacity_tokens=self.capacity_tokens,
            observe=arguments.observation(observe),
            engine=EngineModel(self.cost) if timed else None,
            routers=routers,
            front="sticky" if sticky else "round-robin",
        )
