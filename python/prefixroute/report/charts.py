"""The charts of every result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt

from prefixroute.report.drawing import FONT_SIZE, HEIGHT, WIDTH, Chart
from prefixroute.report.figures import replicas
from prefixroute.report.palette import INK, colour, dash, shape
from prefixroute.report.study import floor_of, policies_of
from prefixroute.report.table import Bars
from prefixroute.sim import ResultRow
from prefixroute.sim.metrics import CURVE

STRIP, STRIPS = 64, 360
"""Pixels of height of one policy's load, and of all of them where there are many."""
LEAST_STRIP = 30
APART = 0.08
"""Share of the way to the next number of replicas by which the outermost lines are moved to either side."""
SOONEST_MS = 0.1
"""Where the logarithmic axis of times begins at the latest."""
BAR = 42
"""Pixels from one bar to the next, with its name above it."""
THIN = 26
"""The same with its name beside it."""
SKEW = "requests at the busiest replica / mean"
SKEW_SHOWN = 1.25
"""The skew axis reaches at least here, so that a difference of a hundredth does not fill the chart."""
LABEL = "format(datum.value, abs(datum.value) < 1 ? '~g' : '~s')"
"""Thousands as 1k; a half as 0.5, which the same format writes as 500m."""
LOGARITHMIC = alt.Axis(grid=False, format="~s", tickCount=6)
LEGEND = alt.Legend(title=None, orient="top", columns=4)


CHARTED: Final = {
    "usd_per_million_requests_busiest": "Prefill cost, bought for the busiest replica",
    "recompute_ratio": "Prompt tokens computed",
}
"""Titles of the charts of what may decide a comparison."""


def charts(rows: Sequence[ResultRow]) -> dict[str, Chart]:
    """Return the charts of a sweep or a comparison by title.

    Dollars are those of prefill bought for the busiest replica. Times and load are those of the largest fleet.
    """
    most = max(row.replicas for row in rows)
    largest, policies = [row for row in rows if row.replicas == most], policies_of(rows)
    drawn = {
        CHARTED["usd_per_million_requests_busiest"]: _measure(
            rows, "usd_per_million_requests_busiest", "$ per million requests", 1.0
        ),
        CHARTED["recompute_ratio"]: _measure(rows, "recompute_ratio", "% of prompt tokens", 100.0),
        "Skew": _measure(rows, "skew", SKEW, 1.0),
    }
    if any(row.ttft_curve_s for row in rows):
        curves = {row.policy: row.ttft_curve_s for row in largest if row.ttft_curve_s}
        drawn[f"Time to first token, {replicas(most)}"] = answered_within(policies, curves)
    loaded = [row for row in largest if row.load is not None]
    if loaded:
        title = f"Load over time, {replicas(most)}: band from least to most loaded, line = mean"
        drawn[title] = _load(policies, loaded)
    return drawn


def bars_of(bars: Bars) -> Chart:
    """Return the chart of a table: a bar for each label, in one colour."""
    labels = [label for label, _ in bars.values]
    values = alt.InlineData(values=[{"label": label, "value": value} for label, value in bars.values])
    base = alt.Chart(values).encode(
        x=alt.X("value:Q", title=bars.title, axis=alt.Axis(tickCount=6)),
        y=alt.Y("label:N", title=None, sort=labels, axis=alt.Axis(ticks=False)),
    )
    text = base.mark_text(align="left", dx=4, color=INK).encode(text=alt.Text("value:Q", format=".3~r"))
    drawn: Chart = alt.layer(base.mark_bar(height=THIN - 10, color=colour(0)), text).properties(
        width=WIDTH, height=alt.Step(THIN)
    )
    return drawn


def _measure(rows: Sequence[ResultRow], field: str, title: str, factor: float) -> Chart:
    """Draw one field of the rows: lines over the numbers of replicas, or bars where there is one number only."""
    values = [{"policy": row.policy, "replicas": row.replicas, "value": factor * getattr(row, field)} for row in rows]
    bound = {"recompute_ratio": floor_of(rows), "skew": 1.0}.get(field)
    name = "even" if field == "skew" else f"floor {factor * (bound or 0.0):.3g} %"
    limits = [] if bound is None else [{"value": factor * bound, "name": name}]
    if len({row.replicas for row in rows}) > 1:
        return _lines(values, limits, title)
    return bars(policies_of(rows), values, title if bound is None else f"{title} (dashed: {name})", limits)


def _lines(values: Sequence[Mapping[str, Any]], limits: Sequence[Mapping[str, Any]], title: str) -> Chart:
    # Skew below 1 does not exist, and a difference of a hundredth must not fill the chart.
    scale = (
        alt.Scale(domainMin=1, domainMax=max(SKEW_SHOWN, *(row["value"] for row in values)))
        if title == SKEW
        else alt.Scale()
    )
    height = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6, domain=False, ticks=False))
    counts, policies = (list(dict.fromkeys(row[name] for row in values)) for name in ("replicas", "policy"))
    # Places instead of counts, each policy a little to the side of the others: lines that coincide are all seen.
    middle = (len(policies) - 1) / 2
    aside = {policy: APART * (at - middle) / max(1.0, middle) for at, policy in enumerate(policies)}
    moved = [{**row, "place": counts.index(row["replicas"]) + aside[row["policy"]]} for row in values]
    ticks = alt.Axis(values=list(range(len(counts))), labelExpr=f"{counts}[datum.value]", grid=False)
    places = alt.Scale(domain=[-0.3, len(counts) - 0.7], nice=False)
    base = alt.Chart(alt.InlineData(values=moved)).encode(
        x=alt.X("place:Q", title="replicas", axis=ticks, scale=places),
        y=height,
        color=_colour(policies),
    )
    marks = base.mark_point(filled=True, size=80, opacity=1).encode(shape=_shape(policies))
    limit = alt.Chart(alt.InlineData(values=list(limits))).encode(y=height)
    name = limit.mark_text(align="left", baseline="bottom", dx=2, dy=-3, color=INK, fontSize=FONT_SIZE - 1).encode(
        text="name:N", x=alt.value(0)
    )
    rule = limit.mark_rule(color=INK, strokeDash=[5, 4])
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=_dash(policies))
    return alt.layer(rule, lines, marks, name).properties(width=WIDTH, height=HEIGHT)


def bars(
    policies: Sequence[str], values: Sequence[Mapping[str, Any]], title: str, limits: Sequence[Mapping[str, Any]] = ()
) -> Chart:
    """Draw a bar for each policy, below its name and with its value, and the limits as dashed lines."""
    width = alt.X("value:Q", title=title, axis=alt.Axis(tickCount=5))
    up = alt.Y("policy:N", title=None, sort=list(policies), axis=None)
    base = alt.Chart(alt.InlineData(values=list(values))).encode(x=width, y=up)
    value = base.mark_text(align="left", dx=4, dy=8, color=INK, fontSize=FONT_SIZE - 1).encode(
        text=alt.Text("value:Q", format=".3~r")
    )
    name = base.mark_text(align="left", dx=2, dy=-10, color=INK, fontSize=FONT_SIZE - 1).encode(
        x=alt.value(0), text="policy:N"
    )
    limit = alt.Chart(alt.InlineData(values=list(limits))).mark_rule(color=INK, strokeDash=[5, 4]).encode(x=width)
    marks = base.mark_bar(height=BAR - 24, yOffset=8).encode(color=_colour(policies))
    return alt.layer(marks, limit, value, name).properties(width=WIDTH, height=alt.Step(BAR))


def answered_within(policies: Sequence[str], curves: Mapping[str, Sequence[float]]) -> Chart:
    """Draw the share of requests answered within a time, per policy, with each one's mark at a height of its own.

    Args:
        policies: all of the study, which fixes their colours.
        curves: by policy, the seconds at each share of :data:`prefixroute.sim.metrics.CURVE`.
    """
    at = {policy: len(CURVE) * (place + 1) // (len(curves) + 1) for place, policy in enumerate(curves)}
    values = [
        {"policy": policy, "ms": max(SOONEST_MS, 1e3 * seconds), "share": 100 * share, "marked": number == at[policy]}
        for policy, curve in curves.items()
        for number, (share, seconds) in enumerate(zip(CURVE, curve, strict=True))
    ]
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("ms:Q", title="milliseconds", scale=alt.Scale(type="log", nice=False), axis=LOGARITHMIC),
        y=alt.Y("share:Q", title="% of requests answered within", axis=alt.Axis(domain=False, ticks=False)),
        color=_colour(policies),
    )
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=_dash(policies), order="share:Q")
    marks = base.mark_point(filled=True, size=80, opacity=1).encode(shape=_shape(policies))
    return alt.layer(lines, marks.transform_filter("datum.marked")).properties(width=WIDTH, height=HEIGHT)


def ratios(policies: Sequence[str], values: Sequence[Mapping[str, Any]]) -> Chart:
    """Draw a mark at the ratio of each policy and figure, and a dashed line at 1."""
    title = "predicted / measured (dashed: the same)"
    figures = list(dict.fromkeys(value["figure"] for value in values))
    across = alt.X(
        "ratio:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=16), axis=alt.Axis(tickCount=5)
    )
    base = alt.Chart(alt.InlineData(values=list(values))).encode(
        x=across, y=alt.Y("figure:N", title=None, sort=figures, axis=alt.Axis(ticks=False))
    )
    marks = base.mark_point(filled=True, size=80, opacity=0.9).encode(color=_colour(policies), shape=_shape(policies))
    even = alt.Chart(alt.InlineData(values=[{"ratio": 1}])).mark_rule(color=INK, strokeDash=[5, 4]).encode(x=across)
    return alt.layer(even, marks).properties(width=WIDTH, height=alt.Step(26))


def _load(policies: Sequence[str], rows: Sequence[ResultRow]) -> Chart:
    """Draw the load of the fleet over a run.

    A strip for each policy, on common scales, so that any fleet is legible.
    """
    curves = {row.policy: row.load for row in rows if row.load is not None}
    timed = any(curve.timed for curve in curves.values())
    values = [
        {"policy": policy, "x": middle, "least": least, "mean": mean, "most": most}
        for policy, curve in curves.items()
        for middle, least, mean, most in zip(curve.middles, curve.least, curve.mean, curve.most, strict=True)
    ]
    across = alt.X(
        "x:Q",
        title="seconds" if timed else "requests so far",
        scale=alt.Scale(nice=False),
        axis=alt.Axis(grid=False, labelExpr=LABEL, tickCount=6),
    )
    up = alt.Axis(domain=False, ticks=False, tickCount=3, labelExpr=LABEL)
    height = alt.Y("most:Q", title=None, axis=up)
    colours = _colour(policies, legend=None)  # the other charts have one, and not of a pale band
    strip = max(LEAST_STRIP, min(STRIP, STRIPS // len(curves)))
    base = alt.Chart().encode(x=across, color=colours).properties(width=WIDTH, height=strip)
    band = base.mark_area(opacity=0.35).encode(y=height, y2="least:Q")
    line = base.mark_line(strokeWidth=1.5).encode(y=alt.Y("mean:Q", title=None, axis=up))
    middles = next(iter(curves.values())).middles
    window = 2 * middles[0]
    title = "requests in flight" if timed else f"received, of {window:,.0f} requests"
    header = alt.Header(title=title, labelOrient="top", labelAnchor="start", labelPadding=2, titleOrient="left")
    drawn: alt.FacetChart = alt.layer(band, line, data=alt.InlineData(values=values)).facet(
        row=alt.Row("policy:N", sort=list(policies), header=header), spacing=10
    )
    return drawn


def _colour(policies: Sequence[str], legend: alt.Legend | None = LEGEND) -> alt.Color:
    scale = alt.Scale(domain=list(policies), range=[colour(i) for i in range(len(policies))])
    return alt.Color("policy:N", scale=scale, sort=list(policies), legend=legend)


def _shape(policies: Sequence[str]) -> alt.Shape:
    scale = alt.Scale(domain=list(policies), range=[shape(i) for i in range(len(policies))])
    return alt.Shape("policy:N", scale=scale, sort=list(policies), legend=LEGEND)


def _dash(policies: Sequence[str]) -> alt.StrokeDash:
    """Dash the lines that are drawn later, so that one below them shows through."""
    scale = alt.Scale(domain=list(policies), range=[dash(i) for i in range(len(policies))])
    return alt.StrokeDash("policy:N", scale=scale, sort=list(policies), legend=None)
