"""Tables of the API planners, each with what it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from prefixroute.advise.own_or_api import OwnOrApi
from prefixroute.costmodel import HOURS_PER_MONTH, SHORT_SPAN_S
from prefixroute.lint import LintReport
from prefixroute.plan.breakpoints import Placement
from prefixroute.plan.burst import BatchOrder, Burst
from prefixroute.plan.lifetimes import LifetimePlan
from prefixroute.plan.shards import ShardPlan
from prefixroute.plan.storage import StoragePlan
from prefixroute.plan.traffic import Reuse, TracePlan, Traffic
from prefixroute.report.figures import dollars, money_of, percent
from prefixroute.report.sheet import lasting
from prefixroute.report.table import Bars, Column, Table, on_any_default
from prefixroute.report.times import duration, unit_of

SHOWN_CLASSES = 20
SHOWN_USERS = 5
SHOWN_SHARDS = 10
_MONTH_S = HOURS_PER_MONTH * 3600


def month_of(span_s: float) -> list[str]:
    """Return what dollars a month are made of, and whether that is enough; empty for traffic without a span.

    Args:
        span_s: seconds from the first request of the traffic to its last.
    """
    if span_s <= 0:
        return []
    basis = f"Dollars a month take the rate of these {duration(span_s)} for every hour of the month."
    short = " That is less than a day, and traffic rises and falls over a day: a month may differ from it by far."
    return [basis + short * (span_s < SHORT_SPAN_S)]


def _table(
    title: str, columns: Sequence[Column], rows: Iterable[Any], lines: Iterable[str] = (), bars: Bars | None = None
) -> Table:
    """Return a table whose cells may take several lines, with what it says and its chart."""
    return Table.of(title, columns, rows, lines=tuple(lines), wraps=True, bars=bars)


def burst_table(burst: Burst) -> Table:
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
    columns = [
        Column("order", "name", text=True),
        Column(expected, "usd", money.dollars),
        Column("best", "best_usd", money.dollars),
        Column("worst", "worst_usd", money.dollars),
        Column(f"last TTFT, {unit.name}", "last_first_token_s", unit.figure, marked=on_any_default(times)),
    ]
    title = (
        f"{calls.requests:,} calls that share {calls.shared_tokens:,} tokens, {burst.model}, entries for "
        f"{burst.lifetime}"
    )
    bars = Bars("US dollars", tuple((order.name, order.usd) for order in burst.orders))
    return _table(title, columns, burst.orders, lines, bars)


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


def batch_table(orders: Sequence[BatchOrder]) -> Table:
    """Return what batches cost between the best and the worst case."""
    money = money_of(cost for order in orders for cost in (order.best_usd, order.worst_usd))
    columns = [
        Column("order", "name", text=True),
        Column("best", "best_usd", money.dollars),
        Column("worst", "worst_usd", money.dollars),
    ]
    line = (
        "Hits inside of a batch are best effort: let a batch of one with the longest lifetime end before the others "
        "start."
    )
    return _table("As batches", columns, orders, [line])


def lifetime_table(plan: LifetimePlan) -> Table:
    """Return what each lifetime costs for one prefix."""
    money = money_of(choice.usd_per_thousand for choice in plan.choices)
    columns = [
        Column("lifetime", "name", text=True),
        Column("uses that read it", "hit_ratio", percent),
        Column("$ / 1,000 uses", "usd_per_thousand", money.dollars),
    ]
    title = f"Lifetimes of one prefix of {plan.shared_tokens:,} tokens, {plan.source}"
    bars = Bars(
        "US dollars for a thousand uses", tuple((choice.name, choice.usd_per_thousand) for choice in plan.choices)
    )
    return _table(title, columns, plan.choices, [f"Cheapest: {plan.best.name}."], bars)


def placement_tables(placed: Placement) -> tuple[Table, ...]:
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
    marks = _table("Breakpoints", MARKS, placed.marks, lines)
    if not placed.changes:
        return (marks,)
    line = "Nothing behind a text that changes is reused: move it to the end of the prompt."
    return marks, _table("What changes in the heads of prompts", CHANGES, placed.changes, [line])


MARKS = (
    Column("on", "where", text=True),
    Column("tokens up to it", "tokens", "{:,}".format),
    Column("prompts that share it", "share", percent),
    Column("tokens read more", "gain_tokens", "{:,}".format),
)
CHANGES = (
    Column("where", lambda change: f"{change.where}, character {change.character:,}", text=True),
    Column("kind", "kind", text=True),
    Column("tokens before", "tokens", "{:,}".format),
    Column("tokens lost behind", "lost_tokens", "{:,}".format),
    Column("prompts", "share", percent),
    Column("examples", lambda change: ", ".join(map(repr, change.examples)), text=True),
)


def trace_tables(plan: TracePlan) -> tuple[Table, ...]:
    """Return what each lifetime makes of a trace, and of each class of its sessions."""
    total = plan.total
    uncached = f"{dollars(total.uncached.usd)} without a cache"
    best = f"Cheapest: {total.best.lifetime}, {dollars(total.best.usd)} against {uncached}."
    lines = [best if total.best.usd < total.uncached.usd else f"No lifetime costs less than {uncached}."]
    if total.gaps:
        over = ", ".join(f"{percent(total.long_gaps[name] / total.gaps, 2)} over {name}" for name in total.kept)
        lines.append(f"Gaps between requests of one session: {over}.")
    early = max(reuse.early_tokens for reuse in total.kept.values()) / max(1, total.prompt_tokens)
    if early:
        lines.append(
            f"{percent(early)} of the prompt tokens are written again, because the request that wrote them had not "
            "begun to answer: send one first, then the rest (`fan_out`)."
        )
    lines += month_of(plan.span_s)
    if total.short:
        lines.append(f"{total.short:,} of {total.requests:,} prompts are under the model's minimum and are not cached.")
    rows = [("no cache", total.uncached), *total.kept.items()]
    if plan.binding is not None:
        behind = f"behind a binding of {lasting(plan.binding.seconds)} to one of {plan.binding.targets}"
        rows += [(f"{name} {behind}", reuse) for name, reuse in total.bound.items()]
        lines += [
            f"A trap: the binding lives {lasting(plan.binding.seconds)}, the entry {name}. A session that comes back "
            f"in between may be sent where the entry is not; that costs {dollars(loss)}."
            for name, loss in plan.binding_loss.items()
        ]
    title = f"{plan.workload}: {total.requests:,} requests, {total.prompt_tokens:,} prompt tokens, {plan.model}"
    kept = (("no cache", total.uncached.usd), *((name, reuse.usd) for name, reuse in total.kept.items()))
    reused = _table(title, _reuse(rows, plan), rows, lines, Bars("US dollars for the trace", kept))
    return (reused, _classes(plan)) if plan.classes else (reused,)


def _reuse(rows: Sequence[tuple[str, Reuse]], plan: TracePlan) -> tuple[Column, ...]:
    total, span_s = plan.total, plan.span_s

    def scaled(title: str, factor: float | None) -> Column:
        costs = [(factor or 0.0) * reuse.usd for _, reuse in rows]
        return Column(title, lambda row: None if factor is None else factor * row[1].usd, money_of(costs).dollars)

    return (
        Column("lifetime", lambda row: row[0], text=True),
        Column("prompt tokens read", lambda row: percent(total.ratio(row[1]))),
        scaled("cost", 1.0),
        scaled("$ / 1M requests", 1e6 / max(1, total.requests)),
        scaled("$ / month", _MONTH_S / span_s if span_s > 0 else None),
    )


def _classes(plan: TracePlan) -> Table:
    money = money_of(reuse.usd for one in plan.classes for reuse in one.kept.values())

    def kept(one: Traffic, name: str) -> str:
        return f"{percent(one.ratio(one.kept[name]))}, {money.dollars(one.kept[name].usd)}"

    columns = [
        Column("class", "name", text=True),
        Column("requests", "requests", "{:,}".format),
        Column("sessions", "sessions", "{:,}".format),
        *(Column(name, partial(kept, name=name)) for name in plan.total.kept),
        Column("best", "best.lifetime"),
    ]
    more = len(plan.classes) - SHOWN_CLASSES
    lines = [
        (
            f"With the best lifetime of each class: {dollars(plan.mixed_usd)}, with one for all: "
            f"{dollars(plan.total.best.usd)}."
        )
    ]
    if more > 0:
        lines.append(f"{more} smaller classes are left out here; --json has them.")
    return _table("By class of session", columns, plan.classes[:SHOWN_CLASSES], lines)


def shard_table(plan: ShardPlan) -> Table:
    """Return how many routing keys a load needs, and what to expect around that number."""
    load, least = plan.load, next(row for row in plan.rows if row.shards == plan.shards)
    keys = f"{plan.shards} key{'s are' if plan.shards > 1 else ' is'} the least"
    lines = [
        (
            f"{keys} with a mean of at most {plan.limit:g} requests a minute; that is "
            f"{60 * load.requests_per_minute / plan.shards:,.0f} an hour for each."
        ),
        (
            f"A hash of the user picks the key, so keys differ: the busiest has {least.busiest_per_minute:,.1f} a minute. "
            f"Requests come at random: {percent(least.overflow_ratio)} find their key above the limit."
        ),
    ]
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
    lines.append("What is read is the result of a model of what the provider describes; it promises no hit.")
    money = money_of(row.usd_per_thousand for row in plan.rows)
    columns = [
        Column("keys", lambda row: f"{row.shards}{' (least)' * (row.shards == plan.shards)}", text=True),
        Column("busiest key / min", "busiest_per_minute", "{:,.1f}".format),
        Column("requests over the limit", "overflow_ratio", percent),
        Column("prompt tokens read", "hit_ratio", percent),
        Column("$ / 1,000 prompts", "usd_per_thousand", money.dollars),
    ]
    bars = Bars(
        "% of prompt tokens read from a cache", tuple((f"{row.shards} keys", 100 * row.hit_ratio) for row in plan.rows)
    )
    alike = " + ".join(
        f"{tokens:,} of {whose}"
        for tokens, whose in ((load.shared_tokens, "all"), (load.user_tokens, "the user"), (load.own_tokens, "its own"))
        if tokens
    )
    title = f"Routing keys, {plan.model}: {load.requests_per_minute:,.4g} prompts a minute of {alike} tokens"
    return _table(title, columns, plan.rows[:SHOWN_SHARDS], lines, bars)


def storage_table(plan: StoragePlan) -> Table:
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
    columns = [
        Column("way", "name", text=True),
        Column("$ / hour", "usd_per_hour", money.dollars, marked=on_any_default(plan.assumptions)),
        Column("best", "best_usd_per_hour", money.dollars),
        Column("worst", "worst_usd_per_hour", money.dollars),
    ]
    title = f"A prefix of {plan.shared_tokens:,} tokens, {plan.uses_per_hour:g} uses an hour, {plan.model}"
    bars = Bars("US dollars an hour", tuple((row.name, row.usd_per_hour) for row in plan.rows))
    return _table(title, columns, plan.rows, lines, bars)


def offer_table(found: OwnOrApi) -> Table:
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
            f"requests per month on; this traffic has {found.requests_per_month:,.0f}."
        )
    lines += month_of(found.span_s)
    marked = on_any_default(found.assumptions)
    columns = [
        Column("model", "name", text=True),
        Column("provider", "provider", text=True),
        Column("way", "way", text=True),
        Column("hits", "hit_ratio", percent),
        Column("$ / 1M requests", "usd_per_million_requests", million.dollars),
        Column("$ / month", "usd_per_month", month.dollars, missing="none keeps it", marked=marked),
        Column("replicas", "replicas"),
        Column(f"TTFT p{found.promise.percentile:g}, {unit.name}", "ttft_s", unit.figure),
    ]
    priced = tuple(
        (f"{offer.name}, {offer.provider}", offer.usd_per_month)
        for offer in found.offers
        if offer.usd_per_month is not None
    )
    title = f"{found.workload}: {found.requests_per_month:,.0f} requests a month, replicas with {found.promise}"
    return _table(title, columns, found.offers, lines, Bars("US dollars a month", priced))


def lint_table(found: LintReport) -> Table:
    """Return the findings of a log and its settings."""
    bodies = (
        f", {found.bodies:,} request bodies"
        if found.bodies
        else "; it holds no request bodies: prompts are not checked"
    )
    lines = [f"{found.requests:,} requests{bodies}."]
    if not found.findings:
        lines.append("Nothing found.")
    elif any(one.usd_per_month for one in found.findings):
        lines += month_of(found.span_s)
    money = money_of(one.usd_per_month for one in found.findings)
    columns = [
        Column("finding", lambda one: f"{one.rule.level} {one.rule.id} {one.rule.name}", text=True),
        Column("$ / month", "usd_per_month", money.dollars, marked=on_any_default(found.assumptions)),
        Column("evidence", lambda one: f"{one.message}.", text=True),
        Column("how to fix it", "remedy", text=True),
    ]
    priced = tuple((one.rule.name, one.usd_per_month) for one in found.findings if one.usd_per_month)
    bars = Bars("US dollars a month", priced) if priced else None
    return _table(found.log, columns, found.findings, lines, bars)
