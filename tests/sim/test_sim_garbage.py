"""The collector's threshold is raised while runs go on, and the host's own again afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Barrier, Thread

import pytest

from prefixroute.policies import View
from prefixroute.sim import Scenario, simulate
from prefixroute.sim.garbage import RARELY, collected_rarely
from prefixroute.workload import chat


@pytest.fixture(autouse=True)
def _own_threshold() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("own", "meanwhile"),
    [
        ((700, 11, 12), RARELY),
        ((RARELY[0] + 1, 11, 5_000), (RARELY[0] + 1, RARELY[1], 5_000)),
        ((0, 11, 12), (0, 11, 12)),
    ],
)
def test_it_looks_rarely_during_a_run_and_as_before_after_it(
    own: tuple[int, int, int], meanwhile: tuple[int, int, int]
) -> None:
    seen = set()

    def policy(view: View) -> int:
        seen.add(gc.get_threshold())
        return view.slots[0]

    gc.set_threshold(*own)
    simulate(chat(1, requests=20), Scenario(policy=policy, replicas=2))
    assert seen == {meanwhile}
    assert gc.get_threshold() == own


def test_garbage_of_a_policy_is_collected_during_a_run() -> None:
    class Cycle:
        alive = 0

        def __init__(self) -> None:
            self.own = self
            Cycle.alive += 1
            most.append(Cycle.alive)

        def __del__(self) -> None:
            Cycle.alive -= 1

    most: list[int] = []

    def policy(view: View) -> int:
        for _ in range(20):
            Cycle()
        return view.slots[0]

    simulate(chat(1, requests=RARELY[0] * 3 // 20), Scenario(policy=policy, replicas=2))
    assert len(most) >= 2.9 * RARELY[0]
    assert max(most) <= 1.2 * RARELY[0]


def test_a_run_that_fails_puts_it_back() -> None:
    gc.set_threshold(701, 10, 10)
    with pytest.raises(ZeroDivisionError):
        simulate(chat(1, requests=5), Scenario(policy=lambda _: 1 // 0, replicas=2))
    assert gc.get_threshold()[0] == 701


def test_of_runs_beside_each_other_the_last_puts_it_back() -> None:
    gc.set_threshold(702, 10, 10)
    both, one = Barrier(3), Barrier(2)

    def run(stays: bool) -> None:
        with collected_rarely():
            both.wait()
            if stays:
                one.wait()

    threads = [Thread(target=run, args=(stays,)) for stays in (False, True)]
    for thread in threads:
        thread.start()
    both.wait()
    threads[0].join()
    assert gc.get_threshold() == RARELY
    one.wait()
    threads[1].join()
    assert gc.get_threshold()[0] == 702
