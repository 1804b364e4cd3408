"""A sheet as a page and as charts; drawing needs the extra ``report``."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt

from prefixroute.report import html
from prefixroute.report.drawing import WIDTH, Chart, Picture, svgs
from prefixroute.report.palette import INK, colour
from prefixroute.report.sheet import Section, Sheet

BAR = 26
"""Pixels from one bar to the next."""


def sheet_page(sheet: Sheet) -> str:
    """Return the page of a sheet. Equal sheets give equal bytes."""
    parts = [part for section in sheet.sections for part in _section(section)]
    drawings = svgs(sheet_charts(sheet))
    if drawings:
        parts.insert(0, html.figures(drawings))
    if sheet.assumptions:
        parts += [html.heading("What this rests on"), html.assumptions(sheet.assumptions)]
    parts += [html.paragraph(note, soft=True) for note in sheet.notes]
    return html.document(sheet.title, parts)


def sheet_picture(sheet: Sheet) -> Picture:
    """Return the charts of a sheet."""
    return Picture(sheet.title, sheet_charts(sheet))


def sheet_charts(sheet: Sheet) -> dict[str, Chart]:
    """Return a chart of bars for each section that has values to draw."""
    return {section.title: _bars(section) for section in sheet.sections if section.bars}


def _section(section: Section) -> Iterator[str]:
    yield html.heading(section.title)
    yield from (html.paragraph(line) for line in section.lines)
    if section.table.rows:
        yield html.table(section.table, section.title)


def _bars(section: Section) -> Chart:
    labels = [label for label, _ in section.bars]
    values = alt.InlineData(values=[{"label": label, "value": value} for label, value in section.bars])
    base = alt.Chart(values).encode(
        x=alt.X("value:Q", title=section.bar_title, axis=alt.Axis(tickCount=6)),
        y=alt.Y("label:N", title=None, sort=labels, axis=alt.Axis(ticks=False)),
    )
    text = base.mark_text(align="left", dx=4, color=INK).encode(text=alt.Text("value:Q", format=".3~r"))
    chart: Chart = alt.layer(base.mark_bar(height=BAR - 10, color=colour(0)), text).properties(
        width=WIDTH, height=alt.Step(BAR)
    )
    return chart
