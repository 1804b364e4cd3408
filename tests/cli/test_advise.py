from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich", reason="the extra `cli` is not installed")

from rich.console import Console

from prefixroute.advise import compare
from prefixroute.advise.compare import ONE_RUN
from prefixroute.advise.question import OTHERS
from prefixroute.cli import console
from prefixroute.cli.compare import EVERY_MECHANISM
from prefixroute.cli.table import show_sheet
from prefixroute.report.answer import TOLD_IN_THE_OPENING
from prefixroute.report.backtests import SEARCH
from prefixroute.report.compared import compared, times
from prefixroute.report.comparison import UNTIMED_NOTE, comparison_sheet
from prefixroute.report.figures import percent, usd
from prefixroute.report.verdicts import DECIDES, QUEUES
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
    assert (document["winner"], document["leaders"]) == ("session", ["session"])
    shown = prefixroute(*options)
    assert (shown.code, shown.err) == (0, "")
    *_, verdict, following = shown.out.splitlines()
    assert "session" in verdict
    assert "round-robin" not in verdict
    assert f"prefixroute advise {trace.name} --replicas 4" in following
    assert shown.out.splitlines()[0].startswith("  ASSUMED ")
    known = ["--capacity", "200k", "--gpu", "H100", "--model", "Qwen3-8B", "--price", 4, "--tensor-parallel", 1]
    fewer = prefixroute(*options, *known).out  # utilization and overhead stay assumed
    assert 0 < fewer.count("ASSUMED") < shown.out.count("ASSUMED")
    assert shown.lines("floor", f"{100 * document['rows'][0]['floor']:.2f} %")


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
    options = ["compare", trace, "--replicas", 3, "--seeds", 2, "--policies", "random,least-loaded"]
    found = prefixroute(*options, "--json").json
    assert (found["winner"], found["leaders"]) == (None, ["random", "least-loaded"])
    assert all(name in prefixroute(*options).out.splitlines()[-2] for name in found["leaders"])


def test_compare_shows_the_dollars_that_decide(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["compare", trace, "--replicas", 3, "--policies", "random,session", "--quiet"]
    metric = ("--metric", "usd_per_million_requests_busiest")
    shown = prefixroute(*options, *metric).out
    document = prefixroute(*options, *metric, "--json").json
    for row in document["rows"]:
        assert usd(row["usd_per_million_requests_busiest"]) in shown
    assert ONE_RUN not in document["notes"]
    alone = (*options, *metric, "--seeds", 1)
    assert ONE_RUN in prefixroute(*alone, "--json").json["notes"]
    assert prefixroute(*alone).lines(ONE_RUN)


def test_compare_names_what_cannot_keep_up(prefixroute: Prefixroute) -> None:
    options = [
        "chat,requests=1000,arrivals=poisson:25",
        "--timed --policies session,document --replicas 4 --seeds 1 -q",
    ]
    found = prefixroute("compare", *options, "--json").json
    assert found["behind"] == {"session": 0, "document": 1}
    row = found["rows"][1]
    served, sent = f"{row['requests_per_s']:.3g}", f"{row['arrivals_per_s']:.3g}"
    [note] = [note for note in found["notes"] if "overloaded" in note]
    assert "session" not in note
    assert prefixroute("compare", *options).lines(note, "document on 4", served, sent)


def test_compare_takes_parameters_and_says_where_there_is_nothing_to_compare(prefixroute: Prefixroute) -> None:
    fleet = ("--replicas", 4, "--seeds", 1, "--quiet")
    shown = prefixroute("compare", "chat,requests=300", "--policies", "session,bounded:key=session:factor=2", *fleet)
    assert shown.code == 0
    assert "bounded:key=session:factor=2" in shown.out
    alone = ("compare", "chat,requests=300", "--policies", "session,session", *fleet)
    found = prefixroute(*alone, "--json").json
    assert (found["winner"], found["leaders"], len(found["rows"])) == (None, ["session"], 1)
    assert prefixroute(*alone).out.splitlines()[-2].startswith("  session ")


def test_advise_answers_in_text_json_and_on_a_page(prefixroute: Prefixroute, log: Path, tmp_path: Path) -> None:
    charted = pytest.importorskip("prefixroute.report.charts", reason="the extra `report` is not installed").CHARTED
    page, picture = tmp_path / "advice.html", tmp_path / "advice.png"
    options = ["advise", log, "--replicas", 2, "--seeds", 1, "--current", "round-robin", "--sensitivity", "price"]
    shown = prefixroute(*options, "--report", page, "--png", picture)
    assert (shown.code, shown.err) == (0, f"report: {page}\npicture: {picture}\n")
    assert picture.read_bytes().startswith(b"\x89PNG")
    document, text = prefixroute(*options, "--json").json, page.read_text()
    tested, advised = document["backtest"], document["advice"]["policy"]
    assert tested["compared"] == 60  # the log reports cached tokens, so advice leads with the agreement
    first, second, *_ = shown.out.splitlines()
    assert all(part in first for part in ("60 of 60", percent(tested["reported"]), percent(tested["simulated"])))
    assert all(part in second for part in ("gateway.jsonl", f"2 replicas: {document['advice']['verdict']}."))
    assert ("no router" if advised == "none" else advised) in document["advice"]["verdict"]
    assert text.count("<svg") >= 3
    expected = document["advice"]["expected"]["usd_per_million_requests_busiest"]
    assert [line for line in document["advice"]["said"] if f"${usd(expected)}" in line]
    behind, assumed = resting(document)
    assert {"gpu", "kv_bytes", "usd_per_gpu_hour", "capacity_tokens", "chunk_tokens"} <= behind <= assumed
    given = ["--capacity", "300k", "--gpu", "H100", "--model", "Qwen3-8B", "--price", 4.29, "--tensor-parallel", 1]
    behind, assumed = resting(prefixroute(*options, *given, "--json").json)
    assert not {"gpu", "usd_per_gpu_hour", "capacity_tokens"} & behind
    assert behind <= assumed
    assert f"on 2 replicas: {document['advice']['verdict']}</h1>" in text
    assert f"<figcaption>{charted['usd_per_million_requests_busiest']}</figcaption>" in text
    for flip in document["sensitivity"]:
        figures = (flip["setting"], flip["policy"], usd(flip["usd_per_million_requests_busiest"]))
        assert shown.lines(*figures)
        assert re.search("<li>.*" + ".*".join(map(re.escape, figures)), text)
    for column in ("p50 difference", "p90 difference", "p99 difference"):
        assert column in shown.out
        assert column in text
    assert "`" not in text[text.index("<body>") :]
    assert "<code>prefixroute size</code>" in text
    assert document["comparison"]["differences"][0].keys() >= {"ttft_p50_s", "ttft_p90_s", "ttft_p99_s"}
    told = [step[part] for step in document["steps"] for part in ("question", "answer")]
    told += [
        *document["advice"]["said"],
        *(one["text"] for one in document["findings"] if one["kind"] not in TOLD_IN_THE_OPENING),
    ]
    assert all(text and text in shown.out for text in told)
    assert document["advice"]["deploy"]["python"] in shown.out
    assert document["advice"]["deploy"]["python"].partition("policy=")[0] in text


def resting(document: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Return the assumptions that the advice names behind its figures, and all that nobody gave."""
    figures = document["assumptions"]
    named = set(re.findall(r"\w+", document["advice"]["said"][-1])) & figures.keys()
    return named, {name for name, one in figures.items() if one["assumed"]}


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
        assert (finding["evidence"]["timed"], finding["evidence"]["policy"]) == (advised, untimed["advice"]["policy"])
        assert all(name in finding["text"] for name in (advised, untimed["advice"]["policy"]))


def test_behind_an_api_nothing_is_routed(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["advise", trace, "--lifetimes", "100ms,1h", "--seeds", 1, "-q"]
    found = prefixroute(*options, "--json").json["advice"]
    assert (found["policy"], found["deploy"], found["fleet"]) == ("none", None, None)
    short, long = found["lifetimes"]
    assert (short["seconds"], long["seconds"]) == (0.1, 3_600.0)
    assert short["recompute_ratio"] > long["recompute_ratio"]
    assert found["verdict"] in prefixroute(*options).out.splitlines()[0]
    assert all(percent(one["recompute_ratio"]) in found["said"][0] for one in found["lifetimes"])


def test_a_time_budget_leaves_out_seeds_and_says_so(prefixroute: Prefixroute, trace: Path) -> None:
    for command in ("simulate", "compare", "advise"):
        options = [command, trace, "--replicas", 2, "--seeds", 3, "--policies", "session,random", "-q", "--json"]
        found = prefixroute(*options, "--time-budget", "1ms").json
        rows = found["comparison"]["rows"] if command == "advise" else found["rows"]
        assert {row["seeds"] for row in rows} == {1}
        assert [note for note in found["notes"] if "2 of 3" in note]
    sized = prefixroute("size", trace, "--policies session,random -q --json --time-budget 1ms").json
    assert [fleet["policy"] for fleet in sized["fleets"]] == ["session"]
    assert sized["notes"][-1].endswith(": random")


def test_one_fleet_is_compared(prefixroute: Prefixroute) -> None:
    alone = prefixroute("compare", "chat,requests=50", "--replicas", 1, "--policies", "random", "--seeds", 1, "--quiet")
    assert alone.lines("chat,requests=50", " 1 replica:")


FIXED = "cache-aware:adaptive=false:spill=never"


def test_a_policy_that_leaves_replicas_idle_is_not_called_lowest_without_that(prefixroute: Prefixroute) -> None:
    """The head that all share is longer than the minimum match: every request follows the first one."""
    options = [
        "compare chat,requests=400,arrivals=poisson:0.5 --replicas 4 --seeds 1 --timed -q",
        f"--policies round-robin,{FIXED}",
    ]
    document = prefixroute(*options, "--json").json
    assert [(one["policy"], one["idle"], one["replicas"]) for one in document["idle"]] == [(FIXED, 3, 4)]
    assert document["idle"][0]["why"] == {"kind": "minimum-match", "tokens": 1_024, "head_tokens": 2_000}
    assert document["winner"] == FIXED
    shown = prefixroute(*options)
    row, note, verdict = shown.lines(FIXED, "3 of 4")
    assert row.strip().startswith(FIXED)
    assert shown.lines(note, "1,024", "2,000") == [note]
    assert shown.out.splitlines()[-2] == verdict


def test_backtest_compares_with_what_the_log_reports(prefixroute: Prefixroute, log: Path) -> None:
    options = ["backtest", log, "--replicas", 2, "--current", "round-robin", "--policies", "round-robin,session"]
    document = prefixroute(*options, "--json").json
    assert (document["requests"], document["compared"]) == (60, 60)
    assert 0 < document["reported"] < 1
    assert {candidate["policy"] for candidate in document["search"]} == {"round-robin", "session"}
    shown = prefixroute(*options)
    assert shown.lines("60 of 60", percent(document["reported"]), percent(document["simulated"]))
    for band in document["bands"]:
        cells = f"{band['longest']:,}", band["requests"], f"{100 * band['simulated']:.1f}"
        assert shown.lines(*cells)
    assert not shown.lines(SEARCH)


def test_a_backtest_without_time_leaves_out_its_search(prefixroute: Prefixroute, log: Path) -> None:
    options = ("backtest", log, "--policies", "session,random", "--json", "--quiet", "--time-budget", "1ms")
    found = prefixroute(*options).json
    assert (found["compared"], found["search"], found["nearest"]) == (60, [], None)
    assert found["notes"][-1].endswith(" session, random")


def test_a_backtest_that_disagrees_says_what_to_try(prefixroute: Prefixroute, log: Path) -> None:
    options = ("backtest", log, "--replicas", 8, "--current", "session")
    assert prefixroute(*options, "--json").json["verdict"] == "disagrees"
    assert prefixroute(*options).lines(SEARCH)
    assert all(option in SEARCH for option in ("--current", "--replicas", "--capacity", "--policies"))
    assert not prefixroute(*options, "--policies", "session").lines(SEARCH)


def test_backtest_assumes_what_advise_assumes(prefixroute: Prefixroute, log: Path) -> None:
    tested = prefixroute("backtest", log, "--json").json
    advised = prefixroute("advise", log, "--seeds", 1, "--policies", "random", "--json").json
    assert tested["policy"] == advised["backtest"]["policy"] == advised["assumptions"]["current_policy"]["value"]
    assert tested["assumptions"]["policy"]["assumed"]
    for given, assumed in (((), True), (("--replicas", 2), False)):
        told = prefixroute("backtest", log, *given, "-q")
        assert bool(told.lines("`--replicas N`")) == assumed
        assert bool(told.lines(" 8, ", "ASSUMED")) == assumed


def test_size_finds_fleets(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["size", trace, "--slo", "ttft_p95=60s", "--policies", "round-robin,session"]
    document = prefixroute(*options, "--json").json
    assert [fleet["policy"] for fleet in document["fleets"]] == ["round-robin", "session"]
    assert all(fleet["replicas"] >= 1 and fleet["usd_per_month"] > 0 for fleet in document["fleets"])
    smallest = min(document["fleets"], key=lambda fleet: fleet["replicas"])
    assert document["smallest"] == [smallest["policy"]]
    ending = prefixroute(*options).out.splitlines()[-2]
    assert all(part in ending for part in (f"{smallest['replicas']} replicas", smallest["policy"], "ttft_p95=60s"))
    impossible = ("size", trace, "--slo", "ttft_p95=1ms", "--policies", "session", "--most", 2)
    found = prefixroute(*impossible, "--json").json
    assert (found["fleets"][0]["replicas"], found["smallest"]) == (None, [])
    assert "session" not in prefixroute(*impossible).out.splitlines()[-2]


def test_simulate_in_time_has_queues_and_no_note_on_order(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["simulate", trace, "--replicas", 2, "--seeds", 1, "--policies", "session", "--timed"]
    found = prefixroute(*options, "--json").json
    assert found["rows"][0]["queue_mean_s"] >= 0
    assert UNTIMED_NOTE not in prefixroute(*options).out


@pytest.mark.parametrize("width", [100, 120, 200])
def test_a_narrow_terminal_loses_times_and_no_figures(width: int, trace: Path) -> None:
    found = compare(read_trace(trace), ["round-robin", "session"], seeds=1)
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show_sheet(sheet := comparison_sheet(found), out)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    heads = [head.title for table in sheet.tables for head in table.heads]
    told = [line for line in text.replace("\n", " ").split(".") if "narrow" in line]
    assert ("p90 difference" in heads, bool(told)) == (True, width < 200)
    assert all(any(f" {title}" in line for title in heads) for line in told)
    assert "p99" in text


def test_output_that_is_no_terminal_keeps_every_column(monkeypatch: pytest.MonkeyPatch, trace: Path) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", written := io.StringIO())
    found = compare(read_trace(trace), ["round-robin", "session"], seeds=1)
    show_sheet(comparison_sheet(found), console.stdout())
    assert "narrow" not in written.getvalue()
    for column in ("p50", "p90", "p99"):
        assert written.getvalue().count(f"{column},") == 1, column


def test_a_comparison_names_what_decides_and_has_one_unit_of_time(trace: Path) -> None:
    found = compare(read_trace(trace), ["round-robin", "session"], seeds=1)
    titles = [head.title for head in compared(found, "").heads]
    assert DECIDES[found.metric] in titles
    assert titles[-1].endswith(f" {DECIDES[found.metric]}")
    units = {head.title.rpartition(", ")[2] for head in times(found).heads if ", " in head.title}
    assert len(units) == 1


def test_compare_tries_the_presets_of_advise() -> None:
    assert set(OTHERS) <= set(EVERY_MECHANISM.split(","))


def test_a_month_that_repeats_a_short_log_is_warned_of(prefixroute: Prefixroute, log: Path) -> None:
    """59 gaps of 7 s are no day; the same log at a 300th of its speed covers one and a half."""
    advise = ("--replicas", "2", "--policies", "session", "--seeds", "1", "-q", "--json")
    short = prefixroute("advise", log, *advise).json
    (told,) = [one for one in short["findings"] if one["kind"] == "short-span"]
    assert told["severity"] == "warning"
    assert told["evidence"] == {"span_s": 413.0, "enough_s": 86_400.0, "times_a_month": round(730 * 3_600 / 413)}
    for workload in (f"{log},speed=0.003", "chat,requests=50,arrivals=poisson:10"):
        long = prefixroute("advise", workload, *advise).json
        assert "short-span" not in [one["kind"] for one in long["findings"]]
    assert prefixroute("lint", log, "--fail-on", "never", "--json").json["span_s"] == 413.0
    assert prefixroute("plan", "anthropic", "--trace", log, "--json").json["trace"]["span_s"] == 413.0
