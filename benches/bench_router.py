"""What a decision costs: goal 16, a whole decision of the default policy over 8 and 64 replicas.

    pytest benches/bench_router.py --benchmark-enable

The prompt is 8,800 tokens as a numpy array of u32, held in full by one replica of a fleet whose replicas hold 18,750
blocks each. ``fake`` swaps the index for one that answers at once: what is left is the Router's own Python.
Goals, medians on one core: choose 8 / 12 us, route 15 / 20 us, over 8 / 64 replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fake_belief import FakeBelief, FakeBlocks, FakeInsertion
from prefixroute.policies import POLICIES
from prefixroute.router import Router

PROMPT_TOKENS = 8_800
BLOCKS_HELD = 18_750
ROUNDS = 5_000

Benchmark = Callable[..., Any]


class Instant(FakeBelief):
    """Answers with a full hit at the first replica, and does nothing else."""

    # ruff: noqa: ARG002  # arguments are part of the protocol

    def __init__(self) -> None:
        super().__init__()
        self.blocks = FakeBlocks(np.arange(PROMPT_TOKENS // 16, dtype=np.uint64), PROMPT_TOKENS, 16)
        self.insertion = FakeInsertion(PROMPT_TOKENS, frozenset(), 1)

    def hash_and_match(self, prompt: Any, out: NDArray[np.uint32], namespace: Any = None) -> FakeBlocks:
        out[0] = PROMPT_TOKENS
        return self.blocks

    def insert(self, name: str, prompt: Any, namespace: Any = None, now: float = 0.0) -> FakeInsertion:
        return self.insertion

    def retract(self, name: str, prompt: Any, insertion: Any) -> None:
        pass


@cache
def prompts(replicas: int) -> list[NDArray[np.uint32]]:
    """Prompts that fill each replica, 34 of them a replica."""
    rng = np.random.default_rng(0)
    count = -(-BLOCKS_HELD * 16 // PROMPT_TOKENS)
    return [rng.integers(0, 150_000, PROMPT_TOKENS, dtype=np.uint32) for _ in range(replicas * count)]


def fleet(index: str, replicas: int, policy: str = "cache-aware") -> tuple[Router, NDArray[np.uint32]]:
    """Return a router over full replicas, and a prompt that one of them holds."""
    names = [f"r{i}" for i in range(replicas)]
    if index == "fake":
        return Router(names, policy=policy, index=Instant()), prompts(1)[0]
    router = Router(names, policy=policy, capacity_tokens=BLOCKS_HELD * 16)
    for at, prompt in enumerate(prompts(replicas)):
        router.index.insert(names[at % replicas], prompt)
    return router, prompts(replicas)[-1]


@pytest.mark.parametrize("replicas", [8, 64])
@pytest.mark.parametrize("index", ["fake", "index"])
def test_choose(benchmark: Benchmark, index: str, replicas: int) -> None:
    router, prompt = fleet(index, replicas)
    benchmark(lambda: router.choose(prompt))


@pytest.mark.parametrize("replicas", [8, 64])
@pytest.mark.parametrize("index", ["fake", "index"])
def test_choose_in_a_session(benchmark: Benchmark, index: str, replicas: int) -> None:
    router, prompt = fleet(index, replicas)
    router.route(prompt, session="chat-17").finish()
    benchmark(lambda: router.choose(prompt, session="chat-17"))


@pytest.mark.parametrize("replicas", [8, 64])
@pytest.mark.parametrize("index", ["fake", "index"])
def test_route(benchmark: Any, index: str, replicas: int) -> None:
    router, prompt = fleet(index, replicas)
    last: list[Any] = []

    def settle() -> None:
        if last:
            last.pop().finish()

    benchmark.pedantic(lambda: last.append(router.route(prompt)), setup=settle, rounds=ROUNDS)


@pytest.mark.parametrize("replicas", [8, 64])
@pytest.mark.parametrize("index", ["fake", "index"])
def test_finish(benchmark: Any, index: str, replicas: int) -> None:
    router, prompt = fleet(index, replicas)
    benchmark.pedantic(lambda ticket: ticket.finish(), setup=lambda: ((router.route(prompt),), {}), rounds=ROUNDS)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_choose_by_policy(benchmark: Benchmark, name: str) -> None:
    router, prompt = fleet("fake", 8, name)
    benchmark(lambda: router.choose(prompt))


@pytest.mark.parametrize("replicas", [8, 64])
def test_hash_and_match(benchmark: Benchmark, replicas: int) -> None:
    """The part of a decision that is not the Router's."""
    router, prompt = fleet("index", replicas)
    out = np.zeros(replicas, np.uint32)
    benchmark(lambda: router.index.hash_and_match(prompt, out))
