"""The examples run as their first lines say, from another folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prefixroute.costmodel import CostModel
from prefixroute.sim import Scenario, simulate
from prefixroute.workload import read_trace

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, *arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_asyncio_relay(tmp_path: Path) -> None:
    said = run("asyncio_relay.py", cwd=tmp_path)
    requests, engines, retries, broken, in_flight = map(int, re.findall(r"\d+", said))
    assert (requests, engines, in_flight) == (90, 3, 0)
    assert min(retries, broken) > 0  # the example must show a failure, and one that a retry hides


def test_own_policy(tmp_path: Path) -> None:
    lines = run("own_policy.py", "4000", cwd=tmp_path).splitlines()
    assert [line.split()[0] for line in lines] == ["round-robin", "session", "cache-aware", "holders_within_reason"]
    ratios = [float(line.split()[2].rstrip("%,")) for line in lines]
    assert max(ratios[1:]) < ratios[0]  # all that look at the prefix beat the one that does not


def test_what_if(tmp_path: Path) -> None:
    tables = run("what_if.py", "4000", cwd=tmp_path).strip().split("\n\n")
    rows = [[line.rsplit(maxsplit=4) for line in table.splitlines()[1:]] for table in tables]
    assert [len(table) for table in rows] == [3, 4, 6, 4]
    trap = {name: [float(share.rstrip("%")) for share in shares] for name, *shares in rows[0]}
    assert trap["first-seen"][2] > 2 * trap["first-seen"][0] > 2 * trap["first-seen"][3] - 1
    assert trap["session"][2] < trap["session"][0] + 1


def test_sample_log_is_read_and_its_hits_are_those_of_the_simulator(tmp_path: Path) -> None:
    log = tmp_path / "day.jsonl"
    log.write_text(run("sample_log.py", cwd=tmp_path))
    scenario = Scenario(policy="round-robin", replicas=4, capacity_tokens=None)
    workload = read_trace(log)
    rows = [json.loads(line)["usage"] for line in log.read_text().splitlines()]
    reported = sum(row["prompt_tokens_details"]["cached_tokens"] for row in rows) / sum(
        row["prompt_tokens"] for row in rows
    )
    assert 1 - simulate(workload, scenario, cost=CostModel()).outcome.recompute_ratio == pytest.approx(
        reported, abs=0.005
    )


def test_proxy(tmp_path: Path) -> None:
    lines = run("proxy.py", cwd=tmp_path).splitlines()
    assert [re.findall(r"\d+", line) for line in lines[-2:]] == [
        ["2"],
        ["1", "4", "0"],
    ]  # engines; engine, turns, loads
    assert [int(digits) for digits in re.findall(r"\d+", lines[0])][:2] == [0, 0]  # turn, hit tokens
    assert all(int(line.split()[2]) > 1_600 for line in lines[1:-2])


def test_every_example_is_tried() -> None:
    tried = {
        "__init__.py",
        "asyncio_relay.py",
        "own_policy.py",
        "proxy.py",
        "sample_log.py",
        "what_if.py",
    }
    assert {path.name for path in EXAMPLES.glob("*.py")} == tried


def test_the_tutorial_shows_what_its_commands_print(tmp_path: Path) -> None:
    """Every line below a command, but for the spaces; ``...`` leaves lines out."""
    (tmp_path / "day.jsonl").write_text(run("sample_log.py", cwd=tmp_path))
    tutorial = (EXAMPLES.parent / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0].strip().splitlines() for block in tutorial.split("```console\n")[1:]]
    shown = {block[0].removeprefix("$ prefixroute "): block[1:] for block in blocks if "prefixroute" in block[0]}
    checked = {command: lines for command, lines in shown.items() if lines and not lines[0].startswith("$")}
    assert {command.split()[0] for command in checked} == {"trace", "backtest"}
    for command, lines in checked.items():
        printed = subprocess.run(
            [sys.executable, "-m", "prefixroute", *command.split(), "-q"],
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        words = " ".join(printed.split())
        assert [line for line in lines if line.strip() != "..." and " ".join(line.split()) not in words] == []
