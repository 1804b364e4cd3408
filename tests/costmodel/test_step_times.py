"""Step times beside those of measured kernels, as recorded by ``benches/accuracy/step_times.py``."""

from __future__ import annotations

import numpy as np
import pytest

from accuracy.step_times import CONFIGURATIONS, Configuration, errors, recorded

TABLE = [row for row in recorded() if row.published]
MEDIAN, DENSE, EXPERTS = 0.08, 0.20, 0.35
"""The goal: median error over the table, and the largest of a row."""


def test_what_is_recorded_is_what_is_compared() -> None:
    assert recorded() == list(CONFIGURATIONS)
    assert len(TABLE) == 12


@pytest.mark.parametrize("fitted", [True, False], ids=["fitted", "predicted"])
def test_the_median_error_of_the_table(fitted: bool) -> None:
    found = np.concatenate([np.abs(errors(row)) for row in TABLE if row.fitted == fitted])
    assert np.median(found) <= MEDIAN


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_no_row_of_the_table_is_far_off(row: Configuration) -> None:
    assert np.abs(errors(row)).max() <= (EXPERTS if row.is_sparse else DENSE)


def test_dense_models_on_other_replicas_are_predicted() -> None:
    """Rows that nothing was fitted to.

    Fp8 on B200 is left out, where the tables have one request slower than sixteen.
    """
    rows = [
        row
        for row in recorded()
        if not row.fitted and not row.is_sparse and (row.gpu, row.weight_format) != ("B200", "fp8")
    ]
    found = np.concatenate([np.abs(errors(row)) for row in rows])
    assert np.median(found) <= 0.06
    assert found.max() <= DENSE


def test_experts_on_other_replicas() -> None:
    """DeepSeek-V3 on B200 is left out, where the tables have its shared experts' products at the price of their dispatch."""
    rows = [row for row in recorded() if row.is_sparse and (row.model, row.gpu) != ("DeepSeek-V3", "B200")]
    predicted = np.concatenate([np.abs(errors(row)) for row in rows if not row.fitted])
    assert len(predicted) > 150
    assert np.median(predicted) <= MEDIAN
    assert max(np.abs(errors(row)).max() for row in rows) <= EXPERTS
