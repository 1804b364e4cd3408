from __future__ import annotations

import gzip
import json
import os
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from prefixroute.costmodel import CostModel
from prefixroute.report.backtests import ZEROS
from prefixroute.report.workloads import NEVER_HIT

Prefixroute = Callable[..., Any]


def test_trace_prints_facts_reuse_and_floor(prefixroute: Prefixroute, trace: Path) -> None:
    shown, found = prefixroute("trace", trace), prefixroute("trace", trace, "--json").json
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines("requests", " 180")
    assert shown.lines("floor", f" {100 * found['floor']:.2f} %")
    for seconds, ratio in found["hit_ratio_if_kept_s"].items():
        assert shown.lines(f" {int(seconds):,} s ", f" {100 * ratio:.2f} %")


def test_trace_json_has_the_same_floor_as_simulate(prefixroute: Prefixroute, trace: Path) -> None:
    described = prefixroute("trace", trace, "--json").json
    simulated = prefixroute("simulate", trace, "--replicas", 1, "--seeds", 1, "--json").json
    assert described["requests"] == 180
    assert described["floor"] == pytest.approx(simulated["rows"][0]["floor"], abs=0.01)


def test_json_has_finite_figures_only_whatever_the_times(prefixroute: Prefixroute, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    times = [-(2.0**63), 0, 5, 2.0**63]
    log.write_text("\n".join(json.dumps({"timestamp": time, "token_ids": [1] * 40}) for time in times))
    assert prefixroute("trace", f"{log},speed=1e-9", "--json").json
    log.write_text(json.dumps({"timestamp": 10**400, "token_ids": [1] * 40}))
    refused = prefixroute("trace", log, "--json")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.count("\n") == 1


def test_a_converted_trace_gives_the_same_rows(prefixroute: Prefixroute, trace: Path, tmp_path: Path) -> None:
    private = tmp_path / "private.jsonl.gz"
    written = prefixroute("convert", trace, "-o", private)
    assert (written.code, written.err) == (0, "")
    assert "180 requests" in written.out
    rows = [
        prefixroute("simulate", path, "--replicas", 1, "--seeds", 1, "--policies", "session", "--json").json
        for path in (trace, private)
    ]
    assert rows[0]["rows"] == rows[1]["rows"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_a_conversion_that_is_told_to_end_leaves_no_file(
    prefixroute: Prefixroute, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: signal.Signals
) -> None:
    def ended(*_: object) -> list[object]:
        assert len(list(tmp_path.iterdir())) == 1
        os.kill(os.getpid(), end)
        return []

    before = signal.signal(end, signal.SIG_DFL)  # whoever runs the tests may have it ignored, as nohup does
    try:
        monkeypatch.setattr("prefixroute.workload.conversion.PrefixTree.touch", ended)
        assert prefixroute("convert", trace, "-o", tmp_path / "x.jsonl").code == 128 + end
        assert list(tmp_path.iterdir()) == []
        assert signal.getsignal(end) == signal.SIG_DFL
    finally:
        signal.signal(end, before)


def test_a_hangup_that_is_ignored_stays_ignored(
    prefixroute: Prefixroute, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hung_up(*_: object) -> list[object]:
        os.kill(os.getpid(), signal.SIGHUP)
        return []

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr("prefixroute.workload.conversion.PrefixTree.touch", hung_up)
        assert prefixroute("convert", trace, "-o", tmp_path / "x.jsonl").code == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_trace_that_is_written_to_a_pipe_is_whole(prefixroute: Prefixroute, trace: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        written = prefixroute("convert", trace, "-o", pipe)
        lines = read.result(timeout=20).splitlines()
    assert (written.code, written.out) == (0, "")
    assert "180 requests" in written.err
    assert len([json.loads(line) for line in lines]) == 181


def test_one_key_writes_one_file_and_none_writes_another(prefixroute: Prefixroute, trace: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("00112233445566778899aabbccddeeff\n")
    paths = [tmp_path / f"{number}.jsonl" for number in range(4)]
    for path in paths[:2]:
        assert prefixroute("convert", trace, "-o", path, "--key", key).code == 0
    for path in paths[2:]:
        assert prefixroute("convert", trace, "-o", path).code == 0
    texts = [path.read_bytes() for path in paths]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_several_files_are_one_trace_or_go_to_a_folder(prefixroute: Prefixroute, trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_bytes(trace.read_bytes())
    folder = tmp_path / "private"
    folder.mkdir()
    assert prefixroute("convert", trace, other, "-o", folder).code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["day.private.jsonl.gz", "other.private.jsonl.gz"]
    # In one file they follow one another in time, which these two do not.
    backwards = prefixroute("convert", trace, other, "-o", tmp_path / "x.jsonl")
    assert backwards.code == 2
    assert "other.jsonl:1: " in backwards.err
    assert not (tmp_path / "x.jsonl").exists()


def snapshot(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_read_is_not_replaced_by_a_trace(prefixroute: Prefixroute, trace: Path, tmp_path: Path) -> None:
    log, other, link, hard = (tmp_path / f"{name}.jsonl" for name in ("log", "other", "link", "hard"))
    key, fields = tmp_path / "key", tmp_path / "map.toml"
    log.write_bytes(trace.read_bytes())
    other.write_bytes(trace.read_bytes())
    link.symlink_to(log)
    hard.hardlink_to(log)
    key.write_text("00112233445566778899aabbccddeeff\n")
    fields.write_text("")
    before = snapshot(tmp_path)
    for output in (log, link, hard, key, fields, tmp_path / "." / "log.jsonl"):
        refused = prefixroute("convert", other, log, "--key", key, "--fields", fields, "-o", output)
        assert refused.code == 2
        assert refused.lines("--output", repr(str(output)))
        assert refused.err.count("\n") == 1
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("logs", "there", "named"),
    [
        ("od/y.private.jsonl.gz y.jsonl", {}, "od/y.private.jsonl.gz' y.private.jsonl.gz'"),
        ("z.jsonl y.jsonl", {"y": "z.jsonl"}, "od/y.private.jsonl.gz' z.jsonl'"),
        ("a/day.jsonl b/day.jsonl", {}, "day.private.jsonl.gz"),
        ("a.jsonl b.jsonl", {"a": "od/b.private.jsonl.gz"}, "b.private.jsonl.gz"),
        ("a.jsonl b.jsonl", {"a": None}, "od/a.private.jsonl.gz' folder"),
    ],
)
def test_what_would_be_lost_in_a_folder_of_outputs_is_refused(
    prefixroute: Prefixroute, trace: Path, tmp_path: Path, *, logs: str, there: dict[str, str | None], named: str
) -> None:
    """``there`` has links of that folder and where they lead, or None for a folder of that name."""
    (tmp_path / "od").mkdir()
    read = [tmp_path / name for name in logs.split()]
    for log in read:
        log.parent.mkdir(exist_ok=True)
        log.write_bytes(trace.read_bytes())
    for name, target in there.items():
        output = tmp_path / "od" / f"{name}.private.jsonl.gz"
        output.mkdir() if target is None else output.symlink_to(tmp_path / target)
    before = snapshot(tmp_path)
    refused = prefixroute("convert", *read, "-o", tmp_path / "od")
    assert refused.code == 2
    assert refused.lines("--output", *named.split())
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("bad", [False, True])
def test_no_file_but_the_output_is_touched(prefixroute: Prefixroute, trace: Path, tmp_path: Path, *, bad: bool) -> None:
    log, output, bystander = tmp_path / "o.jsonl.part", tmp_path / "o.jsonl", tmp_path / "o.jsonl.tmp"
    log.write_bytes(trace.read_bytes() + (b"{" if bad else b""))
    bystander.write_text("mine")
    before = snapshot(tmp_path)
    assert prefixroute("convert", log, "-o", output).code == (2 if bad else 0)
    after = snapshot(tmp_path)
    assert output.exists() != bad
    assert {path: data for path, data in after.items() if path != output} == before


@pytest.mark.parametrize("text", ["", "zz", "00", "00112233445566778899aabbccddeeff00"])
def test_a_key_must_be_sixteen_bytes(prefixroute: Prefixroute, trace: Path, tmp_path: Path, text: str) -> None:
    key = tmp_path / "key"
    key.write_text(text)
    refused = prefixroute("convert", trace, "-o", tmp_path / "x.jsonl", "--key", key)
    assert refused.code == 2
    assert "--key " in refused.err
    assert not (tmp_path / "x.jsonl").exists()


def test_bad_lines_are_named_counted_and_left_out(prefixroute: Prefixroute, trace: Path, tmp_path: Path) -> None:
    lines = trace.read_text().splitlines()
    bad = tmp_path / "bad.jsonl"
    bad.write_text("\n".join([*lines[:20], "{", *lines[20:]]) + "\n")
    assert prefixroute("simulate", bad).code == 2
    options = ["simulate", bad, "--replicas", 2, "--seeds", 1, "--skip-bad", 5]
    page = tmp_path / "page.html"
    skipped = prefixroute(*options, "--json", "--report", page)
    document = json.loads(skipped.out)
    assert skipped.lines("bad.jsonl: 1 ", " 181 ", f"{bad}:21: ")  # and nowhere else: it quotes the log
    assert document["assumptions"]["skipped_lines"]["value"] == 1
    [note] = [note for note in document["notes"] if re.findall(r"\d+", note) == ["1", "181", "21"]]
    assert note in page.read_text()
    assert document["rows"] == prefixroute("simulate", trace, *options[2:], "--json").json["rows"]
    assumed = (prefixroute("trace", *one, "--json").json["assumptions"] for one in ((bad, "--skip-bad", 1), (trace,)))
    assert next(assumed).keys() - next(assumed).keys() == {"skipped_lines"}
    converted = prefixroute("convert", bad, "-o", tmp_path / "p.jsonl.gz", "--skip-bad", 1)
    assert "180 requests" in converted.out
    assert converted.lines(" 181 ", f"{bad}:21: ")


def test_halves_of_characters_end_no_command(prefixroute: Prefixroute, tmp_path: Path) -> None:
    log, cut = tmp_path / "log.jsonl", "cut \ud83d"
    row = {"tenant": cut, "model": cut, "prompt": cut * 40, "content": [cut], "usage": {"prompt_tokens": 50}}
    log.write_text("\n".join(json.dumps({"timestamp": at, **row, "session": f"{at} {cut}"}) for at in range(30)))
    simulate = ["simulate", f"{log},sample=0.9", "--replicas", 1, "--seeds", 1]
    for command in (
        ["trace", log],
        simulate,
        [*simulate, "--routers", 2, "--sticky-front"],
        ["convert", log, "-o", tmp_path / "p"],
    ):
        said = prefixroute(*command)
        assert (said.code, "Traceback" in said.err) == (0, False), command


def rows(count: int = 40) -> list[dict[str, object]]:
    usage = {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 64}}
    return [
        {"timestamp": 1_790_000_000 + 60 * at, "model": "ab"[at % 2], "user": f"u{at % 4}", "backend": f"10.0.0.{at // 2 % 2}",
         "prompt": f"{'x' * 600} {at % 5} " + "words that follow. " * 30, "usage": usage}
        for at in range(count)
    ]  # fmt: skip


def lines(some: list[dict[str, object]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in some)


def test_several_files_and_a_pattern_are_one_log(prefixroute: Prefixroute, tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text(lines(rows()[:20]))
    (tmp_path / "2.jsonl.gz").write_bytes(gzip.compress(lines(rows()[20:]).encode()))
    (tmp_path / "all").write_text(lines(rows()))
    figures = []
    for names in ([tmp_path / "1.jsonl", tmp_path / "2.jsonl.gz"], [tmp_path / "*.jsonl*"], [tmp_path / "all"]):
        found = prefixroute("trace", *names, "--json").json
        figures.append({key: found[key] for key in ("requests", "floor", "prompt_tokens", "losses", "groups")})
    assert figures[0] == figures[1] == figures[2]
    assert figures[0]["requests"] == 40
    log = (tmp_path / "1.jsonl", f"{tmp_path}/2.jsonl.gz,head=30")
    assert prefixroute("simulate", *log, "--replicas 2 --seeds 1 --json").json["rows"][0]["requests"] == 30


def test_requests_are_chosen_by_time_model_and_field(prefixroute: Prefixroute, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(lines(rows()))
    for options, count in (
        (["--since", "1790001200", "--until", "2026-09-21T14:43:20"], 10),
        (["--model", "a"], 20),
        (["--where", "tenant=u1", "--where", "backend=10.0.0.0"], 10),
    ):
        found = prefixroute("trace", path, *options, "--json").json
        assert found["requests"] == count
        assert 40 - count in [sum(map(int, re.findall(r"\b\d+\b", note))) for note in found["notes"]]
        converted = prefixroute("convert", path, *options, "-o", tmp_path / "p.jsonl")
        assert f"{count} requests" in converted.out


def test_where_the_hits_went_is_shown(prefixroute: Prefixroute, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(lines(rows()))
    shown = prefixroute("trace", path)
    found = prefixroute("trace", path, "--json").json
    losses, usd = found["losses"], found["losses_usd_per_million_requests"]
    assert losses["elsewhere"] > 0
    for name, dollars in usd.items():
        assert not losses[name] or shown.lines(f"{name.replace('_', ' ')}", f" {losses[name]:,} ", f" {dollars:,.2f}")
    assert losses.pop("prompt") == sum(losses.values()) == 40 * 300
    recomputed = sum(losses.values()) - losses["hit"]
    assert sum(usd.values()) == pytest.approx(recomputed * found["usd_per_token"] / 40 * 1e6)
    assert usd["elsewhere"] / losses["elsewhere"] == pytest.approx(found["usd_per_token"] / 40 * 1e6)
    assert found["assumptions"]["usd_per_gpu_hour"]["assumed"]


def test_zeros_throughout_are_told_as_caches_off_or_hits_not_reported(prefixroute: Prefixroute, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    usage = {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 0}}
    path.write_text(lines([row | {"usage": usage} for row in rows()]))
    shown = prefixroute("trace", path).out
    assert NEVER_HIT in shown
    assert "evicted" not in shown
    assert ZEROS in shown
    advised = prefixroute("advise", path, "--replicas", 2, "--seeds", 1, "--json").json
    assert advised["backtest"]["reports_no_hits"]
    kinds = [one["kind"] for one in advised["findings"]]
    assert ("no-hits" in kinds, "backtest" in kinds) == (True, False)
    assert advised["advice"]["policy"] in advised["advice"]["verdict"]


def test_the_hardware_prices_the_hits_of_a_log(prefixroute: Prefixroute, tmp_path: Path) -> None:
    """``--model`` picks requests of the log here, so the model that is served has a name of its own."""
    path = tmp_path / "log.jsonl"
    path.write_text(lines(rows()))
    given = ("--gpu", "H200", "--served-model", "Qwen3-8B", "--tensor-parallel", 2, "--price", 3)
    found = prefixroute("trace", path, "--model", "a", *given, "--json").json
    cost = CostModel("H200", "Qwen3-8B", tensor_parallel=2, usd_per_gpu_hour=3)
    assert found["requests"] == 20
    assert found["usd_per_token"] == pytest.approx(cost.usd_per_token(300))
    assert not found["assumptions"]["usd_per_gpu_hour"]["assumed"]
    assert prefixroute("trace", path, "--gpu", "abacus").lines("gpu ", "H100, ", "'abacus'")


def test_what_changes_is_quoted_on_the_terminal_alone(prefixroute: Prefixroute, tmp_path: Path) -> None:
    some = [
        {"timestamp": at, "prompt": f"SECRET nonce {at * 7_919 % 10_007:05}. " + "rules " * 200} for at in range(30)
    ]
    (tmp_path / "log.jsonl").write_text(lines(some))
    shown = prefixroute("trace", tmp_path / "log.jsonl", "--report", tmp_path / "page.html")
    assert "SECRET nonce" in shown.err
    assert "SECRET" not in shown.out + (tmp_path / "page.html").read_text()
    found = prefixroute("trace", tmp_path / "log.jsonl", "--json").json
    assert found["volatile"]["share"] == 1.0
    assert found["losses"]["volatile"] > 0.8 * found["losses"]["prompt"]


def test_first_sight_beside_another_floor_says_why(prefixroute: Prefixroute, trace: Path, log: Path) -> None:
    for path in (trace, log):
        found = prefixroute("trace", path, "--json").json
        losses, shown = found["losses"], prefixroute("trace", path)
        first_sight, floor = (
            f"{100 * share:.2f} %" for share in (losses["first_sight"] / losses["prompt"], found["floor"])
        )
        assert bool(shown.lines(f" {first_sight}, ", f" {floor}.")) == (first_sight != floor)
