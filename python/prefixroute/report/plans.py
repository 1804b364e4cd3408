"""Sections of the API planners: their numbers, in sentences and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prefixroute.advise.own_or_api import Offer, OwnOrApi
from prefixroute.costmodel import HOURS_PER_MONTH
from prefixroute.lint import Finding, LintReport
from prefixroute.plan.breakpoints import Change, Mark, Placement
from prefixroute.plan.burst import BatchOrder, Burst, Order
from prefixroute.plan.lifetimes import LifetimeChoice, LifetimePlan
from prefixroute.plan.shards import ShardPlan, ShardRow
from prefixroute.plan.storage import StoragePlan, StorageRow
from prefixroute.plan.traffic import Reuse, TracePlan, Traffic
from prefixroute.report.figures import dollars, known, money_of, percent
from prefixroute.report.sheet import Section, lasting
from prefixroute.report.table import Column, Table, on_any_default
from prefixroute.report.times import unit_of

SHOWN_CLASSES = 20
SHOWN_USERS = 5
SHOWN_SHARDS = 10
_MONTH_S = HOURS_PER_MONTH * 3600


def burst_section(burst: Burst) -> Section:
    """Return what each order of the calls costs."""
    money = money_of(cost for order in burst.orders for cost in (order.usd, order.best_usd, order.worst_usd))
    unit = unit_of(order.last_first_token_s for order in burst.orders)
    calls, times = burst.calls, [item for item in burst.assumptions if item.unit in ("s", "tokens/s")]
    lines = [_cacheable(burst.calls.shared_tokens, burst.minimum_tokens, burst.model, is_cacheable=burst.is_cacheable)]
    if burst.is_cacheable:
        lines.append(f"Cheapest: {burst.best.name}, {money.dollars(burst.best.usd)}. {_even(burst)}")
    if calls.workspaces > 1:
        lines.append(
            f"Each of the {calls.workspaces} workspaces has a cache of its own: the entry is written "
            f"{calls.workspaces} times."
        )
    if not burst.is_promised:
        lines.append("The provider promises no hit: the worst case stands beside the expected cost.")
    expected = f"expected, {percent(calls.miss_probability)} missed" if calls.miss_probability else "cost"
    columns: list[Column[Order]] = [
        Column("order", lambda order: order.name, text=True),
        Column(expected, lambda order: money.dollars(order.usd)),
        Column("best", lambda order: money.dollars(order.best_usd)),
        Column("worst", lambda order: money.dollars(order.worst_usd)),
        Column(
            f"last TTFT, {unit.name}", lambda order: unit.figure(order.last_first_token_s), marked=on_any_default(times)
        ),
    ]
    return Section(
        f"{calls.requests:,} calls that share {calls.shared_tokens:,} tokens, {burst.model}, entries for "
        f"{burst.lifetime}",
        Table.of("", columns, burst.orders),
        tuple(lines),
        tuple((order.name, order.usd) for order in burst.orders),
        "US dollars",
    )


def _cacheable(tokens: int, minimum: int, model: str, *, is_cacheable: bool) -> str:
    if is_cacheable:
        return f"{tokens:,} tokens can be cached: the minimum of {model} is {minimum:,}."
    why = f"the minimum of {model} is {minimum:,}, and nothing says so when it is missed"
    return f"{tokens:,} tokens are not cacheable: {why}."


def _even(burst: Burst) -> str:
    first, warm = burst.break_even_one_first, burst.break_even_prewarm
    if first is None:
        return "Caching saves nothing at these prices."
    prewarmed = "" if warm is None else f", pre-warming from {warm:,}"
    return f"Sending one first pays from {first:,} calls on{prewarmed}."


def batch_section(orders: Sequence[BatchOrder]) -> Section:
    """Return what batches cost between the best and the worst case."""
    money = money_of(cost for order in orders for cost in (order.best_usd, order.worst_usd))
    columns: list[Column[BatchOrder]] = [
        Column("order", lambda order: order.name, text=True),
        Column("best", lambda order: money.dollars(order.best_usd)),
        Column("worst", lambda order: money.dollars(order.worst_usd)),
    ]
    line = (
        "Hits inside of a batch are best effort: let a batch of one with the longest lifetime end before the others "
        "start."
    )
    return Section("As batches", Table.of("", columns, orders), (line,))


def lifetime_section(plan: LifetimePlan) -> Section:
    """Return what each lifetime costs for one prefix."""
    money = money_of(choice.usd_per_thousand for choice in plan.choices)
    columns: list[Column[LifetimeChoice]] = [
        Column("lifetime", lambda choice: choice.name, text=True),
        Column("hits", lambda choice: percent(choice.hit_ratio)),
        Column("$ / 1,000 uses", lambda choice: money.dollars(choice.usd_per_thousand)),
    ]
    return Section(
        f"Lifetimes of one prefix of {plan.shared_tokens:,} tokens, {plan.source}",
        Table.of("", columns, plan.choices),
        (f"Cheapest: {plan.best.name}.",),
        tuple((choice.name, choice.usd_per_thousand) for choice in plan.choices),
        "US dollars for a thousand uses",
    )


def placement_sections(placed: Placement) -> tuple[Section, ...]:
    """Return where breakpoints belong, and what changes in the heads of prompts."""
    share = placed.reused_tokens / max(1, placed.prompt_tokens)
    lines = [f"With these marks {percent(share)} of the tokens of {placed.prompts:,} prompts are read from the cache."]
    if placed.reused_as_marked is not None:
        lines.append(
            f"As the prompts are marked now it is {percent(placed.reused_as_marked / max(1, placed.prompt_tokens))}."
        )
    if placed.rolling_blocks is not None:
        lines.append(
            f"A turn adds up to {placed.longest_turn_blocks} blocks, more than the look-back reaches: set a mark every "
            f"{placed.rolling_blocks} blocks inside of such a turn, or it reads nothing."
        )
    if not placed.marks:
        lines = ["No breakpoint pays: the prompts share too little, or less than the model's minimum."]
    sections = [Section("Breakpoints", Table.of("", MARKS, placed.marks), tuple(lines))]
    if placed.changes:
        line = "Nothing behind a text that changes is reused: move it to the end of the prompt."
        changes = Table.of("", CHANGES, placed.changes)
        sections.append(Section("What changes in the heads of prompts", changes, (line,)))
    return tuple(sections)


MARKS: tuple[Column[Mark], ...] = (
    Column("on", lambda mark: mark.where, text=True),
    Column("tokens up to it", lambda mark: f"{mark.tokens:,}"),
    Column("prompts that share it", lambda mark: percent(mark.share)),
    Column("tokens read more", lambda mark: f"{mark.gain_tokens:,}"),
)
CHANGES: tuple[Column[Change], ...] = (
    Column("where", lambda change: f"{change.where}, character {change.character:,}", text=True),
    Column("kind", lambda change: change.kind, text=True),
    Column("tokens before", lambda change: f"{change.tokens:,}"),
    Column("tokens lost behind", lambda change: f"{change.lost_tokens:,}"),
    Column("prompts", lambda change: percent(change.share)),
    Column("examples", lambda change: ", ".join(map(repr, change.examples)), text=True),
)


def trace_sections(plan: TracePlan) -> tuple[Section, ...]:
    """Return what each lifetime makes of a trace, and of each class of its sessions."""
    total = plan.total
    lines = [
        f"Cheapest: {total.best.lifetime}, {dollars(total.best.usd)} against {dollars(total.uncached.usd)} without a cache."
    ]
    if total.gaps:
        over = ", ".join(f"{percent(total.long_gaps[name] / total.gaps, 2)} over {name}" for name in total.kept)
        lines.append(f"Gaps between requests of one session: {over}.")
    early = max(reuse.early_tokens for reuse in total.kept.values()) / max(1, total.prompt_tokens)
    if early:
        lines.append(
            f"{percent(early)} of the prompt tokens are written again, because the request that wrote them had not "
            "begun to "
            "answer: send one first, then the rest (`fan_out`)."
        )
    if total.short:
        lines.append(f"{total.short:,} of {total.requests:,} prompts are under the model's minimum and are not cached.")
    rows = [("no cache", total.uncached), *total.kept.items()]
    if plan.binding is not None:
        behind = f"behind a binding of {lasting(plan.binding.seconds)} to one of {plan.binding.targets}"
        rows += [(f"{name} {behind}", reuse) for name, reuse in total.bound.items()]
        lines += [
            f"A trap: the binding lives {lasting(plan.binding.seconds)}, the entry {name}. A session that comes back "
            "in "
            f"between may be sent where the entry is not; that costs {dollars(loss)}."
            for name, loss in plan.binding_loss.items()
        ]
    sections = [
        Section(
            f"{plan.workload}: {total.requests:,} requests, {total.prompt_tokens:,} prompt tokens, {plan.model}",
            _reuse(rows, plan),
            tuple(lines),
            (("no cache", total.uncached.usd), *((name, reuse.usd) for name, reuse in total.kept.items())),
            "US dollars for the trace",
        )
    ]
    if plan.classes:
        sections.append(_classes(plan))
    return tuple(sections)


def _reuse(rows: Sequence[tuple[str, Reuse]], plan: TracePlan) -> Table:
    total, span_s = plan.total, plan.span_s

    def scaled(factor: float) -> Callable[[tuple[str, Reuse]], str]:
        money = money_of(factor * reuse.usd for _, reuse in rows)
        return lambda row: money.dollars(factor * row[1].usd)

    columns: list[Column[tuple[str, Reuse]]] = [
        Column("lifetime", lambda row: row[0], text=True),
        Column("read from the cache", lambda row: percent(total.ratio(row[1]))),
        Column("cost", scaled(1.0)),
        Column("$ / 1M requests", scaled(1e6 / max(1, total.requests))),
        Column("$ / month", scaled(_MONTH_S / span_s) if span_s > 0 else lambda _: ""),
    ]
    return Table.of("", columns, rows)


def _classes(plan: TracePlan) -> Section:
    money = money_of(reuse.usd for one in plan.classes for reuse in one.kept.values())

    def kept(name: str) -> Column[Traffic]:
        return Column(name, lambda one: f"{percent(one.ratio(one.kept[name]))}, {money.dollars(one.kept[name].usd)}")

    columns: list[Column[Traffic]] = [
        Column("class", lambda one: one.name, text=True),
        Column("requests", lambda one: f"{one.requests:,}"),
        Column("sessions", lambda one: f"{one.sessions:,}"),
        *map(kept, plan.total.kept),
        Column("best", lambda one: one.best.lifetime),
    ]
    more = len(plan.classes) - SHOWN_CLASSES
    lines = [
        f"With the best lifetime of each class: {dollars(plan.mixed_usd)}, with one for all: {dollars(plan.total.best.usd)}."
    ]
    if more > 0:
        lines.append(f"{more} smaller classes are left out here; --json has them.")
    return Section("By class of session", Table.of("", columns, plan.classes[:SHOWN_CLASSES]), tuple(lines))


def shard_section(plan: ShardPlan) -> Section:
    """Return how many routing keys a load needs, and what to expect around that number."""
    lines = [f"{plan.shards} keys keep each at {plan.limit:g} requests a minute on average."]
    if plan.limit_assumed:
        lines.append(
            f"The limit is ASSUMED. {plan.note[:1].upper()}{plan.note[1:]}." if plan.note else "The limit is ASSUMED."
        )
    for user, rate in plan.over_limit[:SHOWN_USERS]:
        lines.append(
            f"User {user} sends {rate:,.1f} requests a minute, more than one key takes: no mapping of users helps."
        )
    if len(plan.over_limit) > SHOWN_USERS:
        lines.append(f"{len(plan.over_limit) - SHOWN_USERS} more users do.")
    lines.append(f"One key more moves {percent(plan.moved_by_one_more)} of the users to another key.")
    lines.append("Hit ratios are those of a model of what the provider describes; it promises none.")
    money = money_of(row.usd_per_thousand for row in plan.rows)
    columns: list[Column[ShardRow]] = [
        Column("keys", lambda row: f"{row.shards}{' (needed)' * (row.shards == plan.shards)}", text=True),
        Column("busiest key / min", lambda row: f"{row.busiest_per_minute:,.1f}"),
        Column("over the limit", lambda row: percent(row.overflow_ratio)),
        Column("expected hits", lambda row: percent(row.hit_ratio)),
        Column("$ / 1,000 prompts", lambda row: money.dollars(row.usd_per_thousand)),
    ]
    return Section(
        f"Routing keys, {plan.model}",
        Table.of("", columns, plan.rows[:SHOWN_SHARDS]),
        tuple(lines),
        tuple((f"{row.shards} keys", 100 * row.hit_ratio) for row in plan.rows),
        "% of prompt tokens hit",
    )


def storage_section(plan: StoragePlan) -> Section:
    """Return implicit caching against a stored object."""
    lines = []
    if not plan.is_cacheable:
        lines.append(f"{plan.shared_tokens:,} tokens are under the minimum of {plan.model}: neither way caches them.")
    if plan.break_even_per_hour is not None:
        lines.append(f"A stored object costs less than no cache from {plan.break_even_per_hour:,.2f} uses an hour on.")
        implicit = plan.break_even_against_implicit
        lines.append(
            "It never costs less than implicit caching with these misses."
            if implicit is None
            else f"It costs less than implicit caching with these misses from {implicit:,.2f} uses an hour on."
        )
    money = money_of(
        cost for row in plan.rows for cost in (row.usd_per_hour, row.best_usd_per_hour, row.worst_usd_per_hour)
    )
    columns: list[Column[StorageRow]] = [
        Column("way", lambda row: row.name, text=True),
        Column("$ / hour", lambda row: money.dollars(row.usd_per_hour), marked=on_any_default(plan.assumptions)),
        Column("best", lambda row: money.dollars(row.best_usd_per_hour)),
        Column("worst", lambda row: money.dollars(row.worst_usd_per_hour)),
    ]
    return Section(
        f"A prefix of {plan.shared_tokens:,} tokens, {plan.uses_per_hour:g} uses an hour, {plan.model}",
        Table.of("", columns, plan.rows),
        tuple(lines),
        tuple((row.name, row.usd_per_hour) for row in plan.rows),
        "US dollars an hour",
    )


def offer_section(found: OwnOrApi) -> Section:
    """Return the traffic's cost at each API and on replicas of one's own."""
    best = found.offers[0]
    million, month = (
        money_of(getattr(offer, field) for offer in found.offers)
        for field in ("usd_per_million_requests", "usd_per_month")
    )
    unit = unit_of(offer.ttft_s for offer in found.offers if offer.ttft_s is not None)
    lines = [f"Cheapest: {best.name} ({best.provider}), {dollars(best.usd_per_month or 0.0)} a month."]
    if found.break_even_requests_per_month is not None:
        lines.append(
            f"The rent of the replicas is below the cheapest API from {found.break_even_requests_per_month:,.0f} "
            "requests per "
            f"month on; this traffic has {found.requests_per_month:,.0f}."
        )
    marked = on_any_default(found.assumptions)
    columns: list[Column[Offer]] = [
        Column("model", lambda offer: offer.name, text=True),
        Column("provider", lambda offer: offer.provider, text=True),
        Column("way", lambda offer: offer.way, text=True),
        Column("hits", lambda offer: known(offer.hit_ratio, percent)),
        Column("$ / 1M requests", lambda offer: known(offer.usd_per_million_requests, million.dollars)),
        Column("$ / month", lambda offer: known(offer.usd_per_month, month.dollars, "none keeps it"), marked=marked),
        Column("replicas", lambda offer: known(offer.replicas, str)),
        Column(f"TTFT p{found.promise.percentile:g}, {unit.name}", lambda offer: known(offer.ttft_s, unit.figure)),
    ]
    bars = tuple(
        (f"{offer.name}, {offer.provider}", offer.usd_per_month)
        for offer in found.offers
        if offer.usd_per_month is not None
    )
    title = f"{found.workload}: {found.requests_per_month:,.0f} requests a month, replicas with {found.promise}"
    return Section(title, Table.of("", columns, found.offers), tuple(lines), bars, "US dollars a month")


def lint_section(found: LintReport) -> Section:
    """Return the findings of a log and its settings."""
    bodies = (
        f", {found.bodies:,} request bodies"
        if found.bodies
        else "; it holds no request bodies: prompts are not checked"
    )
    lines = [f"{found.requests:,} requests{bodies}."]
    if not found.findings:
        lines.append("Nothing found.")
    money = money_of(one.usd_per_month for one in found.findings)
    columns: list[Column[Finding]] = [
        Column("finding", lambda one: f"{one.rule.level} {one.rule.id} {one.rule.name}", text=True),
        Column(
            "$ / month", lambda one: known(one.usd_per_month, money.dollars), marked=on_any_default(found.assumptions)
        ),
        Column("evidence", lambda one: f"{one.message}.", text=True),
        Column("how to fix it", lambda one: one.remedy, text=True),
    ]
    bars = tuple((one.rule.name, one.usd_per_month) for one in found.findings if one.usd_per_month)
    return Section(f"{found.log}", Table.of("", columns, found.findings), tuple(lines), bars, "US dollars a month")
