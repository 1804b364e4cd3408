from __future__ import annotations

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
    with pytest.raises(ConfigError, match="--capacity must be a whole number of at least 1") as error:
        arguments.count(text, what="--capacity")
    assert repr(text) in str(error.value)


def test_lists_keep_their_order_and_drop_repeats() -> None:
    assert arguments.counts("8, 1,8", what="--replicas") == [8, 1]
    assert arguments.names("b,a,,b", what="--policies") == ["b", "a"]


@pytest.mark.parametrize("text", ["", ",", " , "])
def test_an_empty_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--policies must be names separated by commas"):
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
    ("parse", "text", "message"),
    [
        (lambda text: changes([text]), "5:die", "must be AT:ACTION:REPLICA"),
        (lambda text: changes([text]), "5:explode:a", "must be die, return, add or drain"),
        (lambda text: tiers([text], CostModel()), "CPU:2M", "must be MEDIUM:TOKENS:GB_PER_S"),
        (promise, "ttft", "must be like ttft=1s"),
        (promise, "speed=1s", "must be like ttft=1s"),
        (promise, "ttft_p95=1s", "must be like ttft=1s"),
        (promise, "itl_p0=1s", "itl_percentile of a promise"),
        (promise, "itl=1ms,itl_p95=2s", "promises each of ttft, tpot, itl and e2e once"),
        (promise, "ttft=1s,ttft=2s", "promises each of ttft, tpot, itl and e2e once"),
    ],
)
def test_bad_ones_say_what_is_allowed(parse: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)
