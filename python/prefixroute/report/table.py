"""The columns of a study's table, shared by terminal and page: title, format, and the figures a column rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefixroute.costmodel.assumption import MONEY, RUN, SECONDS, SHARES, Assumption, on_defaults, shown
from prefixroute.workload import TraceStatistics

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, how a row's cell reads, and the names of the assumptions that its figures rest on."""

    title: str
    cell: Callable[[Row], str]
    rests_on: frozenset[str] = frozenset()
    text: bool = False

    def assumed(self, assumptions: Sequence[Assumption]) -> bool:
        """Return whether a default stands behind these figures."""
        return on_defaults(self.rests_on, assumptions)


def _milliseconds(field: str) -> Callable[[Row], str]:
    return lambda row: f"{1e3 * row[field]:,.1f}"


COLUMNS = (
    Column("replicas", lambda row: str(row["replicas"])),
    Column("policy", lambda row: str(row["policy"]), text=True),
    Column("recomputed %", lambda row: f"{100 * row['recompute_ratio']:.2f}", SHARES),
    Column("spread", lambda row: f"{100 * row['recompute_ratio_spread']:.2f}", SHARES),
    Column("skew", lambda row: f"{row['skew']:.3f}", SHARES),
    Column("$ / 1M requests", lambda row: usd(row["usd_per_million_requests"]), MONEY),
    Column("TTFT mean ms", _milliseconds("ttft_mean_s"), SECONDS),
    Column("p50 ms", _milliseconds("ttft_p50_s"), SECONDS),
    Column("p90 ms", _milliseconds("ttft_p90_s"), SECONDS),
    Column("p99 ms", _milliseconds("ttft_p99_s"), SECONDS),
)

UNLIMITED = Column("unlimited %", lambda row: f"{100 * row['recompute_ratio_infinite']:.2f}", RUN)
"""The same policy with caches that never evict."""

CLOCKED = (
    Column("queue mean ms", _milliseconds("queue_mean_s"), SECONDS),
    Column("busy %", lambda row: f"{100 * row['busy']:.1f}", SECONDS),
    Column("requests / s", lambda row: f"{row['requests_per_s']:,.2f}", SECONDS),
)
"""What only a run in time can tell."""


def columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    """Return the columns that these rows can fill."""
    found = list(COLUMNS)
    if "recompute_ratio_infinite" in rows[0]:
        found.insert(3, UNLIMITED)
    return (*found, *CLOCKED) if "busy" in rows[0] else tuple(found)


def usd(amount: float) -> str:
    """Return dollars with the digits that matter: ``9.63``, ``127.4``, ``3,540``."""
    return f"{amount:,.0f}" if amount >= 1_000 else f"{amount:.1f}" if amount >= 100 else f"{amount:.2f}"  # noqa: PLR2004


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


def remarks(assumptions: Sequence[Assumption], notes: Iterable[str]) -> list[str]:
    """Return the figures that nobody gave, in a line, and the notes, a line each."""
    figures = "; ".join(f"{item.name} = {figure(item.value)} {item.unit}".rstrip() for item in shown(assumptions))
    return [f"ASSUMED {figures}"] * bool(figures) + [f"Note: {note}" for note in notes]


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
        ("blocks used once", f"{100 * trace.blocks_used_once:.1f} %"),
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
