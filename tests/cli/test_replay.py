"""``prefixroute replay`` against fake engines: tables, JSON, rows that ``fit`` reads, and mistakes."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prefixroute.testing import Behaviour, EngineSettings, FakeEngine

WORKLOAD = "chat,requests=40,system_tokens=100,user_tokens=60,answer_tokens=20,turns=6,slots=8,arrivals=even:100"


@pytest.fixture(scope="module")
def engines() -> Iterator[list[FakeEngine]]:
    engines = [FakeEngine(EngineSettings(), Behaviour(prefill_s_per_1k=0.02, decode_s=0.0005)) for _ in range(2)]
    yield engines
    for engine in engines:
        engine.kill()


@pytest.fixture
def endpoints(engines: list[FakeEngine]) -> list[str]:
    return [word for engine in engines for word in ("--endpoint", engine.url)]


def test_tables_json_and_rows(prefixroute: Any, endpoints: list[str], tmp_path: Path) -> None:
    rows, page = tmp_path / "rows.csv", tmp_path / "replay.html"
    given = ["--policy", "round-robin", "--policy", "session", "--dictate", "--rows", rows, "--quiet", "--slo-ttft", 5]
    said = prefixroute("replay", WORKLOAD, *endpoints, *given, "--report", page)
    assert said.code == 0, said.err
    assert said.lines("ASSUMED gpu = ")
    assert not re.search(r"[-+]?-0\.0+ (ms|points)", said.out)
    assert f"prefixroute fit {rows} " in said.out
    with rows.open() as lines:
        table = list(csv.DictReader(lines))
    assert len(table) == 80
    assert {row["policy"] for row in table} == {"round-robin", "session"}
    assert prefixroute("fit", rows, "--json").code in {0, 2}  # too few idle rows are an error of the user's, not ours

    given += ["--json", "--requests", 20, "--parts", 2, "--warmup", 2, "--report", page]
    found = prefixroute("replay", WORKLOAD, *endpoints, *given).json
    assert found["schedule"] == {"requests": 20, "sends": 40, "seconds": pytest.approx(2 * 2 * 0.09)}
    assert [row["policy"] for row in found["rows"]] == ["round-robin", "session"]
    assert found["rows"][0]["measured"]["requests"] == 16
    assert found["rows"][0]["measured"]["good_share"] == 1.0
    assert 0.5 < found["rows"][1]["predicted_over_measured"]["recompute_ratio"] < 2.0  # of 16 requests
    assert found["assumptions"]["gpu"]["assumed"]
    assert 0 <= found["rows"][0]["predicted"]["good_share"] <= 1
    assert "api_key" not in found["settings"]
    assert found["caches_reset"]
    page_holds(found, page.read_text())


def page_holds(found: dict[str, Any], drawn: str) -> None:
    """The page draws and names what the JSON object of the same replay has."""
    assert drawn.count("<svg ") == 2
    assert 'class="assumed"' in drawn
    (title,) = re.findall("<h1>(.*)</h1>", drawn)
    ttft = next(one for one in found["differences"] if one["figure"] == "ttft_s")
    sooner = ttft["high"] < 0
    assert all(part in title for part in ("chat", "2 endpoints", "round-robin"))
    assert ("session" in title, f"{-1e3 * ttft['value']:,.1f} ms" in title) == (sooner, sooner)
    assert re.search(f"<p[^>]*>session [^<]*{1e3 * abs(ttft['value']):,.1f} ms[^<]*round-robin", drawn)
    ratios = [ratio for row in found["rows"] for ratio in row["predicted_over_measured"].values() if ratio]
    furthest = max(max(ratio, 1 / ratio) for ratio in ratios)
    assert re.search(f"<p[^>]*>[^<]* {furthest:.2f} ", drawn)
    for row in found["rows"]:
        cells = [f"{ratio:.2f}" for ratio in row["predicted_over_measured"].values() if ratio]
        assert all(f">{cell}</td>" in drawn for cell in cells)


def test_a_time_budget_leaves_out_parts_and_says_which(prefixroute: Any, endpoints: list[str]) -> None:
    given = ["replay", WORKLOAD, *endpoints, "--policy", "session", "--parts", 4, "--time-budget", "0.001s", "--quiet"]
    found = prefixroute(*given, "--json").json
    assert (found["parts_begun"], found["rows"][0]["measured"]["requests"]) == (1, 10)
    assert [note for note in found["notes"] if re.findall(r"\d+", note) == ["2", "4", "4"]]


def test_what_is_sent_and_for_how_long_is_said_before_it_begins(prefixroute: Any, endpoints: list[str]) -> None:
    """39 gaps of 10 s at twice their pace, told although no endpoint answers."""
    slow = WORKLOAD.replace("even:100", "even:0.1")
    shown = prefixroute("replay", slow, "--endpoint", "http://127.0.0.1:9", "--policy", "session", "--speed", 2)
    assert shown.code == 2
    first, last = shown.err.splitlines()
    assert re.findall(r"\d+", first) == ["40", "2", "3", "15"]
    assert "127.0.0.1:9" in last
