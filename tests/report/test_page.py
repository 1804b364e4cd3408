from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from prefixroute.advise import compare
from prefixroute.costmodel import CostModel
from prefixroute.report import palette
from prefixroute.report.behind import remarks
from prefixroute.report.study import policies_of, sweep_sheet
from prefixroute.sim import EngineModel, Scenario, Sweep, sweep
from prefixroute.workload import Poisson, chat, measure

pytest.importorskip("altair", reason="the extra `report` is not installed")

import vl_convert

from prefixroute.report.charts import CHARTED, charts
from prefixroute.report.comparison import comparison_sheet
from prefixroute.report.drawing import VEGA_LITE, Picture, png, svg, vega
from prefixroute.report.page import page, picture
from prefixroute.report.traces import trace_charts

BUSIEST = "usd_per_million_requests_busiest"


class Outline(HTMLParser):
    """The tags, addresses and table cells of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "action"}]


def outline(text: str) -> Outline:
    parser = Outline()
    parser.feed(text)
    return parser


def test_the_page_needs_nothing_from_outside(study: Sweep) -> None:
    text = page(sweep_sheet(study))
    seen = outline(text)
    assert seen.addresses == []
    assert not {"script", "link", "img", "iframe"} & set(seen.tags)
    assert not re.search(r"@import|url\((?!#)", text)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_the_page_draws_each_measure_and_prints_every_row(study: Sweep) -> None:
    text = page(sweep_sheet(study))
    assert outline(text).tags.count("svg") == 4
    assert re.findall("<figcaption>(.*?)</figcaption>", text) == list(charts(study.rows))
    assert "8 replicas" in list(charts(study.rows))[-1]  # times are those of the largest fleet
    assert text.count('<td class="text">round-robin</td>') == 2
    assert "floor 3.71 %" in text
    assert text.count("ASSUMED") == 3  # the price's two columns, and the price


def test_the_page_of_a_measured_workload_draws_it_too(study: Sweep) -> None:
    text = page(sweep_sheet(study, lambda: measure(chat(seed=1, requests=300))))
    assert outline(text).tags.count("svg") == 7
    for title in trace_charts(measure(chat(seed=1, requests=300)), 1.0):
        assert f"<figcaption>{title}</figcaption>" in text
    assert "unlimited: 3.71 %" in text  # the floor that the page names: of all seeds, not of the one that is drawn


def test_runs_in_time_and_with_unlimited_caches_have_columns_of_their_own(study: Sweep) -> None:
    more = {"recompute_ratio_infinite": 0.1234, "queue_mean_s": 1.5, "busy": 0.5, "requests_per_s": 2.0}
    text = page(sweep_sheet(replace(study, rows=tuple(replace(row, **more) for row in study.rows))))
    for title, cell in (("unlimited %", "12.34"), ("queue mean ms", "1,500.0"), ("busy %", "50.0")):
        assert title in text
        assert title not in page(sweep_sheet(study))
        assert f">{cell}</td>" in text


def test_colours_follow_the_reader_and_no_stand_in_is_left(study: Sweep) -> None:
    text = page(sweep_sheet(study))
    assert "prefers-color-scheme: dark" in text
    assert "var(--ink)" in text
    assert palette.INK not in text
    assert palette.FAINT not in text


def test_names_are_escaped(study: Sweep) -> None:
    rows = (replace(study.rows[0], policy="<b>mine</b>"),)
    text = page(sweep_sheet(replace(study, workload="a<script>", rows=rows)))
    assert "<script>" not in text
    assert "<b>" not in text
    assert "&lt;b&gt;mine" in text


def test_without_a_distribution_three_charts_remain(study: Sweep) -> None:
    assert len(charts([replace(row, ttft_curve_s=()) for row in study.rows])) == 3


def test_one_fleet_is_drawn_as_bars_and_several_as_lines(study: Sweep, one_fleet: Sweep) -> None:
    marks = [
        {layer["mark"]["type"] for layer in charts(drawn.rows)[CHARTED[BUSIEST]].to_dict()["layer"]}
        for drawn in (study, one_fleet)
    ]
    assert "line" in marks[0]
    assert "bar" in marks[1]


def test_a_long_title_makes_no_picture_wider(study: Sweep) -> None:
    def width(title: str) -> int:
        return int.from_bytes(png(Picture(title, charts(study.rows)), scale=1)[16:20], "big")

    assert width(80 * "long ") == width("chat")


def test_the_picture_is_a_png_and_equal_studies_give_equal_bytes(study: Sweep, one_fleet: Sweep) -> None:
    for drawn in (study, one_fleet):
        drawing = png(Picture("chat", charts(drawn.rows)), scale=1)
        assert drawing.startswith(b"\x89PNG\r\n\x1a\n")
        assert drawing == png(Picture("chat", charts(drawn.rows)), scale=1)
    assert page(sweep_sheet(study)) == page(sweep_sheet(replace(study)))


def test_the_picture_says_what_nobody_gave_and_what_its_times_are(study: Sweep) -> None:
    said = remarks(study.assumptions, ("a note",))
    above, below = (
        vega(Picture("chat", charts(study.rows), said)),
        vega(Picture("chat", charts(study.rows), rests_on=said)),
    )
    assert "ASSUMED" in " ".join(json.loads(above)["title"]["subtitle"])
    assert json.loads(below)["title"]["subtitle"] == []
    drawn = vl_convert.vegalite_to_svg(below, vl_version=VEGA_LITE)
    text = drawn.replace("\u00a0", " ")
    assert said[0].startswith("ASSUMED ")
    for figure in said[0].split("; "):
        assert figure in text
    assert said[1].endswith(": a note")
    assert said[1] in text
    assert "ASSUMED" in vega(Picture("nothing to draw", {}, rests_on=said))


def test_the_picture_has_one_legend_and_the_pages_charts_have_none(study: Sweep) -> None:
    legends = vl_convert.vegalite_to_vega(vega(Picture("chat", charts(study.rows))), vl_version=VEGA_LITE)["legends"]
    drawn = vl_convert.vegalite_to_svg(vega(Picture("chat", charts(study.rows))), vl_version=VEGA_LITE)
    assert legends
    assert [drawn.count(f">{policy}</text>") for policy in policies_of(study.rows)] == [1, 1]
    assert [
        policy
        for policy in policies_of(study.rows)
        for chart in charts(study.rows).values()
        if f">{policy}</text>" in svg(chart)
    ] == []


def test_a_study_of_many_policies_gives_each_its_own_sign(study: Sweep) -> None:
    signs = {(palette.colour(number), palette.shape(number)) for number in range(25)}
    assert len(signs) == 25
    rows = tuple(replace(study.rows[0], policy=f"policy-{number}") for number in range(25))
    text = page(sweep_sheet(replace(study, rows=rows)))
    assert all(f"policy-{number}" in text for number in range(25))


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("replicas", [8, 64])
def test_the_load_of_each_policy_is_drawn_for_the_largest_fleet(replicas: int, timed: bool) -> None:
    scenario = Scenario(engine=EngineModel(CostModel()) if timed else None)
    workload = chat(1, requests=960, arrivals=Poisson(20.0))
    found = sweep(
        workload, policies=("round-robin", "session"), replicas=(2, replicas), seeds=2, scenario=scenario, load_parts=12
    )
    title = f"Load over time, {replicas} replicas: band from least to most loaded, line = mean"
    drawn = charts(found.rows)[title].to_dict()
    assert drawn["spec"]["layer"][0]["mark"]["type"] == "area"
    values = next(iter(drawn["datasets"].values())) if "datasets" in drawn else drawn["data"]["values"]
    assert [row["policy"] for row in values] == ["round-robin"] * 12 + ["session"] * 12
    assert all(row["least"] <= row["mean"] <= row["most"] for row in values)
    assert max(row["most"] - row["least"] for row in values[12:]) > max(
        row["most"] - row["least"] for row in values[:12]
    )
    if not timed:
        assert sum(row["mean"] * replicas for row in values[:12]) == pytest.approx(960)
    picture_of = svg(charts(found.rows)[title])
    assert all(f">{text}</text>" in picture_of for text in ("round-robin", "session"))
    assert ("seconds" if timed else "requests so far") in picture_of
    sheet = sweep_sheet(found)
    assert (page(sheet), png(picture(sheet))) == (page(sheet), png(picture(sheet)))
    assert '"load"' not in found.to_json().partition('"rows"')[2]
    assert found.to_json() == sweep(
        workload, policies=("round-robin", "session"), replicas=(2, replicas), seeds=2, scenario=scenario
    ).to_json()  # fmt: skip


@pytest.mark.parametrize("metric", ["recompute_ratio", BUSIEST])
def test_the_page_of_a_comparison_draws_first_what_decides(metric: str) -> None:
    source = chat(seed=1, requests=300)
    found = compare(source, ["round-robin", "session"], scenario=Scenario(replicas=2), seeds=1, metric=metric)
    text = page(comparison_sheet(found))
    assert re.findall("<figcaption>(.*?)</figcaption>", text)[0] == CHARTED[metric]
    assert '<td class="text">clock</td><td class="number">untimed</td>' in text
