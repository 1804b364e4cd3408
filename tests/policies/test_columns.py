"""Columns of scores, in lists and arrays of any numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.columns import best_of
from prefixroute.errors import ConfigError

FEW = st.sampled_from([-(1 << 80), -(1 << 63), -1, 0, 1, 5, (1 << 30) - 1, 1 << 30, 1 << 62, (1 << 63) - 1, 1 << 63])
INTS = FEW | st.integers(-3, 3)
FLOATS = st.sampled_from([-0.0, 0.0, 1.5, -1.5, float("inf"), -float("inf")]) | st.floats(allow_nan=False)
ANY = INTS | FLOATS | st.booleans() | st.fractions(max_denominator=3)
COLUMNS = st.lists(INTS, min_size=1) | st.lists(FLOATS, min_size=1) | st.lists(ANY, min_size=1)


class Listed(list[Any]):
    """A list of a class of its own."""


KINDS: list[Callable[[list[Any]], Any]] = [
    list,
    tuple,
    Listed,
    lambda numbers: np.array([float(number) for number in numbers]),
    lambda numbers: np.repeat(np.array([float(number) for number in numbers]), 2)[::2],
    lambda numbers: np.array(numbers, object),
]
kinds = st.sampled_from(KINDS)


def taken(scores: Any, temperature: float = 0.0, decisions: int = 40) -> set[int]:
    return {best_of(scores, temperature, 7, decision_id) for decision_id in range(decisions)}


@given(COLUMNS, kinds)
def test_one_of_the_highest_is_taken(numbers: list[Any], kind: Callable[[list[Any]], Any]) -> None:
    column = kind(numbers)
    values: list[Any] = list(column)
    assert taken(column) <= {at for at, value in enumerate(values) if value == max(values)}


def test_each_of_the_highest_is_taken_some_time() -> None:
    assert taken([1, 3, 2, 3.0, Fraction(3)]) == {1, 3, 4}
    assert taken(np.array([1, 3, 2, 3], np.int32)) == {1, 3}
    assert taken([10**400, 1.0, -(10**400), 10**400]) == {0, 3}
    assert taken([2**60, 2**60 + 1]) == {1}
    assert taken(range(5)) == {4}
    assert taken([1.0, 1.1], 5.0) == {0, 1}
    assert taken([1.0, 1.1, -math.inf], 1e-9) == {1}


@pytest.mark.parametrize("wrong", [[], (), np.zeros(0)])
def test_nothing_has_no_highest(wrong: Sequence[int]) -> None:
    with pytest.raises(ValueError, match="number"):
        best_of(wrong, 0.0, 0, 0)


@given(st.lists(st.floats() | st.integers(-2, 2), min_size=1), st.data())
def test_nan_has_no_place_among_numbers(numbers: list[Any], data: st.DataObject) -> None:
    numbers[data.draw(st.integers(0, len(numbers) - 1))] = math.nan
    for column in (numbers, np.array(numbers, float), [Fraction(1, 2), *numbers]):
        with pytest.raises(ValueError, match="number"):
            best_of(column, 0.0, 0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        [1, "a"], [1, None], [1, 1j], ["1", "2"], 5, None, {1}, iter([1]), np.ones((2, 2)), np.array("a"), [1j],
        [np.complex128(1)], np.ones(2, complex),
    ],
)  # fmt: skip
def test_what_is_no_column_of_numbers_is_refused(wrong: Any) -> None:
    for temperature in (0.0, 1.0):
        with pytest.raises((TypeError, ConfigError)):
            best_of(wrong, temperature, 0, 0)
