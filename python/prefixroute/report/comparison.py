"""Pages and pictures of a comparison and of a sizing."""

from __future__ import annotations

import altair as alt

from prefixroute.advise import Comparison, Sizing
from prefixroute.report import html
from prefixroute.report.behind import floor_line, remarks
from prefixroute.report.charts import CHARTED, bars, charts
from prefixroute.report.compared import compared, details
from prefixroute.report.drawing import Chart, Picture, svgs
from prefixroute.report.sizing import sized, sized_tables
from prefixroute.report.study import Study
from prefixroute.report.verdicts import verdict


def comparison_page(found: Comparison) -> str:
    """Return the page of a comparison. Equal comparisons give equal bytes."""
    study = Study.of_rows(found.workload, found.rows, found.assumptions, found.notes)
    drawings = svgs(_charts(found, study))
    floor = found.rows[0].floor
    parts = [
        html.paragraph(verdict(found)),
        html.legend(study.policies),
        html.deciding(drawings),
        html.heading("Compared"),
        html.table(compared(found, f"differences from {found.reference}, intervals over {found.clusters:,} sessions")),
        *([] if floor is None else [html.paragraph(floor_line(floor, found.assumptions), soft=True)]),
        *map(html.table, details(found)),
        html.further(drawings),
        *html.rests_on(found.assumptions, found.notes),
    ]
    return html.document(_compared(found), parts)


def comparison_picture(found: Comparison) -> Picture:
    """Return the charts between the verdict and what it rests on."""
    study = Study.of_rows(found.workload, found.rows, found.assumptions, found.notes)
    return Picture(_compared(found), _charts(found, study), [verdict(found)], remarks(found.assumptions, found.notes))


def _charts(found: Comparison, study: Study) -> dict[str, Chart]:
    """Return the charts of a comparison, that of what decides first."""
    drawn = charts(study)
    return {title: drawn[title] for title in sorted(drawn, key=lambda title: title != CHARTED.get(found.metric))}


def _compared(found: Comparison) -> str:
    best = found.winner or f"{', '.join(found.leaders[:3])} within the noise"
    return f"{found.workload} on {found.rows[0].replicas} replicas: {best}"


def sizing_page(found: Sizing, most: int) -> str:
    """Return the page of a sizing. Equal sizings give equal bytes."""
    parts = [
        html.figures(svgs(sizing_charts(found))),
        *map(html.table, sized_tables(found, most)),
        *html.rests_on(found.assumptions, found.notes),
    ]
    return html.document(sized(found), parts)


def sizing_picture(found: Sizing) -> Picture:
    """Return the charts between the verdict and what it rests on."""
    return Picture(sized(found), sizing_charts(found), rests_on=remarks(found.assumptions, found.notes))


def sizing_charts(found: Sizing) -> dict[str, Chart]:
    """Return the chart of the replicas to buy, where any number was enough."""
    rows = [{"policy": one.policy, "value": one.replicas} for one in found.fleets if one.replicas is not None]
    if not rows:
        return {}
    policies = [one.policy for one in found.fleets]
    return {"Replicas to buy": bars(policies, alt.InlineData(values=rows), alt.InlineData(values=[]), "replicas")}
