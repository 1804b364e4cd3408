"""The event queue: order, ties, and refusals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.sim.clock import EventQueue


@given(st.lists(st.integers(0, 5)))
def test_events_run_by_time_and_then_by_order_of_scheduling(times: list[int]) -> None:
    queue, ran = EventQueue(), []
    for number, at in enumerate(times):
        queue.schedule(at, lambda at=at, number=number: ran.append((at, number, queue.time())))
    queue.run()
    assert [(at, number) for at, number, _ in ran] == sorted((at, number) for number, at in enumerate(times))
    assert all(at == now for at, _, now in ran)
    assert len(queue) == 0


def test_an_event_may_schedule_another_at_the_same_instant() -> None:
    queue, ran = EventQueue(), []

    def first(label: str) -> None:
        ran.append(label)
        queue.schedule(queue.now, ran.append, "third")

    queue.schedule(1.0, first, "first")
    queue.schedule(1.0, ran.append, "second")
    queue.run()
    assert ran == ["first", "second", "third"]


@pytest.mark.parametrize("at", [0.5, math.inf, math.nan])
def test_the_past_and_never_are_refused(at: float) -> None:
    queue = EventQueue()
    queue.schedule(1.0, lambda: None)
    queue.run()
    with pytest.raises(ValueError, match="an event must lie in"):
        queue.schedule(at, lambda: None)


def test_time_can_be_let_pass_up_to_a_moment() -> None:
    queue, ran = EventQueue(), []
    for at in (1.0, 2.0, 4.0):
        queue.schedule(at, ran.append, at)
    queue.schedule(2.0, queue.schedule, 2.5, ran.append, 2.5)
    assert queue.next_at == 1.0
    queue.run_until(3.0)
    assert (ran, queue.now, queue.next_at) == ([1.0, 2.0, 2.5], 3.0, 4.0)
    queue.run_until(1.0)
    assert queue.now == 3.0
    queue.run()
    assert queue.next_at is None
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            queue.run_until(wrong)
