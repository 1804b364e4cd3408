from __future__ import annotations

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
    lines = dict(facts(trace))
    assert lines["requests"] == "600"
    assert lines["floor of recompute, by tokens"] == f"{100 * trace.floor:.2f} %"
    assert lines["requests with the same first 1 block"] == "600 at most, 1 group"
    assert "hit ratio that the log reports" not in lines


def test_the_page_draws_size_time_and_load(trace: TraceStatistics) -> None:
    sheet = trace_sheet(trace, 1e-8, (), ("a <note>",))
    text = page(sheet)
    assert list(trace_charts(trace, trace.floor)) == [
        "One cache of a given size",
        "Blocks kept for a given time",
        "Arrivals over time",
    ]
    assert text.count("<svg") == 3
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
    assert "listed below" in text
    assert "usd_per_gpu_hour" in text[text.index("What this rests on") :]
    assert trace_verdict(trace) in text


def test_a_picture_has_no_marks_of_code(trace: TraceStatistics) -> None:
    drawn = vega(
        Picture("title", trace_charts(trace, trace.floor), ["With `--timed`, and in `advise`, another may lead."])
    )
    assert "With --timed, and in advise, another may lead." in drawn


def test_load_over_time_adds_up_to_all_tokens(trace: TraceStatistics) -> None:
    starts, rates = trace.load_over_time(10)
    assert starts[0] == 0
    assert float(rates.sum()) * trace.span_s / 10 == pytest.approx(trace.prompt_tokens)


def test_without_a_span_there_is_no_load_over_time() -> None:
    assert "Arrivals over time" not in trace_charts(measure(chat(seed=1, requests=1)), 1.0)
