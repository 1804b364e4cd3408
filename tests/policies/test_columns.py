"""Columns beside dull Python that gives the same: extremes, sums of products and the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from statistics import harmonic_mean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.columns import falling, filled, highest, lowest, mapped, nth, sum_of_products, up_to
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


@given(COLUMNS, kinds)
def test_one_pass_gives_what_three_give(numbers: list[Any], kind: Callable[[list[Any]], Any]) -> None:
    column = kind(numbers)
    values: list[Any] = list(column)
    for extreme, python in ((highest, max), (lowest, min)):
        best: Any = python(values)
        assert extreme(column) == (best, values.count(best), values.index(best))


def test_an_extreme_is_the_object_itself() -> None:
    numbers = [10**6, 2, 10**6 + 1, Fraction(1, 2)]
    assert highest(numbers)[0] is numbers[2]
    assert lowest(numbers)[0] is numbers[3]


def test_other_sequences_and_numbers_are_compared_by_python() -> None:
    assert highest(range(5)) == (4, 1, 4)
    assert lowest([np.float32(2), 1, Fraction(1, 1)]) == (1, 2, 1)
    assert highest([10**400, 1.0, -(10**400)]) == (10**400, 1, 0)
    assert highest(np.array([1, 3, 2], np.int32)) == (3, 1, 1)


@pytest.mark.parametrize("wrong", [[], (), np.zeros(0)])
def test_nothing_has_no_extreme(wrong: Sequence[int]) -> None:
    with pytest.raises(ValueError, match="no highest and no lowest"):
        highest(wrong)


@given(st.lists(st.floats() | st.integers(-2, 2), min_size=1), st.data())
def test_nan_has_no_place_among_numbers(numbers: list[Any], data: st.DataObject) -> None:
    numbers[data.draw(st.integers(0, len(numbers) - 1))] = math.nan
    for column in (numbers, np.array(numbers, float), [Fraction(1, 2), *numbers]):
        for extreme in (highest, lowest):
            with pytest.raises(ValueError, match="not a number"):
                extreme(column)  # type: ignore[type-var]


@pytest.mark.parametrize(
    "wrong",
    [
        [1, "a"],
        [1, None],
        [1, 1j],
        ["1", "2"],
        5,
        None,
        {1},
        iter([1]),
        np.ones((2, 2)),
        np.array("a"),
        [1j],
        [np.complex128(1)],
        np.ones(2, complex),
    ],
)
def test_what_is_no_column_of_numbers_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ConfigError)):
        lowest(wrong)
    for call in (falling, lambda column: sum_of_products(0.0, (1.0, column))):
        with pytest.raises((TypeError, ConfigError)):
            call(wrong)


@given(COLUMNS, kinds, st.data())
def test_the_nth_of_equals(numbers: list[Any], kind: Callable[[list[Any]], Any], data: st.DataObject) -> None:
    column = kind(numbers)
    values = list(column)
    wanted = data.draw(st.sampled_from(values))
    places = [at for at, value in enumerate(values) if value == wanted]
    assert [nth(column, wanted, earlier) for earlier in range(len(places))] == places
    with pytest.raises(ValueError, match=f"not {len(places) + 1} of"):
        nth(column, wanted, len(places))


@given(st.lists(INTS | FLOATS))
def test_a_function_is_asked_once_for_each_number(numbers: list[Any]) -> None:
    asked = []

    def half(number: float) -> float:
        asked.append((type(number), number))
        return float(number) / 2

    assert mapped(numbers, half).tolist() == [float(number) / 2 for number in numbers]
    small = [(kind, number) for kind, number in asked if kind is float or -(1 << 63) <= number < 1 << 63]
    assert len({(kind, str(number)) for kind, number in small}) == len(small)


def test_a_function_may_change_what_it_maps() -> None:
    numbers = [1, 2, 3, 4]

    def shrink(number: int) -> float:
        numbers.pop()
        return float(number)

    assert mapped(numbers, shrink).tolist() == [1.0, 2.0]
    with pytest.raises(ConfigError, match="must be a number, got str"):
        mapped([1], lambda _: "x")  # type: ignore[arg-type,return-value]
    with pytest.raises(ZeroDivisionError):
        mapped([1], lambda _: 1 / 0)


def test_falling_reaches_both_ends_whatever_lies_between_them() -> None:
    for high in (5e-324, 1e-309, 49.0, 3 * 10**18, 1e308):
        assert falling([0, high, high]).tolist() == [1.0, 0.0, 0.0]


def test_a_rate_known_of_one_is_passed_on_exactly() -> None:
    """An idle replica that is not known must tie with an idle one that is."""
    for rate in (*range(1, 1_000), 0.1, 1 / 3, 27_123.456):
        assert filled([rate, None, None], 1.0).tolist() == [rate] * 3
        assert filled([None, rate, rate, rate, None], 1.0).tolist() == [rate] * 5


REALS = st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6)


@given(st.lists(REALS, min_size=1), kinds)
def test_falling_is_one_at_the_lowest_and_zero_at_the_highest(
    numbers: list[Any], kind: Callable[[list[Any]], Any]
) -> None:
    low, high = float(min(numbers)), float(max(numbers))
    expected = [1.0 if low == high else (high - value) / (high - low) for value in map(float, numbers)]
    assert falling(kind(numbers)).tolist() == expected


RATES = st.none() | st.floats(1e-3, 1e6) | st.integers(1, 10**6)


@given(st.lists(RATES), kinds)
def test_what_is_not_known_is_the_harmonic_mean_of_what_is(rates: list[Any], kind: Callable[[list[Any]], Any]) -> None:
    known = [rate for rate in rates if rate is not None]
    mean = harmonic_mean(known) if known else 7.0
    column = kind(rates) if len(known) == len(rates) else list(rates)
    assert filled(column, 7.0).tolist() == pytest.approx([mean if rate is None else rate for rate in rates])


@given(st.lists(st.tuples(REALS, REALS, REALS), min_size=1), REALS, REALS, REALS, kinds)
def test_sums_of_products_round_as_python_does(
    rows: list[tuple[float, float, float]], constant: float, one: float, two: float, kind: Callable[[list[Any]], Any]
) -> None:
    a, b, c = (kind(list(column)) for column in zip(*rows, strict=True))
    expected = [constant + one * float(x) + two * float(y) * float(z) for x, y, z in rows]
    sums = sum_of_products(constant, (one, a), (two, b, c))
    assert sums.dtype == np.float64
    assert sums.tolist() == expected
    over = [abs(float(z)) + 1.0 for _, _, z in rows]
    assert sum_of_products(constant, (one, a), (two, b, c), over=over).tolist() == [
        value / divisor for value, divisor in zip(expected, over, strict=True)
    ]


def test_columns_must_fit_together() -> None:
    with pytest.raises(ConfigError, match="one length, got 2 and 3"):
        sum_of_products(0.0, (1.0, [1, 2]), (1.0, [1, 2, 3]))
    with pytest.raises(ConfigError, match="one length, got 2 and 1"):
        sum_of_products(0.0, (1.0, [1, 2]), over=[1])
    with pytest.raises(ConfigError, match="at least one term"):
        sum_of_products(0.0)
    with pytest.raises(ConfigError, match="a weight and columns, got 1"):
        sum_of_products(0.0, (1.0,))
    with pytest.raises(ConfigError, match="a weight must be a number, got str"):
        sum_of_products(0.0, ("x", [1]))  # type: ignore[arg-type]


@given(
    st.sets(st.integers(0, 5)),
    st.lists(st.integers(0, 5) | st.floats(0, 5), min_size=6, max_size=6),
    st.floats(-1, 6) | st.integers(-1, 6),
    kinds,
)
def test_the_slots_up_to_a_limit(
    slots: set[int], values: list[Any], limit: float, kind: Callable[[list[Any]], Any]
) -> None:
    candidates = tuple(sorted(slots))
    assert up_to(candidates, kind(values), limit) == tuple(slot for slot in candidates if values[slot] <= limit)
    for wrong in (6, -1, "a"):
        with pytest.raises(ConfigError, match=r"a slot must be 0..6, got"):
            up_to((*candidates, wrong), values, limit)  # type: ignore[arg-type]
