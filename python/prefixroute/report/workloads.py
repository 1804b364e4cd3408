"""What a workload is like, in tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from prefixroute.costmodel import Assumption
from prefixroute.costmodel.assumption import MONEY
from prefixroute.report.backtests import ZEROS
from prefixroute.report.figures import hundredths, money_of, percent
from prefixroute.report.sheet import Sheet
from prefixroute.report.table import Column, Table, pairs
from prefixroute.workload import TraceStatistics
from prefixroute.workload.statistics import KEPT_S

if TYPE_CHECKING:
    from prefixroute.report.drawing import Chart

CURVE_POINTS = 9
"""Sizes of cache that the table shows; the JSON has all."""

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


def trace_sheet(
    trace: TraceStatistics, usd_per_token: float, assumptions: Sequence[Assumption], notes: Sequence[str] = ()
) -> Sheet:
    """Return a workload as people read it.

    Args:
        trace: the workload, measured.
        usd_per_token: US dollars of a recomputed token.
        assumptions: what all of it rests on.
        notes: of the workload.
    """
    return Sheet(
        title=f"{trace.name}: what it shares",
        tables=(
            pairs("In numbers", ("", ""), facts(trace)),
            lost(trace, usd_per_token, assumptions),
            pairs("", ("blocks kept for", "hit ratio"), _kept(trace)),
            pairs("", ("one cache of", "recomputed"), _sizes(trace)),
        ),
        assumptions=tuple(assumptions),
        notes=(*no_hits_notes(trace), *notes),
        verdict=(trace_verdict(trace),),
        charts=partial(_drawn, trace),
    )


def trace_verdict(trace: TraceStatistics) -> str:
    """Return in a sentence what no routing can change."""
    return (
        f"{trace.requests:,} requests with {trace.prompt_tokens:,} prompt tokens. No routing can compute less than "
        f"{percent(trace.floor)} of them: that is what one cache of unlimited size would."
    )


def _drawn(trace: TraceStatistics) -> Mapping[str, Chart]:
    from prefixroute.report.traces import trace_charts

    return trace_charts(trace, trace.floor)


def lost(trace: TraceStatistics, usd_per_token: float, assumptions: Sequence[Assumption]) -> Table:
    """Return the table of where the hits of a log went, in tokens and dollars: see :func:`trace_sheet`."""
    losses, dollars = trace.losses, trace.losses_usd_per_million_requests(usd_per_token)
    hit = "hit, as reported" if trace.reported_requests else "hit, in one cache of unlimited size"
    reasons = _IN_A_LOG | ({"undecided": NEVER_HIT} if trace.reports_no_hits else {})
    rows = ["hit", *(name for name in reasons if name == "first_sight" or getattr(losses, name))]
    per = f"per million requests, at ${1e6 * usd_per_token:.3g} a million tokens: the mean of a prompt of mean length"
    columns = (
        Column("where the hits went", {"hit": hit, **reasons}.__getitem__, text=True),
        Column("% of prompt tokens", losses.share, hundredths),
        Column("tokens", lambda name: getattr(losses, name), "{:,}".format),
        Column("$ / 1M requests", dollars.get, money_of(dollars.values()).figure, MONEY, meaning=per),
    )
    return Table.of("", columns, rows, assumptions, lines=_apart(trace))


def _apart(trace: TraceStatistics) -> tuple[str, ...]:
    """Return why first sight is not the floor, where the two figures differ."""
    first_sight, floor = (percent(share, 2) for share in (trace.losses.share("first_sight"), trace.floor))
    if not trace.reported_requests or first_sight == floor:
        return ()
    said = (
        f"First sight, {first_sight}, is not the floor, {floor}. The floor counts full blocks in one cache that begins "
        f"empty. First sight takes as seen what the log reports as cached, of {trace.reported_requests:,} requests."
    )
    return (said,)


def _kept(trace: TraceStatistics) -> Iterator[tuple[str, str]]:
    for seconds in KEPT_S:
        yield f"{seconds:,} s", percent(trace.hit_ratio_if_kept(seconds), 2)


def _sizes(trace: TraceStatistics) -> Iterator[tuple[str, str]]:
    for tokens, ratio in zip(*trace.miss_ratio_curve(CURVE_POINTS), strict=True):
        yield f"{tokens:,} tokens", percent(ratio, 2)


def no_hits_notes(trace: TraceStatistics) -> tuple[str, ...]:
    """Return what zeros throughout mean, where a log reports no hit at all; else nothing."""
    if not trace.reports_no_hits:
        return ()
    return (
        (
            f"All {trace.reported_requests:,} requests with a report have 0 cached tokens, though prefixes came back. "
            f"{ZEROS}"
        ),
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
        ("floor of recompute, by tokens", percent(trace.floor, 2)),
        ("ideal hit ratio, mean over requests", percent(trace.ideal_hit_ratio_by_request, 2)),
        ("ideal hit ratio, last half", percent(trace.ideal_hit_ratio_of_last_half, 2)),
        ("sessions", f"{trace.sessions:,}"),
        lengths("turns", "requests per session"),
        ("hit by the session's previous turn alone", percent(trace.previous_turn_hit_ratio, 2)),
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
        lines.append(("hit ratio that the log reports", f"{percent(ratio, 2)} on {trace.reported_requests:,} requests"))
    return lines
