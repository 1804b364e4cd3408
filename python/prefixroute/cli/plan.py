"""``prefixroute plan``: what to do about prompt caches that a provider runs, and what it costs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from prefixroute.advise.own_or_api import POLICY, PROMISE, own_or_api
from prefixroute.advise.size import Slo
from prefixroute.cli import arguments, console, options
from prefixroute.cli.output import Output
from prefixroute.cli.sheet import show_sheet, write_sheet
from prefixroute.costmodel import Assumption
from prefixroute.errors import ConfigError
from prefixroute.plan.breakpoints import place_breakpoints
from prefixroute.plan.burst import Calls, Speed, figures_assumed, plan_batch, plan_burst
from prefixroute.plan.lifetimes import lifetimes_by_rate
from prefixroute.plan.shards import LIMIT, Load, plan_shards
from prefixroute.plan.storage import plan_storage
from prefixroute.plan.traffic import CLASSES, DEFAULT_CLASSES, Binding, plan_trace
from prefixroute.providers.catalog import BATCH, MAX_AGE_DAYS, Model, Provider
from prefixroute.providers.tables import find_model, find_provider, providers, read_provider
from prefixroute.report.plans import (
    batch_section,
    burst_section,
    lifetime_section,
    offer_section,
    placement_sections,
    shard_section,
    storage_section,
    trace_sections,
)
from prefixroute.report.sheet import Section, Sheet
from prefixroute.sim.grid import open_source
from prefixroute.sim.sweep import SCHEMA
from prefixroute.workload import Workload
from prefixroute.workload.readers.lines import read_rows
from prefixroute.workload.readers.reading import Reading

ANTHROPIC_EXAMPLE = "Example: prefixroute plan anthropic --requests 10 --shared-tokens 20000"
OPENAI_EXAMPLE = "Example: prefixroute plan openai --per-minute 120 --users 1000"
GEMINI_EXAMPLE = "Example: prefixroute plan gemini --shared-tokens 100000 --per-hour 10"
COMPARE_EXAMPLE = "Example: prefixroute plan compare day.jsonl.gz --price 2.50"

CALLS, PRICES, TRAFFIC = "Calls", "Prices and rules", "Traffic"
REQUESTS, SHARED_TOKENS, PER_MINUTE, USERS, PER_HOUR = 10, 20_000, 60.0, 1_000, 10.0
"""What is planned where nobody says, marked ASSUMED."""

app = typer.Typer(
    help="Plan for prompt caches that a provider runs: Claude, OpenAI, Gemini, or all beside replicas of your own.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="Model.", show_default="the provider's", rich_help_panel=PRICES),
]
Shared = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="Prompt tokens that calls share.", show_default=f"{SHARED_TOKENS}", rich_help_panel=CALLS
    ),
]
Own = Annotated[int, typer.Option(min=0, help="Prompt tokens of each call behind them.", rich_help_panel=CALLS)]
Answer = Annotated[int, typer.Option(min=0, help="Answer tokens of each call.", rich_help_panel=CALLS)]
Lifetime = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Lifetime: 5m, 1h.", show_default="the default", rich_help_panel=PRICES),
]
Missed = Annotated[float, typer.Option(help="Probability that a live entry is not found.", rich_help_panel=CALLS)]
PerHour = Annotated[
    float | None, typer.Option(help="Uses of one prefix an hour, to choose its lifetime.", rich_help_panel=TRAFFIC)
]
TraceOption = Annotated[
    str | None,
    typer.Option("--trace", metavar="FILE", help="A log or trace: reuse and dollars on it.", rich_help_panel=TRAFFIC),
]


@dataclass(frozen=True, slots=True)
class Figures:
    """Prices and rules, as far as the user says."""

    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Prices of your own; they come first.", rich_help_panel=PRICES),
    ] = None
    input_usd: Annotated[
        float | None, typer.Option("--input", help="$ for a million input tokens.", rich_help_panel=PRICES)
    ] = None
    write_usd: Annotated[float | None, typer.Option("--write", help="The same, written.", rich_help_panel=PRICES)] = (
        None
    )
    read_usd: Annotated[float | None, typer.Option("--read", help="The same, read.", rich_help_panel=PRICES)] = None
    output_usd: Annotated[
        float | None, typer.Option("--output", help="The same, answered.", rich_help_panel=PRICES)
    ] = None
    minimum: Annotated[
        int | None, typer.Option(help="Tokens of the shortest cached prefix.", rich_help_panel=PRICES)
    ] = None
    max_age_days: Annotated[int, typer.Option(help="Age of prices that warns.", rich_help_panel=PRICES)] = MAX_AGE_DAYS

    @property
    def own(self) -> tuple[Provider, ...]:
        """The user's own file, or nothing."""
        return () if self.prices is None else (read_provider(self.prices),)

    def model(self, name: str | None, provider: str, kinds: tuple[str, ...], today: date) -> tuple[Model, list[str]]:
        """Return a model whose cache works in one of these ways, with the user's figures, and a warning if it is old."""
        known = self.own
        if name is not None:
            found = find_model(name, known)
        elif known:
            found = known[0].model()
        else:
            found = find_provider(provider).model()
        if not any(mode.kind in kinds for mode in found.modes):
            ways = ", ".join(mode.kind for mode in found.modes)
            raise ConfigError(
                f"{found.id} caches by {ways}, this command plans for {' or '.join(kinds)}: `plan compare` takes any"
            )
        stale = find_provider(found.provider, known).stale_note(today, self.max_age_days)
        changed = found.with_figures(
            input=self.input_usd,
            output=self.output_usd,
            read=self.read_usd,
            write=self.write_usd,
            minimum_tokens=self.minimum,
        )
        return changed, [stale] if stale else []


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the API answers."""

    concurrency: Annotated[
        int | None, typer.Option(help="Calls in flight at most.", show_default="no limit", rich_help_panel=CALLS)
    ] = None
    prefill_tokens_per_s: Annotated[
        float | None, typer.Option(help="Prompt tokens a second that are not cached.", rich_help_panel=CALLS)
    ] = None
    overhead_s: Annotated[
        float | None, typer.Option(help="Seconds to the first token, all cached.", rich_help_panel=CALLS)
    ] = None
    answer_s: Annotated[float | None, typer.Option(help="Seconds from first to last token.", rich_help_panel=CALLS)] = (
        None
    )

    @property
    def speed(self) -> Speed:
        """The times of a burst."""
        return Speed(self.prefill_tokens_per_s, self.overhead_s, self.answer_s, self.concurrency)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the answer goes."""

    as_json: options.AsJson = False
    report: options.ReportFile = None
    png: options.PngFile = None
    quiet: options.Quiet = False


@dataclass(frozen=True, slots=True)
class Traced:
    """A trace, and how it is looked at."""

    trace: TraceOption = None
    by: Annotated[
        str,
        typer.Option(metavar="WHAT,...", help=f"Classes of sessions: {', '.join(CLASSES)}.", rich_help_panel=TRAFFIC),
    ] = ",".join(DEFAULT_CLASSES)
    binding_s: Annotated[
        float | None,
        typer.Option(help="A gateway pins sessions for this many seconds of idleness.", rich_help_panel=TRAFFIC),
    ] = None
    targets: Annotated[
        int, typer.Option(help="To one of so many workspaces, keys or deployments.", rich_help_panel=TRAFFIC)
    ] = 2

    @property
    def binding(self) -> Binding | None:
        """The gateway, if there is one."""
        return None if self.binding_s is None else Binding(self.binding_s, self.targets)


class _Answer:
    """Parts of an answer as they come: sections for people, fields for programs."""

    def __init__(self, title: str, outputs: Outputs) -> None:
        self.title, self.outputs = title, outputs
        self.output = Output(outputs.report, outputs.png)
        self.sections: list[Section] = []
        self.fields: dict[str, Any] = {}
        self.assumptions: list[Assumption] = []
        self.notes: list[str] = []

    def add(self, name: str, found: Any, *sections: Section) -> None:
        """Add a result under its name, and its sections."""
        self.fields[name] = found
        self.sections += sections

    def give(self) -> None:
        """Print it, and write what was asked for."""
        figures = {item.name: item for item in self.assumptions}
        sheet = Sheet(self.title, tuple(self.sections), tuple(figures.values()), tuple(dict.fromkeys(self.notes)))
        if self.outputs.as_json:
            behind = {
                item.name: {"value": item.value, "unit": item.unit, "source": item.source, "assumed": item.assumed}
                for item in sheet.assumptions
            }
            told = {"schema": SCHEMA, **self.fields, "assumptions": behind, "notes": list(sheet.notes)}
            sys.stdout.write(json.dumps(told, indent=2, allow_nan=False) + "\n")
        else:
            show_sheet(sheet, console.stdout())
        write_sheet(sheet, self.output)


@options.grouped
def anthropic(  # noqa: PLR0917
    model: ModelName = None,
    requests: Annotated[
        str | None,
        typer.Option(metavar="N", help="Calls that share a prefix.", show_default=f"{REQUESTS}", rich_help_panel=CALLS),
    ] = None,
    shared_tokens: Shared = None,
    own_tokens: Own = 0,
    output_tokens: Answer = 0,
    workspaces: Annotated[int, typer.Option(min=1, help="Workspaces, each with a cache.", rich_help_panel=CALLS)] = 1,
    miss_probability: Missed = 0.0,
    lifetime: Lifetime = None,
    per_hour: PerHour = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl", help="Request bodies, one a line: where breakpoints belong.", rich_help_panel=TRAFFIC
        ),
    ] = None,
    *,
    pace: Pace,
    traced: Traced,
    figures: Figures,
    outputs: Outputs,
    reading: options.Reading,
) -> None:
    """Claude: order of calls, pre-warming, lifetime, breakpoints, batches; on a trace, reuse and dollars by lifetime."""
    found, stale = figures.model(model, "anthropic", ("marks",), date.today())  # noqa: DTZ011 - prices age by the day
    answer = _Answer(f"Prompt caching with {found.id}", outputs)
    answer.notes += stale
    answer.fields["model"] = _told(found)
    burst_asked = any(value is not None for value in (requests, shared_tokens))
    others_asked = any(value is not None for value in (per_hour, prompts, traced.trace))
    shared = SHARED_TOKENS if shared_tokens is None else arguments.count(shared_tokens, what="--shared-tokens")
    if burst_asked or not others_asked:
        number = REQUESTS if requests is None else arguments.count(requests, what="--requests")
        answer.assumptions += _assumed(("requests", number, requests), ("shared_tokens", shared, shared_tokens))
        calls = Calls(number, shared, own_tokens, output_tokens, workspaces, miss_probability)
        burst = plan_burst(found, calls, lifetime=lifetime, speed=pace.speed)
        answer.add("burst", burst.to_dict(), burst_section(burst))
        answer.assumptions += burst.assumptions
        if any(price.tier == BATCH for price in found.prices):
            orders = plan_batch(found, calls)
            told = [{"name": one.name, "best_usd": one.best_usd, "worst_usd": one.worst_usd} for one in orders]
            answer.add("batch", told, batch_section(orders))
    if per_hour is not None:
        plan = lifetimes_by_rate(found, shared, per_hour)
        answer.assumptions += _assumed(("shared_tokens", shared, shared_tokens))
        answer.add("lifetimes", plan.to_dict(), lifetime_section(plan))
    if prompts is not None:
        placed = place_breakpoints(_bodies(prompts), found)
        answer.add("breakpoints", placed.to_dict(), *placement_sections(placed))
    if traced.trace is not None:
        _trace(answer, traced, found, reading)
    answer.assumptions += figures_assumed(found)
    answer.give()


@options.grouped
def openai(  # noqa: PLR0917
    model: ModelName = None,
    per_minute: Annotated[
        float | None, typer.Option(help="Requests a minute.", show_default=f"{PER_MINUTE:g}", rich_help_panel=TRAFFIC)
    ] = None,
    users: Annotated[
        int | None, typer.Option(help="Users they come from, evenly.", show_default=f"{USERS}", rich_help_panel=TRAFFIC)
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            help="Requests a minute for one key.", show_default=f"the provider's, or {LIMIT:g}", rich_help_panel=PRICES
        ),
    ] = None,
    shared_tokens: Shared = None,
    user_tokens: Annotated[
        int, typer.Option(min=0, help="Prompt tokens behind them that one user's calls share.", rich_help_panel=CALLS)
    ] = 0,
    own_tokens: Own = 200,
    lifetime: Lifetime = None,
    per_hour: PerHour = None,
    seed: options.Seed = 1,
    *,
    traced: Traced,
    figures: Figures,
    outputs: Outputs,
    reading: options.Reading,
) -> None:
    """OpenAI, and others with a routing key: how many keys, what hits to expect, retention; on a trace, its own users."""
    found, stale = figures.model(model, "openai", ("keyed",), date.today())  # noqa: DTZ011 - prices age by the day
    answer = _Answer(f"Prompt caching with {found.id}", outputs)
    answer.notes += stale
    answer.fields["model"] = _told(found)
    shared = SHARED_TOKENS if shared_tokens is None else arguments.count(shared_tokens, what="--shared-tokens")
    rate: float = PER_MINUTE if per_minute is None else per_minute
    senders: int | dict[str, float] = USERS if users is None else users
    workload = None if traced.trace is None else _opened(traced.trace, reading, outputs)
    if workload is not None and (per_minute is None or users is None):
        seen_rate, seen_users = _users(workload)
        rate = seen_rate if per_minute is None else per_minute
        senders = seen_users if users is None else users
        if shared_tokens is None and workload.head_tokens:
            shared = workload.head_tokens
    else:
        answer.assumptions += _assumed(
            ("requests_per_minute", rate, per_minute), ("users", USERS, users), ("shared_tokens", shared, shared_tokens)
        )
    load = Load(rate, senders, shared_tokens=shared, user_tokens=user_tokens, own_tokens=own_tokens)
    plan = plan_shards(found, load, limit=limit, lifetime=lifetime, seed=seed)
    answer.add("keys", plan.to_dict(), shard_section(plan))
    if per_hour is not None:
        kept = lifetimes_by_rate(found, shared, per_hour)
        answer.add("lifetimes", kept.to_dict(), lifetime_section(kept))
    if workload is not None:
        _trace(answer, traced, found, reading, workload)
    answer.assumptions += figures_assumed(found)
    answer.give()


@options.grouped
def gemini(
    model: ModelName = None,
    shared_tokens: Shared = None,
    per_hour: PerHour = None,
    hours: Annotated[float, typer.Option(help="Hours that a stored object lives.", rich_help_panel=CALLS)] = 1.0,
    miss_probability: Missed = 0.0,
    *,
    traced: Traced,
    figures: Figures,
    outputs: Outputs,
    reading: options.Reading,
) -> None:
    """Gemini: implicit caching against a stored object with its rent, and the rate from which the rent pays."""
    found, stale = figures.model(model, "gemini", ("stored",), date.today())  # noqa: DTZ011 - prices age by the day
    answer = _Answer(f"Prompt caching with {found.id}", outputs)
    answer.notes += stale
    answer.fields["model"] = _told(found)
    shared = SHARED_TOKENS if shared_tokens is None else arguments.count(shared_tokens, what="--shared-tokens")
    rate = PER_HOUR if per_hour is None else per_hour
    answer.assumptions += _assumed(("shared_tokens", shared, shared_tokens), ("uses_per_hour", rate, per_hour))
    plan = plan_storage(found, shared, rate, hours=hours, miss_probability=miss_probability)
    answer.add("storage", plan.to_dict(), storage_section(plan))
    answer.assumptions += plan.assumptions
    if traced.trace is not None:
        _trace(answer, traced, found, reading)
    answer.give()


@options.grouped
def compare(  # noqa: PLR0917
    workload: options.WorkloadName,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...", help="Models of APIs.", show_default="one of each provider", rich_help_panel=PRICES
        ),
    ] = None,
    policy: Annotated[str, typer.Option(metavar="NAME", help="Policy before replicas of your own.")] = POLICY,
    slo: Annotated[
        str | None, typer.Option(metavar="ttft_pNN=SECONDS", help="What they keep.", show_default=str(PROMISE))
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Replicas beyond which no fleet is tried.")] = 64,
    requests_per_day: Annotated[
        float | None, typer.Option(help="Rate to plan for.", show_default="the trace's own", rich_help_panel=TRAFFIC)
    ] = None,
    seed: options.Seed = 1,
    *,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Prices of your own; they come first.", rich_help_panel=PRICES),
    ] = None,
    hardware: options.PricedHardware,
    outputs: Outputs,
    reading: options.Reading,
) -> None:
    """Compare APIs with replicas of your own on the same traffic, at the price of your GPUs."""
    own = () if prices is None else (read_provider(prices),)
    names = None if models is None else arguments.names(models, what="--models")
    chosen = (
        [one.model() for one in (*own, *providers())] if names is None else [find_model(name, own) for name in names]
    )
    answer = _Answer("API or own replicas?", outputs)
    today = date.today()  # noqa: DTZ011 - prices age by the day
    stale = {one.name: one.stale_note(today) for one in (*own, *providers())}
    answer.notes += [note for model in chosen if (note := stale.get(model.provider))]
    with console.progress(quiet=outputs.quiet) as told:
        found = own_or_api(
            open_source(reading.source(workload, told), seed),
            chosen,
            cost=hardware.cost,
            scenario=options.scenario(hardware, options.Simulated(timed=True)),
            policy=arguments.policies(policy, workload)[0],
            promise=PROMISE if slo is None else Slo.parse(slo),
            most=most,
            requests_per_day=requests_per_day,
            progress=told,
        )
    answer.add("comparison", found.to_dict(), offer_section(found))
    answer.assumptions += found.assumptions
    answer.assumptions += _assumed(("slo", str(PROMISE), slo))
    answer.notes += found.notes
    answer.give()


def _trace(
    answer: _Answer, traced: Traced, model: Model, reading: options.Reading, workload: Workload | None = None
) -> None:
    """Add what each lifetime makes of a trace."""
    by = arguments.names(traced.by, what="--by")
    opened = _opened(traced.trace or "", reading, answer.outputs, stream=True) if workload is None else workload
    plan = plan_trace(opened, model, by=by, binding=traced.binding)
    answer.add("trace", plan.to_dict(), *trace_sections(plan))
    answer.assumptions += opened.assumptions
    answer.notes += plan.notes


def _opened(name: str, reading: options.Reading, outputs: Outputs, *, stream: bool = False) -> Workload:
    with console.progress(quiet=outputs.quiet) as told:
        return open_source(reading.source(name, told, stream=stream), 1)


def _users(workload: Workload) -> tuple[float, dict[str, float]]:
    """Return a trace's requests a minute, and how many each tenant, or else each session, sends."""
    counts: Counter[str] = Counter()
    first = last = None
    for number, request in enumerate(workload.requests()):
        counts[request.tenant or request.session or f"request-{number}"] += 1
        first, last = (request.arrival_s if first is None else first), request.arrival_s
    if first is None or last is None or last <= first:
        raise ConfigError(f"{workload.name} has no span in time: give --per-minute and --users")
    return 60 * counts.total() / (last - first), {user: float(count) for user, count in counts.items()}


def _bodies(path: Path) -> list[Any]:
    """Read request bodies: each line is one, or has it under ``body`` or ``request``."""
    bodies = []
    for row in read_rows(path, Reading(paths=[path])):
        fields = row.fields
        inner = next((fields[name] for name in ("body", "request") if isinstance(fields.get(name), dict)), fields)
        bodies.append(inner)
    return bodies


def _told(model: Model) -> dict[str, object]:
    """Return what a result says of its model."""
    price = model.price()
    return {
        "id": model.id,
        "provider": model.provider,
        "prices_of": model.date.isoformat(),
        "source": model.source,
        "minimum_tokens": model.minimum_tokens,
        "usd_per_million": {
            "input": price.input,
            "output": price.output,
            "read": price.read,
            "write": dict(price.write),
        },
    }


def _assumed(*figures: tuple[str, float | str, object]) -> list[Assumption]:
    """Return the figures of which nobody gave the last part."""
    return [Assumption(name, value, "", "default", assumed=given is None) for name, value, given in figures]


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "anthropic": (anthropic, ANTHROPIC_EXAMPLE),
    "openai": (openai, OPENAI_EXAMPLE),
    "gemini": (gemini, GEMINI_EXAMPLE),
    "compare": (compare, COMPARE_EXAMPLE),
}
for _name, (_command, _example) in COMMANDS.items():
    app.command(_name, epilog=_example)(_command)
