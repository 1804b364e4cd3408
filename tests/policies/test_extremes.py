"""The highest and the lowest of numbers, beside Python's own max, min, count and index."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.extremes import highest, lowest

FEW = st.sampled_from([-(1 << 80), -(1 << 63), -1, 0, 1, 5, (1 << 30) - 1, 1 << 30, 1 << 62, (1 << 63) - 1, 1 << 63])
INTS = FEW | st.integers(-3, 3)
FLOATS = st.sampled_from([-0.0, 0.0, 1.5, -1.5, float("inf"), -float("inf")]) | st.floats(allow_nan=False)
ANY = INTS | FLOATS | st.booleans() | st.fractions(max_denominator=3)


class Listed(list[Any]):
    """A list of a class of its own."""


@given(
    st.lists(INTS, min_size=1) | st.lists(FLOATS, min_size=1) | st.lists(ANY, min_size=1),
    st.sampled_from([list, tuple, Listed]),
)
def test_one_pass_gives_what_three_give(numbers: list[Any], kind: type[Sequence[Any]]) -> None:
    values: Any = kind(numbers)  # type: ignore[call-arg]
    for extreme, python in ((highest, max), (lowest, min)):
        best: Any = python(numbers)
        assert extreme(values) == (best, numbers.count(best), numbers.index(best))
        assert extreme(values)[0] is values[numbers.index(best)]


def test_other_sequences_and_numbers_are_compared_by_python() -> None:
    assert highest(range(5)) == (4, 1, 4)
    assert lowest([np.float32(2), 1, Fraction(1, 1)]) == (1, 2, 1)


@pytest.mark.parametrize("wrong", [[], ()])
def test_nothing_has_no_extreme(wrong: Sequence[int]) -> None:
    with pytest.raises(ValueError, match="no highest and no lowest"):
        highest(wrong)


@pytest.mark.parametrize("wrong", [[1, "a"], [1, None], [1, 1j], 5, None, {1}])
def test_what_cannot_be_compared_is_refused_as_by_python(wrong: Any) -> None:
    with pytest.raises(TypeError):
        lowest(wrong)
