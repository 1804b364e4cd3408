"""The page and the picture of any result."""

from __future__ import annotations

from collections.abc import Mapping

from prefixroute.report import html
from prefixroute.report.behind import remarks
from prefixroute.report.charts import bars_of
from prefixroute.report.drawing import Chart, Picture, svgs
from prefixroute.report.sheet import Sheet


def page(sheet: Sheet) -> str:
    """Return the whole page: what was found, the chart that decides, tables, further charts, and what all rests on.

    Equal sheets give equal bytes.
    """
    drawings = svgs({**charts_of(sheet), **({} if sheet.background is None else sheet.background())})
    parts = [
        *map(html.paragraph, sheet.verdict),
        *([html.legend(sheet.policies)] if sheet.policies else []),
        *([html.deciding(drawings)] if drawings else []),
        *(part for table in sheet.tables for part in html.section(table)),
        *([html.further(drawings)] if len(drawings) > 1 else []),
        *html.rests_on(sheet.assumptions, sheet.notes),
    ]
    return html.document(sheet.title, parts)


def picture(sheet: Sheet) -> Picture:
    """Return the charts between the verdict and what it rests on."""
    return Picture(sheet.title, charts_of(sheet), sheet.verdict, remarks(sheet.assumptions, sheet.notes))


def charts_of(sheet: Sheet) -> Mapping[str, Chart]:
    """Return the charts of a sheet by title."""
    if sheet.charts is not None:
        return sheet.charts()
    return {table.title: bars_of(table.bars) for table in sheet.tables if table.bars is not None}
