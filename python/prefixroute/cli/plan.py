"""``prefixroute plan``: what to do about prompt caches that a provider runs, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import NamedTuple

import typer

from prefixroute.advise import Slo
from prefixroute.advise.own_or_api import POLICY, PROMISE, own_or_api
from prefixroute.cli import arguments, console, options
from prefixroute.cli.fleets import Simulated, scenario_of
from prefixroute.cli.groups import grouped, option
from prefixroute.cli.hardware import PricedHardware
from prefixroute.cli.output import Outputs
from prefixroute.cli.plan_options import (
    PER_HOUR,
    PER_MINUTE,
    REQUESTS,
    SHARED_TOKENS,
    USERS,
    Pace,
    PlanAnswer,
    PriceOptions,
    Traced,
    call,
    defaults,
    described,
    lifetime_name,
    missed,
    model_name,
    own,
    price,
    shared_tokens_of,
    traffic,
    uses,
)
from prefixroute.cli.reading import TraceOptions
from prefixroute.errors import ConfigError
from prefixroute.lint import read_entries
from prefixroute.plan.breakpoints import MOST_PROMPTS, place_breakpoints
from prefixroute.plan.burst import Calls, figures_assumed, plan_batch, plan_burst
from prefixroute.plan.lifetimes import lifetimes_by_rate
from prefixroute.plan.prompts import Prompt
from prefixroute.plan.shards import LIMIT, Load, plan_shards
from prefixroute.plan.storage import plan_storage
from prefixroute.plan.traffic import plan_trace
from prefixroute.providers.catalog import BATCH, Model
from prefixroute.providers.tables import find_model, providers, read_provider
from prefixroute.report.plans import (
    batch_table,
    burst_table,
    lifetime_table,
    offer_table,
    placement_tables,
    shard_table,
    storage_table,
    trace_tables,
)
from prefixroute.sim.grid import open_source
from prefixroute.workload import Workload

ANTHROPIC_EXAMPLE = "Example: prefixroute plan anthropic --requests 10 --shared-tokens 20000"
OPENAI_EXAMPLE = "Example: prefixroute plan openai --per-minute 120 --users 1000"
GEMINI_EXAMPLE = "Example: prefixroute plan gemini --shared-tokens 100000 --per-hour 10"
COMPARE_EXAMPLE = "Example: prefixroute plan compare day.jsonl.gz --price 2.50"

OWN_TOKENS = 200
"""Prompt tokens of each call behind what calls share, unless given (ASSUMED: a question of 150 words)."""
NO_HEAD = (
    "the trace does not tell how many tokens all of its prompts share: give --shared-tokens for routing keys and "
    "lifetimes of one prefix"
)

app = typer.Typer(
    help="Plan for prompt caches that a provider runs: Claude, OpenAI, Gemini, or all beside replicas of your own.",
    rich_markup_mode="rich",
)


@grouped
def anthropic(
    *,
    model: str | None = model_name(),
    requests: str | None = call(None, "Calls that share a prefix.", metavar="N", show_default=f"{REQUESTS}"),
    shared_tokens: str | None = shared_tokens_of(),
    own_tokens: int = own(0),
    output_tokens: int = call(0, "Answer tokens of each call.", min=0),
    workspaces: int = call(1, "Workspaces, each with a cache.", min=1),
    miss_probability: float = missed(0.0),
    lifetime: str | None = lifetime_name(),
    per_hour: float | None = uses(),
    prompts: Path | None = traffic(
        None, "A log or request bodies, one a line: where breakpoints belong.", metavar="FILE.jsonl"
    ),
    pace: Pace,
    traced: Traced,
    figures: PriceOptions,
    outputs: Outputs,
    reading: TraceOptions,
) -> None:
    """Claude: order of calls, pre-warming, lifetime, breakpoints, batches; on a trace, dollars by lifetime."""
    answer, found = _begun(figures, model, "anthropic", "marks", outputs)
    burst_asked = any(value is not None for value in (requests, shared_tokens))
    others_asked = any(value is not None for value in (per_hour, prompts, traced.trace))
    shared = _count(shared_tokens, SHARED_TOKENS, "--shared-tokens")
    if burst_asked or not others_asked:
        number = _count(requests, REQUESTS, "--requests")
        answer.assumptions += defaults(("requests", number, requests), ("shared_tokens", shared, shared_tokens))
        calls = Calls(number, shared, own_tokens, output_tokens, workspaces, miss_probability)
        burst = plan_burst(found, calls, lifetime=lifetime, tier=figures.tier, speed=pace.speed)
        answer.add("burst", burst, burst_table(burst))
        answer.assumptions += burst.assumptions
        if any(one.tier == BATCH for one in found.prices):
            orders = plan_batch(found, calls)
            answer.add("batch", orders, batch_table(orders))
    if per_hour is not None:
        answer.assumptions += defaults(("shared_tokens", shared, shared_tokens))
        kept = lifetimes_by_rate(found, shared, per_hour, tier=figures.tier)
        answer.add("lifetimes", kept, lifetime_table(kept))
    if prompts is not None:
        placed = place_breakpoints(_prompts(prompts, reading), found)
        answer.add("breakpoints", placed, *placement_tables(placed))
    if traced.trace is not None:
        _trace(answer, traced, found, reading, tier=figures.tier)
    answer.assumptions += figures_assumed(found)
    answer.give()


@grouped
def openai(
    *,
    model: str | None = model_name(),
    per_minute: float | None = traffic(None, "Requests a minute.", show_default=f"{PER_MINUTE:g}"),
    users: int | None = traffic(None, "Users they come from, evenly.", show_default=f"{USERS}"),
    limit: float | None = price(None, "Requests a minute for one key.", show_default=f"the provider's, or {LIMIT:g}"),
    shared_tokens: str | None = shared_tokens_of(),
    user_tokens: int = call(0, "Prompt tokens behind them that one user's calls share.", min=0),
    own_tokens: int | None = call(
        None,
        "Prompt tokens of each call behind them.",
        min=0,
        show_default=f"{OWN_TOKENS}, or what prompts of the trace have",
    ),
    lifetime: str | None = lifetime_name(),
    per_hour: float | None = uses(),
    seed: int = options.seed(1),
    traced: Traced,
    figures: PriceOptions,
    outputs: Outputs,
    reading: TraceOptions,
) -> None:
    """OpenAI, and others with a routing key: how many keys, what hits to expect, lifetimes, also on a trace."""
    answer, found = _begun(figures, model, "openai", "keyed", outputs)
    shared = _count(shared_tokens, SHARED_TOKENS, "--shared-tokens")
    rate: float = PER_MINUTE if per_minute is None else per_minute
    senders: int | dict[str, float] = USERS if users is None else users
    workload = None if traced.trace is None else _opened(traced.trace, reading, outputs)
    tail = OWN_TOKENS if own_tokens is None else own_tokens
    if workload is None:
        answer.assumptions += defaults(
            ("requests_per_minute", rate, per_minute), ("users", USERS, users), ("shared_tokens", shared, shared_tokens)
        )
    else:
        seen = _seen(workload)
        rate = seen.per_minute if per_minute is None else per_minute
        senders = seen.users if users is None else users
        shared = workload.head_tokens or 0 if shared_tokens is None else shared
        tail = max(0, seen.prompt_tokens - shared - user_tokens) if own_tokens is None else own_tokens
    if shared:
        load = Load(rate, senders, shared_tokens=shared, user_tokens=user_tokens, own_tokens=tail)
        plan = plan_shards(found, load, limit=limit, lifetime=lifetime, tier=figures.tier, seed=seed)
        answer.add("keys", plan, shard_table(plan))
        # Unless said otherwise, the uses of one key's entry: its share of the requests.
        per_key = 60 * rate / plan.shards if per_hour is None else per_hour
        kept = lifetimes_by_rate(found, shared, per_key, tier=figures.tier)
        answer.add("lifetimes", kept, lifetime_table(kept))
    else:
        answer.notes.append(NO_HEAD)
    if workload is not None:
        _trace(answer, traced, found, reading, workload, tier=figures.tier)
    answer.assumptions += figures_assumed(found)
    answer.give()


@grouped
def gemini(
    *,
    model: str | None = model_name(),
    shared_tokens: str | None = shared_tokens_of(),
    per_hour: float | None = uses(),
    hours: float = call(1.0, "Hours that a stored object lives."),
    miss_probability: float = missed(0.0),
    traced: Traced,
    figures: PriceOptions,
    outputs: Outputs,
    reading: TraceOptions,
) -> None:
    """Gemini: implicit caching against a stored object with its rent, and the rate from which the rent pays."""
    answer, found = _begun(figures, model, "gemini", "stored", outputs)
    shared = _count(shared_tokens, SHARED_TOKENS, "--shared-tokens")
    rate = PER_HOUR if per_hour is None else per_hour
    answer.assumptions += defaults(("shared_tokens", shared, shared_tokens), ("uses_per_hour", rate, per_hour))
    plan = plan_storage(found, shared, rate, hours=hours, miss_probability=miss_probability, tier=figures.tier)
    answer.add("storage", plan, storage_table(plan))
    answer.assumptions += plan.assumptions
    if traced.trace is not None:
        _trace(answer, traced, found, reading, tier=figures.tier)
    answer.give()


@grouped
def compare(
    workload: options.WorkloadName,
    *,
    models: str | None = price(None, "Models of APIs.", metavar="NAME,...", show_default="one of each provider"),
    policy: str = option(POLICY, "Policy before replicas of your own.", metavar="NAME"),
    slo: str | None = option(None, "What they keep.", metavar="ttft_pNN=SECONDS", show_default=str(PROMISE)),
    most: int = option(64, "Replicas beyond which no fleet is tried.", min=1),
    requests_per_day: float | None = traffic(None, "Rate to plan for.", show_default="the trace's own"),
    seed: int = options.seed(1),
    prices: Path | None = price(None, "Prices of your own; they come first.", metavar="FILE.toml"),
    hardware: PricedHardware,
    outputs: Outputs,
    reading: TraceOptions,
) -> None:
    """Compare APIs with replicas of your own on the same traffic, at the price of your GPUs."""
    known = () if prices is None else (read_provider(prices),)
    names = None if models is None else arguments.names(models, what="--models")
    chosen = (
        [one.model() for one in (*known, *providers())]
        if names is None
        else [find_model(name, known) for name in names]
    )
    answer = PlanAnswer("API or own replicas?", outputs)
    today = date.today()  # noqa: DTZ011 - prices age by the day
    stale = {one.name: one.stale_note(today) for one in (*known, *providers())}
    answer.notes += [note for model in chosen if (note := stale.get(model.provider))]
    with console.progress(quiet=outputs.quiet) as told:
        found = own_or_api(
            open_source(reading.source(workload, told), seed),
            chosen,
            cost=hardware.cost,
            scenario=scenario_of(hardware, Simulated(timed=True)),
            policy=arguments.policies(policy, workload)[0],
            promise=PROMISE if slo is None else Slo.parse(slo),
            most=most,
            requests_per_day=requests_per_day,
            progress=told,
        )
    answer.add("comparison", found, offer_table(found))
    answer.assumptions += found.assumptions
    answer.assumptions += defaults(("slo", str(PROMISE), slo))
    answer.notes += found.notes
    answer.give()


def _begun(
    figures: PriceOptions, model: str | None, provider: str, kind: str, outputs: Outputs
) -> tuple[PlanAnswer, Model]:
    """Return the answer about a model whose cache works in one way, and the model."""
    found, stale = figures.model(model, provider, (kind,), date.today())  # noqa: DTZ011 - prices age by the day
    answer = PlanAnswer(f"Prompt caching with {found.id}", outputs)
    answer.notes += stale
    answer.fields["model"] = described(found)
    return answer, found


def _count(text: str | None, default: int, what: str) -> int:
    return default if text is None else arguments.count(text, what=what)


def _trace(
    answer: PlanAnswer,
    traced: Traced,
    model: Model,
    reading: TraceOptions,
    workload: Workload | None = None,
    *,
    tier: str,
) -> None:
    """Add what each lifetime makes of a trace."""
    by = arguments.names(traced.by, what="--by")
    opened = _opened(traced.trace or "", reading, answer.outputs, stream=True) if workload is None else workload
    plan = plan_trace(opened, model, by=by, binding=traced.binding, begin_s=traced.begin_s, tier=tier)
    answer.add("trace", plan, *trace_tables(plan))
    answer.assumptions += opened.assumptions
    answer.notes += plan.notes


def _opened(name: str, reading: TraceOptions, outputs: Outputs, *, stream: bool = False) -> Workload:
    with console.progress(quiet=outputs.quiet) as told:
        return open_source(reading.source(name, told, stream=stream), 1)


class _Senders(NamedTuple):
    """Who sends the requests of a trace: requests a minute, those of each user, and the mean length of a prompt."""

    per_minute: float
    users: dict[str, float]
    prompt_tokens: int


def _seen(workload: Workload) -> _Senders:
    """Return who sends a trace; its users are its tenants, or else its sessions."""
    counts: Counter[str] = Counter()
    first = last = None
    tokens = 0
    for number, request in enumerate(workload.requests()):
        counts[request.tenant or request.session or f"request-{number}"] += 1
        tokens += request.prompt_tokens
        first, last = (request.arrival_s if first is None else first), request.arrival_s
    if first is None or last is None or last <= first:
        raise ConfigError(f"{workload.name} has no span in time: give --per-minute and --users")
    users = {user: float(count) for user, count in counts.items()}
    return _Senders(60 * counts.total() / (last - first), users, round(tokens / counts.total()))


def _prompts(path: Path, reading: TraceOptions) -> list[Prompt]:
    """Read the prompts of a log, or of a file of request bodies."""
    if not path.is_file():
        raise ConfigError(f"--prompts must be a file of request bodies, got {str(path)!r}")
    found = [entry.prompt for entry in read_entries(path, reading.options.fields, most=MOST_PROMPTS)]
    if not found:
        raise ConfigError(f"{path}: no line holds a request with messages")
    return found


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "anthropic": (anthropic, ANTHROPIC_EXAMPLE),
    "openai": (openai, OPENAI_EXAMPLE),
    "gemini": (gemini, GEMINI_EXAMPLE),
    "compare": (compare, COMPARE_EXAMPLE),
}
for _name, (_command, _example) in COMMANDS.items():
    app.command(_name, epilog=_example)(_command)
