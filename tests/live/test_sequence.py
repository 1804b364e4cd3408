"""The order of an engine's batches: what is applied, asked for and given up, by what arrives."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixroute.errors import ConfigError
from prefixroute.live.sequence import Action, Apply, Clear, Sequence


@dataclass
class Process:
    """An engine process: its published batches, some numbers burnt, the last few kept for replay."""

    name: str = "p"
    keep: int = 100
    burnt: frozenset[int] = frozenset()
    next: int = 0
    batches: list[tuple[int, bytes]] = field(default_factory=list)

    def publish(self) -> tuple[int, bytes]:
        while self.next in self.burnt:
            self.next += 1
        batch = (self.next, f"{self.name}{self.next}".encode())
        self.batches.append(batch)
        self.next += 1
        return batch

    def replay(self, start: int) -> list[tuple[int, bytes]]:
        return [batch for batch in self.batches[-self.keep :] if batch[0] >= start]


class Reader:
    """What an index would hold: the batches applied since the last Clear."""

    def __init__(self, sequence: Sequence, process: Process) -> None:
        self.sequence, self.process = sequence, process
        self.held: list[bytes] = []
        self.clears: list[str] = []
        self.asked: list[int] = []

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Apply):
                self.held.append(action.payload)
            elif isinstance(action, Clear):
                self.held.clear()
                self.clears.append(action.reason)
            else:
                self.asked.append(action.start)

    def live(self, *numbers: int) -> None:
        known = dict(self.process.batches)
        for number in numbers:
            self.take(self.sequence.live(number, known[number]))

    def answer(self, *, lost: frozenset[int] = frozenset(), limit: int = 100) -> None:
        """Answer every replay that is asked for, until none is."""
        while self.sequence.asking:
            limit -= 1
            assert limit, "asks for ever"
            self._answer_one(lost)

    def _answer_one(self, lost: frozenset[int]) -> None:
        asked = len(self.asked)
        for position, (number, payload) in enumerate(self.process.replay(self.asked[-1])):
            if position < 2 or number not in lost:
                self.take(self.sequence.replayed(number, payload))
            if len(self.asked) > asked:
                return  # the newer replay ends this one
        self.take(self.sequence.replay_ended())

    def silence(self) -> None:
        while self.sequence.asking:
            self.take(self.sequence.replay_ended(marked=False))

    @property
    def all_held(self) -> bool:
        return self.held == [payload for _, payload in self.process.batches]


def reader(count: int = 0, *, can_replay: bool = True, **options: object) -> Reader:
    process = Process(**options)
    for _ in range(count):
        process.publish()
    return Reader(Sequence(can_replay=can_replay), process)


def joined(count: int, seen: int, **options: object) -> Reader:
    """Return a reader of a process that published ``count`` batches, of which the first ``seen`` arrived."""
    one = reader(count, **options)
    one.live(*[number for number, _ in one.process.batches[:seen]])
    one.answer()
    return one


def test_batches_in_order_are_applied_at_once() -> None:
    one = joined(5, 5)
    assert one.all_held
    assert (one.clears, one.asked, one.sequence.degraded) == (["joined"], [], False)


def test_a_gap_waits_and_is_filled() -> None:
    one = joined(8, 3)
    one.live(5, 6)
    assert one.sequence.degraded
    assert one.sequence.waiting == 2
    assert one.held == [b"p0", b"p1", b"p2"]
    one.answer()
    assert one.all_held
    assert one.asked == [2]
    stats = one.sequence.stats
    assert (stats.gaps, stats.lost, stats.burnt, stats.rebuilds) == (1, 0, 0, 0)
    assert not one.sequence.degraded


def test_case_14_a_removed_block_does_not_come_back_to_life() -> None:
    one = joined(5, 2)
    one.live(4)  # removed(h), while 2 and 3 = stored(h) are still being fetched
    one.answer()
    assert one.held == [b"p0", b"p1", b"p2", b"p3", b"p4"]


def test_a_late_reader_reads_the_buffer_first() -> None:
    one = reader(10)
    one.live(7)
    assert one.held == []
    one.answer()
    assert one.all_held
    assert not one.sequence.partial


def test_a_late_reader_of_a_short_buffer_knows_that_it_knows_a_part() -> None:
    one = reader(10, keep=4)
    one.take(one.sequence.connected())
    one.answer()
    assert one.held == [b"p6", b"p7", b"p8", b"p9"]
    assert one.sequence.partial


def test_an_idle_engine_is_joined_without_any_batch() -> None:
    one = reader()
    one.take(one.sequence.connected())
    one.answer()
    assert not one.sequence.degraded
    one.process.publish()
    one.live(0)
    assert one.all_held
    assert one.clears == ["joined"]


def test_case_13_a_restart_clears_before_its_first_batch() -> None:
    one = joined(5, 5)
    one.process = Process("q")
    one.process.publish()
    one.process.publish()
    one.live(0, 1)
    assert one.held == [b"q0", b"q1"]
    assert one.clears == ["joined", "restarted"]


def test_a_restart_that_is_seen_late_reads_the_buffer() -> None:
    one = joined(9, 9)
    one.process = Process("q")
    for _ in range(4):
        one.process.publish()
    one.live(3)
    assert one.held == []
    one.answer()
    assert one.all_held
    assert one.sequence.stats.restarts == 1


@pytest.mark.parametrize("published", [0, 2, 4, 5, 9])
def test_a_restart_during_a_disconnect_is_seen_whatever_the_numbers(published: int) -> None:
    one = joined(5, 5)
    one.process = Process("q")
    for _ in range(published):
        one.process.publish()
    one.take(one.sequence.connected())
    if published:
        one.live(published - 1)
    one.answer()
    assert one.all_held
    assert one.sequence.stats.restarts == 1


def test_a_reconnect_to_the_same_process_loses_nothing_and_clears_nothing() -> None:
    one = joined(8, 5)
    one.take(one.sequence.connected())
    one.live(7)
    assert one.sequence.degraded
    one.answer()
    assert one.all_held
    assert one.clears == ["joined"]


def test_a_batch_that_comes_again_is_ignored() -> None:
    one = joined(5, 5)
    one.live(3, 4)
    assert one.all_held
    assert one.sequence.stats.duplicates == 2
    assert one.clears == ["joined"]


def test_burnt_numbers_end_the_wait_after_the_second_ask() -> None:
    one = joined(5, 1, burnt=frozenset({2, 4}))  # 0 1 3 5 6
    one.live(5)
    one.answer()
    one.live(6)
    assert one.all_held
    assert one.clears == ["joined"]
    assert (one.sequence.stats.burnt, one.sequence.stats.lost) == (2, 0)
    assert one.asked == [0, 1, 3]


def test_burnt_numbers_do_not_disturb_a_late_reader() -> None:
    one = reader(5, burnt=frozenset({0, 2}))
    one.live(6)
    one.answer()
    assert one.all_held


def test_a_buffer_that_is_too_short_clears_and_rebuilds() -> None:
    one = joined(3, 3, keep=5)
    for _ in range(9):
        one.process.publish()
    one.live(11)
    one.answer()
    assert one.held == [b"p7", b"p8", b"p9", b"p10", b"p11"]
    assert one.clears == ["joined", "lost"]
    assert one.sequence.partial
    assert not one.sequence.degraded
    assert (one.sequence.stats.lost, one.sequence.stats.rebuilds) == (8, 1)


def test_an_end_marker_proves_nothing() -> None:
    one = joined(40, 3)
    one.live(39)
    one.answer(lost=frozenset({10, 11, 20, 38}))
    assert one.all_held
    assert one.clears == ["joined"]
    assert one.sequence.stats.burnt == 0


def test_without_replay_a_gap_clears() -> None:
    one = reader(6, can_replay=False)
    one.live(0, 1, 4, 5)
    assert one.held == [b"p4", b"p5"]
    assert one.clears == ["joined", "lost"]
    assert one.sequence.partial


def test_without_replay_a_reconnect_clears() -> None:
    one = reader(6, can_replay=False)
    one.live(0, 1)
    one.take(one.sequence.connected())
    one.live(2)
    assert one.held == [b"p2"]


def test_a_replay_that_nobody_answers_is_asked_for_twice_and_then_given_up() -> None:
    one = joined(9, 2)
    one.live(5, 6)
    one.silence()
    assert one.asked == [1, 1, 0, 0]
    assert one.held == [b"p5", b"p6"]
    assert one.sequence.partial
    assert one.sequence.stats.failed_replays == 4
    one.live(7)
    assert one.held == [b"p5", b"p6", b"p7"]


def test_an_unanswered_audit_changes_nothing() -> None:
    one = joined(5, 3)
    one.take(one.sequence.audit())
    one.live(3)
    one.silence()
    one.live(4)
    assert one.all_held
    assert one.clears == ["joined"]


def test_an_answer_may_be_late_by_more_batches_than_are_remembered() -> None:
    one = joined(3_000, 3, keep=10_000)
    one.take(one.sequence.audit())
    one.live(*range(3, 3_000))
    one.answer()
    assert one.all_held
    assert one.clears == ["joined"]


def test_batches_that_a_replay_overtook_are_no_restart() -> None:
    one = reader(3_000, keep=10_000)
    one.take(one.sequence.connected())
    one.answer()  # while the published ones still wait to be read
    one.live(*range(3_000))
    assert one.all_held
    assert one.clears == ["joined"]
    one.process = Process("q", keep=10_000)
    for _ in range(100):
        one.process.publish()
    one.live(99)
    one.answer()
    assert one.all_held


def test_an_audit_finds_a_lost_tail() -> None:
    one = joined(9, 3)
    one.take(one.sequence.audit())
    one.answer()
    assert one.all_held


def test_what_waits_is_bounded() -> None:
    process = Process(keep=1000)
    one = Reader(Sequence(max_pending=10), process)
    for _ in range(100):
        process.publish()
    one.live(0, *range(2, 99))
    assert one.sequence.waiting <= 10
    one.answer()
    one.take(one.sequence.audit())
    one.answer()
    assert one.all_held
    assert one.clears == ["joined"]


def test_what_waits_is_bounded_in_bytes() -> None:
    process = Process()
    for _ in range(12):
        process.publish()
    process.batches = [(number, bytes([number]) * 100) for number, _ in process.batches]
    one = Reader(Sequence(max_bytes=350), process)
    one.live(0)
    one.live(*range(2, 12))
    assert one.sequence.waiting == 3
    one.answer()
    assert one.held == [payload for _, payload in process.batches]
    huge = Reader(Sequence(max_bytes=1), process)
    huge.live(0, 2, 3)
    assert huge.sequence.waiting == 1  # a single batch always waits
    huge.answer()
    assert huge.held == [payload for _, payload in process.batches]


def refilled(keep: int, published: int = 6) -> Reader:
    """A reader of some batches whose index has then lost a block that the next ones continue."""
    one = Reader(Sequence(), Process(keep=keep))
    for _ in range(published):
        one.process.publish()
    one.live(*range(published))
    one.take(one.sequence.refill())
    assert one.asked == [0]
    return one


def test_blocks_behind_an_unknown_parent_ask_for_the_whole_buffer() -> None:
    one = refilled(keep=100)
    one.answer()
    assert one.held == [payload for _, payload in one.process.batches]
    assert (one.clears, one.sequence.stats.rebuilds, one.sequence.partial) == (["joined", "orphaned"], 1, False)
    one.process.publish()
    one.live(6)
    assert len(one.held) == 7


def test_a_short_buffer_does_not_replace_what_is_held() -> None:
    one = refilled(keep=3)
    one.answer()
    assert one.held == [payload for _, payload in one.process.batches]
    assert (one.clears, one.sequence.stats.rebuilds) == (["joined"], 0)


@pytest.mark.parametrize("keep", [3, 100])
@pytest.mark.parametrize("silent", [False, True])
def test_what_is_missed_while_the_whole_buffer_is_read_is_asked_for(keep: int, silent: bool) -> None:
    one = refilled(keep)
    one.process.publish()
    one.process.publish()
    one.live(7)
    if silent:
        one.take(one.sequence.replay_ended(marked=False))
    one.answer()
    assert one.held == [payload for _, payload in one.process.batches]


def test_the_whole_buffer_is_not_asked_for_where_that_cannot_help() -> None:
    without = Reader(Sequence(can_replay=False), Process())
    without.process.publish()
    without.live(0)
    for one in (Sequence(), without.sequence):
        assert one.refill() == []
    late = Reader(Sequence(), Process(keep=2))
    for _ in range(5):
        late.process.publish()
    late.take(late.sequence.connected())
    late.answer()
    assert late.sequence.partial
    assert late.sequence.refill() == []  # the buffer does not reach back


def restarted_while(one: Reader, published: int) -> None:
    """Replace the process, whose replays are answered before anybody is connected to its publisher."""
    one.process = Process("q", keep=one.process.keep)
    for _ in range(published):
        one.process.publish()


@pytest.mark.parametrize("lost", [frozenset(), frozenset({4})], ids=["all answers", "one answer lost"])
def test_a_batch_that_waits_is_not_applied_to_the_next_process(lost: frozenset[int]) -> None:
    one = joined(5, 3)
    one.live(4)  # 3 is lost, and the engine hangs
    one.take(one.sequence.replay_ended(marked=False))
    one.take(one.sequence.replay_ended(marked=False))
    assert one.asked == [2, 2, 0]
    restarted_while(one, 8)
    one.answer(lost=lost)
    assert one.held == [payload for _, payload in one.process.batches]
    one.take(one.sequence.connected())
    one.answer()
    assert one.all_held
    assert not one.sequence.degraded


def test_a_batch_of_a_late_reader_is_not_applied_to_the_next_process() -> None:
    one = reader(5)
    one.take(one.sequence.connected())
    one.live(4)
    restarted_while(one, 4)
    one.answer()
    assert one.held == [b"q0", b"q1", b"q2", b"q3"]


def test_published_batches_of_the_answering_process_are_taken_once_both_have_brought_one() -> None:
    one = reader(6)
    one.take(one.sequence.connected())
    one.live(3, 5)
    for number, payload in one.process.batches[:3]:
        one.take(one.sequence.replayed(number, payload))
    assert one.held == [b"p0", b"p1", b"p2"]
    one.take(one.sequence.replayed(3, b"p3"))
    one.take(one.sequence.replayed(4, b"p4"))
    assert one.all_held
    one.process.publish()
    one.live(6)
    assert one.all_held


def test_a_replay_of_another_engine_does_not_take_the_place_of_what_is_published() -> None:
    one = joined(5, 5)
    one.take(one.sequence.connected())
    one.answer()
    one.process.publish()
    one.live(5)
    mine, one.process = one.process, Process("other")
    for _ in range(9):
        one.process.publish()
    one.take(one.sequence.audit())
    one.answer()
    assert one.held == [payload for _, payload in mine.batches]
    assert (one.sequence.contradicted, one.sequence.degraded, one.sequence.stats.restarts) == (True, True, 0)
    one.process = mine
    mine.publish()
    mine.publish()
    asked = len(one.asked)
    one.live(7)
    assert (len(one.asked), one.sequence.waiting) == (asked, 1)
    one.take(one.sequence.distrust())
    assert (one.held, one.sequence.partial, one.sequence.degraded) == ([b"p7"], True, True)
    one.take(one.sequence.connected())
    assert (one.sequence.contradicted, one.sequence.asking) == (False, True)


def test_what_a_replay_of_another_engine_has_brought_is_forgotten_with_it() -> None:
    one = reader(9)
    one.take(one.sequence.connected())
    one.answer()
    assert one.all_held
    one.process = Process("mine")
    for _ in range(6):
        one.process.publish()
    one.live(5)
    assert one.sequence.contradicted
    one.take(one.sequence.distrust())
    assert one.held == [b"mine5"]
    assert one.sequence.partial


def test_a_replica_that_somebody_else_has_cleared_is_read_again() -> None:
    one = joined(5, 5)
    one.held.clear()
    one.take(one.sequence.emptied())
    assert one.sequence.degraded
    one.process.publish()
    one.live(5)
    one.answer()
    assert one.all_held
    assert (one.clears, one.asked[-1], one.sequence.partial) == (["joined", "emptied"], 0, False)


def test_a_replica_without_replay_that_somebody_else_has_cleared_is_known_in_part() -> None:
    one = reader(3, can_replay=False)
    one.live(0, 1)
    one.held.clear()
    one.take(one.sequence.emptied())
    one.live(2)
    assert (one.held, one.sequence.partial) == ([b"p2"], True)


@pytest.mark.parametrize("bound", [0, -1, 1.5])
@pytest.mark.parametrize("name", ["max_pending", "max_bytes"])
def test_a_bound_is_checked(name: str, bound: object) -> None:
    with pytest.raises(ConfigError):
        Sequence(**{name: bound})


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), lossy=st.booleans(), keep=st.sampled_from([3, 10, 1000]))
def test_no_history_is_ever_silently_wrong(  # noqa: C901, PLR0912  # a random history
    seed: int, lossy: bool, keep: int
) -> None:
    """Loss, repeats, restarts, reconnects, burnt numbers, lossy and silent replays: afterwards all is as published."""
    rng = random.Random(seed)  # noqa: S311
    burnt = frozenset(rng.sample(range(40), 4))
    one = Reader(Sequence(max_pending=rng.choice([5, 1000])), Process(keep=keep, burnt=burnt))
    late: list[int] = []
    for life in range(rng.randint(1, 3)):
        if life:
            one.process = Process(f"life{life}-", keep=keep, burnt=burnt)
            late.clear()
            one.take(one.sequence.connected())
        for _ in range(rng.randint(0, 40)):
            number, payload = one.process.publish()
            chance = rng.random()
            if chance < 0.1:
                late.append(number)
            elif chance > 0.2:
                one.take(one.sequence.live(number, payload))
            if chance > 0.9:
                one.take(one.sequence.live(number, payload))
            if late and chance > 0.8:
                one.live(late.pop())  # reordered
            if chance > 0.97:
                one.take(one.sequence.connected())
            if 0.5 < chance < 0.55:
                one.take(one.sequence.refill())
            if one.sequence.asking and rng.random() < 0.3:
                if rng.random() < 0.2:
                    one.silence()
                else:
                    one.answer(lost=frozenset(rng.sample(range(50), 8)) if lossy else frozenset(), limit=300)
            _check(one)
    for _ in range(3):
        one.take(one.sequence.audit())
        one.answer(limit=300)
    _check(one)
    published = [payload for _, payload in one.process.batches]
    assert one.held == published[len(published) - len(one.held) :]
    assert not one.sequence.degraded
    if published and one.held != published:
        assert one.sequence.partial


def _check(one: Reader) -> None:
    """Only batches of the present process, in order, without a hole: else it is known to be behind."""
    published = [payload for _, payload in one.process.batches]
    if one.held and one.held[0] in published:
        start = published.index(one.held[0])
        assert one.held == published[start : start + len(one.held)]
