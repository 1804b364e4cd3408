"""The page of a study."""

from __future__ import annotations

from collections.abc import Iterator

from prefixroute.report import html
from prefixroute.report.behind import remarks
from prefixroute.report.charts import charts
from prefixroute.report.drawing import Picture, svgs
from prefixroute.report.study import Study
from prefixroute.report.traces import trace_charts
from prefixroute.workload import TraceStatistics


def page(study: Study, trace: TraceStatistics | None = None) -> str:
    """Return the whole page, with what the workload is like where that was measured. Equal inputs give equal bytes."""
    drawings = svgs(charts(study))
    parts = [
        *(html.paragraph(line) for line in study.summary()),
        html.legend(study.policies),
        html.deciding(drawings),
        html.heading("Every run"),
        html.table(study.table("")),
        html.heading("In detail"),
        html.further(drawings),
        *_workload(trace, study),
        *html.rests_on(study.assumptions, study.notes),
    ]
    return html.document(study.headline(), parts)


def study_picture(study: Study) -> Picture:
    """Return the charts between the verdict and what it rests on."""
    return Picture(study.headline(), charts(study), study.summary(), remarks(study.assumptions, study.notes))


def _workload(trace: TraceStatistics | None, study: Study) -> Iterator[str]:
    """Draw the workload of the first seed, beside the floor of all."""
    if trace is not None:
        yield html.heading("The workload")
        yield html.figures(svgs(trace_charts(trace, study.floor)))
