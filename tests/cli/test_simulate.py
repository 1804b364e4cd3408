from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefixroute.report.study import sweep_sheet
from prefixroute.sim import sweep
from prefixroute.workload import read_trace

pytest.importorskip("typer", reason="the extra `cli` is not installed")

from rich.console import Console

from prefixroute.cli.simulate import ENTRIES_NOTE
from prefixroute.cli.table import show_sheet

Prefixroute = Callable[..., Any]


def test_json_answers_on_a_trace(prefixroute: Prefixroute, trace: Path) -> None:
    code, out, err = prefixroute("simulate", trace, "--replicas", "2,3", "--seeds", 2, "--json")
    assert (code, err) == (0, "")  # not a terminal: no progress
    document = json.loads(out)
    assert (document["schema"], document["workload"]) == (1, trace.name)
    assert [(row["replicas"], row["policy"]) for row in document["rows"]] == [
        (n, policy) for n in (2, 3) for policy in ("round-robin", "session", "cache-aware")
    ]
    for row in document["rows"]:
        assert (row["requests"], row["seeds"]) == (180, 2)
        assert row["recompute_ratio"] == pytest.approx(row["recomputed_tokens"] / row["prompt_tokens"], rel=1e-6)
        assert row["floor"] <= row["recompute_ratio"] <= 1
    assert document["assumptions"]["usd_per_gpu_hour"]["assumed"] is True


def test_what_the_user_gives_is_not_assumed(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["--replicas", 2, "--seeds", 1, "--json", "--gpu", "H100", "--price", 2.5, "--capacity", "40k"]
    assumptions = prefixroute("simulate", trace, *options).json["assumptions"]
    for name, value in (("gpu", "H100"), ("usd_per_gpu_hour", 2.5), ("capacity_tokens", 40_000)):
        assert (assumptions[name]["value"], assumptions[name]["assumed"]) == (value, False)
    assert assumptions["model"]["assumed"] is True


@pytest.mark.parametrize("command", ["simulate", "compare", "advise", "backtest", "size"])
def test_given_is_given_though_it_equals_the_default(prefixroute: Prefixroute, log: Path, command: str) -> None:
    own = {
        "simulate": ["--replicas", 8, "--cache", "blocks", "--observe", "history", "--price", 4.29],
        "compare": ["--replicas", 8, "--observe", "history", "--price", 4.29],
        "advise": ["--replicas", 8, "--observe", "history", "--price", 4.29],
        "backtest": ["--replicas", 8, "--current", "cache-aware", "--observe", "history", "--timed"],
        "size": ["--slo", "ttft_p95=9s", "--policies", "session", "--price", 4.29],
    }[command]
    hardware = ["--capacity", "300k", "--gpu", "H100", "--model", "Qwen3-8B", "--tensor-parallel", 1]
    known = ("capacity_tokens", "gpu", "model", "tensor_parallel")
    priced = () if command == "backtest" else ("usd_per_gpu_hour",)
    fleet = {"simulate": ("cache",), "size": (), "backtest": ("replicas", "policy")}.get(command, ("replicas",))
    seen = () if command == "size" else ("observe",)
    given = prefixroute(command, log, *own, *hardware, "--json").json["assumptions"]
    assert {name: given[name]["assumed"] for name in (*known, *priced, *fleet, *seen)} == dict.fromkeys(
        (*known, *priced, *fleet, *seen), False
    )
    bare = [command, log, *(own[:4] if command == "size" else ["--timed"] if command == "backtest" else []), "--json"]
    taken = prefixroute(*bare).json["assumptions"]
    assert all(taken[name]["assumed"] for name in (*known, *priced, *fleet, *seen))


def test_a_capacity_worked_out_from_memory_is_assumed_and_says_so(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["simulate", trace, "--replicas", 2, "--seeds", 1, "--gpu", "H200", "--model", "Qwen3-8B"]
    capacity = prefixroute(*options, "--json").json["assumptions"]["capacity_tokens"]
    assert capacity["assumed"] is True
    assert capacity["value"] == int((0.9 * 141e9 - 16.4e9) / 147_456)  # memory less weights, by bytes of a token
    assert "memory_share = 0.9" in prefixroute(*options).out
    assert "memory_share" not in prefixroute(*options, "--capacity", "40k").out


def test_same_seed_same_bytes_whatever_the_number_of_processes(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["simulate", trace, "--replicas", 3, "--seeds", 2, "--json"]
    first = prefixroute(*options).out
    assert first == prefixroute(*options).out
    assert first == prefixroute(*options, "--jobs", 2).out
    assert first != prefixroute(*options, "--seed", 7).out


def test_the_table_has_floor_and_marks(prefixroute: Prefixroute, trace: Path) -> None:
    options = ("simulate", trace, "--replicas", 2, "--seeds", 1)
    shown, rows = prefixroute(*options), prefixroute(*options, "--json").json["rows"]
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines("floor", f"{100 * rows[0]['floor']:.2f} %")
    for row in rows:
        assert shown.lines(f" {row['policy']} ", f" {100 * row['recompute_ratio']:.2f} ")
    assert max(len(line) for line in shown.out.splitlines() if "ASSUMED " not in line) <= 200
    assert len(shown.lines("ASSUMED", "usd_per_gpu_hour = 4.29 $/h; capacity_tokens")) == 1  # one whole line


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_a_narrow_terminal_loses_columns_and_no_figures(width: int, trace: Path) -> None:
    found = sweep(read_trace(trace), policies=("round-robin", "session"), replicas=(1, 8), seeds=1)
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show_sheet(sweep_sheet(found), out)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert ("narrow" in text) == (width < 160)
    for row in found.rows:
        for figure in (row.policy, f"{100 * row.recompute_ratio:.2f}", f"{row.usd_per_million_requests:.2f}"):
            assert figure in text or width == 40  # where letters of a word stand in two lines


def test_the_articles_cache_says_that_it_overstates(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["--replicas", 1, "--seeds", 1, "--policies", "round-robin", "--cache"]
    entries, blocks = (
        prefixroute("simulate", *each) for each in (("chat", *options, "entries"), (trace, *options, "blocks"))
    )
    assert (bool(entries.lines(ENTRIES_NOTE)), bool(blocks.lines(ENTRIES_NOTE))) == (True, False)
    floors = [said.lines("floor")[0].partition(":")[2] for said in (entries, blocks)]
    assert floors[0] != floors[1]  # of whole prompts, and of full blocks


def test_a_bad_trace_names_file_and_line(prefixroute: Prefixroute, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}\n{"timestamp": 5}\n')
    code, out, err = prefixroute("simulate", path)
    assert (code, out) == (2, "")
    assert f"{path}:2" in err
    assert err.count("\n") == 1


def test_the_mooncake_trace_answers(prefixroute: Prefixroute, traces_dir: Path) -> None:
    path = traces_dir / "mooncake_conversation.jsonl.gz"
    code, out, _ = prefixroute(
        "simulate", path, "--replicas", 8, "--seeds", 1, "--policies", "session,cache-aware", "--json"
    )
    assert code == 0
    rows = {row["policy"]: row for row in json.loads(out)["rows"]}
    assert rows["cache-aware"]["requests"] == 12_031
    assert rows["cache-aware"]["floor"] == pytest.approx(0.6266, abs=5e-5)
    assert rows["cache-aware"]["skew"] < 1.3


def test_the_load_signal_is_an_option_of_everything_that_simulates(prefixroute: Prefixroute) -> None:
    chat = ("chat,requests=60,arrivals=poisson:10", "--replicas", 2, "--seeds", 1, "--json", "--quiet")

    def load(*arguments: object) -> tuple[object, object]:
        said = prefixroute(*arguments).json["assumptions"]["load"]
        return said["value"], said["assumed"]

    assert load("simulate", *chat, "--policies", "session", "--timed") == ("requests", True)
    for command in ("simulate", "compare"):
        assert load(command, *chat, "--policies", "session", "--timed", "--load", "in_flight") == ("in_flight", False)
    advised = prefixroute("advise", *chat, "--load", "tokens", "--current", "cache-aware").json
    assert advised["assumptions"]["load"]["value"] == "tokens"
    assert 'load="tokens"' in json.dumps(advised).replace("\\", "")


def test_token_counts_of_the_engine_are_read_as_those_of_the_cache(prefixroute: Prefixroute) -> None:
    chat = ("simulate", "chat,requests=40", "--replicas", 1, "--seeds", 1, "--timed", "--policies", "session", "--json")
    assert prefixroute(*chat, "--chunk-tokens", "2k") == prefixroute(*chat, "--chunk-tokens", 2_000)


@pytest.mark.parametrize(
    "said",
    [
        (
            "simulate chat,requests=120 --replicas 3 --tier CPU:200k:50 --change 40:die:replica-0 --change "
            "60:add:replica-9 --routers 3 --sticky-front --warmup 5 --observe events:0.1 --infinite"
        ),
        (
            "compare few-shot,requests=120,arrivals=poisson:20 --replicas 3 --timed --tier CPU:100k:50 --change "
            "1:drain:replica-0 "
            "--routers 3 --peer-delay 100ms --warmup 30 --goodput ttft=200ms --load in_flight --time-budget 1h"
        ),
        (
            "simulate agents,requests=120,arrivals=poisson:20 --timed --prefill-replicas 1,2 --decode-replicas 1,2 "
            "--routers 3"
        ),
    ],
    ids=["untimed", "timed", "apart"],
)
def test_processes_change_no_byte_whatever_is_simulated(prefixroute: Prefixroute, said: str) -> None:
    options = f"{said} --policies random,cache-aware --capacity 50k --seeds 2 --json --quiet"
    here = prefixroute(options)
    assert (here.code, here.err) == (0, "")
    assert here == prefixroute(options, "--jobs 2")
