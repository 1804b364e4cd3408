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
    text = prefixroute("fit", str(measured(tmp_path)), "--gpu", "H200").out
    assert "fitted to 6 rows: utilization 0.370, overhead 0.0120 s" in text
    assert "--utilization 0.37 --overhead 0.012" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: it needs a line of the columns prompt_tokens, cached_tokens, seconds"),
        ("\n", "is empty"),
        ('{"prompt_tokens": 1}\n', "is no CSV file of measured rows: its first line must hold the columns .*, got '{"),
        ("prompt_tokens,seconds\n1,2\n", "there is no cached_tokens"),
        (
            "prompt_tokens,cached_tokens,seconds\n100,0,fast\n",
            "line 2: prompt_tokens, cached_tokens, seconds must be numbers",
        ),
        ("prompt_tokens,cached_tokens,seconds\n100,0\n", "line 2: .* must be numbers, got '100,0,None'"),
        ("prompt_tokens,cached_tokens,seconds\n100,0,1\n", "fit needs 3 rows or more"),
    ],
)
def test_a_file_that_cannot_be_fitted_is_refused(
    prefixroute: Callable[..., Any], tmp_path: Path, text: str, message: str
) -> None:
    result = prefixroute("fit", str(measured(tmp_path, text)))
    assert result.code == 2
    assert re.search(message, result.err), result.err


def test_a_file_that_is_not_there_is_refused(prefixroute: Callable[..., Any], tmp_path: Path) -> None:
    for path, what in ((tmp_path / "none.csv", "is not there"), (tmp_path, "is a folder")):
        result = prefixroute("fit", str(path))
        assert (result.code, what in result.err) == (2, True)
