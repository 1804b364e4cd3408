"""Tables: their columns, each defined once, and the figures that a column rests on. Terminal, text and page draw the same table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prefixroute.advise import Comparison, EqualFleet, FleetSize, Sizing
from prefixroute.advise.backtest import Band
from prefixroute.costmodel import CALIBRATED
from prefixroute.costmodel.assumption import MONEY, RUN, SECONDS, SHARES, Assumption, on_defaults, shown
from prefixroute.report.figures import gap, percent, usd
from prefixroute.report.times import Unit, duration, unit_of
from prefixroute.report.verdicts import judgement
from prefixroute.sim import ResultRow as Result
from prefixroute.workload import TraceStatistics

ResultRow = Mapping[str, Any]
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One column: its title, how a row's cell reads, and the names of the assumptions that its figures rest on."""

    title: str
    cell: Callable[[R], str]
    rests_on: frozenset[str] = frozenset()
    text: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column; ``assumed`` where it is marked."""

    title: str
    text: bool
    assumed: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table as text.

    Attributes:
        title: a line above it.
        heads: of the columns.
        rows: cells, as many in each as there are heads.
        sections: rows that begin a section, counted from 0.
        assumed: every figure rests on a default: one line above the table says so, and no column is marked.
        footer: a line below the rows; empty = none.
    """

    title: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[str, ...], ...]
    sections: frozenset[int] = frozenset()
    assumed: bool = False
    footer: str = ""

    @classmethod
    def of(
        cls,
        title: str,
        columns: Sequence[Column[R]],
        rows: Sequence[R],
        assumptions: Sequence[Assumption] = (),
        *,
        sections: Iterable[int] = (),
        footer: str = "",
    ) -> Table:
        """Fill the columns with rows. Columns are marked ASSUMED only where some of those that rest on figures are not."""
        marks = [bool(column.rests_on) and on_defaults(column.rests_on, assumptions) for column in columns]
        resting = [mark for column, mark in zip(columns, marks, strict=True) if column.rests_on]
        alike = bool(resting) and all(resting)
        heads = tuple(
            Head(column.title, column.text, mark and not alike) for column, mark in zip(columns, marks, strict=True)
        )
        cells = tuple(tuple(column.cell(row) for column in columns) for row in rows)
        return cls(title, heads, cells, frozenset(sections), alike, footer)

    def without(self, titles: Iterable[str]) -> Table:
        """Return the table without the columns of these titles."""
        gone = set(titles)
        kept = [at for at, head in enumerate(self.heads) if head.title not in gone]
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return Table(self.title, tuple(self.heads[at] for at in kept), rows, self.sections, self.assumed, self.footer)


def pairs(heads: tuple[str, str], rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names with one figure each; without a head if the heads are empty."""
    name, value = heads
    columns: list[Column[tuple[str, str]]] = [
        Column(name, lambda row: row[0], text=True),
        Column(value, lambda row: row[1]),
    ]
    return Table.of("", columns, list(rows))


def _milliseconds(field: str) -> Callable[[ResultRow], str]:
    return lambda row: f"{1e3 * row[field]:,.1f}"


def _share(field: str) -> Callable[[ResultRow], str]:
    return lambda row: f"{100 * row[field]:.2f}"


SIMULATED: tuple[Column[ResultRow], ...] = (
    Column("replicas", lambda row: str(row["replicas"])),
    Column("policy", lambda row: str(row["policy"]), text=True),
    Column("recomputed %", _share("recompute_ratio"), SHARES),
    Column("unlimited %", _share("recompute_ratio_infinite"), RUN),
    Column("spread", _share("recompute_ratio_spread"), SHARES),
    Column("skew", lambda row: f"{row['skew']:.3f}", SHARES),
    Column("$ / 1M requests", lambda row: usd(row["usd_per_million_requests"]), MONEY),
    Column("$ busiest", lambda row: usd(row["usd_per_million_requests_busiest"]), MONEY),
    Column("TTFT mean ms", _milliseconds("ttft_mean_s"), SECONDS),
    Column("p50 ms", _milliseconds("ttft_p50_s"), SECONDS),
    Column("p90 ms", _milliseconds("ttft_p90_s"), SECONDS),
    Column("p99 ms", _milliseconds("ttft_p99_s"), SECONDS),
    Column("TPOT mean ms", _milliseconds("tpot_mean_s"), SECONDS),
    Column("TPOT p99 ms", _milliseconds("tpot_p99_s"), SECONDS),
    Column("ITL mean ms", _milliseconds("itl_mean_s"), SECONDS),
    Column("ITL p99 ms", _milliseconds("itl_p99_s"), SECONDS),
    Column("queue mean ms", _milliseconds("queue_mean_s"), SECONDS),
    Column("busy %", lambda row: f"{100 * row['busy']:.1f}", SECONDS),
    Column("requests / s", lambda row: f"{row['requests_per_s']:,.2f}", SECONDS),
    Column("goodput / s", lambda row: f"{row['goodput_per_s']:,.2f}", SECONDS),
    Column("preempted", lambda row: f"{row['preemptions']:,.0f}", SECONDS),
    Column("duplicated GB", lambda row: f"{row['kv_duplicated_gb']:,.1f}", SHARES),
)
"""Columns of ``simulate``; those whose field no row has are left out."""
APART: tuple[Column[ResultRow], ...] = (
    Column("handover ms", lambda row: _if_known(row, "handover_mean_s", 1e3), SECONDS),
    Column("prefill busy %", lambda row: _if_known(row, "prefill_busy", 100), SECONDS),
    Column("decode busy %", lambda row: _if_known(row, "decode_busy", 100), SECONDS),
)
"""Further columns where some rows are of fleets that prefill and decode apart; blank in the others."""
OPTIONAL = {
    "unlimited %": "recompute_ratio_infinite",
    "$ busiest": "usd_per_million_requests_busiest",
    "TPOT mean ms": "tpot_mean_s",
    "TPOT p99 ms": "tpot_p99_s",
    "ITL mean ms": "itl_mean_s",
    "ITL p99 ms": "itl_p99_s",
    "goodput / s": "goodput_per_s",
    "preempted": "preemptions",
    "duplicated GB": "kv_duplicated_gb",
    "queue mean ms": "queue_mean_s",
    "busy %": "busy",
    "requests / s": "requests_per_s",
}
"""Fields that only some runs have, by the columns that show them."""


def _if_known(row: ResultRow, field: str, factor: float) -> str:
    return f"{factor * row[field]:,.1f}" if field in row else ""


def simulated(title: str, rows: Sequence[ResultRow], assumptions: Sequence[Assumption], footer: str = "") -> Table:
    """Return the table of ``simulate``: a row for each policy and fleet, and a section for each fleet."""
    columns = [column for column in SIMULATED if all(OPTIONAL.get(column.title, "policy") in row for row in rows)]
    if any("decode_replicas" in row for row in rows):
        columns += APART
    sections = [at for at in range(1, len(rows)) if rows[at]["replicas"] != rows[at - 1]["replicas"]]
    return Table.of(title, columns, rows, assumptions, sections=sections, footer=footer)


def compared(found: Comparison, title: str) -> Table:
    """Return the table of a comparison: shares, dollars and skew of each policy, and its verdict."""
    columns: list[Column[str]] = [
        Column("policy", str, text=True),
        Column("recomputed %", lambda policy: f"{100 * found.row(policy).recompute_ratio:.2f}", SHARES),
        Column("unlimited %", lambda policy: _unlimited(found, policy), RUN),
        Column("difference, points", lambda policy: gap(found.difference(policy).recompute_ratio, 100), SHARES),
        Column("$ / 1M", lambda policy: usd(found.row(policy).usd_per_million_requests), MONEY),
        Column("$ busiest", lambda policy: usd(found.row(policy).usd_per_million_requests_busiest), MONEY),
        Column("difference, $", lambda policy: gap(found.difference(policy).usd_per_million_requests_busiest), MONEY),
        Column("skew", lambda policy: f"{found.row(policy).skew:.2f}", SHARES),
        Column("verdict", lambda policy: judgement(found, policy), text=True),
    ]
    return Table.of(title, columns, [row.policy for row in found.rows], found.assumptions)


def _unlimited(found: Comparison, policy: str) -> str:
    infinite = found.row(policy).recompute_ratio_infinite
    return "" if infinite is None else f"{100 * infinite:.2f}"


TIMES = {"mean": "ttft_mean_s", "p50": "ttft_p50_s", "p90": "ttft_p90_s", "p99": "ttft_p99_s"}
"""What is shown of the time to first token."""


def times(found: Comparison) -> Table:
    """Return the table of times to first token, each with its difference from the reference."""
    units = {field: unit_of(getattr(row, field) for row in found.rows) for field in TIMES.values()}

    def value(field: str, unit: Unit) -> Callable[[str], str]:
        return lambda policy: unit.figure(getattr(found.row(policy), field))

    def apart(field: str, unit: Unit) -> Callable[[str], str]:
        return lambda policy: gap(getattr(found.difference(policy), field), unit.per_second)

    columns: list[Column[str]] = [Column("policy", str, text=True)]
    for name, field in TIMES.items():
        unit = units[field]
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
        Column("recomputed %", lambda policy: f"{100 * found.row(policy).recompute_ratio:.2f}", SHARES),
        Column("keeps up", lambda policy: "no" if found.is_overloaded(policy) else "yes", text=True),
    ]
    title = "prefill and decode apart, at equal GPUs: means, and how much more than mixed replicas"
    return Table.of(title, columns, [row.policy for row in found.rows], found.assumptions)


def today(found: Comparison, in_use: str, advised: str) -> Table:
    """Return the figures of the policy in use and of the advised one, side by side."""
    policies = list(dict.fromkeys((in_use, advised)))
    rows: list[tuple[str, Callable[[Result], str]]] = [
        (
            "prefill $ per million requests, bought for the busiest replica",
            lambda row: usd(row.usd_per_million_requests_busiest),
        ),
        ("skew: requests at the busiest replica / mean", lambda row: f"{row.skew:.2f}"),
        ("prompt tokens computed again", lambda row: percent(row.recompute_ratio)),
        ("time to first token, mean", lambda row: duration(row.ttft_mean_s)),
        ("time to first token, p99", lambda row: duration(row.ttft_p99_s)),
    ]

    def cell(policy: str) -> Callable[[tuple[str, Callable[[Result], str]]], str]:
        return lambda line: line[1](found.row(policy))

    columns: list[Column[tuple[str, Callable[[Result], str]]]] = [Column("", lambda line: line[0], text=True)]
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

    def pair(name: str) -> tuple[Column[str], Column[str]]:
        share: Column[str] = Column(
            f"{LOSSES[name][0]} %",
            lambda policy: f"{100 * split[policy][name]['share']:.2f}",
            SHARES if name == "evicted" else RUN,
        )
        dollars: Column[str] = Column(
            f"{LOSSES[name][0]} $", lambda policy: usd(split[policy][name]["usd_per_million_requests_busiest"]), MONEY
        )
        return share, dollars

    seen = [name for name in LOSSES if name in ALWAYS_SHOWN or any(lost[name]["tokens"] for lost in split.values())]
    columns: list[Column[str]] = [Column("policy", str, text=True), *(column for name in seen for column in pair(name))]
    title = f"where the recomputed prompt tokens come from, as shares of {found.rows[0].prompt_tokens:,}, and dollars per million requests by the busiest replica"
    footer = "; ".join(f"{LOSSES[name][0]}: {LOSSES[name][1]}" for name in seen)
    return Table.of(title, columns, list(split), found.assumptions, footer=footer)


_IN_A_LOG = {
    "first_sight": "first sight: nobody could have it",
    "volatile": "volatile: behind a text that changes",
    "elsewhere": "elsewhere: only other replicas had it",
    "evicted": "evicted: the replica had it and lost it",
    "undecided": "elsewhere or evicted: the log names no replica",
}
"""Why a log's prompt tokens were computed; only a simulation tells what the router did not know."""


def lost(trace: TraceStatistics, usd_per_token: float, assumptions: Sequence[Assumption]) -> Table:
    """Return the table of where the hits of a log went, in tokens and dollars.

    Args:
        trace: the log, measured.
        usd_per_token: US dollars of a recomputed token.
        assumptions: what these rest on.
    """
    losses, dollars = trace.losses, trace.losses_usd_per_million_requests(usd_per_token)
    hit = "hit, as reported" if trace.reported_requests else "hit, in one cache of unlimited size"
    rows = [("hit", hit), *(pair for pair in _IN_A_LOG.items() if pair[0] == "first_sight" or getattr(losses, pair[0]))]
    columns: list[Column[tuple[str, str]]] = [
        Column("where the hits went", lambda row: row[1], text=True),
        Column("% of prompt tokens", lambda row: f"{100 * losses.share(row[0]):.2f}"),
        Column("tokens", lambda row: f"{getattr(losses, row[0]):,}"),
        Column("$ / 1M", lambda row: usd(dollars[row[0]]) if row[0] in dollars else "", MONEY),
    ]
    footer = (
        f"per million requests, at ${1e6 * usd_per_token:.3g} a million tokens: the mean of a prompt of mean length"
    )
    return Table.of("", columns, rows, assumptions, footer=footer)


def sizes(found: Sizing, most: int) -> Table:
    """Return the table of ``size``: the fleet to buy under each policy, and what decides."""
    columns: list[Column[FleetSize]] = [
        Column("policy", lambda fleet: fleet.policy, text=True),
        Column(
            "replicas", lambda fleet: f"more than {most}" if fleet.replicas is None else str(fleet.replicas), SECONDS
        ),
        Column("without reserve", lambda fleet: "" if fleet.least is None else str(fleet.least), SECONDS),
        Column("decided by", lambda fleet: "" if fleet.replicas is None else fleet.decided_by, text=True),
        Column("GPUs", lambda fleet: "" if fleet.gpus is None else str(fleet.gpus), SECONDS),
        Column("$ / month", lambda fleet: "" if fleet.usd_per_month is None else usd(fleet.usd_per_month), MONEY),
    ]
    for at, slo in enumerate(found.slos):
        unit = unit_of(fleet.seconds[at] for fleet in found.fleets)
        name = f"{slo.time.upper()} p{slo.percentile:g}, {unit.name}"
        columns.append(Column(name, _promised(at, unit), SECONDS))
        columns.append(Column(f"{slo.time.upper()} with one lost", _one_less_time(at, unit), SECONDS))
    columns += [
        *[Column("goodput / s", lambda fleet: f"{fleet.goodput_per_s or 0.0:,.2f}", SECONDS)] * bool(found.slos),
        Column("recomputed %", lambda fleet: f"{100 * fleet.recompute_ratio:.1f}", SHARES),
        Column("busy %", lambda fleet: f"{100 * fleet.busy:.0f}", SECONDS),
        Column("preempted %", lambda fleet: f"{100 * fleet.preempted:.1f}", SECONDS),
    ]
    promised = " and ".join(map(str, found.slos)) or "replicas that keep up"
    title = f"{found.workload}: the smallest fleet with {promised}, {reserve(found)}"
    return Table.of(title, columns, found.fleets, found.assumptions)


def equal_fleets(found: Sizing) -> Table:
    """Return the table of splits of as many GPUs as each mixed fleet: what becomes of the promises at the traffic's own rate."""
    columns: list[Column[EqualFleet]] = [
        Column("policy", lambda fleet: fleet.policy, text=True),
        Column("replicas", lambda fleet: str(fleet.replicas), SECONDS),
        Column(
            "prefill + decode",
            lambda fleet: "each does both" if fleet.prefill is None else f"{fleet.prefill} + {fleet.decode}",
            text=True,
        ),
    ]
    for at, slo in enumerate(found.slos):
        unit = unit_of(fleet.seconds[at] for fleet in found.equal)
        columns.append(Column(f"{slo.time.upper()} p{slo.percentile:g}, {unit.name}", _equal_time(at, unit), SECONDS))
    columns.append(Column("keeps the promises", lambda fleet: "yes" if fleet.keeps else "no", text=True))
    sections = [at for at in range(1, len(found.equal)) if found.equal[at].policy != found.equal[at - 1].policy]
    return Table.of(
        "prefill and decode apart, at equal GPUs", columns, found.equal, found.assumptions, sections=sections
    )


def _equal_time(at: int, unit: Unit) -> Callable[[EqualFleet], str]:
    return lambda fleet: unit.figure(fleet.seconds[at])


def _promised(at: int, unit: Unit) -> Callable[[FleetSize], str]:
    return lambda fleet: unit.figure(fleet.seconds[at]) + (" and growing" if fleet.overloaded else "")


def _one_less_time(at: int, unit: Unit) -> Callable[[FleetSize], str]:
    return lambda fleet: "" if fleet.seconds_one_less is None else unit.figure(fleet.seconds_one_less[at])


def reserve(found: Sizing) -> str:
    """Return what a fleet must carry beyond the traffic, as words."""
    room = found.headroom
    peak = "" if room.utilization == 1 else f"peak utilization {room.utilization:g}"
    spare = "" if not room.spare else f"{room.spare} spare replica{'s' * (room.spare > 1)}"
    return " and ".join(filter(None, (peak, spare))) or "no reserve"


def bands(found: Sequence[Band]) -> Table:
    """Return the table of a backtest: hits reported and simulated, by prompt length."""
    columns: list[Column[Band]] = [
        Column("prompt tokens", lambda band: f"{band.shortest:,} to {band.longest:,}"),
        Column("requests", lambda band: f"{band.requests:,}"),
        Column("reported hits %", lambda band: f"{100 * band.reported:.1f}"),
        Column("simulated hits %", lambda band: f"{100 * band.simulated:.1f}"),
    ]
    return Table.of("", columns, found)


def floor_line(floor: float, assumptions: Iterable[Assumption]) -> str:
    """Return the line that stands below every table of recompute ratios."""
    entries = any((item.name, item.value) == ("cache", "entries") for item in assumptions)
    held = "whole prompts" if entries else "full blocks only"
    return f"floor {100 * floor:.2f} %: one cache of unlimited size, {held}; no routing recomputes less"


def figure(value: float | str) -> str:
    """Return the value of an assumption as people write it: ``300,000``, ``0.5``, ``9.89e+14``."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value == int(value) and 1_000 <= abs(value) < 1e12 else f"{value:.6g}"  # noqa: PLR2004


def speeds_line(assumptions: Sequence[Assumption]) -> str:
    """Return what prices the steps; empty where the calibrated prices of the default do."""
    priced = [item for item in assumptions if item.name == "speeds" and item.value != CALIBRATED]
    return f"Speeds: {priced[0].value} ({priced[0].source})" if priced else ""


def assumed_line(assumptions: Sequence[Assumption]) -> str:
    """Return the figures that nobody gave, in a line; empty where all were given."""
    figures = "; ".join(f"{item.name} = {figure(item.value)} {item.unit}".rstrip() for item in shown(assumptions))
    return f"ASSUMED {figures}" if figures else ""


def remarks(assumptions: Sequence[Assumption], notes: Iterable[str]) -> list[str]:
    """Return how steps are priced if not by default, the figures that nobody gave, in a line, and the notes, a line each."""
    lines = [speeds_line(assumptions), assumed_line(assumptions), *(f"Note: {note}" for note in notes)]
    return [line for line in lines if line]


def facts(trace: TraceStatistics) -> list[tuple[str, str]]:
    """Return what a workload is like as (name, figure) lines."""

    def lengths(name: str, unit: str) -> tuple[str, str]:
        found = getattr(trace, name)
        return f"{unit}: mean, median, p90, p99, max", ", ".join(
            f"{getattr(found, each):,.0f}" for each in ("mean", "p50", "p90", "p99", "max")
        )

    lines = [
        ("requests", f"{trace.requests:,}"),
        ("span", f"{trace.span_s:,.0f} s"),
        lengths("prompt_lengths", "prompt tokens"),
        lengths("output_lengths", "output tokens"),
        (f"blocks of {trace.block_size} tokens, distinct", f"{trace.blocks:,}, {trace.unique_blocks:,}"),
        ("blocks used once", percent(trace.blocks_used_once)),
        ("floor of recompute, by tokens", f"{100 * trace.floor:.2f} %"),
        ("ideal hit ratio, mean over requests", f"{100 * trace.ideal_hit_ratio_by_request:.2f} %"),
        ("ideal hit ratio, last half", f"{100 * trace.ideal_hit_ratio_of_last_half:.2f} %"),
        ("sessions", f"{trace.sessions:,}"),
        lengths("turns", "requests a session"),
        ("hit by the session's previous turn alone", f"{100 * trace.previous_turn_hit_ratio:.2f} %"),
    ]
    lines += [
        (
            f"requests with the same first {group.depth} block{'s' * (group.depth > 1)}",
            f"{group.largest:,} at most, {group.count:,} group{'s' * (group.count > 1)}",
        )
        for group in trace.groups
    ]
    if trace.reported_requests:
        ratio = trace.reported_hit_tokens / max(1, trace.reported_prompt_tokens)
        lines.append(("hit ratio that the log reports", f"{100 * ratio:.2f} % on {trace.reported_requests:,} requests"))
    return lines
