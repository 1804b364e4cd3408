"""Errors about values that cannot be shown: an int of 16,610 bits has no repr, and a foreign one may raise."""

from __future__ import annotations

import re
from typing import Any

import pytest

import prefixroute as pr
from prefixroute.errors import FieldMapError
from prefixroute.validation import (
    MOST_SHOWN,
    check_choice,
    check_float,
    check_int,
    check_names,
    did_you_mean,
    shown,
)

HUGE = 10**5_000


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_values_are_shown_whatever_they_are() -> None:
    assert shown("x") == "'x'"
    assert re.fullmatch(r"Unshowable\b.+", shown(Unshowable()))
    assert re.fullmatch(r"int\b.* 16,610 bits", shown(HUGE))
    assert len(shown("x" * 10_000)) == MOST_SHOWN + 3
    assert shown("x" * 10_000, most=40) == f"'{'x' * 39}..."


def test_what_cannot_be_shown_is_described_where_it_stands() -> None:
    assert shown([1, HUGE]) == f"[1, {shown(HUGE)}]"
    assert shown({"a": (HUGE, Unshowable())}) == f"{{'a': ({shown(HUGE)}, {shown(Unshowable())})}}"
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep) == "[[[[[[[...]]]]]]]"
    assert shown(list(range(10_000))).startswith("[0, 1, 2, ")
    itself: list[Any] = []
    itself.append(itself)
    assert len(shown(itself)) < MOST_SHOWN


@pytest.mark.parametrize("wrong", [HUGE, -HUGE, Unshowable(), [Unshowable()], [HUGE]], ids=type)
def test_a_check_refuses_what_cannot_be_shown(wrong: Any) -> None:
    for check in (
        lambda: check_int("n", wrong, 0, 9),
        lambda: check_float("x", wrong, 0),
        lambda: check_choice("word", wrong, ("a", "b")),
    ):
        with pytest.raises(pr.ConfigError, match="must be"):
            check()


@pytest.mark.parametrize(
    ("given", "near"),
    [("sesion", "'session'"), ("H10", "'h100'"), ("zzz", ""), ("", ""), (7, ""), (Unshowable(), ""), ("x" * 10**6, "")],
    ids=["typo", "case", "far", "empty", "number", "unshowable", "long"],
)
def test_the_nearest_name_is_offered_where_one_is_near(given: Any, near: str) -> None:
    assert (near in did_you_mean(given, ("session", "h100", "random"))) is True
    assert bool(did_you_mean(given, ("session", "h100", "random"))) is bool(near)


def test_a_name_of_a_closed_list_is_refused_with_the_list_and_the_nearest() -> None:
    check_choice("word", "a", ("a", "b"))
    check_names("x", "key", ["a", "b", "a"], {"a": 1, "b": 2})
    for refuse in (
        lambda: check_choice("word", "alpah", ("alpha", "beta")),
        lambda: check_names("x", "word", ["beta", "alpah"], ("alpha", "beta")),
    ):
        with pytest.raises(pr.ConfigError, match=r"word.*alpha, beta") as raised:
            refuse()
        assert "'alpah'" in str(raised.value)
        assert "'alpha'" in str(raised.value)
    with pytest.raises(FieldMapError, match="none"):
        check_names("x", "word", ["a"], (), FieldMapError)


@pytest.mark.parametrize("wrong", [HUGE, Unshowable()], ids=type)
@pytest.mark.parametrize("option", ["block_size", "policy", "load", "prompt_kind", "clock", "timing", "caps", "cost"])
def test_a_router_refuses_options_that_cannot_be_shown(option: str, wrong: Any) -> None:
    with pytest.raises(pr.ConfigError):
        pr.Router(["a"], **{option: wrong})


@pytest.mark.parametrize("option", ["session", "candidates", "exclude", "key", "now", "namespace"])
def test_a_call_refuses_options_that_cannot_be_shown(option: str) -> None:
    router = pr.Router(["a", "b"])
    with pytest.raises(pr.ConfigError) as raised:
        router.route([1, 2, 3], **{option: Unshowable()})
    assert str(raised.value) != "no"
    for name in (Unshowable(), HUGE):
        with pytest.raises(pr.ConfigError):
            router.add_replica(name)  # type: ignore[arg-type]
    assert list(router.replicas) == ["a", "b"]


def test_no_replica_says_why() -> None:
    with pytest.raises(pr.NoReplicaError, match="empty"):
        pr.Router([]).route([1])
    ticket = pr.Router(["a", "b"]).route([1]).retry()
    with pytest.raises(pr.NoReplicaError, match=r" a, b\b"):
        ticket.retry()
