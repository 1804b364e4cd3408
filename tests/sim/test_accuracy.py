"""What ``make accuracy`` recorded beside other implementations still holds, and the page says it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from accuracy import page, queues
from accuracy.comparison import Comparison, recorded
from accuracy.decisions import CHECKS
from accuracy.scripts import fresh, scripts
from prefixroute.policies import presets

STUDIES = {name: [one for one in recorded() if one.study == name] for name in page.STUDIES}


def find(study: str, *words: str) -> Comparison:
    (found,) = (one for one in STUDIES[study] if all(word in one.quantity for word in words))
    return found


def test_every_study_is_recorded_and_the_page_is_written_from_it() -> None:
    assert all(STUDIES.values())
    assert page.PAGE.read_text(encoding="utf-8") == page.render()


def test_hits_are_those_of_vllms_manager() -> None:
    assert len(STUDIES["hits"]) >= 16
    assert [one.quantity for one in STUDIES["hits"] if one.ours != one.independent] == []


def test_decisions_are_those_of_the_routers_that_presets_reproduce() -> None:
    rows = STUDIES["decisions"]
    presets_, controls = ([one for one in CHECKS if one.control is control] for control in (False, True))
    assert len(rows) == 6 * len(presets_) + 3 * len(controls)
    assert {one.quantity.split(",")[0] for one in rows} == {str(check) for check in CHECKS}
    assert [one.quantity for one in rows if one.ours and one.quantity.startswith("preset")] == []
    for check in controls:
        assert sum(one.ours for one in rows if one.quantity.startswith(f"{check},")) > 10
    for check in presets_:
        assert presets()[check.policy.partition(":")[0]].checked.startswith(f"decisions of {check.original}"[:16])


def test_scripts_are_the_same_for_all() -> None:
    for script, again in zip((*scripts(), *fresh()), (*scripts(), *fresh()), strict=True):
        assert script == again
        assert len(script.ends) == len(script.prompts)
        open_ = 0
        for ends in script.ends:
            for at in ends:
                assert 0 <= at < open_
                open_ -= 1
            open_ += 1


def test_queues_are_lindleys() -> None:
    arrivals = np.cumsum(np.random.default_rng(7).exponential(2.0, 2_000))
    assert queues.simulated(arrivals) == pytest.approx(queues.lindley(arrivals, queues.SERVICE_S), rel=1e-9)
    assert all(one.ours == pytest.approx(one.independent, rel=1e-9) for one in STUDIES["queues"])


@pytest.mark.parametrize(("capacity", "speed"), [(300_000, 1.0), (3_000_000, 3.0)])
def test_round_robin_takes_the_time_of_dynamos_mock_engine(traces_dir: Path, capacity: int, speed: float) -> None:
    from accuracy import mocker  # noqa: PLC0415 - reads where the traces are

    if not (traces_dir / mocker.TRACE).exists():
        pytest.skip(f"{mocker.TRACE} is not there")
    expected = find("mocker", f"round robin, {capacity:,} tokens", "mean TTFT").independent
    assert mocker.mean_ttft(traces_dir / mocker.TRACE, capacity, speed) == pytest.approx(expected, rel=0.02)


def test_output_that_grows_takes_the_time_that_the_mock_engine_takes() -> None:
    rows = [one for one in STUDIES["mocker"] if one.quantity.startswith("output that grows")]
    assert len(rows) == 8
    assert all(one.ours == pytest.approx(one.independent, rel=0.1) for one in rows)


def test_differences_are_written_in_the_unit_that_tells() -> None:
    def differs(independent: float, ours: float, unit: str) -> str:
        return Comparison("hits", "a quantity", "a source", independent, ours, unit).difference

    assert differs(5.0, 5.25, "%") == "+0.250 pp"
    assert differs(2.0, 2.1, "s") == "+5.0 %"
    assert differs(2.0, 2.000001, "s") == "0"
    assert differs(0, 3, "requests") == "+3"
