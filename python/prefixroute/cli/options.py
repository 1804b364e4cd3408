"""Options that several commands share, each written once, and the objects that they stand for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from prefixroute.cli import arguments, console
from prefixroute.costmodel import DEFAULT_LINK, FORMATS, CostModel, links
from prefixroute.errors import ConfigError
from prefixroute.sim import EngineModel, Scenario, Split
from prefixroute.sim.engine import CHUNK_TOKENS, MAX_RUNNING
from prefixroute.sim.grid import Source
from prefixroute.sim.pool import check_jobs
from prefixroute.sim.progress import Progress, Work
from prefixroute.workload import GENERATORS, FieldMap, LogFile, Options, Spec, Workload, keep, log_files, read_trace
from prefixroute.workload.readers.lines import LINE_BYTES

LOAD_PARTS = 60
"""Parts of a run in the chart of the load."""
TRACE, MODEL, OUTPUT = "Trace", "Hardware", "Output"
"""Panels of the help."""


class Cache(StrEnum):
    """Kinds of simulated cache."""

    BLOCKS = "blocks"
    ENTRIES = "entries"


WorkloadName = Annotated[
    list[str],
    typer.Argument(
        metavar="WORKLOAD",
        help=f"{', '.join(GENERATORS)}, or a trace (JSON lines, a JSON document or CSV, plain, gzip or zstd; - is standard "
        "input). Several files, or a pattern, are one log. With settings: chat,turns=20,arrivals=poisson:20 or "
        "day.jsonl,speed=2,sample=0.1.",
    ),
]
Policies = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...", help="Policies, NAME or NAME:PARAMETER=VALUE:..., and presets: see `prefixroute policies`."
    ),
]


def _fleet(text: str | int) -> int:
    try:
        return arguments.fleet(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def _jobs(text: str | int) -> int | str:
    jobs = int(text) if str(text).isdecimal() else text
    try:
        check_jobs(jobs)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    return jobs


Replicas = Annotated[
    int | None,
    typer.Option(parser=_fleet, metavar="N", help="Replicas of the fleet.", show_default="8"),
]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of each policy, with seeds counted up from --seed.")]
Seed = Annotated[int, typer.Option(min=0, help="First seed. The same seed gives the same bytes.")]
CacheKind = Annotated[
    Cache | None,
    typer.Option(
        help="blocks: as vLLM keeps them. entries: whole prompts, the seed article's model.", show_default="blocks"
    ),
]
Observe = Annotated[
    str | None,
    typer.Option(metavar="HOW", help="What tells the router of the caches: history, perfect, events, events:LOSS."),
]
Timed = Annotated[
    bool,
    typer.Option("--timed", help="Simulate with a clock: arrivals, queues, batches and decode."),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="AT:ACTION:REPLICA",
        help="A change of the fleet: die, return, add or drain, at a second if timed, else after so many requests. May be repeated.",
    ),
]
Tiers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MEDIUM:TOKENS:GB_PER_S",
        help="A memory below the GPU's, such as CPU:2M:50, fastest first. May be repeated.",
    ),
]
Warmup = Annotated[int, typer.Option(min=0, help="Requests served before counting begins: they warm the caches.")]
Goodput = Annotated[
    str | None,
    typer.Option(
        metavar="ttft=TIME,...",
        help="Count requests a second that keep these times: ttft, tpot, itl (every gap between two tokens), itl_p95 (95 % of them), "
        "e2e. With --timed.",
    ),
]
PrefillReplicas = Annotated[
    str | None,
    typer.Option(
        metavar="N,...",
        help="Fleets of which so many replicas only prefill, beside mixed ones of the same size. With --timed.",
    ),
]
DecodeReplicas = Annotated[
    str | None, typer.Option(metavar="N,...", help="How many only decode, for each number of --prefill-replicas.")
]
LinkName = Annotated[
    str | None,
    typer.Option(
        "--link",
        metavar="NAME|GB/s",
        help=f"What keys and values move over from prefill to decode: {', '.join(links())}, or GB a second of a replica; with a "
        "latency: rdma:5ms.",
        show_default=DEFAULT_LINK,
    ),
]
Routers = Annotated[int, typer.Option(min=1, help="Routers that share nothing, unless there is a --peer-delay.")]
PeerDelay = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Routers (--routers above 1) tell each other what they book, so much later: 0, or 100ms with --timed.",
    ),
]
Sticky = Annotated[
    bool,
    typer.Option("--sticky-front", help="What stands before several routers keeps a session on one of them."),
]
Jobs = Annotated[
    Any,
    typer.Option(
        parser=_jobs,
        metavar="N|ray",
        help="Processes to run in, or ray: all CPUs of a Ray cluster (extra ray).",
        show_default="1",
    ),
]

Capacity = Annotated[
    str | None,
    typer.Option(
        metavar="TOKENS",
        help="KV cache of one replica, or `unlimited`. With --gpu, --model or what of their memory is used: what these leave.",
        show_default="300k",
        rich_help_panel=MODEL,
    ),
]
Gpu = Annotated[str | None, typer.Option(help="GPU of a replica.", show_default="H100", rich_help_panel=MODEL)]
Model = Annotated[
    str | None,
    typer.Option(help="Model: a known name, or a config.json.", show_default="Qwen3-8B", rich_help_panel=MODEL),
]
ServedModel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Model that prices tokens: a known name, or a config.json.",
        show_default="Qwen3-8B",
        rich_help_panel=MODEL,
    ),
]
TensorParallel = Annotated[
    int | None, typer.Option(min=1, help="GPUs of a replica.", show_default="1", rich_help_panel=MODEL)
]
Speeds = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="What prices a step: calibrated; article, the seed article's formula; or aic, aic:vllm, aic:sglang, aic:trtllm, tables "
        "of measured kernels (extra `aic`).",
        show_default="calibrated",
        rich_help_panel=MODEL,
    ),
]
ExpertParallel = Annotated[
    bool | None,
    typer.Option(
        "--expert-parallel",
        help="Spread experts over the GPUs of a replica whole.",
        show_default="off",
        rich_help_panel=MODEL,
    ),
]
Utilization = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Share of the GPU's peak that large products reach: see `prefixroute fit`.",
        show_default="of the GPU",
        rich_help_panel=MODEL,
    ),
]
BandwidthUtilization = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Share of the GPU's peak memory bandwidth at which weights are read.",
        show_default="of the GPU",
        rich_help_panel=MODEL,
    ),
]
MemoryShare = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Share of the GPU's memory for weights and KV cache.",
        show_default="0.9",
        rich_help_panel=MODEL,
    ),
]
WeightBytes = Annotated[
    float | None,
    typer.Option(metavar="BYTES", help="Bytes a weight.", show_default="of the model", rich_help_panel=MODEL),
]
WeightFormat = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help=f"Format of weights, in which they are computed: {', '.join(FORMATS)}.",
        show_default="of the model",
        rich_help_panel=MODEL,
    ),
]
KvBytes = Annotated[
    float | None,
    typer.Option(
        metavar="BYTES",
        help="Bytes a number in the KV cache.",
        show_default="of the model, else 2",
        rich_help_panel=MODEL,
    ),
]
ChunkTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Tokens of one step of the engine, timed.", show_default=f"{CHUNK_TOKENS}", rich_help_panel=MODEL
    ),
]
MaxRunning = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Requests that a replica runs at once, timed.",
        show_default=f"{MAX_RUNNING}",
        rich_help_panel=MODEL,
    ),
]
Overhead = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Seconds added to each prefill.", show_default="0", rich_help_panel=MODEL),
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

SkipBad = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Leave out up to N lines that cannot be read; they are counted and the first named.",
        rich_help_panel=TRACE,
    ),
]
LineLimit = Annotated[
    int,
    typer.Option(metavar="BYTES", min=1, help="Longest line that is read.", rich_help_panel=TRACE),
]


def _moment(text: str | float) -> float:
    try:
        return arguments.moment(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


Since = Annotated[
    float | None,
    typer.Option(
        parser=_moment,
        metavar="TIME",
        help="Leave out requests before: ISO 8601, or a number on the log's own clock.",
        rich_help_panel=TRACE,
    ),
]
Until = Annotated[
    float | None,
    typer.Option(parser=_moment, metavar="TIME", help="Leave out requests from then on.", rich_help_panel=TRACE),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Only requests with this model, tenant, session, or any field of a gateway log (a path of names joined by dots).",
        rich_help_panel=TRACE,
    ),
]
OnlyModel = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="Only requests for this model.", rich_help_panel=TRACE),
]

AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object instead of the table.", rich_help_panel=OUTPUT),
]
ReportFile = Annotated[
    Path | None, typer.Option(metavar="FILE.html", help="Write a self-contained page.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel=OUTPUT)]


def _budget(text: str) -> float:
    try:
        return arguments.seconds(text, what="--time-budget")
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


TimeBudget = Annotated[
    float | None,
    typer.Option(
        parser=_budget,
        metavar="TIME",
        help="Begin no further run after 90s, 5m or 1h; what is left out is named. The first seed is always run.",
        rich_help_panel=OUTPUT,
    ),
]
ReplayBudget = Annotated[
    float | None,
    typer.Option(
        "--time-budget",
        parser=_budget,
        metavar="TIME",
        help="Begin no further part after 90s, 5m or 1h; what is left out is named. The first part is always sent.",
        rich_help_panel=OUTPUT,
    ),
]
Slos = Annotated[
    str | None,
    typer.Option(
        "--slo",
        metavar="TIME_pNN=SECONDS,...",
        help="Promises: ttft_p95=1.5s, tpot_p95=50ms (per further token, of an answer), itl_p99=100ms (between any two tokens), "
        "e2e_p99=20s (to the last token).",
    ),
]
Spare = Annotated[
    int, typer.Option(min=0, help="Replicas that may fail: the others keep the promises at the traffic's own rate.")
]
PeakUtilization = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        help="Share of what the fleet can carry that the traffic may take: it keeps up with arrivals 1/SHARE times as fast.",
    ),
]
Preemptions = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        min=0.0,
        help="Preemptions a request that are borne: with more, the fleet has too little memory for its answers.",
    ),
]
PngFile = Annotated[Path | None, typer.Option(metavar="FILE.png", help="Write a picture.", rich_help_panel=OUTPUT)]


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read a trace."""

    form: Format = None
    fields: Fields = None
    block_size: BlockSize = None
    skip_bad: SkipBad = 0
    line_limit: LineLimit = LINE_BYTES
    since: Since = None
    until: Until = None
    where: Where = None

    def source(
        self,
        names: list[str] | str,
        told: Progress | None = None,
        *,
        stream: bool = False,
        files: list[LogFile] | None = None,
    ) -> Source:
        """Return the workload that ``names`` name: of a generator, as a function of the seed. A trace is read here and now.

        Args:
            names: a generator, or the files of a trace; the last with settings.
            told: shown how far a trace is read.
            stream: do not keep a trace's requests: they are read once only.
            files: those of a trace, where they were looked up before: a pipe can be read only once.
        """
        *others, last = [names] if isinstance(names, str) else names
        spec = Spec.parse(last)
        if spec.is_made and not others:
            if self != type(self)():
                raise ConfigError(
                    f"--format, --fields and the options beside them speak of a trace, {last!r} is made up"
                )
            return spec
        files = files or self.files([*others, spec.name])
        progress = None if told is None else lambda share: told(share, f"reading {files[0].name}")
        workload = spec.change(read_trace(files, spec.options(self.options), check=False, progress=progress))
        name_bad_lines(workload)
        return workload if stream else keep(workload)

    @staticmethod
    def files(names: list[str]) -> list[LogFile]:
        """Return the files of a log that names, patterns and ``-`` stand for.

        Raises:
            ConfigError: one is a folder or is not there.
        """
        files = log_files(names)
        for file in files:
            if file.path.is_dir():
                raise ConfigError(f"a workload is a trace, {file.label!r} is a folder: name a file in it")
            if not file.path.is_file():
                known = ", ".join(GENERATORS)
                raise ConfigError(f"a workload is {known} or the path of a trace; there is no file {file.label!r}")
        return files

    @property
    def options(self) -> Options:
        """What the user says of the file; reads the field map."""
        return Options(
            format=self.form,
            fields=None if self.fields is None else FieldMap.read(self.fields),
            block_size=self.block_size,
            skip_bad=self.skip_bad,
            line_bytes=self.line_limit,
            since=self.since,
            until=self.until,
            where=tuple(arguments.pair(text, "--where") for text in self.where or ()),
        )


def parts(names: list[str] | str, told: Progress | None) -> tuple[Progress | None, Progress | None]:
    """Return what shows the progress of reading the workload that ``names`` name, and of the runs after it, in one bar.

    Reading is taken to be a fiftieth of the work: rather too little, so that the time left falls faster than it says.
    """
    if Spec.parse(names if isinstance(names, str) else names[-1]).is_made:
        return None, told
    work = Work(told, 50.0)
    return work.part(1.0), work.part(49.0)


@dataclass(frozen=True, slots=True)
class LogReading(Reading):
    """How to read a trace, for commands that know no model but the log's."""

    only_model: OnlyModel = None

    @property
    def options(self) -> Options:
        """What the user says of the file; reads the field map."""
        said = super(LogReading, self).options
        return said if self.only_model is None else replace(said, where=(*said.where, ("model", self.only_model)))


def name_bad_lines(workload: Workload) -> None:
    """Say on stderr which bad lines a trace is without."""
    if workload.skipped is not None:
        console.note(f"{workload.name}: {workload.skipped}")


_FIGURES = {
    "gpu": "gpu",
    "model": "model",
    "served_model": "model",
    "tensor_parallel": "tensor_parallel",
    "utilization": "utilization",
    "overhead": "overhead_s",
    "price": "usd_per_gpu_hour",
    "bandwidth_utilization": "bandwidth_utilization",
    "expert_parallel": "expert_parallel",
    "weight_format": "weight_format",
    "memory_share": "memory_share",
    "weight_bytes": "weight_bytes",
    "kv_bytes": "kv_bytes",
}
"""Arguments of the cost model by the options that give them."""


@dataclass(frozen=True, slots=True)
class Priced:
    """Options that price a replica, by the names of :data:`_FIGURES`, and ``speeds``."""

    @property
    def cost(self) -> CostModel:
        """The cost model; what was not given is a default and marked so."""
        given = {_FIGURES[one.name]: getattr(self, one.name) for one in fields(self) if one.name in _FIGURES}
        return arguments.priced(getattr(self, "speeds", None), given)


@dataclass(frozen=True, slots=True)
class Machine(Priced):
    """GPU and model of a replica, as far as the user says."""

    gpu: Gpu = None
    model: Model = None
    tensor_parallel: TensorParallel = None
    expert_parallel: ExpertParallel = None
    weight_format: WeightFormat = None
    speeds: Speeds = None


@dataclass(frozen=True, slots=True)
class LogMachine(Priced):
    """The same, for commands whose ``--model`` picks requests of the log."""

    gpu: Gpu = None
    served_model: ServedModel = None
    tensor_parallel: TensorParallel = None
    price: Price = None


@dataclass(frozen=True, slots=True)
class Hardware(Machine):
    """A machine, how fast it is and what its cache holds."""

    utilization: Utilization = None
    overhead: Overhead = None
    bandwidth_utilization: BandwidthUtilization = None
    weight_bytes: WeightBytes = None
    kv_bytes: KvBytes = None
    memory_share: MemoryShare = None
    capacity: Capacity = None
    chunk_tokens: ChunkTokens = None
    max_running: MaxRunning = None

    @property
    def batching(self) -> dict[str, int]:
        """How the engine fills its steps, as far as it was given."""
        given = {"chunk_tokens": self.chunk_tokens, "max_running": self.max_running}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a scenario: the cache as given, else what the given hardware leaves beside the model, else none."""
        if self.capacity is not None:
            unlimited = self.capacity == "unlimited"
            return {"capacity_tokens": None if unlimited else arguments.count(self.capacity, what="--capacity")}
        behind = (
            self.gpu, self.model, self.tensor_parallel, self.memory_share, self.weight_bytes, self.weight_format, self.kv_bytes,
        )  # fmt: skip
        known = any(figure is not None for figure in behind)
        return {"capacity_tokens": self.cost.capacity_tokens} if known else {}


@dataclass(frozen=True, slots=True)
class PricedHardware(Hardware):
    """Hardware and what it costs."""

    price: Price = None


@dataclass(frozen=True, slots=True)
class Observed:
    """How routers learn what caches hold."""

    observe: Observe = None


@dataclass(frozen=True, slots=True)
class Simulated:
    """What is simulated of a fleet."""

    observe: Observe = None
    timed: Timed = False


@dataclass(frozen=True, slots=True)
class Apart:
    """Fleets that prefill and decode apart."""

    prefill_replicas: PrefillReplicas = None
    decode_replicas: DecodeReplicas = None
    link: LinkName = None

    @property
    def splits(self) -> list[Split]:
        """The fleets, one for each pair of numbers.

        Raises:
            ConfigError: one of the two is missing, or they are not as many.
        """
        if self.prefill_replicas is None and self.decode_replicas is None:
            if self.link is not None:
                raise ConfigError(
                    "--link joins replicas that prefill and decode apart: give --prefill-replicas and --decode-replicas"
                )
            return []
        given = {"--prefill-replicas": self.prefill_replicas, "--decode-replicas": self.decode_replicas}
        for what, text in given.items():
            if text is None or not text.strip(", "):
                raise ConfigError(
                    f"{what} is missing: --prefill-replicas and --decode-replicas are given together, as numbers of replicas (2 or 2,4)"
                )
        prefill, decode = (
            [arguments.count(part, what=what) for part in arguments.names(text or "", what=what)]
            for what, text in given.items()
        )
        if len(prefill) != len(decode):
            raise ConfigError(
                f"--prefill-replicas and --decode-replicas must name as many fleets, got {len(prefill)} and {len(decode)}"
            )
        return [Split(*pair, self.link or DEFAULT_LINK) for pair in zip(prefill, decode, strict=True)]


@dataclass(frozen=True, slots=True)
class Course:
    """What happens to a fleet during a run, and what is measured of it."""

    change: Changes = None
    tier: Tiers = None
    warmup: Warmup = 0
    goodput: Goodput = None

    def settings(self, cost: CostModel) -> dict[str, Any]:
        """Settings of a scenario, as far as they were given."""
        given = {
            "changes": arguments.changes(self.change),
            "tiers": arguments.tiers(self.tier, cost),
            "warmup": self.warmup,
            "promise": arguments.promise(self.goodput),
        }
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class Front:
    """What stands before a fleet."""

    routers: Routers = 1
    sticky: Sticky = False
    peer_delay: PeerDelay = None

    def peer_delay_s(self, *, timed: bool) -> float | None:
        """Return the delay between routers in seconds; ``None`` = they share nothing.

        Args:
            timed: whether the simulation has a clock, without which only a delay of 0 is possible.

        Raises:
            ConfigError: a delay with one router or without a clock, or one that is no time.
        """
        if self.peer_delay is None:
            return None
        if self.routers == 1:
            raise ConfigError("--peer-delay is between several routers: give --routers above 1 too")
        if self.peer_delay.strip() == "0":
            return 0.0
        delay_s = arguments.seconds(self.peer_delay, what="--peer-delay")
        if not timed:
            raise ConfigError(
                f"--peer-delay above 0 speaks of a timed simulation: give --timed too, or 0, got {self.peer_delay!r}"
            )
        return delay_s


def link_of(link: str | None, *, apart: bool) -> str | None:
    """Return what joins replicas that prefill and decode apart; None where ``--apart`` does not ask for them.

    Raises:
        ConfigError: a link alone.
    """
    if link is not None and not apart:
        raise ConfigError("--link joins replicas that prefill and decode apart: give --apart too")
    return (link or DEFAULT_LINK) if apart else None


NO_FRONT = Front()


def scenario(
    hardware: Hardware, simulated: Simulated, front: Front = NO_FRONT, *, timed: bool | None = False, **given: Any
) -> Scenario:
    """Return what is simulated. Of ``given``, settings that are None were not given, and are the default.

    ``timed``: with an engine though the options do not ask for one; None = it may get one later, and then has these settings.
    """
    clocked = simulated.timed or timed is not False
    chosen = {name: value for name, value in given.items() if value is not None}
    if simulated.observe is not None:
        chosen["observe"] = arguments.observation(simulated.observe)
    if hardware.capacity is not None:
        chosen |= hardware.settings
    batching = hardware.batching
    if batching and not clocked:
        raise ConfigError("--chunk-tokens and --max-running speak of a timed simulation: give --timed too")
    return Scenario(
        engine=EngineModel(hardware.cost, **batching) if clocked else None,
        routers=front.routers,
        front="sticky" if front.sticky else "round-robin",
        peer_delay_s=front.peer_delay_s(timed=clocked),
        given=frozenset({*chosen, *batching}),
        **{**hardware.settings, **chosen},
    )


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are groups of options are replaced by these options, as typer wants them."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY))
            continue
        own = get_type_hints(groups[name], include_extras=True)
        parameters += [
            inspect.Parameter(field.name, parameter.KEYWORD_ONLY, default=field.default, annotation=own[field.name])
            for field in fields(groups[name])
        ]

    @wraps(command)
    def shown(**values: Any) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **made)

    shown.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return shown
