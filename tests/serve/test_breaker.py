"""Breakers: rules alone, with the time passed in."""

from __future__ import annotations

import pytest

from prefixroute.serve.breaker import Breaker, State

CLOSED, OPEN, HALF_OPEN = State.CLOSED, State.OPEN, State.HALF_OPEN


def test_failures_in_a_row_open_it_and_a_success_begins_the_count_anew() -> None:
    breaker = Breaker(3, 10, 60)
    assert [breaker.fails(0), breaker.fails(0), breaker.served(), breaker.fails(0), breaker.fails(0)] == [CLOSED] * 5
    assert breaker.fails(0) is OPEN


def test_a_passing_check_excuses_no_failed_request() -> None:
    breaker = Breaker(3, 10, 60)
    for _ in range(2):
        breaker.fails(0)
        breaker.passes(0)
    assert breaker.fails(0) is OPEN


def test_it_is_tried_after_its_time_by_a_check_and_closed_by_a_request() -> None:
    breaker = Breaker(1, 10, 60)
    assert breaker.fails(100) is OPEN
    assert breaker.passes(109.9) is OPEN
    assert breaker.passes(110) is HALF_OPEN
    assert breaker.passes(111) is HALF_OPEN  # checks alone close nothing
    assert breaker.served() is CLOSED
    assert breaker.failed == 0


def test_a_failed_trial_doubles_the_time_up_to_a_bound_and_a_success_resets_it() -> None:
    breaker, now, waited = Breaker(1, 10, 60), 0.0, []
    breaker.fails(now)
    for _ in range(5):
        begun = now
        while breaker.passes(now) is OPEN:
            now += 1
        waited.append(now - begun)
        assert breaker.fails(now) is OPEN
    assert waited == [10, 20, 40, 60, 60]
    assert breaker.passes(now + 60) is HALF_OPEN
    assert breaker.served() is CLOSED
    breaker.fails(1_000)
    assert breaker.passes(1_010) is HALF_OPEN


@pytest.mark.parametrize("late", ["served", "fails"])
def test_what_began_before_it_opened_changes_nothing_when_it_ends(late: str) -> None:
    breaker = Breaker(1, 10, 60)
    breaker.fails(0)
    assert (breaker.served() if late == "served" else breaker.fails(9.0)) is OPEN
    assert breaker.passes(10) is HALF_OPEN


def test_one_that_was_gone_is_another_process_and_tried_at_once() -> None:
    breaker = Breaker(2, 10, 60)
    breaker.fails(0)
    assert breaker.fails(0, gone=True) is OPEN
    assert breaker.passes(1) is HALF_OPEN
    assert breaker.fails(1) is OPEN  # it listens, and serves nothing
    assert breaker.passes(20.9) is OPEN
    assert breaker.passes(21) is HALF_OPEN


def test_a_longest_time_below_the_shortest_is_not_used() -> None:
    breaker = Breaker(1, 10, 1)
    breaker.fails(0)
    assert breaker.passes(9) is OPEN
    assert breaker.passes(10) is HALF_OPEN
