"""``prefixroute lint``: exit codes for CI, JSON, SARIF, page, and mistakes in one line."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Prefixroute = Callable[..., Any]
RULES = "The rules of the house. " * 400


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    rows = [
        {
            "timestamp": 1_790_000_000 + 2 * n,
            "request": {"system": f"Now: 10:{n:02}. {RULES}", "messages": [{"role": "user", "content": f"{n}?"}]},
        }
        for n in range(50)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_finding_fails_and_says_what_it_costs(prefixroute: Prefixroute, log: Path) -> None:
    said = prefixroute("lint", log, "--api-model", "claude-sonnet-5-5", "--quiet")
    assert said.code == 1
    assert "error PR101 volatile-head" in said.out
    assert "$" in said.out


@pytest.mark.parametrize(("level", "code"), [("note", 1), ("warning", 1), ("error", 1), ("never", 0)])
def test_the_exit_code_follows_the_level(prefixroute: Prefixroute, log: Path, level: str, code: int) -> None:
    assert prefixroute("lint", log, "--fail-on", level, "--quiet").code == code


def test_a_warning_is_no_error(prefixroute: Prefixroute, trace: Path, tmp_path: Path) -> None:
    config = tmp_path / "engine.toml"
    config.write_text("[engine]\nblock_size = 512\n[router]\nblock_size = 16\n")
    for level, code in (("warning", 1), ("error", 0)):
        said = prefixroute("lint", trace, "--config", config, "--fail-on", level, "--json", "--quiet")
        assert said.code == code
        assert [one["rule"] for one in json.loads(said.out)["findings"]] == ["block-size-differs"]


def test_nothing_found_is_exit_0(prefixroute: Prefixroute, trace: Path) -> None:
    said = prefixroute("lint", trace, "--json", "--quiet")
    assert (said.code, said.json["findings"]) == (0, [])
    assert prefixroute("lint", trace, "--quiet").out


def test_json_sarif_and_page(prefixroute: Prefixroute, log: Path, tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="the extra `report` is not installed")
    written, page = tmp_path / "lint.sarif", tmp_path / "lint.html"
    said = prefixroute("lint", log, "--json", "--sarif", written, "--report", page, "--quiet")
    told, sarif = json.loads(said.out), json.loads(written.read_text())
    assert [one["id"] for one in told["findings"]] == [one["ruleId"] for one in sarif["runs"][0]["results"]]
    assert "volatile-head" in page.read_text()


def test_prompts_of_a_pipe_and_of_all_files_are_looked_at(
    prefixroute: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only a file by its name: its bodies were read apart from its requests, and of a pipe there were none."""
    said = [
        {"timestamp": at, "messages": [{"role": "system", "content": f"Now {at:02}:17. {'Be brief. ' * 200}"}]}
        for at in range(20)
    ]
    for name, rows in (("a", said[:10]), ("b", said[10:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    both = "".join((tmp_path / f"{name}.jsonl").read_text() for name in "ab")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(both.encode())))
    for named in (f"{tmp_path}/*.jsonl", "-"):
        found = prefixroute("lint", named, "--json", "--fail-on", "never").json
        assert (found["requests"], found["bodies"]) == (20, 20)
        assert found["findings"][0]["evidence"]["where"] == "messages[0].content[0]"
