"""Tables of a comparison of policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from prefixroute.advise import Comparison, ComparisonRow
from prefixroute.costmodel.assumption import MONEY, RUN, SECONDS, SHARES
from prefixroute.report.figures import gap, hundredths, money_of, percent, tenths
from prefixroute.report.table import Column, Table
from prefixroute.report.times import Unit, duration, unit_of
from prefixroute.report.verdicts import DECIDES, judgement
from prefixroute.sim import ResultRow

REACHED = "{:,.2f}".format
"""How goodput reads."""
points = partial(gap, factor=100)
"""How a difference of shares reads."""


class Compared(NamedTuple):
    """A line of a table: a policy's figures, and how far they are from the reference's."""

    row: ResultRow
    apart: ComparisonRow

    @classmethod
    def all_of(cls, found: Comparison) -> list[Compared]:
        """Return the lines of a comparison."""
        return [cls(row, apart) for row, apart in zip(found.rows, found.differences, strict=True)]


def compared(found: Comparison, title: str, advised: Mapping[str, str] | None = None, *lines: str) -> Table:
    """Return the table of a comparison: shares, dollars and skew of each policy, and its verdict.

    Args:
        found: the comparison.
        title: a line above the table.
        advised: of each policy, whether an advice takes it, or why not; None = no advice.
        lines: sentences below it.
    """
    usd = money_of(
        cost for row in found.rows for cost in (row.usd_per_million_requests, row.usd_per_million_requests_busiest)
    ).figure
    decides = f"verdict by {DECIDES.get(found.metric, found.metric)}"
    columns = [
        Column("policy", "row.policy", text=True),
        Column("recomputed %", "row.recompute_ratio", hundredths, SHARES),
        Column("unlimited %", "row.recompute_ratio_infinite", hundredths, RUN),
        Column("difference, points", "apart.recompute_ratio", points, SHARES),
        Column("$ / 1M requests", "row.usd_per_million_requests", usd, MONEY),
        Column("$ busiest", "row.usd_per_million_requests_busiest", usd, MONEY),
        Column("difference, $", "apart.usd_per_million_requests_busiest", gap, MONEY),
        Column("skew", "row.skew", "{:.2f}".format, SHARES),
        Column(decides, lambda line: judgement(found, line.row.policy), text=True),
    ]
    if advised is not None:
        columns.append(Column("advised, or why not", lambda line: advised[line.row.policy], text=True))
    return Table.of(title, columns, Compared.all_of(found), found.assumptions, lines=lines)


TIMES = {"mean": "ttft_mean_s", "p50": "ttft_p50_s", "p90": "ttft_p90_s", "p99": "ttft_p99_s"}
"""What is shown of the time to first token."""
APART_TIMES = {"TTFT": "ttft_mean_s", "time between tokens": "itl_mean_s", "time to the last token": "e2e_mean_s"}
"""What is shown of fleets that prefill and decode apart, in the mean."""


def _time_and_gap(name: str, difference: str, field: str, unit: Unit) -> tuple[Column, Column]:
    """Return the columns of a time in a unit, and of its difference from the reference."""
    return (
        Column(f"{name}, {unit.name}", f"row.{field}", unit.figure, SECONDS),
        Column(difference, f"apart.{field}", partial(gap, factor=unit.per_second), SECONDS),
    )


def times(found: Comparison) -> Table:
    """Return the table of times to first token, each with its difference from the reference, in one unit."""
    unit = unit_of(getattr(row, field) for row in found.rows for field in TIMES.values())
    columns = [Column("policy", "row.policy", text=True)]
    for name, field in TIMES.items():
        columns += _time_and_gap(name, f"{name} difference", field, unit)
    if any(row.preempted for row in found.rows):
        columns.append(Column("preempted %", "row.preempted", tenths, SECONDS, missing="0.0"))
    if all(row.goodput_per_s is not None for row in found.rows):
        columns.append(Column("goodput / s", "row.goodput_per_s", REACHED, SECONDS))
    title = f"time to first token, and how much more than {found.reference}"
    return Table.of(title, columns, Compared.all_of(found), found.assumptions)


def equal_splits(found: Comparison) -> Table:
    """Return the table of an advised policy on mixed replicas and on splits of as many, and how these differ."""
    columns = [Column("fleet", "row.policy", text=True)]
    for name, field in APART_TIMES.items():
        columns += _time_and_gap(name, "difference", field, unit_of(getattr(row, field) for row in found.rows))
    if all(row.goodput_per_s is not None for row in found.rows):
        columns.append(Column("goodput / s", "row.goodput_per_s", REACHED, SECONDS))
    columns += [
        Column("recomputed %", "row.recompute_ratio", hundredths, SHARES),
        Column("keeps up", lambda line: "no" if found.is_overloaded(line.row.policy) else "yes", text=True),
    ]
    title = "prefill and decode apart, at equal GPUs: means, and how much more than mixed replicas"
    return Table.of(title, columns, Compared.all_of(found), found.assumptions)


def today(found: Comparison, in_use: str, advised: str) -> Table:
    """Return the figures of the policy in use and of the advised one, side by side."""
    policies = dict.fromkeys((in_use, advised))
    money = money_of(found.row(policy).usd_per_million_requests_busiest for policy in policies)
    rows: dict[str, tuple[str, Callable[[float], str]]] = {
        "prefill $ per million requests, bought for the busiest replica": (
            "usd_per_million_requests_busiest", money.figure,
        ),
        "skew: requests at the busiest replica / mean": ("skew", "{:.2f}".format),
        "prompt tokens computed": ("recompute_ratio", percent),
        "time to first token, mean": ("ttft_mean_s", duration),
        "time to first token, p99": ("ttft_p99_s", duration),
    }  # fmt: skip

    def of(policy: str) -> Column:
        def figure(name: str) -> str:
            field, shown = rows[name]
            return shown(getattr(found.row(policy), field))

        return Column(f"{policy}{' (in use)' * (policy == in_use)}", figure)

    return Table.of("", [Column("", str, text=True), *map(of, policies)], list(rows))


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
    busiest = "usd_per_million_requests_busiest"
    usd = money_of(lost[busiest] for each in split.values() for lost in each.values()).figure

    def pair(name: str) -> tuple[Column, Column]:
        rests_on = SHARES if name == "evicted" else RUN
        share = lambda policy: split[policy][name]["share"]  # noqa: E731
        return (
            Column(f"{LOSSES[name][0]} %", share, hundredths, rests_on, meaning=": ".join(LOSSES[name])),
            Column(f"{LOSSES[name][0]} $", lambda policy: split[policy][name][busiest], usd, MONEY),
        )

    seen = [name for name in LOSSES if name in ALWAYS_SHOWN or any(lost[name]["tokens"] for lost in split.values())]
    columns = [Column("policy", str, text=True), *(column for name in seen for column in pair(name))]
    title = (
        f"where the recomputed prompt tokens come from, as shares of {found.rows[0].prompt_tokens:,}, and dollars "
        "per million requests by the busiest replica"
    )
    return Table.of(title, columns, list(split), found.assumptions)


def details(found: Comparison) -> tuple[Table, ...]:
    """Return the tables that follow that of a comparison, wherever it is shown: on a terminal, as text, on a page."""
    split = losses(found)
    return (times(found), *(() if split is None else (split,)))
