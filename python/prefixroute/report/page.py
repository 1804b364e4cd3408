"""The page of a study."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from prefixroute.report import html
from prefixroute.report.charts import charts
from prefixroute.report.drawing import svg
from prefixroute.report.study import Study
from prefixroute.report.table import COLUMNS, Column, floor_line


def page(study: Study) -> str:
    """Return the whole page. Equal studies give equal bytes."""
    drawings = {title: svg(chart) for title, chart in charts(study).items()}
    parts = [
        *(html.paragraph(line) for line in study.summary()),
        html.legend(study.policies),
        html.figures(drawings),
        html.heading("Every run"),
        html.table(f"<tr>{''.join(_head(column, study) for column in COLUMNS)}</tr>", _rows(study)),
        html.heading("What this rests on"),
        html.assumptions(study.assumptions),
        *(html.paragraph(note, soft=True) for note in study.notes),
    ]
    return html.document(f"{study.workload}: what each routing policy costs", parts)


def _head(column: Column, study: Study) -> str:
    mark = f" {html.ASSUMED}" if column.assumed(study.assumptions) else ""
    return f'<th class="{"text" if column.text else "number"}">{escape(column.title)}{mark}</th>'


def _rows(study: Study) -> Iterator[str]:
    before = study.rows[0]["replicas"]
    for row in study.rows:
        cells = "".join(html.cell(column.cell(row), text_like=column.text) for column in COLUMNS)
        yield f'<tr class="{"" if row["replicas"] == before else "first"}">{cells}</tr>'
        before = row["replicas"]
    if study.floor is not None:
        line = escape(floor_line(study.floor))
        yield f'<tr class="floor first"><td class="text" colspan="{len(COLUMNS)}">{line}</td></tr>'
