"""A comparison as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from prefixroute.advise import Comparison
from prefixroute.report.behind import floor_line
from prefixroute.report.compared import compared, details
from prefixroute.report.figures import replicas
from prefixroute.report.fleets import arrangement
from prefixroute.report.sentences import idle
from prefixroute.report.sheet import Sheet
from prefixroute.report.study import policies_of
from prefixroute.report.verdicts import verdict

if TYPE_CHECKING:
    from prefixroute.report.drawing import Chart

UNTIMED_NOTE = (
    "Untimed: requests are served one after another, without a clock. TTFT is prefill time alone, without queueing."
)


def comparison_sheet(found: Comparison) -> Sheet:
    """Return a comparison as people read it."""
    count, floor = found.rows[0].replicas, found.rows[0].floor
    best = found.winner or f"{', '.join(found.leaders[:3])} within the noise"
    title = (
        f"{found.workload} on {replicas(count)}: differences from {found.reference}, intervals over {found.clusters:,} "
        f"sessions{arrangement(found.assumptions)}"
    )
    lines = () if floor is None else (floor_line(floor, found.assumptions),)
    return Sheet(
        title=f"{found.workload} on {replicas(count)}: {best}",
        tables=(compared(found, title, None, *lines), *details(found)),
        assumptions=found.assumptions,
        notes=(*map(idle, found.idle), *found.notes, *(() if found.timed else (UNTIMED_NOTE,))),
        verdict=(verdict(found),),
        following=f"prefixroute advise {found.workload} --replicas {count}   (what to do about it, and what it saves)",
        policies=policies_of(found.rows),
        charts=partial(_drawn, found),
    )


def _drawn(found: Comparison) -> Mapping[str, Chart]:
    """Return the charts of a comparison, that of what decides first."""
    from prefixroute.report.charts import CHARTED, charts

    drawn = charts(found.rows)
    return {title: drawn[title] for title in sorted(drawn, key=lambda title: title != CHARTED.get(found.metric))}
