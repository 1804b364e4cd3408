"""Draws beside the formulas in Python's own integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_twins import MASK, mix64

from prefixroute.draws import LONGEST, chain, draw, scattered
from prefixroute.errors import ConfigError

GAMMA = 0x9E3779B97F4A7C15
WORDS = st.integers(0, MASK)
ANY_INT = st.integers(-(1 << 70), 1 << 70) | st.sampled_from([0, -1, MASK, MASK + 1, 1 << 63])


@given(ANY_INT, ANY_INT, ANY_INT)
def test_a_draw_is_a_hash_of_its_arguments(seed: int, turn: int, k: int) -> None:
    expected = (mix64(seed + turn * GAMMA + k * 0xD1B54A32D192ED03) >> 11) * 2.0**-53
    assert draw(seed, turn, k) == expected


@given(ANY_INT, st.integers(0, 200), st.integers(0, 200))
def test_a_chain_is_its_key_scattered_by_place(key: int, first: int, last: int) -> None:
    numbers = chain(key, first, last)
    assert numbers.dtype == np.uint64
    assert numbers.tolist() == [mix64(key + (place + 1) * GAMMA) for place in range(first, last)]
    assert np.array_equal(numbers[5:], chain(key, first + 5, last)[: max(0, last - first - 5)])


@given(st.lists(WORDS))
def test_numbers_are_scattered_one_by_one(numbers: list[int]) -> None:
    array = np.array(numbers, np.uint64)
    assert scattered(array).tolist() == [mix64(number + GAMMA) for number in numbers]
    assert np.array_equal(scattered(array[::2]), scattered(array)[::2])  # any stride


def test_what_is_no_int_has_no_draws() -> None:
    for wrong in ("a", None, 1.5):
        with pytest.raises(TypeError):
            draw(wrong, 0, 0)  # type: ignore[arg-type]


def test_a_chain_is_no_longer_than_a_prompt() -> None:
    assert len(chain(1, 7, 7 + LONGEST)) == LONGEST
    for last in (8 + LONGEST, 1 << 40, (1 << 64) - 1):
        with pytest.raises(ConfigError, match=f"{LONGEST} blocks.* {last - 7}"):
            chain(1, 7, last)
    for wrong in (-1, 1 << 64):
        with pytest.raises(ConfigError, match=rf"64 bits.* {wrong}"):
            chain(1, 0, wrong)
