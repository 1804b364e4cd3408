"""``prefixroute fit``: a round trip through the options of the other commands, and wrong files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefixroute.costmodel import CostModel

TRUTH = CostModel("H200", utilization=0.37, overhead_s=0.012)
SIZES = [(500, 0), (2_000, 0), (8_000, 0), (8_000, 6_000), (32_000, 0), (32_000, 16_000)]


def measured(tmp_path: Path, text: str | None = None) -> Path:
    """Write a file of what the true model takes, or of ``text``."""
    rows = [f"{n},{c},{TRUTH.prefill_seconds(n - c, c)}" for n, c in SIZES]
    path = tmp_path / "measured.csv"
    path.write_text("prompt_tokens, cached_tokens, seconds\n" + "\n".join(rows) if text is None else text)
    return path


def test_what_is_fitted_is_what_the_other_commands_take(prefixroute: Callable[..., Any], tmp_path: Path) -> None:
    fitted = prefixroute("fit", measured(tmp_path), "--gpu H200 --json").json
    assert fitted["utilization"] == pytest.approx(0.37)
    assert fitted["overhead_s"] == pytest.approx(0.012)
    assert fitted["rows"] == len(SIZES)
    run = prefixroute("simulate chat,requests=50 --replicas 1 --seeds 1 --gpu H200 --json", fitted["options"]).json
    figures = run["assumptions"]
    for name in ("utilization", "overhead_s"):
        assert figures[name]["value"] == pytest.approx(fitted[name], rel=1e-3)
        assert not figures[name]["assumed"]


def test_the_report_says_how_well_it_fits_and_what_to_do(prefixroute: Callable[..., Any], tmp_path: Path) -> None:
    shown = prefixroute("fit", str(measured(tmp_path)), "--gpu", "H200")
    assert shown.lines(" 6 rows", " 0.370", " 0.0120 s")
    assert shown.lines("--utilization 0.37 --overhead 0.012")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "measured.csv .*empty.* prompt_tokens, cached_tokens, seconds"),
        ("\n", "measured.csv .*empty"),
        ('{"prompt_tokens": 1}\n', "measured.csv .*prompt_tokens, cached_tokens, seconds.*'{"),
        ("prompt_tokens,seconds\n1,2\n", "measured.csv .*; .*cached_tokens$"),
        (
            "prompt_tokens,cached_tokens,seconds\n100,0,fast\n",
            "line 2: prompt_tokens, cached_tokens, seconds .*'100,0,fast'",
        ),
        ("prompt_tokens,cached_tokens,seconds\n100,0\n", "line 2: .*'100,0,None'"),
        ("prompt_tokens,cached_tokens,seconds\n100,0,1\n", " 3 rows .* 1$"),
    ],
)
def test_a_file_that_cannot_be_fitted_is_refused(
    prefixroute: Callable[..., Any], tmp_path: Path, text: str, named: str
) -> None:
    result = prefixroute("fit", str(measured(tmp_path, text)))
    assert result.code == 2
    assert re.search(named, result.err.strip()), result.err


def test_a_file_that_is_not_there_is_refused(prefixroute: Callable[..., Any], tmp_path: Path) -> None:
    complaints = [prefixroute("fit", str(path)) for path in (tmp_path / "none.csv", tmp_path)]
    assert [said.code for said in complaints] == [2, 2]
    assert complaints[0].lines(repr(str(tmp_path / "none.csv")))
    assert complaints[1].lines(repr(str(tmp_path)), "folder")
