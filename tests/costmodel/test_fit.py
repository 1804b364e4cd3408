from __future__ import annotations

import numpy as np
import pytest

from prefixroute.costmodel import CostModel, fit
from prefixroute.errors import ConfigError

SIZES = [(500, 0), (2_000, 0), (8_000, 0), (8_000, 6_000), (32_000, 0), (32_000, 30_000), (1_000, 960)]


def measured(cost: CostModel, noise: float = 0.0) -> list[tuple[float, float, float]]:
    rng = np.random.default_rng(5)
    return [
        (tokens, cached, cost.prefill_seconds(tokens - cached, cached) * (1 + noise * rng.standard_normal()))
        for tokens, cached in SIZES
    ]


@pytest.mark.parametrize("gpu", ["H100", "L40S", "MI300X"])
def test_figures_behind_exact_measurements_are_found_again(gpu: str) -> None:
    truth = CostModel(gpu, "Qwen3-32B", utilization=0.37, overhead_s=0.012, tensor_parallel=2)
    result = fit(measured(truth), CostModel(gpu, "Qwen3-32B", tensor_parallel=2))
    assert result.cost.utilization == pytest.approx(0.37)
    assert result.cost.overhead_s == pytest.approx(0.012)
    assert result.p90_absolute_error < 1e-9
    assert result.notes == ()
    assert not {item.name for item in result.cost.assumptions if item.assumed} & {"utilization", "overhead_s"}


def test_noise_shows_in_the_report_and_moves_the_figures_little() -> None:
    result = fit(measured(CostModel(utilization=0.4), noise=0.05) * 20, CostModel())
    assert result.cost.utilization == pytest.approx(0.4, rel=0.1)
    assert 0.01 < result.median_absolute_error < 0.1
    assert abs(result.worst.relative_error) >= result.p90_absolute_error
    assert result.rows == 140
    assert f" {result.rows} rows" in str(result)


def test_overhead_is_never_negative() -> None:
    rows = [(1_000, 0, 0.001), (2_000, 0, 0.05), (4_000, 0, 0.15)]
    result = fit(rows, CostModel())
    assert result.cost.overhead_s == 0
    assert any("20 % off" in note for note in result.notes)


def test_faster_than_the_gpu_is_said() -> None:
    rows = [(tokens, cached, seconds / 4) for tokens, cached, seconds in measured(CostModel())]
    result = fit(rows, CostModel())
    assert result.cost.utilization == 1
    assert "H100" in result.notes[0]


def test_milliseconds_are_not_taken_for_seconds() -> None:
    rows = [(tokens, cached, 1_000 * seconds) for tokens, cached, seconds in measured(CostModel())]
    with pytest.raises(ConfigError, match=r"seconds.* 1,000 .*H100.*milliseconds"):
        fit(rows, CostModel())


def test_the_articles_formula_is_fitted_too() -> None:
    truth = CostModel(preset="article", utilization=0.37)
    result = fit(measured(truth), CostModel(preset="article"))
    assert result.cost.utilization == pytest.approx(0.37)
    assert result.cost.preset == "article"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "needs 3 rows"),
        ([(100, 0, 1.0), (200, 0, 2.0)], "needs 3 rows"),
        ([(100, 0, 1.0)] * 3, "differ.*length"),
        ([(100, 0, 3.0), (1_000, 0, 2.0), (5_000, 0, 0.5)], "cannot be fitted"),
        ([(100, 0, 1.0), (200, 200, 2.0), (300, 0, 3.0)], r"measured row 1.*\(.*200"),
        ([(100, 0, 1.0), (200, 0, 2.0), (300, 0, float("nan"))], "measured row 2"),
    ],
)
def test_rows_that_say_nothing_are_refused(rows: list[tuple[float, float, float]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(rows, CostModel())
