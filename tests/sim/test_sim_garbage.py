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


@pytest.mark.parametrize(("own", "meanwhile"), [(700, RARELY), (RARELY + 1, RARELY + 1), (0, 0)])
def test_it_looks_rarely_during_a_run_and_as_before_after_it(own: int, meanwhile: int) -> None:
    seen = set()

    def policy(view: View) -> int:
        seen.add(gc.get_threshold())
        return view.slots[0]

    gc.set_threshold(own, 11, 12)
    simulate(chat(1, requests=20), Scenario(policy=policy, replicas=2))
    assert seen == {(meanwhile, 11, 12)}
    assert gc.get_threshold() == (own, 11, 12)


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
    assert gc.get_threshold()[0] == RARELY
    one.wait()
    threads[1].join()
    assert gc.get_threshold()[0] == 702
