from __future__ import annotations

from dataclasses import replace

import pytest

from prefixroute.report.study import Study
from prefixroute.report.table import COLUMNS, figure, usd


def test_floor_is_unknown_when_no_row_knows_it(study: Study) -> None:
    assert study.floor == pytest.approx(0.0371)
    assert replace(study, rows=({**study.rows[0], "floor": None},)).floor is None


def test_the_summary_speaks_of_the_largest_fleet(study: Study) -> None:
    share, cost = study.summary()
    assert "At 8 replicas, round-robin computes 51.0 %" in share
    assert "cache-aware 4.3 %" in share
    assert "below 3.7 %" in share
    assert "$127.5 with round-robin and $10.75 with cache-aware" in cost


def test_a_column_is_marked_only_where_a_default_stands_behind_it(study: Study) -> None:
    marked = {column.title for column in COLUMNS if column.assumed(study.assumptions)}
    assert marked == {"$ / 1M requests"}


@pytest.mark.parametrize(
    ("amount", "text"), [(9.634, "9.63"), (99.99, "99.99"), (127.44, "127.4"), (3_540.2, "3,540"), (0, "0.00")]
)
def test_dollars(amount: float, text: str) -> None:
    assert usd(amount) == text


@pytest.mark.parametrize(
    ("value", "text"), [(300_000, "300,000"), (0.5, "0.5"), (9.89e14, "9.89e+14"), ("H100", "H100"), (12, "12")]
)
def test_figures(value: float | str, text: str) -> None:
    assert figure(value) == text
