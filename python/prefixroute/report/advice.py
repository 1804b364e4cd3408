"""The advisor's answer on one page: what to do, the chart that decides, why, and then the detail."""

from __future__ import annotations

from collections.abc import Iterator

from prefixroute.advise import Advice
from prefixroute.report import html
from prefixroute.report.answer import AdviceAnswer, answer
from prefixroute.report.basis import basis, fleet
from prefixroute.report.behind import remarks
from prefixroute.report.charts import charts
from prefixroute.report.compared import compared, details, equal_splits, today
from prefixroute.report.drawing import Picture, svgs
from prefixroute.report.reasons import advised
from prefixroute.report.study import policies_of


def advice_page(advice: Advice) -> str:
    """Return the whole page. Equal advice gives equal bytes."""
    found, said = advice.comparison, answer(advice)
    drawings = svgs(charts(found.rows))
    parts = [
        html.table(today(found, advice.in_use if advice.replicas > 1 else advice.row.policy, advice.row.policy)),
        html.legend(policies_of(found.rows)),
        html.deciding(drawings),
        html.heading("What to do"),
        *map(html.paragraph, said.opening),
        *([html.code(f"import prefixroute as pr\n\n{said.deploy}")] if said.deploy else []),
        *map(html.paragraph, said.expectation),
        *map(html.paragraph, said.agreement),
        *_findings(said),
        html.heading("Why"),
        html.ordered(f"{question} {text}" for question, text in said.steps),
        html.heading("Compared"),
        html.paragraph(f"Simulated {basis(found)}.", soft=True),
        html.table(compared(found, "", advised(advice))),
        *([] if advice.apart is None else html.section(equal_splits(advice.apart))),
        *_sensitivity(said),
        html.details(
            "More: skew, time to first token, load, what this rests on",
            [
                html.further(drawings),
                *(part for table in details(found) for part in html.section(table)),
                html.paragraph(
                    f"In brackets the 95 % interval over {found.clusters:,} sessions. One that holds 0 may be noise; "
                    "one that rests on fewer than ten requests beyond the percentile is not known.",
                    soft=True,
                ),
                *html.rests_on(found.assumptions, found.notes),
            ],
        ),
    ]
    return html.document(title_of(advice, said), parts)


def advice_picture(advice: Advice) -> Picture:
    """Return the charts between the reasons and what they rest on."""
    found, said = advice.comparison, answer(advice)
    above = [*said.opening, *said.expectation[:1]]
    return Picture(title_of(advice, said), charts(found.rows), above, remarks(found.assumptions, found.notes))


def title_of(advice: Advice, said: AdviceAnswer) -> str:
    """Return the headline, with what it is about."""
    return f"{advice.workload} on {fleet(advice)}: {said.headline}"


def _findings(said: AdviceAnswer) -> Iterator[str]:
    if said.findings:
        yield html.heading("Look at this too")
        rows = (
            f"<tr>{html.cell(severity, text_like=True)}{html.cell(text, prose=True)}</tr>"
            for severity, text in said.findings
        )
        yield html.grid("", rows, "findings")


def _sensitivity(said: AdviceAnswer) -> Iterator[str]:
    if said.sensitivity:
        yield html.heading("What would change this")
        yield html.bullets(said.sensitivity)
