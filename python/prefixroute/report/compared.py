"""Tables of a comparison of policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prefixroute.advise import Comparison
from prefixroute.costmodel.assumption import MONEY, RUN, SECONDS, SHARES
from prefixroute.report.figures import gap, hundredths, known, money_of, percent
from prefixroute.report.table import Column, Table
from prefixroute.report.times import Unit, duration, unit_of
from prefixroute.report.verdicts import DECIDES, judgement
from prefixroute.sim import ResultRow


def compared(found: Comparison, title: str, advised: Mapping[str, str] | None = None) -> Table:
    """Return the table of a comparison: shares, dollars and skew of each policy, and its verdict.

    Args:
        found: the comparison.
        title: a line above the table.
        advised: of each policy, whether an advice takes it, or why not; None = no advice.
    """
    usd = money_of(
        cost for row in found.rows for cost in (row.usd_per_million_requests, row.usd_per_million_requests_busiest)
    ).figure
    columns: list[Column[str]] = [
        Column("policy", str, text=True),
        Column("recomputed %", lambda policy: hundredths(found.row(policy).recompute_ratio), SHARES),
        Column("unlimited %", lambda policy: _unlimited(found, policy), RUN),
        Column("difference, points", lambda policy: gap(found.difference(policy).recompute_ratio, 100), SHARES),
        Column("$ / 1M requests", lambda policy: usd(found.row(policy).usd_per_million_requests), MONEY),
        Column("$ busiest", lambda policy: usd(found.row(policy).usd_per_million_requests_busiest), MONEY),
        Column("difference, $", lambda policy: gap(found.difference(policy).usd_per_million_requests_busiest), MONEY),
        Column("skew", lambda policy: f"{found.row(policy).skew:.2f}", SHARES),
        Column(
            f"verdict by {DECIDES.get(found.metric, found.metric)}", lambda policy: judgement(found, policy), text=True
        ),
    ]
    if advised is not None:
        columns.append(Column("advised, or why not", lambda policy: advised[policy], text=True))
    return Table.of(title, columns, [row.policy for row in found.rows], found.assumptions)


def _unlimited(found: Comparison, policy: str) -> str:
    infinite = found.row(policy).recompute_ratio_infinite
    return known(infinite, hundredths)


TIMES = {"mean": "ttft_mean_s", "p50": "ttft_p50_s", "p90": "ttft_p90_s", "p99": "ttft_p99_s"}
"""What is shown of the time to first token."""


def times(found: Comparison) -> Table:
    """Return the table of times to first token, each with its difference from the reference, in one unit."""
    unit = unit_of(getattr(row, field) for row in found.rows for field in TIMES.values())

    def value(field: str, unit: Unit) -> Callable[[str], str]:
        return lambda policy: unit.figure(getattr(found.row(policy), field))

    def apart(field: str, unit: Unit) -> Callable[[str], str]:
        return lambda policy: gap(getattr(found.difference(policy), field), unit.per_second)

    columns: list[Column[str]] = [Column("policy", str, text=True)]
    for name, field in TIMES.items():
        columns.append(Column(f"{name}, {unit.name}", value(field, unit), SECONDS))
        columns.append(Column(f"{name} difference", apart(field, unit), SECONDS))
    if any(row.preempted for row in found.rows):
        columns.append(
            Column("preempted %", lambda policy: f"{100 * (found.row(policy).preempted or 0.0):.1f}", SECONDS)
        )
    if all(row.goodput_per_s is not None for row in found.rows):
        columns.append(Column("goodput / s", lambda policy: f"{found.row(policy).goodput_per_s or 0.0:,.2f}", SECONDS))
    title = f"time to first token, and how much more than {found.reference}"
    return Table.of(title, columns, [row.policy for row in found.rows], found.assumptions)


APART_TIMES = {"TTFT": "ttft_mean_s", "time between tokens": "itl_mean_s", "time to the last token": "e2e_mean_s"}
"""What is shown of fleets that prefill and decode apart, in the mean."""


def equal_splits(found: Comparison) -> Table:
    """Return the table of an advised policy on mixed replicas and on splits of as many, with differences from the mixed."""

    def value(field: str, unit: Unit) -> Callable[[str], str]:
        return lambda policy: unit.figure(getattr(found.row(policy), field))

    def apart(field: str, unit: Unit) -> Callable[[str], str]:
        return lambda policy: gap(getattr(found.difference(policy), field), unit.per_second)

    columns: list[Column[str]] = [Column("fleet", str, text=True)]
    for name, field in APART_TIMES.items():
        unit = unit_of(getattr(row, field) for row in found.rows)
        columns += [Column(f"{name}, {unit.name}", value(field, unit), SECONDS)]
        columns += [Column("difference", apart(field, unit), SECONDS)]
    columns += [
        *[Column("goodput / s", lambda policy: f"{found.row(policy).goodput_per_s or 0.0:,.2f}", SECONDS)]
        * all(row.goodput_per_s is not None for row in found.rows),
        Column("recomputed %", lambda policy: hundredths(found.row(policy).recompute_ratio), SHARES),
        Column("keeps up", lambda policy: "no" if found.is_overloaded(policy) else "yes", text=True),
    ]
    title = "prefill and decode apart, at equal GPUs: means, and how much more than mixed replicas"
    return Table.of(title, columns, [row.policy for row in found.rows], found.assumptions)


def today(found: Comparison, in_use: str, advised: str) -> Table:
    """Return the figures of the policy in use and of the advised one, side by side."""
    policies = list(dict.fromkeys((in_use, advised)))
    money = money_of(found.row(policy).usd_per_million_requests_busiest for policy in policies)
    rows: list[tuple[str, Callable[[ResultRow], str]]] = [
        (
            "prefill $ per million requests, bought for the busiest replica",
            lambda row: money.figure(row.usd_per_million_requests_busiest),
        ),
        ("skew: requests at the busiest replica / mean", lambda row: f"{row.skew:.2f}"),
        ("prompt tokens computed", lambda row: percent(row.recompute_ratio)),
        ("time to first token, mean", lambda row: duration(row.ttft_mean_s)),
        ("time to first token, p99", lambda row: duration(row.ttft_p99_s)),
    ]

    def cell(policy: str) -> Callable[[tuple[str, Callable[[ResultRow], str]]], str]:
        return lambda line: line[1](found.row(policy))

    columns: list[Column[tuple[str, Callable[[ResultRow], str]]]] = [Column("", lambda line: line[0], text=True)]
    columns += [Column(f"{policy}{' (in use)' * (policy == in_use)}", cell(policy)) for policy in policies]
    return Table.of("", columns, rows)


LOSSES = {
    "first_sight": ("first sight", "new to every replica"),
    "volatile": ("volatile", "new only because a text in the head changes"),
    "elsewhere": ("elsewhere", "only other replicas were sent it"),
    "unknown": ("unknown", "elsewhere, and a router that saw every cache would have hit it"),
    "evicted": ("evicted", "this replica was sent it and lost it"),
}
"""Why prompt tokens are computed: the head of a column, and what it means."""
ALWAYS_SHOWN = ("first_sight", "elsewhere", "evicted")
"""Those of which even a column of zeros says something."""


def losses(found: Comparison) -> Table | None:
    """Return the table of where each policy's recomputed tokens come from; None where that is not known."""
    split = {row.policy: lost for row in found.rows if (lost := found.lost(row.policy))}
    if not split:
        return None

    money = money_of(lost["usd_per_million_requests_busiest"] for each in split.values() for lost in each.values())

    def pair(name: str) -> tuple[Column[str], Column[str]]:
        share: Column[str] = Column(
            f"{LOSSES[name][0]} %",
            lambda policy: hundredths(split[policy][name]["share"]),
            SHARES if name == "evicted" else RUN,
        )
        dollars: Column[str] = Column(
            f"{LOSSES[name][0]} $",
            lambda policy: money.figure(split[policy][name]["usd_per_million_requests_busiest"]),
            MONEY,
        )
        return share, dollars

    seen = [name for name in LOSSES if name in ALWAYS_SHOWN or any(lost[name]["tokens"] for lost in split.values())]
    columns: list[Column[str]] = [Column("policy", str, text=True), *(column for name in seen for column in pair(name))]
    title = f"where the recomputed prompt tokens come from, as shares of {found.rows[0].prompt_tokens:,}, and dollars per million requests by the busiest replica"
    footer = "; ".join(f"{LOSSES[name][0]}: {LOSSES[name][1]}" for name in seen)
    return Table.of(title, columns, list(split), found.assumptions, footer=footer)


def details(found: Comparison) -> tuple[Table, ...]:
    """Return the tables that follow that of a comparison, wherever it is shown: on a terminal, as text, on a page."""
    split = losses(found)
    return (times(found), *(() if split is None else (split,)))
