"""What a workload is like, drawn: when it comes, how soon its prefixes come back, and what a cache would make of it."""

from __future__ import annotations

import altair as alt
import numpy as np

from prefixroute.report.drawing import FONT_SIZE, HEIGHT, WIDTH, Chart
from prefixroute.report.palette import INK, colour
from prefixroute.workload import TraceStatistics

AGES_S = np.geomspace(1, 86_400, 60)
"""Seconds that a cache keeps a block after its last use."""

BINS = 120
"""Stretches of time in the chart of arrivals."""
AXIS = alt.Axis(grid=False, format="~s", tickCount=6)


def trace_charts(trace: TraceStatistics, floor: float) -> dict[str, Chart]:
    """Return the charts by title. ``floor`` is that of all traces, where this is one of several."""
    sizes, misses = trace.miss_ratio_curve()
    ages = AGES_S[max(60.0, 1.5 * trace.span_s) >= AGES_S]
    kept = [100 * trace.hit_ratio_if_kept(float(age)) for age in ages]
    drawn = {
        "One cache of a given size": _curve(
            sizes, 100 * misses, ("tokens that the cache holds", "% of prompt tokens computed"), 100 * floor
        ),
        "Blocks kept for a given time": _curve(
            ages, kept, ("seconds after a block's last use", "% of prompt tokens hit"), 100 * (1 - floor)
        ),
    }
    if trace.span_s > 0:
        drawn["Arrivals over time"] = _arrivals(trace)
    return drawn


def _curve(x: np.ndarray, y: np.ndarray | list[float], titles: tuple[str, str], limit: float) -> Chart:
    """Draw a line over a logarithmic axis, and the limit that it approaches."""
    values = [{"x": float(a), "y": float(b)} for a, b in zip(x, y, strict=True)]
    across = alt.X("x:Q", title=titles[0], scale=alt.Scale(type="log", nice=False), axis=AXIS)
    line = alt.Chart(alt.InlineData(values=values)).mark_line(strokeWidth=2, color=colour(0))
    height = alt.Y("y:Q", title=titles[1], scale=alt.Scale(domainMin=0), axis=alt.Axis(domain=False, ticks=False))
    bound = alt.Chart(alt.InlineData(values=[{"y": limit, "name": f"unlimited: {limit:.3g} %"}])).encode(y=height)
    rule = bound.mark_rule(color=INK, strokeDash=[5, 4])
    name = bound.mark_text(align="left", baseline="bottom", dx=2, dy=-3, color=INK, fontSize=FONT_SIZE - 1)
    drawn = alt.layer(rule, line.encode(x=across, y=height), name.encode(text="name:N", x=alt.value(0)))
    return drawn.properties(width=WIDTH, height=HEIGHT)


def _arrivals(trace: TraceStatistics) -> Chart:
    """Draw prompt tokens per second over the time of the trace."""
    starts, tokens = trace.load_over_time(BINS)
    values = [{"x": float(start), "y": float(rate)} for start, rate in zip(starts, tokens, strict=True)]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(strokeWidth=1.5, color=colour(0), interpolate="step-after")
        .encode(
            x=alt.X("x:Q", title="seconds", scale=alt.Scale(nice=False), axis=alt.Axis(grid=False)),
            y=alt.Y("y:Q", title="prompt tokens per second", axis=alt.Axis(domain=False, ticks=False, format=",~r")),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
    return chart
