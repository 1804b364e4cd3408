from __future__ import annotations

import re
from dataclasses import replace

import pytest

from prefixroute.costmodel import CostModel
from prefixroute.report.figures import usd
from prefixroute.report.workloads import facts, lost, trace_sheet, trace_verdict
from prefixroute.workload import TraceStatistics, chat, measure

pytest.importorskip("altair", reason="the extra `report` is not installed")

from prefixroute.report.drawing import Picture, vega
from prefixroute.report.page import page
from prefixroute.report.traces import trace_charts


@pytest.fixture(scope="module")
def trace() -> TraceStatistics:
    return measure(chat(seed=1, requests=600))


def test_facts_are_those_of_the_statistics(trace: TraceStatistics) -> None:
    lines = facts(trace)
    assert lines[0] == ("requests", "600")
    assert [figure for name, figure in lines if name.startswith("floor")] == [f"{100 * trace.floor:.2f} %"]
    (group,) = [figure for name, figure in lines if name.endswith(" 1 block")]
    assert re.findall(r"\d+", group) == ["600", "1"]  # requests, groups
    reported = facts(replace(trace, reported_requests=600, reported_prompt_tokens=1_000, reported_hit_tokens=123))
    assert [figure.partition(" on ")[0] for name, figure in reported[len(lines) :]] == ["12.30 %"]


def test_the_page_draws_size_time_and_load(trace: TraceStatistics) -> None:
    sheet = trace_sheet(trace, 1e-8, (), ("a <note>",))
    text = page(sheet)
    titles = list(trace_charts(trace, trace.floor))
    assert re.findall("<figcaption>(.*?)</figcaption>", text) == titles
    assert text.count("<svg") == len(set(titles)) == 3
    assert "a &lt;note&gt;" in text
    assert f"{100 * trace.floor:.1f} %" in text
    assert text == page(sheet)


def test_the_page_lists_what_its_dollars_rest_on(trace: TraceStatistics) -> None:
    cost = CostModel()
    price = cost.usd_per_token(trace.prompt_lengths.mean)
    where = lost(trace, price, cost.assumptions)
    assert where.rows[1][1:] == (
        f"{100 * trace.floor:.2f}",
        f"{trace.losses.first_sight:,}",
        usd(trace.losses.first_sight * price / trace.requests * 1e6),
    )
    text = page(trace_sheet(trace, price, cost.assumptions))
    cells = re.findall('<td class="text">(.*?)</td>', text)
    assert {item.name for item in cost.assumptions} <= set(cells)
    assert 'class="assumed"' in text
    assert trace_verdict(trace) in text


def test_a_picture_has_no_marks_of_code(trace: TraceStatistics) -> None:
    drawn = vega(Picture("title", trace_charts(trace, trace.floor), ["`--timed` or `advise`"]))
    assert "--timed or advise" in drawn


def test_load_over_time_adds_up_to_all_tokens(trace: TraceStatistics) -> None:
    starts, rates = trace.load_over_time(10)
    assert starts[0] == 0
    assert float(rates.sum()) * trace.span_s / 10 == pytest.approx(trace.prompt_tokens)


def test_without_a_span_there_is_no_load_over_time() -> None:
    assert len(trace_charts(measure(chat(seed=1, requests=1)), 1.0)) == 2
