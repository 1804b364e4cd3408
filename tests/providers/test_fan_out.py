"""fan_out: one, then the rest; nothing hangs, nothing is sent twice, whatever fails or is cancelled."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from prefixroute import ConfigError, fan_out


class Sender:
    """Makes calls that log when they start and how many run at once."""

    def __init__(self) -> None:
        self.sent: Counter[int] = Counter()
        self.started = asyncio.Event()
        self.begun_when_sent: dict[int, bool] = {}
        self.running = self.most = self.ended = 0

    def call(
        self, number: int, *, fails: str = "", begins: bool = True, steps: int = 3
    ) -> Callable[[], Awaitable[int]]:
        async def send() -> int:
            self.sent[number] += 1
            self.begun_when_sent[number] = self.started.is_set()
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                if fails == "before":
                    raise ConnectionError(str(number))
                if fails == "cancelled":
                    raise asyncio.CancelledError
                if fails == "cancels itself":
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                    await asyncio.sleep(1)
                for _ in range(steps):
                    await asyncio.sleep(0)
                if begins:
                    self.started.set()
                for _ in range(steps):
                    await asyncio.sleep(0)
                if fails == "after":
                    raise ConnectionError(str(number))
                return number
            finally:
                self.running -= 1
                self.ended += 1

        return send


async def test_the_rest_wait_until_the_first_has_begun_and_answers_keep_their_order() -> None:
    sender = Sender()
    first, *rest = (sender.call(number) for number in range(30))
    answers = await fan_out(first, rest, started=sender.started, limit=7)
    assert answers == list(range(30))
    assert [number for number, begun in sender.begun_when_sent.items() if not begun] == [0]
    assert sender.most == 7


async def test_without_started_a_response_has_begun_when_it_is_complete() -> None:
    sender = Sender()
    first, *rest = (sender.call(number, begins=number == 0, steps=5) for number in range(4))
    await fan_out(first, rest)
    assert list(sender.begun_when_sent.values()) == [False, True, True, True]


@pytest.mark.parametrize("fails", ["before", "cancelled", "cancels itself"])
@pytest.mark.parametrize("limit", [1, 2, 16])
async def test_when_the_first_fails_the_next_becomes_first(fails: str, limit: int) -> None:
    sender = Sender()
    calls = [sender.call(number, fails=fails if number < 2 else "") for number in range(6)]
    answers = await asyncio.wait_for(fan_out(calls[0], calls[1:], started=sender.started, limit=limit), 10)
    assert [isinstance(answer, BaseException) for answer in answers] == [True, True, False, False, False, False]
    assert set(sender.sent.values()) == {1}
    assert [number for number, begun in sender.begun_when_sent.items() if not begun] == [0, 1, 2]


async def test_a_first_that_fails_after_it_began_has_written_the_entry() -> None:
    sender = Sender()
    calls = [sender.call(number, fails="after" if number == 0 else "") for number in range(4)]
    answers = await fan_out(calls[0], calls[1:], started=sender.started)
    assert isinstance(answers[0], ConnectionError)
    assert answers[1:] == [1, 2, 3]
    assert all(sender.begun_when_sent[number] for number in (1, 2, 3))


async def test_when_all_fail_all_were_sent_once_and_nothing_hangs() -> None:
    sender = Sender()
    calls = [sender.call(number, fails="before") for number in range(50)]
    answers = await fan_out(calls[0], calls[1:], started=sender.started)
    assert all(isinstance(answer, ConnectionError) for answer in answers)
    assert sender.sent == Counter(range(50))
    assert sender.most == 1


def test_patience_ends_a_first_that_never_begins() -> None:
    async def run() -> list[int | BaseException]:
        sender = Sender()
        gone = asyncio.Event()

        async def hangs() -> int:
            await gone.wait()
            return 0

        async def last() -> int:
            gone.set()
            return 2

        calls = [sender.call(1, begins=False), last]
        return await fan_out(hangs, calls, started=sender.started, patience_s=0.001)

    assert asyncio.run(run()) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(40))
async def test_cancelling_it_at_any_time_cancels_what_runs_and_sends_no_more(seed: int) -> None:
    sender, rng = Sender(), random.Random(seed)  # noqa: S311 - a test
    calls = [sender.call(number, fails=rng.choice(["", "", "before", "after"]), steps=4) for number in range(20)]
    task = asyncio.create_task(fan_out(calls[0], calls[1:], started=sender.started, limit=rng.randint(1, 8)))
    for _ in range(rng.randint(0, 40)):
        await asyncio.sleep(0)
    for _ in range(3):  # a storm: whoever cancels does not stop at one
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({task})
    sent = sum(sender.sent.values())
    for _ in range(50):
        await asyncio.sleep(0)
    assert sum(sender.sent.values()) == sent == sender.ended
    assert sender.running == 0
    assert max(sender.sent.values(), default=1) == 1
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert left == set()


def test_ten_thousand_calls() -> None:
    async def run() -> int:
        sender = Sender()
        first, *rest = (sender.call(number, steps=1) for number in range(10_000))
        answers = await fan_out(first, rest, limit=100)
        assert answers == list(range(10_000))
        return sender.most

    assert asyncio.run(run()) == 100


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"first": 3}, "first.*function"),
        ({"rest": [None]}, r"rest\[0\].*function"),
        ({"limit": 0}, "limit.*1"),
        ({"limit": 1.5}, "limit.*int"),
        ({"patience_s": float("nan")}, "patience_s"),
        ({"started": 1}, "started.*asyncio.Event"),
    ],
)
async def test_a_mistake_sends_nothing(changed: dict[str, object], told: str) -> None:
    sender = Sender()
    given = {"first": sender.call(0), "rest": [sender.call(1)]} | changed
    with pytest.raises(ConfigError, match=told):
        await fan_out(**given)  # type: ignore[arg-type]
    assert not sender.sent
