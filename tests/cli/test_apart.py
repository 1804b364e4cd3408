"""``simulate`` and ``size`` with fleets that prefill and decode apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

WORK = "chat,requests=300,arrivals=poisson:10"
SIMULATE = f"simulate {WORK} --timed --policies session --seeds 1 -q"


def test_simulate_shows_split_fleets_beside_mixed_ones(prefixroute: Callable[..., Any]) -> None:
    rows = prefixroute(SIMULATE, "--prefill-replicas 1,2 --decode-replicas 3,2 --link 25:1ms --json").json["rows"]
    assert [(row["policy"], row["replicas"]) for row in rows] == [
        (policy, 4) for policy in ("session", "session, 1+3", "session, 2+2")
    ]
    assert [row.get("prefill_replicas") for row in rows] == [None, 1, 2]
    assert rows[1]["decode_replicas"] == 3
    assert rows[1]["ttft_mean_s"] > rows[1]["handover_mean_s"] > 0.001
    assert 0 < rows[1]["prefill_busy"] < rows[1]["decode_busy"] <= 1
    assert rows[1]["moved_tokens"] > 0
    assert "handover_mean_s" not in rows[0]


@pytest.mark.parametrize(
    ("link", "value", "assumed"),
    [((), "rdma", True), (("--link", "rdma"), "rdma", False), (("--link", "25:1ms"), "25:1ms", False)],
)
def test_the_title_and_the_assumptions_name_the_link(
    prefixroute: Callable[..., Any], link: tuple[str, ...], value: str, assumed: bool
) -> None:
    options = ("--prefill-replicas", "1", "--decode-replicas", "1", *link)
    found = prefixroute(SIMULATE, *options, "--json").json["assumptions"]["link"]
    assert (found["value"], found["assumed"]) == (value, assumed)
    shown = prefixroute(SIMULATE, *options)
    assert shown.lines(WORK, value)
    assert bool(shown.lines("ASSUMED", f"link = {value}")) is assumed


def test_mixed_fleets_of_other_sizes_may_be_named(prefixroute: Callable[..., Any]) -> None:
    rows = prefixroute(SIMULATE, "--replicas 2 --prefill-replicas 1 --decode-replicas 2 --json").json["rows"]
    assert [(row["policy"], row["replicas"]) for row in rows] == [("session", 2), ("session, 1+2", 3)]


SIZE = "size chat,requests=300,arrivals=poisson:30 --slo ttft_p95=400ms,tpot_p95=20ms --policies session -q --spare 0"


def test_size_compares_at_equal_gpus(prefixroute: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    told = prefixroute(SIZE, "--apart", "--json").json
    assert [len(told["fleets"]), bool(told["equal"])] == [2, True]
    said = prefixroute(SIZE, "--apart", "--link", "nvlink")
    for fleet in told["equal"]:
        kinds = f"{fleet['prefill']} + {fleet['decode']}" if "prefill" in fleet else ""
        assert said.lines("session", fleet["replicas"], kinds, "yes" if fleet["keeps"] else "no")
    assert "equal" not in prefixroute(SIZE, "--json").json


def test_advice_tries_splits_of_the_same_gpus_with_the_comparison_of_every_advice(
    prefixroute: Callable[..., Any],
) -> None:
    options = "advise chat,requests=250,arrivals=poisson:40 --replicas 3 --seeds 2 --policies random -q"
    split = "--apart --link ethernet --slo itl_p95=11ms"
    found = prefixroute(options, split, "--json").json
    compared, policy = found["apart"], found["advice"]["policy"]
    assert [row["policy"] for row in compared["rows"]] == [policy, f"{policy}, 1+2", f"{policy}, 2+1"]
    assert compared["reference"] == policy
    rows = {row["policy"]: row for row in found["comparison"]["rows"]}
    assert compared["rows"][0]["e2e_mean_s"] == rows[policy]["e2e_mean_s"]
    assert compared["rows"][0]["goodput_per_s"] == rows[policy]["goodput_per_s"]
    assert compared["assumptions"]["link"]["value"] == "ethernet"
    (told,) = [one for one in found["findings"] if one["kind"] == "apart"]
    gaps = {one["policy"]: one for one in compared["differences"]}[f"{policy}, {told['evidence']['split']}"]
    for metric in ("ttft_mean_s", "itl_mean_s", "e2e_mean_s"):
        assert gaps[metric]["low"] == told["evidence"][f"{metric}_low"]
    assert told["evidence"]["wins"] == bool(told["evidence"]["better"])
    assert "apart" not in prefixroute(options, "--json").json
    shown = prefixroute(options, split)
    assert all(shown.lines(row["policy"], f" {100 * row['recompute_ratio']:.2f} ") for row in compared["rows"])
