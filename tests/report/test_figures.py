"""Figures as people read them: all dollars of a table with the same digits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.plan import Calls, plan_burst
from prefixroute.providers import find_provider
from prefixroute.report.figures import dollars, money_of, usd
from prefixroute.report.plans import burst_table


@pytest.mark.parametrize(
    ("amount", "text"),
    [(9.634, "9.63"), (99.99, "99.99"), (127.44, "127.44"), (3_540.2, "3,540"), (0, "0.00"), (0.0683, "0.0683")],
)
def test_dollars_alone(amount: float, text: str) -> None:
    assert usd(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.4, "$0.40"), (0.0068, "$0.0068"), (0.068, "$0.068"), (-9.634, "$-9.63"), (3_540.2, "$3,540")],
)
def test_dollars_in_a_sentence_end_in_no_zero_behind_the_cents(amount: float, text: str) -> None:
    assert dollars(amount) == text


@pytest.mark.parametrize(
    ("amounts", "texts"),
    [
        ((0.4, 0.5, 0.068, 0.07), ("0.400", "0.500", "0.068", "0.070")),
        ((127.44, 9.634), ("127.44", "9.63")),
        ((1_023.4, 308.6, 0.0), ("1,023", "309", "0")),
        ((1_023.4, 9.634), ("1,023.40", "9.63")),
    ],
)
def test_dollars_of_a_table(amounts: tuple[float, ...], texts: tuple[str, ...]) -> None:
    money = money_of(amounts)
    assert tuple(map(money.figure, amounts)) == texts


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=8))
def test_the_largest_amount_of_a_table_has_three_digits_at_least(amounts: list[float]) -> None:
    money = money_of([*amounts, 0.0, None])
    largest = max(amounts)
    assert float(money.figure(largest).replace(",", "")) == pytest.approx(largest, rel=0.005)


def test_every_cost_of_a_plan_has_the_same_digits() -> None:
    burst = plan_burst(find_provider("anthropic").model(), Calls(10, 20_000))
    table = burst_table(burst)
    costs = [cell for row in table.rows for cell in row if cell.startswith("$")]
    assert len(costs) == 3 * len(burst.orders)
    assert len({len(cost.partition(".")[2]) for cost in costs}) == 1
