"""What a workload is like, in tables."""

from __future__ import annotations

from collections.abc import Sequence

from prefixroute.costmodel import Assumption
from prefixroute.costmodel.assumption import MONEY
from prefixroute.report.backtests import ZEROS
from prefixroute.report.figures import money_of, percent
from prefixroute.report.table import Column, Table
from prefixroute.workload import TraceStatistics

_IN_A_LOG = {
    "first_sight": "first sight: nobody could have it",
    "volatile": "volatile: behind a text that changes",
    "elsewhere": "elsewhere: only other replicas had it",
    "evicted": "evicted: the replica had it and lost it",
    "undecided": "elsewhere or evicted: the log names no replica",
}
"""Why a log's prompt tokens were computed; only a simulation tells what the router did not know."""
NEVER_HIT = "seen before and not hit: caches are off, or hits are not reported"
"""Why prompt tokens were computed of a log that reports no hit at all."""


def lost(trace: TraceStatistics, usd_per_token: float, assumptions: Sequence[Assumption]) -> Table:
    """Return the table of where the hits of a log went, in tokens and dollars.

    Args:
        trace: the log, measured.
        usd_per_token: US dollars of a recomputed token.
        assumptions: what these rest on.
    """
    losses, dollars = trace.losses, trace.losses_usd_per_million_requests(usd_per_token)
    hit = "hit, as reported" if trace.reported_requests else "hit, in one cache of unlimited size"
    reasons = _IN_A_LOG | ({"undecided": NEVER_HIT} if trace.reports_no_hits else {})
    rows = [("hit", hit), *(pair for pair in reasons.items() if pair[0] == "first_sight" or getattr(losses, pair[0]))]
    money = money_of(dollars.values())
    columns: list[Column[tuple[str, str]]] = [
        Column("where the hits went", lambda row: row[1], text=True),
        Column("% of prompt tokens", lambda row: f"{100 * losses.share(row[0]):.2f}"),
        Column("tokens", lambda row: f"{getattr(losses, row[0]):,}"),
        Column("$ / 1M requests", lambda row: money.figure(dollars[row[0]]) if row[0] in dollars else "", MONEY),
    ]
    footer = (
        f"per million requests, at ${1e6 * usd_per_token:.3g} a million tokens: the mean of a prompt of mean length"
    )
    return Table.of("", columns, rows, assumptions, footer=footer)


def no_hits_notes(trace: TraceStatistics) -> tuple[str, ...]:
    """Return what zeros throughout mean, where a log reports no hit at all; else nothing."""
    if not trace.reports_no_hits:
        return ()
    return (
        f"All {trace.reported_requests:,} requests with a report have 0 cached tokens, though prefixes came back. {ZEROS}",
    )


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
        lengths("turns", "requests per session"),
        ("hit by the session's previous turn alone", f"{100 * trace.previous_turn_hit_ratio:.2f} %"),
    ]
    lines += [
        (
            f"requests with the same first {group.depth} block{'s' * (group.depth > 1)}",
            f"{group.largest:,} at most, {group.count:,} group{'s' * (group.count > 1)}" if group.count else "none",
        )
        for group in trace.groups
    ]
    if trace.reported_requests:
        ratio = trace.reported_hit_tokens / max(1, trace.reported_prompt_tokens)
        lines.append(("hit ratio that the log reports", f"{100 * ratio:.2f} % on {trace.reported_requests:,} requests"))
    return lines
