"""What a sweep found, as tables, pages and pictures read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from prefixroute.costmodel import Assumption
from prefixroute.costmodel.assumption import MONEY, RUN, SECONDS, SHARES
from prefixroute.report.behind import floor_line
from prefixroute.report.figures import Money, hundredths, kinds, milliseconds, money_of, tenths
from prefixroute.report.table import Column, Table
from prefixroute.sim import ResultRow, Sweep
from prefixroute.sim.metrics import LoadCurve

Row: TypeAlias = Mapping[str, Any]
FIGURES: tuple[tuple[str, str, Callable[[Any], str] | None, frozenset[str]], ...] = (
    ("recomputed %", "recompute_ratio", hundredths, SHARES),
    ("unlimited %", "recompute_ratio_infinite", hundredths, RUN),
    ("spread", "recompute_ratio_spread", hundredths, SHARES),
    ("skew", "skew", "{:.3f}".format, SHARES),
    ("$ / 1M requests", "usd_per_million_requests", None, MONEY),
    ("$ busiest", "usd_per_million_requests_busiest", None, MONEY),
    ("TTFT mean ms", "ttft_mean_s", milliseconds, SECONDS),
    ("p50 ms", "ttft_p50_s", milliseconds, SECONDS),
    ("p90 ms", "ttft_p90_s", milliseconds, SECONDS),
    ("p99 ms", "ttft_p99_s", milliseconds, SECONDS),
    ("TPOT mean ms", "tpot_mean_s", milliseconds, SECONDS),
    ("TPOT p99 ms", "tpot_p99_s", milliseconds, SECONDS),
    ("ITL mean ms", "itl_mean_s", milliseconds, SECONDS),
    ("ITL p99 ms", "itl_p99_s", milliseconds, SECONDS),
    ("queue mean ms", "queue_mean_s", milliseconds, SECONDS),
    ("busy %", "busy", tenths, SECONDS),
    ("requests / s", "requests_per_s", "{:,.2f}".format, SECONDS),
    ("goodput / s", "goodput_per_s", "{:,.2f}".format, SECONDS),
    ("preempted", "preemptions", "{:,.0f}".format, SECONDS),
    ("duplicated GB", "kv_duplicated_gb", "{:,.1f}".format, SHARES),
)
"""Columns of ``simulate``: title, field of the row, how it reads (None = dollars), what it rests on. Shown where every
row has the field."""
APART: tuple[tuple[str, str, Callable[[Any], str], frozenset[str]], ...] = (
    ("handover ms", "handover_mean_s", milliseconds, SECONDS),
    ("prefill busy %", "prefill_busy", tenths, SECONDS),
    ("decode busy %", "decode_busy", tenths, SECONDS),
)
"""Further columns where some rows are of fleets that prefill and decode apart; ``-`` in the others."""


@dataclass(frozen=True, slots=True)
class Study:
    """Rows of one sweep and what they rest on.

    Attributes:
        workload: the name of the workload.
        cache: ``blocks`` or ``entries``, the kind of cache that was simulated.
        rows: one mapping per policy and number of replicas, with the fields that ``simulate --json`` prints.
        assumptions: the figures behind the rows.
        notes: what a reader should know before believing the rows.
        load: per ``(policy, replicas)`` the load of the fleet over the first run, where it was kept.
        ttft_s: per ``(policy, replicas)`` the TTFT in seconds at each share of :data:`prefixroute.sim.metrics.CURVE`.
    """

    workload: str
    cache: str
    rows: tuple[Row, ...]
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    ttft_s: Mapping[tuple[str, int], Sequence[float]] = field(default_factory=dict, compare=False)
    load: Mapping[tuple[str, int], LoadCurve] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, sweep: Sweep) -> Study:
        """Return the study of a finished sweep.

        Args:
            sweep: its rows, assumptions and notes are taken.
        """
        return cls.of_rows(sweep.workload, sweep.rows, sweep.assumptions, sweep.notes)

    @classmethod
    def of_rows(
        cls, workload: str, rows: Sequence[ResultRow], assumptions: Sequence[Assumption], notes: Sequence[str]
    ) -> Study:
        """Return the study of rows that share their assumptions.

        Args:
            workload: its name.
            rows: one for each policy and fleet.
            assumptions: behind the rows.
            notes: sentences for the reader.
        """
        cache = next(str(item.value) for item in assumptions if item.name == "cache")
        curves = {(row.policy, row.replicas): row.ttft_curve_s for row in rows if row.ttft_curve_s}
        load = {(row.policy, row.replicas): row.load for row in rows if row.load is not None}
        return cls(
            workload, cache, tuple(row.to_dict() for row in rows), tuple(assumptions), tuple(notes), curves, load
        )

    @property
    def policies(self) -> list[str]:
        """Policies in the order in which they were asked for."""
        return list(dict.fromkeys(row["policy"] for row in self.rows))

    @property
    def replicas(self) -> list[int]:
        """Numbers of replicas in the order in which they were asked for."""
        return list(dict.fromkeys(row["replicas"] for row in self.rows))

    @property
    def floor(self) -> float | None:
        """The recompute ratio of one cache of unlimited size, full blocks only; None where no row knows it."""
        floors = [row["floor"] for row in self.rows if row["floor"] is not None]
        return sum(floors) / len(floors) if floors else None

    def table(self, title: str) -> Table:
        """Return the table of all rows, with the floor below.

        Args:
            title: above the table.
        """
        rows = self.rows
        money = money_of(row[name] for row in rows for _, name, text, _ in FIGURES if text is None)
        columns: list[Column[Row]] = [
            Column("replicas", lambda row: str(row["replicas"])),
            Column("policy", lambda row: str(row["policy"]), text=True),
        ]
        for head, name, text, rests_on in FIGURES:
            if all(name in row for row in rows):
                columns.append(_column(head, name, text or money.figure, rests_on))
        columns += [_column(*one) for one in APART if any(one[1] in row for row in rows)]
        sections = [at for at in range(1, len(rows)) if rows[at]["replicas"] != rows[at - 1]["replicas"]]
        footer = "" if self.floor is None else floor_line(self.floor, self.assumptions)
        return Table.of(title, columns, rows, self.assumptions, sections=sections, footer=footer)

    def headline(self) -> str:
        """Return the verdict at the largest number of replicas, in a line."""
        least, worst = self._extremes()
        if least is worst:
            return f"{self.workload} on {_replicas(least)}: what {_named(least)} costs"
        return (
            f"{self.workload} on {_replicas(least)}: {_recomputed(least)} of the prompt "
            f"tokens, {_named(worst)} {100 * worst['recompute_ratio']:.1f} %"
        )

    def summary(self) -> list[str]:
        """Return what the rows say at the largest number of replicas, in two sentences or less."""
        least, worst = self._extremes()
        money = money_of(row["usd_per_million_requests_busiest"] for row in (least, worst))
        floor = "" if self.floor is None else f"; no routing can go below {100 * self.floor:.1f} %"
        bought = "Prefill of a million requests, bought for the busiest replica, costs"
        if least is worst:
            share = f"At {_replicas(least)}, {_recomputed(least)} of the prompt tokens"
            return [f"{share}{floor}.", f"{bought} {_bought(least, money)}."]
        share = (
            f"At {_replicas(least)}, {_recomputed(worst)} of the prompt tokens, "
            f"{_named(least)} {100 * least['recompute_ratio']:.1f} %"
        )
        return [f"{share}{floor}.", f"{bought} {_bought(worst, money)} and {_bought(least, money)}."]

    def _extremes(self) -> tuple[Row, Row]:
        """Return the rows of the largest fleet that compute the least and the most again.

        Of rows that compute alike these are the one with the fewest and the one with the most dollars by the busiest replica.
        """
        most = max(self.replicas)
        rows = [row for row in self.rows if row["replicas"] == most]
        rows.sort(key=lambda row: (row["recompute_ratio"], row["usd_per_million_requests_busiest"]))
        return rows[0], rows[-1]


def _column(title: str, field: str, text: Callable[[Any], str], rests_on: frozenset[str]) -> Column[Row]:
    return Column(title, lambda row: text(row[field]) if field in row else "-", rests_on)


def _replicas(row: Row) -> str:
    return f"{row['replicas']} replica{'s' * (row['replicas'] > 1)}"


def _named(row: Row) -> str:
    """Return the policy of a row, and the kinds of its replicas where they are two.

    ``session on 2 prefill and 6 decode replicas``.
    """
    policy = str(row["policy"])
    if "prefill_replicas" not in row:
        return policy
    prefill, decode = row["prefill_replicas"], row["decode_replicas"]
    return f"{policy.removesuffix(f', {prefill}+{decode}')} on {kinds(prefill, decode)}"


def _recomputed(row: Row) -> str:
    return f"{_named(row)} computes {100 * row['recompute_ratio']:.1f} %"


def _bought(row: Row, money: Money) -> str:
    return f"{money.dollars(row['usd_per_million_requests_busiest'])} with {_named(row)} (skew {row['skew']:.2f})"
