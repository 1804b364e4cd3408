"""``--speeds``: what prices a step, on every command that prices one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer", reason="the extra `cli` is not installed")

Prefixroute = Callable[..., Any]
RUN = ("simulate", "chat,requests=60", "--replicas", 2, "--seeds", 1, "--policies", "session")


def rows(out: str) -> Any:
    return json.loads(out)["rows"][0]


def test_the_articles_formula_is_named_in_table_and_json(prefixroute: Prefixroute) -> None:
    figures = prefixroute(*RUN, "--speeds", "article", "--json").json["assumptions"]
    assert figures["speeds"]["value"] == "article"
    assert figures["utilization"]["value"] == 0.5
    table = prefixroute(*RUN, "--speeds", "article")
    assert table.lines("Speeds:", "article", figures["speeds"]["source"])
    assert "bandwidth_utilization" not in table.out
    assert "Speeds:" not in prefixroute(*RUN).out


def test_presets_give_other_times(prefixroute: Prefixroute) -> None:
    article, calibrated = (rows(prefixroute(*RUN, "--speeds", how, "--json").out) for how in ("article", "calibrated"))
    assert article["recompute_ratio"] == calibrated["recompute_ratio"]
    assert article["ttft_mean_s"] != calibrated["ttft_mean_s"]
    assert rows(prefixroute(*RUN, "--json").out) == calibrated


@pytest.mark.parametrize("how", ["aic", "aic:sglang"])
def test_tables_of_measured_kernels(prefixroute: Prefixroute, how: str) -> None:
    pytest.importorskip("aiconfigurator_core")
    document = prefixroute(*RUN, "--speeds", how, "--json").json
    speeds = document["assumptions"]["speeds"]
    assert speeds["value"] == (how if ":" in how else "aic:vllm")
    assert "aiconfigurator-core" in speeds["source"]
    assert 0.005 < document["rows"][0]["ttft_mean_s"] < 1


def test_a_gpu_without_tables_is_said(prefixroute: Prefixroute) -> None:
    pytest.importorskip("aiconfigurator_core")
    said = prefixroute(*RUN, "--speeds", "aic", "--gpu", "MI300X")
    assert said.code == 2
    assert said.lines("MI300X", "H100, H200, B200, A100, L40S")


def test_other_commands_take_it(prefixroute: Prefixroute, trace: Path, tmp_path: Path) -> None:
    compared = prefixroute(
        "compare", trace, "--replicas", 2, "--seeds", 1, "--policies", "round-robin,session", "--speeds", "article"
    )
    assert "Speeds: article" in compared.out
    advised = prefixroute("advise", trace, "--replicas", 2, "--seeds", 1, "--speeds", "article")
    assert "Speeds: article" in advised.out
    measured = tmp_path / "rows.csv"
    measured.write_text("prompt_tokens,cached_tokens,seconds\n500,0,0.02\n8000,0,0.3\n32000,0,1.5\n")
    fitted = prefixroute("fit", measured, "--speeds", "article", "--json").json
    assert 0.3 < fitted["utilization"] < 0.9
