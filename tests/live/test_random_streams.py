"""An index that is fed by a random stream holds what the engine holds.

Batches lost, repeated, reordered, and engines restarted.

The twin is the fake engine's own cache. What :mod:`tests.live.test_sequence` shows of the order of batches is shown
here of the blocks.
"""

from __future__ import annotations

import random

import pytest

from prefixroute import PrefixIndex
from prefixroute.live.sequence import Action, Apply, Clear, Sequence
from prefixroute.sim.engine import EngineModel
from prefixroute.testing import EngineCore, EngineRequest, EventEncoder, PlainCost

BLOCK, CAPACITY = 4, 400
STEPS = 150


class Stream:
    """One engine's life after the other, and the index that hears of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311
        self.form = self.rng.choice(("vllm", "sglang"))
        self.keep = self.rng.choice((8, 10_000))
        self.sequence = Sequence(max_pending=self.rng.choice((5, 1_000)))
        self.index = PrefixIndex(block_size=self.rng.choice((2, 4, 8)))
        self.index.add_replica("a")
        self.asked: list[int] = []
        self.unfit = 0
        self.begin()

    def begin(self) -> None:
        """Start an engine with an empty cache, whose batches are numbered from 0."""
        self.published: list[bytes] = []
        self.waiting: list[int] = []
        self.core = EngineCore(
            EngineModel(PlainCost(1.0, 0.1)),
            capacity_tokens=CAPACITY,
            block_size=BLOCK,
            publish=self.published.append,
            encoder=EventEncoder(BLOCK, self.form, clock=lambda: 0.0),
        )
        self.delivered = 0

    def prompt(self) -> list[int]:
        family, length = self.rng.randrange(3), self.rng.randrange(1, 60)
        fork, branch = self.rng.randrange(40), self.rng.randrange(4)
        return [family if at < fork else 1_000 * (branch + 1) + at for at in range(length)]

    def serve(self) -> None:
        prompt = self.prompt()
        output = self.rng.randrange(1, 12)
        context = [*prompt, *(50_000 + self.rng.randrange(3) for _ in range(output))]
        self.core.submit(EngineRequest(prompt, context, output))
        self.core.advance(self.core.now + self.rng.random() * 0.3)

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Apply):
                applied = self.index.apply("a", action.payload)
                self.unfit += applied.refused + applied.unrecognized
                if applied.orphaned > applied.adopted or applied.placeless:
                    self.take(self.sequence.refill())
            elif isinstance(action, Clear):
                self.index.clear("a")
            else:
                self.asked.append(action.start)

    def deliver(self) -> None:
        """Let what was published arrive, badly."""
        while self.delivered < len(self.published):
            number, chance = self.delivered, self.rng.random()
            self.delivered += 1
            if chance < 0.1:
                continue  # lost
            if chance < 0.2:
                self.waiting.append(number)
                continue
            for _ in range(2 if chance > 0.9 else 1):
                self.take(self.sequence.live(number, self.published[number]))
            while self.waiting and self.rng.random() < 0.3:
                late = self.waiting.pop(self.rng.randrange(len(self.waiting)))
                self.take(self.sequence.live(late, self.published[late]))

    def answer(self) -> None:
        """Answer replays until none is asked for; the engine keeps so many batches."""
        for _ in range(100):
            if not self.sequence.asking:
                return
            self.answer_one()
        raise AssertionError("asks for ever")

    def answer_one(self) -> None:
        asks, oldest = len(self.asked), max(0, len(self.published) - self.keep)
        for number in range(max(self.asked[-1], oldest), len(self.published)):
            self.take(self.sequence.replayed(number, self.published[number]))
            if len(self.asked) > asks:
                return  # the newer replay ends this one
        self.take(self.sequence.replay_ended())

    def disagreements(self) -> list[tuple[int, int]]:
        """Return (tokens that match in the index, tokens that the engine holds) of prompts where these differ."""
        size, found = max(BLOCK, self.index.block_size), []
        for _ in range(40):
            prompt = self.prompt()
            matched, held = int(self.index.match(prompt)[0]), self.core.hit([*prompt, 0])
            if matched // size * size != held // size * size:
                found.append((matched, held))
        return found


@pytest.mark.parametrize("seed", range(24))
def test_the_index_holds_what_the_engine_holds_after_any_stream(seed: int) -> None:
    one = Stream(seed)
    for life in range(one.rng.randint(1, 3)):
        if life:
            one.begin()
            one.take(one.sequence.connected())
        for _ in range(STEPS):
            one.serve()
            one.deliver()
            if one.rng.random() < 0.1:
                one.answer()
            if one.rng.random() < 0.02:
                one.take(one.sequence.connected())
    one.core.advance(one.core.now + 1_000)
    one.deliver()
    for _ in range(3):
        one.take(one.sequence.audit())
        one.answer()
    assert one.unfit == 0
    assert not one.sequence.degraded
    wrong = one.disagreements()
    if one.sequence.partial:  # the engine's buffer did not reach back: then it knows less, and says so
        assert all(matched < held for matched, held in wrong)
    else:
        assert wrong == []


@pytest.mark.parametrize("seed", range(12))
def test_an_index_that_its_host_cleared_is_filled_again_or_knows_less(seed: int) -> None:
    one = Stream(seed)
    for step in range(2 * STEPS):
        one.serve()
        one.deliver()
        if one.rng.random() < 0.1:
            one.answer()
        if step == STEPS:
            one.index.clear("a")
    one.core.advance(one.core.now + 1_000)
    one.deliver()
    for _ in range(3):
        one.take(one.sequence.audit())
        one.answer()
    wrong = one.disagreements()
    if one.keep > 2 * STEPS:
        assert one.sequence.stats.rebuilds
        assert wrong == []
    else:  # the engine's buffer does not reach back
        assert all(matched < held for matched, held in wrong)
