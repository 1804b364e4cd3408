from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich", reason="the extra `cli` is not installed")

from rich.console import Console

from prefixroute.advise import compare
from prefixroute.advise.question import OTHERS
from prefixroute.cli import console
from prefixroute.cli.compare import EVERY_MECHANISM
from prefixroute.cli.table import show_sheet
from prefixroute.report.compared import compared, times
from prefixroute.report.comparison import comparison_sheet
from prefixroute.report.figures import usd
from prefixroute.report.verdicts import QUEUES
from prefixroute.workload import Poisson, TenantsShape, convert, read_trace, tenants

Prefixroute = Callable[..., Any]


def test_compare_names_a_reference_and_intervals(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["compare", trace, "--replicas", 4, "--seeds", 2, "--policies", "round-robin,session"]
    document = prefixroute(*options, "--json").json
    assert [row["policy"] for row in document["rows"]] == ["round-robin", "session"]
    assert document["reference"] == "session"
    worse = document["differences"][0]
    assert worse["verdict"] == "worse"
    assert 0 < worse["recompute_ratio"]["low"] <= worse["recompute_ratio"]["value"]
    shown = prefixroute(*options)
    assert (shown.code, shown.err) == (0, "")
    assert "session is best" in shown.out
    assert shown.out.splitlines()[0].startswith("  ASSUMED ")
    known = ["--capacity", "200k", "--gpu", "H100", "--model", "Qwen3-8B", "--price", 4, "--tensor-parallel", 1]
    fewer = prefixroute(*options, *known).out  # utilization and overhead stay assumed
    assert 0 < fewer.count("ASSUMED") < shown.out.count("ASSUMED")
    assert "floor " in shown.out
    assert "  Next: prefixroute advise " in shown.out.splitlines()[-1]


def test_an_untimed_comparison_of_requests_that_span_time_says_that_queues_are_left_out(
    prefixroute: Prefixroute, trace: Path
) -> None:
    options = ["--replicas", 2, "--seeds", 1, "--policies", "round-robin,session", "--quiet"]
    for workload, more, left_out in ((trace, (), True), (trace, ("--timed",), False)):
        found = prefixroute("compare", workload, *options, *more, "--json").json
        assert (found["leaves_out_queues"], found["timed"]) == (left_out, bool(more))
        ending = prefixroute("compare", workload, *options, *more).out.splitlines()[-2]
        assert (QUEUES in ending) == left_out


def test_compare_names_no_winner_inside_the_noise(prefixroute: Prefixroute, trace: Path) -> None:
    shown = prefixroute("compare", trace, "--replicas", 3, "--seeds", 2, "--policies", "random,least-loaded")
    assert "no winner: random, least-loaded are within the noise" in shown.out


def test_compare_shows_the_dollars_that_decide(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["compare", trace, "--replicas", 3, "--policies", "random,session", "--quiet"]
    metric = ("--metric", "usd_per_million_requests_busiest")
    shown = prefixroute(*options, *metric).out
    document = prefixroute(*options, *metric, "--json").json
    for row in document["rows"]:
        assert usd(row["usd_per_million_requests_busiest"]) in shown
    alone = prefixroute(*options, *metric, "--seeds", 1)
    assert "one run of each policy: how evenly it shares work out is partly luck" in " ".join(alone.out.split())


def test_compare_names_what_cannot_keep_up(prefixroute: Prefixroute) -> None:
    options = ["--timed", "--policies", "session,document", "--replicas", 4, "--seeds", 1, "--quiet"]
    shown = prefixroute("compare", "chat,requests=1000,arrivals=poisson:25", *options)
    assert "overloaded, so that TTFT grows for as long as requests come: document on 4 serves" in " ".join(
        shown.out.split()
    )


def test_compare_takes_parameters_and_says_where_there_is_nothing_to_compare(prefixroute: Prefixroute) -> None:
    fleet = ("--replicas", 4, "--seeds", 1, "--quiet")
    shown = prefixroute("compare", "chat,requests=300", "--policies", "session,bounded:key=session:factor=2", *fleet)
    assert shown.code == 0
    assert "bounded:key=session:factor=2" in shown.out
    alone = prefixroute("compare", "chat,requests=300", "--policies", "session,session", *fleet)
    assert "session stands alone: name a second policy" in alone.out


def test_advise_answers_in_text_json_and_on_a_page(prefixroute: Prefixroute, log: Path, tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="the extra `report` is not installed")
    page, picture = tmp_path / "advice.html", tmp_path / "advice.png"
    options = ["advise", log, "--replicas", 2, "--seeds", 1, "--current", "round-robin", "--sensitivity", "price"]
    shown = prefixroute(*options, "--report", page, "--png", picture)
    assert (shown.code, shown.err) == (0, f"report: {page}\npicture: {picture}\n")
    assert picture.read_bytes().startswith(b"\x89PNG")
    first, second, *_ = shown.out.splitlines()
    assert first.startswith("60 of 60 requests (100 %) report cached tokens: ")
    assert second.startswith("Advice for gateway.jsonl on 2 replicas: ")
    for part in ("Why", "Compared", "What would change this", "Assumed"):
        assert f"\n{part}" in shown.out
    document = prefixroute(*options, "--json").json
    advised = document["advice"]["policy"]
    assert f"2 replicas: {document['advice']['verdict']}." in shown.out
    assert ("no router" if advised == "none" else advised) in document["advice"]["verdict"]
    assert document["backtest"]["compared"] == 60  # the log reports cached tokens, so advice leads with the agreement
    text = page.read_text()
    assert text.count("<svg") >= 3
    assert "What would change this" in text
    expected = document["advice"]["expected"]["usd_per_million_requests_busiest"]
    assert f"${usd(expected)} of prefill per million requests" in shown.out
    behind = next(line for line in shown.out.splitlines() if line.startswith("ASSUMED behind these figures: "))
    assert f"<p>{behind}</p>" in text
    assert {"gpu", "kv_bytes", "usd_per_gpu_hour", "capacity_tokens", "chunk_tokens"} <= set(
        behind.rstrip(".").partition(": ")[2].split(", ")
    )
    given = ["--capacity", "300k", "--gpu", "H100", "--model", "Qwen3-8B", "--price", 4.29, "--tensor-parallel", 1]
    left = prefixroute(*options, *given).out
    behind = next(line for line in left.splitlines() if line.startswith("ASSUMED behind these figures: "))
    assert not {"gpu", "usd_per_gpu_hour", "capacity_tokens"} & set(behind.rstrip(".").partition(": ")[2].split(", "))
    assert f"on 2 replicas: {document['advice']['verdict']}</h1>" in text
    assert "<figcaption>Prefill cost, bought for the busiest replica</figcaption>" in text
    assert "time to first token, and how much more than" in shown.out
    assert "time to first token, and how much more than" in text
    assert "`" not in text[text.index("<body>") :]
    assert "<code>prefixroute size</code>" in text
    assert document["comparison"]["differences"][0].keys() >= {"ttft_p50_s", "ttft_p90_s", "ttft_p99_s"}
    assert all(finding["text"] for finding in document["findings"])
    assert all(step["question"] and step["answer"] for step in document["steps"])
    assert document["advice"]["deploy"]["python"] in shown.out
    assert document["advice"]["deploy"]["python"].partition("policy=")[0] in text


@pytest.mark.parametrize(("rate", "seed"), [(5.0, 1), (15.0, 2), (15.0, 3)])
def test_timed_and_untimed_agree_or_say_why(prefixroute: Prefixroute, tmp_path: Path, rate: float, seed: int) -> None:
    """Half of the traffic is one tenant's: balancing the last decisions is not balancing what runs."""
    shape = TenantsShape(shares=(9.0, *(1.0,) * 9), slots=80)
    log = tmp_path / "half.jsonl"
    convert(tenants(seed, requests=1_200, arrivals=Poisson(rate), shape=shape), log, bytes(16))
    options = ["advise", log, "--replicas", 4, "--seeds", 1, "--policies", "random", "-q", "--json"]
    timed = prefixroute(*options).json
    untimed = prefixroute(*options, "--untimed").json
    hottest = next(one["evidence"] for one in timed["findings"] if one["kind"] == "hottest")
    assert hottest["requests"] == pytest.approx(0.5, abs=0.05)
    assert timed["advice"]["deploy"]["load"] == "requests"
    assert untimed["advice"]["deploy"]["load"] == "recent"
    told = {one["evidence"]["timed"]: one for one in untimed["findings"] if one["kind"] == "clock"}
    advised = timed["advice"]["policy"]
    assert told.keys() == ({advised} - {untimed["advice"]["policy"]})
    for finding in told.values():
        rows = {row["policy"]: row for row in timed["comparison"]["rows"]}
        assert finding["evidence"]["skew_instead"] == rows[advised]["skew"]
        assert f"Timed runs advise {advised} instead of {untimed['advice']['policy']}" in finding["text"]


def test_behind_an_api_nothing_is_routed(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["advise", trace, "--lifetimes", "100ms,1h", "--seeds", 1, "-q"]
    found = prefixroute(*options, "--json").json["advice"]
    assert (found["policy"], found["deploy"], found["fleet"]) == ("none", None, None)
    short, long = found["lifetimes"]
    assert (short["seconds"], long["seconds"]) == (0.1, 3_600.0)
    assert short["recompute_ratio"] > long["recompute_ratio"]
    assert "behind an API" in prefixroute(*options).out.splitlines()[0]


def test_a_time_budget_leaves_out_seeds_and_says_so(prefixroute: Prefixroute, trace: Path) -> None:
    for command in ("simulate", "compare", "advise"):
        options = [command, trace, "--replicas", 2, "--seeds", 3, "--policies", "session,random", "-q", "--json"]
        found = prefixroute(*options, "--time-budget", "1ms").json
        rows = found["comparison"]["rows"] if command == "advise" else found["rows"]
        assert {row["seeds"] for row in rows} == {1}
        assert any("left out, because the time budget was used up" in note for note in found["notes"])
    sized = prefixroute("size", trace, "--policies session,random -q --json --time-budget 1ms").json
    assert [fleet["policy"] for fleet in sized["fleets"]] == ["session"]
    assert sized["notes"][-1] == "left out, because the time budget was used up: random"


def test_one_fleet_is_compared(prefixroute: Prefixroute) -> None:
    alone = prefixroute("compare", "chat,requests=50", "--replicas", 1, "--policies", "random", "--seeds", 1, "--quiet")
    assert "chat,requests=50 on 1 replica:" in alone.out


FIXED = "cache-aware:adaptive=false:spill=never"


def test_a_policy_that_leaves_replicas_idle_is_not_called_lowest_without_that(prefixroute: Prefixroute) -> None:
    """The head that all share is longer than the minimum match: every request follows the first one."""
    options = [
        "compare chat,requests=400,arrivals=poisson:0.5 --replicas 4 --seeds 1 --timed -q",
        f"--policies round-robin,{FIXED}",
    ]
    document = prefixroute(*options, "--json").json
    assert [(one["policy"], one["idle"], one["replicas"]) for one in document["idle"]] == [(FIXED, 3, 4)]
    shown = prefixroute(*options).out
    assert "lowest, but 3 of 4 replicas nearly idle" in shown
    assert f"{FIXED} is best, but 3 of 4 replicas nearly idle" in shown
    assert f"Note: {FIXED} leaves 3 of 4 replicas nearly idle: its minimum match of 1,024 tokens is within" in shown


def test_backtest_compares_with_what_the_log_reports(prefixroute: Prefixroute, log: Path) -> None:
    options = ["backtest", log, "--replicas", 2, "--current", "round-robin", "--policies", "round-robin,session"]
    document = prefixroute(*options, "--json").json
    assert (document["requests"], document["compared"]) == (60, 60)
    assert 0 < document["reported"] < 1
    assert {candidate["policy"] for candidate in document["search"]} == {"round-robin", "session"}
    shown = prefixroute(*options)
    assert "60 of 60 requests (100 %) report cached tokens" in shown.out
    assert "simulated hits" in shown.out
    assert "Note: --current" not in shown.out


def test_a_backtest_without_time_leaves_out_its_search(prefixroute: Prefixroute, log: Path) -> None:
    options = ("backtest", log, "--policies", "session,random", "--json", "--quiet", "--time-budget", "1ms")
    found = prefixroute(*options).json
    assert (found["compared"], found["search"], found["nearest"]) == (60, [], None)
    assert found["notes"][-1] == "left out, because the time budget was used up: the search over session, random"


def test_a_backtest_that_disagrees_says_what_to_try(prefixroute: Prefixroute, log: Path) -> None:
    shown = prefixroute("backtest", log, "--replicas", 8, "--current", "session")
    assert "disagrees with the log" in shown.out
    assert "Note: --current, --replicas and --capacity say what the log comes from" in shown.out


def test_backtest_assumes_what_advise_assumes(prefixroute: Prefixroute, log: Path) -> None:
    tested = prefixroute("backtest", log, "--json").json
    advised = prefixroute("advise", log, "--seeds", 1, "--policies", "random", "--json").json
    assert tested["policy"] == advised["backtest"]["policy"] == advised["assumptions"]["current_policy"]["value"]
    assert tested["assumptions"]["policy"]["assumed"]
    for given, assumed in (((), True), (("--replicas", 2), False)):
        assert ("The number of replicas, 8, is ASSUMED" in prefixroute("backtest", log, *given, "-q").out) == assumed


def test_size_finds_fleets(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["size", trace, "--slo", "ttft_p95=60s", "--policies", "round-robin,session"]
    document = prefixroute(*options, "--json").json
    assert [fleet["policy"] for fleet in document["fleets"]] == ["round-robin", "session"]
    assert all(fleet["replicas"] >= 1 and fleet["usd_per_month"] > 0 for fleet in document["fleets"])
    shown = prefixroute(*options)
    assert "the smallest fleet with ttft_p95=60s" in shown.out
    impossible = prefixroute("size", trace, "--slo", "ttft_p95=1ms", "--policies", "session", "--most", 2)
    assert "more than 2" in impossible.out
    assert "Beside more than 2 stands the time with 2" in impossible.out


def test_simulate_in_time_has_queues_and_no_note_on_order(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["simulate", trace, "--replicas", 2, "--seeds", 1, "--policies", "session", "--timed"]
    row = prefixroute(*options, "--json").json["rows"][0]
    assert row["queue_mean_s"] >= 0
    assert "without a clock" not in prefixroute(*options).out


@pytest.mark.parametrize("width", [100, 120, 200])
def test_a_narrow_terminal_loses_times_and_no_figures(width: int, trace: Path) -> None:
    found = compare(read_trace(trace), ["round-robin", "session"], seeds=1)
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show_sheet(comparison_sheet(found), out)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert ("too narrow for p90 difference" in text) == (width < 200)
    assert "p99" in text


def test_output_that_is_no_terminal_keeps_every_column(monkeypatch: pytest.MonkeyPatch, trace: Path) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", written := io.StringIO())
    found = compare(read_trace(trace), ["round-robin", "session"], seeds=1)
    show_sheet(comparison_sheet(found), console.stdout())
    assert "too narrow" not in written.getvalue()
    for column in ("p50", "p90", "p99"):
        assert written.getvalue().count(f"{column},") == 1, column


def test_a_comparison_names_what_decides_and_has_one_unit_of_time(trace: Path) -> None:
    found = compare(read_trace(trace), ["round-robin", "session"], seeds=1)
    assert "verdict by recomputed %" in [head.title for head in compared(found, "").heads]
    units = {head.title.rpartition(", ")[2] for head in times(found).heads if ", " in head.title}
    assert len(units) == 1


def test_compare_tries_the_presets_of_advise() -> None:
    assert set(OTHERS) <= set(EVERY_MECHANISM.split(","))
