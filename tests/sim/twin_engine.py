"""The dull twin of the engine: every step by itself, one token for each decoding request, nothing merged or cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass
class Asked:
    """One request, and when it got on, in seconds."""

    arrival: float
    prompt_tokens: int
    output_tokens: int
    hit: int
    started: float = -1.0
    first_token: float = -1.0
    finished: float = -1.0
    computed: int = 0
    told: int = 0


def serve(
    asks: Sequence[Asked], seconds: Callable[[int, int], float], *, chunk: int, room: int, max_running: int
) -> None:
    """Serve requests that arrive between steps, never at the boundary of two; ``seconds`` of (prompt tokens, decodes)."""
    arriving, queue = deque(sorted(asks, key=lambda ask: ask.arrival)), deque[Asked]()
    running: list[Asked] = []
    now = 0.0
    while arriving or queue or running:
        if not queue and not running:
            now = max(now, arriving[0].arrival)
        while arriving and arriving[0].arrival <= now:
            queue.append(arriving.popleft())
        decoding = [ask for ask in running if ask.told]
        budget, tokens = max(1, chunk - len(decoding)), 0
        for ask in [ask for ask in running if not ask.told]:
            tokens += _compute(ask, budget - tokens)
        while queue and tokens < budget and len(running) < min(room, max_running):
            ask = queue.popleft()
            ask.started, ask.computed = now, min(ask.hit, ask.prompt_tokens - 1)
            tokens += _compute(ask, budget - tokens)
            running.append(ask)
        now += seconds(tokens, len(decoding))
        for ask in running:
            if ask in decoding or ask.computed == ask.prompt_tokens:
                ask.first_token = ask.first_token if ask.told else now
                ask.told += 1
        for ask in [ask for ask in running if ask.told >= max(1, ask.output_tokens)]:
            ask.finished = now
            running.remove(ask)


def _compute(ask: Asked, budget: int) -> int:
    tokens = max(0, min(budget, ask.prompt_tokens - ask.computed))
    ask.computed += tokens
    return tokens
