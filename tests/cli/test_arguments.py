from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from prefixroute.cli import arguments
from prefixroute.cli.arguments import changes, promise, tiers
from prefixroute.cli.reading import TraceOptions
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim import Events, FleetChange, History, Perfect, Promise, Tier


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("300000", 300_000), ("300_000", 300_000), ("300k", 300_000), ("1.5M", 1_500_000), (" 2G ", 2 * 10**9)],
)
def test_counts_as_people_write_them(text: str, value: int) -> None:
    assert arguments.count(text, what="--capacity") == value


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "k", "lots", "nan", "inf", "1e400", "0.0001k"])
def test_a_bad_count_says_what_was_given_and_what_is_allowed(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"--capacity .* 1 .*{re.escape(repr(text))}"):
        arguments.count(text, what="--capacity")


def test_lists_keep_their_order_and_drop_repeats() -> None:
    assert arguments.counts("8, 1,8", what="--replicas") == [8, 1]
    assert arguments.names("b,a,,b", what="--policies") == ["b", "a"]


@pytest.mark.parametrize("text", ["", ",", " , "])
def test_an_empty_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--policies .*{text!r}"):
        arguments.names(text, what="--policies")


@pytest.mark.parametrize(
    ("text", "observation"),
    [
        (None, None),
        ("history", History()),
        ("perfect", Perfect()),
        ("events", Events()),
        ("events:0.25", Events(loss=0.25)),
    ],
)
def test_observations(text: str | None, observation: object) -> None:
    assert arguments.observation(text) == observation
    assert observation is None or str(observation) == text


@pytest.mark.parametrize("text", ["", "all", "events:2", "events:x", "history:1"])
def test_bad_observations(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--observe|event loss"):
        arguments.observation(text)


def test_a_workload_that_is_neither_known_nor_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chat, documents"):
        TraceOptions().source(str(tmp_path / "absent.jsonl"))


def test_changes_tiers_and_promises_as_people_write_them() -> None:
    assert changes(["5m:die:replica-1", "400s:return:replica-1"]) == (
        FleetChange(300.0, "die", "replica-1"),
        FleetChange(400.0, "return", "replica-1"),
    )
    cost = CostModel()
    assert tiers(["CPU:2M:50"], cost) == (Tier("CPU", 2_000_000, cost.model.kv_bytes_per_token / 50e9),)
    assert promise("ttft=1s, tpot=50ms") == Promise(ttft_s=1.0, tpot_s=0.05)
    assert promise("itl=200ms") == Promise(itl_s=0.2, itl_percentile=100)
    assert promise("itl_p99.5=200ms,e2e=1m") == Promise(itl_s=0.2, itl_percentile=99.5, e2e_s=60.0)
    assert (changes(None), tiers(None, cost), promise(None)) == ((), (), None)


@pytest.mark.parametrize(
    ("parse", "text", "named"),
    [
        (lambda text: changes([text]), "5:die", "--change.*AT:ACTION:REPLICA.*'5:die'"),
        (lambda text: changes([text]), "5:explode:a", "die, return, add, drain.*'explode'"),
        (lambda text: tiers([text], CostModel()), "CPU:2M", "--tier.*MEDIUM:TOKENS:GB_PER_S.*'CPU:2M'"),
        (promise, "ttft", "--goodput.*ttft=1s.*'ttft'"),
        (promise, "speed=1s", "--goodput.*ttft=1s.*'speed=1s'"),
        (promise, "ttft_p95=1s", "--goodput.*ttft=1s.*'ttft_p95=1s'"),
        (promise, "itl_p0=1s", "itl_percentile.* 0"),
        (promise, "itl=1ms,itl_p95=2s", "--goodput.*ttft, tpot, itl .*e2e.*'itl=1ms,itl_p95=2s'"),
        (promise, "ttft=1s,ttft=2s", "--goodput.*ttft, tpot, itl .*e2e.*'ttft=1s,ttft=2s'"),
    ],
)
def test_bad_ones_say_what_is_allowed(parse: Callable[[str], object], text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse(text)
