"""The advisor's answer on one page: what to do, what it saves, why, what to fix, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from prefixroute.advise import Advice, Comparison, Flip
from prefixroute.advise.advice import VERDICT_BY
from prefixroute.advise.times import duration, unit_of
from prefixroute.costmodel import Assumption
from prefixroute.costmodel.assumption import MONEY, RUN, SECONDS, SHARES, on_defaults
from prefixroute.report import html
from prefixroute.report.charts import charts
from prefixroute.report.drawing import Chart, svg
from prefixroute.report.study import Study
from prefixroute.report.table import floor_line, remarks, usd


def advice_page(advice: Advice) -> str:
    """Return the whole page. Equal advice gives equal bytes."""
    compared = advice.comparison
    study = _study(compared)
    drawings = {title: svg(chart) for title, chart in charts(study, busiest=True).items()}
    first = tuple(drawings)[:2]  # what is computed again, and what it costs: the rest is for who asks
    parts = [
        *map(html.paragraph, advice.agreement),
        *(html.paragraph(line) for line in advice.opening if line),
        *map(html.paragraph, advice.expectation),
        html.heading("Why"),
        html.ordered(f"{step.question} {step.answer}" for step in advice.steps),
        *_findings(advice),
        html.heading("Compared"),
        html.paragraph(f"{VERDICT_BY[0].upper()}{VERDICT_BY[1:]}.", soft=True),
        html.table(_heads(compared.assumptions), _rows(advice)),
        html.figures({title: drawing for title, drawing in drawings.items() if title in first}),
        *_sensitivity(advice.sensitivity),
        html.details(
            "More: time to first token, load, what this rests on",
            [
                html.legend(study.policies),
                html.figures({title: drawing for title, drawing in drawings.items() if title not in first}),
                *_times(compared),
                html.heading("What this rests on"),
                html.assumptions(compared.assumptions),
                *(html.paragraph(note, soft=True) for note in compared.notes),
            ],
        ),
    ]
    return html.document(_title(advice), parts)


def advice_picture(advice: Advice) -> tuple[str, dict[str, Chart], list[str]]:
    """Return the title, the charts and the remarks of a picture."""
    compared = advice.comparison
    study = _study(compared)
    return _title(advice), charts(study, busiest=True), remarks(compared.assumptions, compared.notes)


def _study(compared: Comparison) -> Study:
    return Study.of_rows(compared.workload, compared.rows, compared.assumptions, compared.notes)


def _title(advice: Advice) -> str:
    return f"{advice.workload} on {advice.fleet}: {advice.verdict}"


def _findings(advice: Advice) -> Iterator[str]:
    if advice.remaining:
        yield html.heading("Look at this too")
        yield html.table(
            "",
            (
                f'<tr><td class="text"><strong>{escape(finding.severity)}</strong></td>'
                f'<td class="text prose">{html.inline(finding.text)}</td></tr>'
                for finding in advice.remaining
            ),
        )


HEADS: dict[str, frozenset[str]] = {
    "recomputed %": SHARES,
    "unlimited cache %": RUN,
    "skew": SHARES,
    "TTFT p50": SECONDS,
    "p99": SECONDS,
    "$ / 1M, busiest replica": MONEY,
}
"""Columns of figures, and the assumptions that each rests on."""


def _heads(assumptions: tuple[Assumption, ...]) -> str:
    marks = {title: f" {html.ASSUMED}" if on_defaults(names, assumptions) else "" for title, names in HEADS.items()}
    figures = "".join(f'<th class="number">{escape(title)}{mark}</th>' for title, mark in marks.items())
    return f'<tr><th class="text">policy</th>{figures}<th></th></tr>'


def _rows(advice: Advice) -> Iterator[str]:
    compared = advice.comparison
    for row in compared.rows:
        infinite = row.recompute_ratio_infinite
        figures = (
            f"{100 * row.recompute_ratio:.2f}",
            "" if infinite is None else f"{100 * infinite:.2f}",
            f"{row.skew:.2f}",
            duration(row.ttft_p50_s),
            duration(row.ttft_p99_s),
            usd(row.usd_per_million_requests_busiest),
        )
        verdict = html.cell(compared.judgement(row.policy), text_like=True)
        yield f"<tr>{html.cell(row.policy, text_like=True)}{''.join(map(html.cell, figures))}{verdict}</tr>"
    floor = compared.rows[0].floor
    if floor is not None:
        yield f'<tr class="floor first"><td class="text" colspan="8">{escape(floor_line(floor, compared.assumptions))}</td></tr>'


TIMES = {"mean": "ttft_mean_s", "p50": "ttft_p50_s", "p90": "ttft_p90_s", "p99": "ttft_p99_s"}


def _times(compared: Comparison) -> Iterator[str]:
    """Yield how far each policy's times to first token are from the reference's, with intervals."""
    if len(compared.rows) == 1:
        return
    units = {field: unit_of(getattr(one, field).value for one in compared.differences) for field in TIMES.values()}
    yield html.heading(f"Time to first token, more than {compared.reference}")
    mark = f" {html.ASSUMED}" if on_defaults(SECONDS, compared.assumptions) else ""
    heads = "".join(f'<th class="number">{name}, {units[field].name}{mark}</th>' for name, field in TIMES.items())
    rows = (
        f"<tr>{html.cell(one.policy, text_like=True)}"
        f"{''.join(html.cell(getattr(one, field).text(units[field].per_second)) for field in TIMES.values())}</tr>"
        for one in compared.differences
        if one.policy != compared.reference
    )
    yield html.table(f'<tr><th class="text">policy</th>{heads}</tr>', rows)
    yield html.paragraph(
        f"In brackets the 95 % interval over {compared.clusters:,} sessions; one that holds 0 may be noise, and one that "
        "rests on fewer than ten requests beyond the percentile is not known.",
        soft=True,
    )


def _sensitivity(flips: tuple[Flip, ...]) -> Iterator[str]:
    if not flips:
        return
    yield html.heading("What would change this")
    yield html.table("", map(_flip, flips))


def _flip(flip: Flip) -> str:
    advised = f"would be {flip.policy}" if flip.flips else f"stays {flip.policy}"
    share = f"{100 * flip.recompute_ratio:.1f} % recomputed"
    cells = "".join(html.cell(text, text_like=True) for text in (flip.changed, advised, share))
    return f"<tr>{cells}{html.cell(f'${usd(flip.usd_per_million_requests_busiest)} / 1M')}</tr>"
