# ruff: noqa: S311 -- a simulation draws, it keeps no secret
"""The seed model a second time, dull and on its own: no router, no index, no package code.

The golden tests compare the simulator with published numbers; this twin tells whether a miss lies in the published
model or in us. It serves requests as plain tuples and keeps whole entries in an ``OrderedDict``.
"""

from __future__ import annotations

import random
import statistics
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Policy = Callable[[int, "Ask", list["Entries"], list[int], random.Random], int]

SYSTEM, USER, ANSWER, TURNS, SLOTS = 2_000, 200, 400, 12, 200
DOCUMENT, QUESTION, DOCUMENTS = 16_000, 100, 300
REQUESTS = 40_000
GAP, MULTIPLE, WINDOW = 10, 2, 200


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: which entry, its prompt, what the replica holds afterwards and what every replica shares."""

    entry: int
    prompt: int
    held: int
    shared: int


def chat(seed: int, requests: int = REQUESTS) -> Iterator[Ask]:
    """200 conversations of 12 turns; each request advances one at random."""
    rng = random.Random(seed)
    turn = [0] * SLOTS
    conversation = list(range(SLOTS))
    fresh = SLOTS
    for _ in range(requests):
        slot = rng.randrange(SLOTS)
        if turn[slot] == TURNS:
            turn[slot] = 0
            conversation[slot] = fresh
            fresh += 1
        prompt = SYSTEM + USER + (USER + ANSWER) * turn[slot]
        turn[slot] += 1
        yield Ask(conversation[slot], prompt, prompt + ANSWER, SYSTEM)


def documents(seed: int, requests: int = REQUESTS) -> Iterator[Ask]:
    """300 documents drawn by Zipf with exponent 1."""
    rng = random.Random(seed)
    weights = [1 / rank for rank in range(1, DOCUMENTS + 1)]
    for document in rng.choices(range(DOCUMENTS), weights, k=requests):
        yield Ask(document, DOCUMENT + QUESTION, DOCUMENT, 0)


@dataclass(slots=True)
class Entries:
    """Whole entries, least recently used out first; the shared prompt is resident once anything was served."""

    capacity: float
    sizes: OrderedDict[int, int] = field(default_factory=OrderedDict)
    used: int = 0

    def cached(self, ask: Ask) -> int:
        return self.sizes.get(ask.entry) or (ask.shared if self.sizes else 0)

    def serve(self, ask: Ask) -> int:
        hit = self.cached(ask)
        self.used += ask.held - self.sizes.pop(ask.entry, 0)
        self.sizes[ask.entry] = ask.held
        while self.used + ask.shared > self.capacity:
            self.used -= self.sizes.popitem(last=False)[1]
        return hit


def round_robin(turn: int, ask: Ask, caches: list[Entries], load: list[int], rng: random.Random) -> int:
    return turn % len(caches)


def uniform(turn: int, ask: Ask, caches: list[Entries], load: list[int], rng: random.Random) -> int:
    return rng.randrange(len(caches))


def sticky(turn: int, ask: Ask, caches: list[Entries], load: list[int], rng: random.Random) -> int:
    return random.Random(ask.entry * 7_919 + 17).randrange(len(caches))


def cache_aware(turn: int, ask: Ask, caches: list[Entries], load: list[int], rng: random.Random) -> int:
    held = [cache.cached(ask) for cache in caches]
    best = max(held)
    longest = [slot for slot, tokens in enumerate(held) if tokens == best]
    pick = min(rng.choice(longest), rng.choice(longest), key=load.__getitem__)
    least = min(load)
    alternative = rng.choice([slot for slot, requests in enumerate(load) if requests == least])
    over = load[pick] > MULTIPLE * least and load[pick] - least > GAP
    return alternative if over else pick


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave: recompute ratio, skew, and the requests as ``(prompt, cached)`` pairs."""

    recompute: float
    skew: float
    pairs: list[tuple[int, int]]


def run(asks: Iterator[Ask], policy: Policy, replicas: int, seed: int, capacity: float = 300_000) -> Outcome:
    """Serve ``asks`` one after another over empty caches."""
    rng = random.Random(seed + 10_007)
    caches = [Entries(capacity) for _ in range(replicas)]
    load, window, served = [0] * replicas, deque[int](), [0] * replicas
    pairs = []
    for turn, ask in enumerate(asks):
        pick = policy(turn, ask, caches, load, rng)
        pairs.append((ask.prompt, min(caches[pick].serve(ask), ask.prompt)))
        served[pick] += 1
        load[pick] += 1
        window.append(pick)
        if len(window) > WINDOW:
            load[window.popleft()] -= 1
    prompt = sum(tokens for tokens, _ in pairs)
    cached = sum(tokens for _, tokens in pairs)
    return Outcome(1 - cached / prompt, max(served) * replicas / len(pairs), pairs)


@pytest.mark.parametrize(
    ("work", "policy", "replicas", "percent", "tolerance"),
    [
        (chat, round_robin, 8, 51.00, 0.3),
        (chat, cache_aware, 8, 4.27, 0.3),
        (documents, cache_aware, 8, 19.09, 0.6),
    ],
)
def test_the_twin_reproduces_the_seed_model(
    work: Callable[[int], Iterator[Ask]], policy: Policy, replicas: int, percent: float, tolerance: float
) -> None:
    runs = [run(work(seed), policy, replicas, seed).recompute for seed in range(2)]
    assert 100 * statistics.mean(runs) == pytest.approx(percent, abs=tolerance)
