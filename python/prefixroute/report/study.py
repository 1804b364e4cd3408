"""What a sweep found: its table, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from prefixroute.costmodel.assumption import MONEY, RUN, SECONDS, SHARES
from prefixroute.report.behind import floor_line
from prefixroute.report.figures import Money, hundredths, kinds, milliseconds, money_of, percent, replicas, tenths
from prefixroute.report.fleets import arrangement
from prefixroute.report.sheet import Sheet
from prefixroute.report.table import Column, Table, section_starts
from prefixroute.sim import ResultRow, Sweep
from prefixroute.workload import TraceStatistics

if TYPE_CHECKING:
    from prefixroute.report.drawing import Chart

APART = (
    Column("handover ms", "handover_mean_s", milliseconds, SECONDS, missing="-"),
    Column("prefill busy %", "prefill_busy", tenths, SECONDS, missing="-"),
    Column("decode busy %", "decode_busy", tenths, SECONDS, missing="-"),
)
"""Further columns where some rows are of fleets that prefill and decode apart."""


def figures(money: Money) -> tuple[Column, ...]:
    """Return the columns of ``simulate``, each shown where every row has the figure; ``money`` writes dollars."""
    return (
        Column("recomputed %", "recompute_ratio", hundredths, SHARES),
        Column("unlimited %", "recompute_ratio_infinite", hundredths, RUN),
        Column("spread", "recompute_ratio_spread", hundredths, SHARES),
        Column("skew", "skew", "{:.3f}".format, SHARES),
        Column("$ / 1M requests", "usd_per_million_requests", money.figure, MONEY),
        Column("$ busiest", "usd_per_million_requests_busiest", money.figure, MONEY),
        Column("TTFT mean ms", "ttft_mean_s", milliseconds, SECONDS),
        Column("p50 ms", "ttft_p50_s", milliseconds, SECONDS),
        Column("p90 ms", "ttft_p90_s", milliseconds, SECONDS),
        Column("p99 ms", "ttft_p99_s", milliseconds, SECONDS),
        Column("TPOT mean ms", "tpot_mean_s", milliseconds, SECONDS),
        Column("TPOT p99 ms", "tpot_p99_s", milliseconds, SECONDS),
        Column("ITL mean ms", "itl_mean_s", milliseconds, SECONDS),
        Column("ITL p99 ms", "itl_p99_s", milliseconds, SECONDS),
        Column("queue mean ms", "queue_mean_s", milliseconds, SECONDS),
        Column("busy %", "busy", tenths, SECONDS),
        Column("requests / s", "requests_per_s", "{:,.2f}".format, SECONDS),
        Column("goodput / s", "goodput_per_s", "{:,.2f}".format, SECONDS),
        Column("preempted", "preemptions", "{:,.0f}".format, SECONDS),
        Column("duplicated GB", "kv_duplicated_gb", "{:,.1f}".format, SHARES),
    )


def sweep_sheet(found: Sweep, workload: Callable[[], TraceStatistics] | None = None) -> Sheet:
    """Return a sweep as people read it.

    Args:
        found: the sweep.
        workload: measures the workload of the first seed, which the page then draws too, beside the floor of all.
    """

    def drawn() -> Mapping[str, Chart]:
        from prefixroute.report.charts import charts

        return charts(found.rows)

    def background() -> Mapping[str, Chart]:
        from prefixroute.report.traces import trace_charts

        if workload is None:
            return {}
        measured, floor = workload(), floor_of(found.rows)
        return trace_charts(measured, measured.floor if floor is None else floor)

    return Sheet(
        title=headline(found),
        tables=(runs(found),),
        assumptions=found.assumptions,
        notes=found.notes,
        verdict=summary(found),
        following=f"prefixroute advise {found.workload} --replicas {max(row.replicas for row in found.rows)}   "
        "(what to do; on a log of yours: its path)",
        policies=policies_of(found.rows),
        charts=drawn,
        background=background,
    )


def policies_of(rows: Sequence[ResultRow]) -> tuple[str, ...]:
    """Return the policies in the order in which they were asked for."""
    return tuple(dict.fromkeys(row.policy for row in rows))


def floor_of(rows: Sequence[ResultRow]) -> float | None:
    """Return the recompute ratio of one cache of unlimited size, full blocks only; None where no row knows it."""
    floors = [row.floor for row in rows if row.floor is not None]
    return sum(floors) / len(floors) if floors else None


def runs(found: Sweep) -> Table:
    """Return the table of all rows, with the floor below."""
    rows, floor = found.rows, floor_of(found.rows)
    money = money_of(
        usd for row in rows for usd in (row.usd_per_million_requests, row.usd_per_million_requests_busiest)
    )
    columns = [
        Column("replicas", "replicas"),
        Column("policy", "policy", text=True),
        *(column for column in figures(money) if all(column.of(row) is not None for row in rows)),
        *(column for column in APART if any(column.of(row) is not None for row in rows)),
    ]
    cache = next(item.value for item in found.assumptions if item.name == "cache")
    seeds = f"{rows[0].seeds} seed{'s' * (rows[0].seeds > 1)}"
    return Table.of(
        f"{found.workload}: {rows[0].requests:,} requests, {seeds}, caches of {cache}{arrangement(found.assumptions)}",
        columns,
        rows,
        found.assumptions,
        sections=section_starts([row.replicas for row in rows]),
        lines=() if floor is None else (floor_line(floor, found.assumptions),),
    )


def headline(found: Sweep) -> str:
    """Return the verdict at the largest number of replicas, in a line."""
    least, worst = _extremes(found.rows)
    fleet = f"{found.workload} on {replicas(least.replicas)}"
    if least is worst:
        return f"{fleet}: what {_named(least)} costs"
    return f"{fleet}: {_recomputed(least)} of the prompt tokens, {_named(worst)} {percent(worst.recompute_ratio)}"


def summary(found: Sweep) -> tuple[str, str]:
    """Return what the rows say at the largest number of replicas, in two sentences."""
    least, worst = _extremes(found.rows)
    money = money_of(row.usd_per_million_requests_busiest for row in (least, worst))
    floor = floor_of(found.rows)
    share = f"At {replicas(least.replicas)}, {_recomputed(worst)} of the prompt tokens"
    bought = f"Prefill of a million requests, bought for the busiest replica, costs {_bought(worst, money)}"
    if least is not worst:
        share += f", {_named(least)} {percent(least.recompute_ratio)}"
        bought += f" and {_bought(least, money)}"
    below = "" if floor is None else f"; no routing can go below {percent(floor)}"
    return f"{share}{below}.", f"{bought}."


def _extremes(rows: Sequence[ResultRow]) -> tuple[ResultRow, ResultRow]:
    """Return the rows of the largest fleet that compute the least and the most again.

    Of rows that compute alike, these have the fewest and the most dollars by the busiest replica.
    """
    most = max(row.replicas for row in rows)
    largest = [row for row in rows if row.replicas == most]
    largest.sort(key=lambda row: (row.recompute_ratio, row.usd_per_million_requests_busiest))
    return largest[0], largest[-1]


def _named(row: ResultRow) -> str:
    """Return the policy of a row, and the kinds of its replicas where they are two.

    ``session on 2 prefill and 6 decode replicas``.
    """
    prefill, decode = row.prefill_replicas, row.decode_replicas
    if prefill is None or decode is None:
        return row.policy
    return f"{row.policy.removesuffix(f', {prefill}+{decode}')} on {kinds(prefill, decode)}"


def _recomputed(row: ResultRow) -> str:
    return f"{_named(row)} computes {percent(row.recompute_ratio)}"


def _bought(row: ResultRow, money: Money) -> str:
    return f"{money.dollars(row.usd_per_million_requests_busiest)} with {_named(row)} (skew {row.skew:.2f})"
