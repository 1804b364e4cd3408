"""The one runner of experiments.

Results by key, the same for any number of processes, and honest where the time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter

import pytest

from prefixroute.sim import Cell, Grid, Scenario, floor, grid
from prefixroute.sim.progress import Work
from prefixroute.workload import Workload, chat

OUTCOME = attrgetter("outcome")
CELLS = {
    "one": Cell(Scenario(policy="random", replicas=2), OUTCOME),
    ("two", 4): Cell(Scenario(policy="session", replicas=4), OUTCOME),
    "unlimited": Cell(Scenario(policy="session", replicas=4).unlimited(), OUTCOME, optional=True),
}
SMALL = partial(chat, requests=60)


def after(calls: int) -> Callable[[], bool]:
    """Say that the time is up after so many questions."""
    left = [calls]

    def up() -> bool:
        left[0] -= 1
        return left[0] < 0

    return up


def test_results_are_found_by_key_and_do_not_depend_on_the_number_of_processes() -> None:
    here = Grid(SMALL, (1, 2)).run(CELLS, floor=("blocks", 0))
    there = Grid(SMALL, (1, 2), jobs=2).run(CELLS, floor=("blocks", 0))
    assert here == there
    assert list(here.runs) == list(CELLS)
    assert [(one.policy, one.replicas, one.seed) for one in here.runs["two", 4]] == [
        ("session", 4, 1),
        ("session", 4, 2),
    ]
    assert here.left_out == ()


@pytest.mark.parametrize(("asked", "keys", "seeds"), [(0, 2, 1), (1, 3, 1), (3, 3, 1), (4, 3, 2)])
def test_where_the_time_is_up_whole_seeds_and_what_is_optional_are_left_out(asked: int, keys: int, seeds: int) -> None:
    results = Grid(SMALL, (1, 2), time_is_up=after(asked)).run(CELLS)
    assert (len(results.runs), len(results.seeds)) == (keys, seeds)
    assert all(len(runs) == seeds for runs in results.runs.values())
    assert bool(results.left_out) == (keys < 3 or seeds < 2)


def test_the_floor_of_a_fixed_workload_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    real = grid.floor_tokens

    def counted(workload: Workload, *rest: object) -> tuple[int, int]:
        looked.append(workload.name)
        return real(workload, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(grid, "floor_tokens", counted)
    fixed = SMALL(1)
    assert Grid(fixed, (1, 2, 3)).run(CELLS, floor=("blocks", 0)).floor == floor(fixed)
    assert len(looked) == 1
    Grid(SMALL, (1, 2, 3)).run(CELLS, floor=("blocks", 0))
    assert len(looked) == 4


def test_the_floor_is_that_of_the_seeds_that_were_run() -> None:
    all_of_them = Grid(SMALL, (1, 2)).run(CELLS, floor=("blocks", 0))
    ended = Grid(SMALL, (1, 2), time_is_up=after(3)).run(CELLS, floor=("blocks", 0))
    assert (len(all_of_them.seeds), len(ended.seeds)) == (2, 1)
    assert ended.floor == floor(SMALL(1)) != all_of_them.floor


def test_the_share_of_work_never_goes_back() -> None:
    shares: list[float] = []
    work = Work(lambda share, _: shares.append(share), 3.0)
    for length, told in ((2.0, (0.0, 0.5, 1.0)), (1.0, (0.0, 1.0)), (9.0, (0.5, 1.0))):
        report = work.part(length)
        assert report is not None
        for share in told:
            report(share, "")
    assert shares == sorted(shares)
    assert (shares[1], shares[-1]) == (1 / 3, 1.0)
    assert Work(None, 1.0).part(1.0) is None
