"""What holds for every command that answers: the same bytes twice, results alone on stdout, a page and a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RESULTS = {
    "simulate TRACE --replicas 1,2 --seeds 1": 8,
    "compare TRACE --replicas 2 --seeds 1 --policies round-robin,session": 5,
    "size TRACE --slo ttft_p95=60s --policies round-robin,session": 1,
    "trace TRACE": 3,
    "lint LOG --fail-on never --config CONFIG": 1,
    "plan anthropic": 1,
    "plan openai --per-minute 60 --users 100": 2,
    "plan gemini": 1,
}
"""Commands, and how many charts the page of each has. TRACE is a trace, LOG a log, CONFIG the settings of an engine."""


@pytest.mark.parametrize("typed", RESULTS)
def test_every_answer_is_the_same_twice_and_is_drawn(
    prefixroute: Callable[..., Any], trace: Path, log: Path, tmp_path: Path, typed: str
) -> None:
    pytest.importorskip("altair", reason="the extra `report` is not installed")
    (tmp_path / "engine.toml").write_text("[engine]\nenable_prefix_caching = false\n")
    page, picture, files = (
        tmp_path / "p.html", tmp_path / "p.png", {"TRACE": trace, "LOG": log, "CONFIG": tmp_path / "engine.toml"},
    )  # fmt: skip
    command = [files.get(word, word) for word in typed.split()]
    drawn = prefixroute(*command, "--json --quiet --report", page, "--png", picture)
    assert drawn.err == f"report: {page}\npicture: {picture}\n"
    assert drawn.json["schema"] == 1
    assert page.read_text().count("<svg") == RESULTS[typed]
    assert 'class="assumed"' in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown, again = (prefixroute(*command, "--quiet") for _ in range(2))
    assert (shown.code, shown.err) == (0, "")
    assert shown == again
    assert prefixroute(*command, "--json --quiet").out == drawn.out
