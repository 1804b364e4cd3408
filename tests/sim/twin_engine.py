"""The dull twin of the engine: every step by itself, one token for each decoding request, nothing merged or cut.

Memory is counted in tokens (blocks of one), and what a request leaves in it is looked after by the cache model, which has a
twin of its own: here each request grows it by one token a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from prefixroute.hashing import BlockHashes
from prefixroute.sim.replica import Admitted, ReplicaCache


@dataclass
class Asked:
    """One request, and when it got on, in seconds. Nobody shares its prompt but for ``hit`` leading tokens held before."""

    arrival: float
    prompt_tokens: int
    output_tokens: int
    hit: int = 0
    number: int = 0
    started: float = -1.0
    first_token: float = -1.0
    finished: float = -1.0
    computed: int = 0
    told: int = 0
    target: int = 0
    """Tokens to compute before the next one is sampled."""
    handle: int | None = None
    outgrown: bool = False
    most_cached: int = 1 << 32
    tokens: list[float] = field(default_factory=list)
    """When each token of the answer was out."""

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.tokens)]

    @property
    def decodes(self) -> bool:
        return self.told > 0 and self.computed >= self.target

    def text(self, tokens: int) -> BlockHashes:
        hashes = np.arange(tokens, dtype=np.uint64) + np.uint64((self.number + 1) << 32)
        return BlockHashes(hashes, token_count=tokens, block_size=1)


class Twin:
    """One replica of ``room`` tokens that serves requests step by step."""

    def __init__(self, seconds: Callable[[int, int], float], *, chunk: int, room: int | None, max_running: int) -> None:
        self.seconds, self.chunk, self.max_running = seconds, chunk, max_running
        self.cache = ReplicaCache(room, 1)
        self.queue: deque[Asked] = deque()
        self.running: list[Asked] = []
        self.preempted = 0

    def serve(self, asks: Sequence[Asked]) -> None:
        """Serve requests that arrive between steps, never at the boundary of two."""
        arriving = deque(sorted(asks, key=lambda ask: ask.arrival))
        for ask in arriving:
            head = ask.text(ask.hit)
            self.cache.serve(head, head)
        now = 0.0
        while arriving or self.queue or self.running:
            if not self.queue and not self.running:
                now = max(now, arriving[0].arrival)
            while arriving and arriving[0].arrival <= now:
                self.queue.append(arriving.popleft())
            now = self.step(now)

    def step(self, now: float) -> float:
        preempts = self.make_room()
        decoding = [ask for ask in self.running if ask.decodes]
        budget, tokens = max(1, self.chunk - len(decoding)), 0
        for ask in [ask for ask in self.running if not ask.decodes]:
            tokens += compute(ask, budget - tokens)
        while not preempts and self.queue and tokens < budget and len(self.running) < self.max_running:
            if not self.admit(self.queue[0], now):
                break
            ask = self.queue.popleft()
            tokens += compute(ask, budget - tokens)
            self.running.append(ask)
        now += self.seconds(tokens, len(decoding))
        for ask in list(self.running):
            if ask in decoding or ask.computed == ask.target:
                ask.first_token = ask.first_token if ask.told else now
                ask.told += 1
                ask.tokens.append(now)
                if ask.told >= max(1, ask.output_tokens):
                    self.finish(ask, now)
        return now

    def make_room(self) -> bool:
        """Let each decoding request take the token that this step computes, the last that came going if there is no room."""
        preempts = False
        for ask in [ask for ask in self.running if ask.decodes]:
            while ask in self.running and not self.grows(ask):
                self.preempt(self.running[-1])
                preempts = True
        return preempts

    def grows(self, ask: Asked) -> bool:
        if ask.handle is None or ask.outgrown:
            return True
        if self.cache.grow(ask.handle, ask.text(ask.prompt_tokens + ask.told)) is None:
            return True
        ask.outgrown = len(self.running) == 1  # it is larger than the cache, and goes on without
        return ask.outgrown

    def preempt(self, ask: Asked) -> None:
        self.running.remove(ask)
        if ask.handle is not None:
            self.cache.abort(ask.handle)
        # Of an interrupted prefill the cache model keeps the whole prompt, an engine what was computed.
        ask.most_cached = (1 << 32) if ask.decodes else ask.computed
        ask.handle, ask.outgrown = None, False
        self.preempted += 1
        self.queue.appendleft(ask)

    def admit(self, ask: Asked, now: float) -> bool:
        ask.target = ask.prompt_tokens + ask.told
        admitted = self.cache.start(ask.text(ask.target))
        hit = self.cache.hit(ask.text(ask.target))
        if isinstance(admitted, Admitted):
            ask.handle, hit = admitted.request, admitted.hit_tokens
        elif self.running:
            return False
        ask.started = now if ask.started < 0 else ask.started
        ask.computed = min(hit, ask.target - 1, ask.most_cached)
        return True

    def finish(self, ask: Asked, now: float) -> None:
        ask.finished = now
        self.running.remove(ask)
        if ask.handle is not None:
            self.cache.finish(ask.handle, ask.text(ask.prompt_tokens + max(ask.output_tokens - 1, 0)))


def compute(ask: Asked, budget: int) -> int:
    tokens = max(0, min(budget, ask.target - ask.computed))
    ask.computed += tokens
    return tokens
