from __future__ import annotations

from pathlib import Path

import pytest

from prefixroute.cli import arguments, options
from prefixroute.errors import ConfigError
from prefixroute.sim import Events, History, Perfect


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


@pytest.mark.parametrize("text", ["", "all", "events:2", "events:x", "history:1"])
def test_bad_observations(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--observe|event loss"):
        arguments.observation(text)


def test_a_workload_that_is_neither_known_nor_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chat, documents"):
        options.Reading().source(str(tmp_path / "absent.jsonl"))
