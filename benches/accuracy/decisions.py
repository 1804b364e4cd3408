"""Decisions of presets beside the routers that they reproduce: SGLang's and SMG's, as released, as processes before fake workers.

Requests come and end one after another, so that both sides see the same loads. After each decision ours is told which worker the
original chose, so that beliefs stay alike, and the next decision is a comparison of its own. Where several workers are equally good
the original draws, and so does ours: a decision agrees if the original's worker is among those that ours draws from.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import prefixroute as pr
from accuracy.comparison import Comparison
from accuracy.original import Fleet, Held, Original, running

WORKERS = 8
DRAWS = 1_024
"""How often ours is asked at most: as good as surely it then names each worker that it may draw."""
LONGEST = 6_000
"""Characters of a conversation, after which a new one begins in its place."""
ROUTERS = {
    "sglang-router-0.3": Original("sglang-router", "0.3.2", "sglang_router.launch_router"),
    "smg-2026-08": Original("smg", "1.12.0", "smg.launch_router"),
    "smg-2026-10": Original("smg", "1.13.0", "smg.launch_router"),
}
"""The original of each preset."""


@dataclass(frozen=True)
class Script:
    """Prompts that are sent one after another.

    Attributes:
        name: what they are.
        prompts: as text.
        running: how many are kept without an answer; then the one that was sent first is answered.
    """

    name: str
    prompts: Sequence[str]
    running: int


def scripts() -> Iterator[Script]:
    """Yield conversations at two loads, and one prompt that all begin with, of which none ends."""
    for running_at_once in (24, 400):
        yield Script(f"conversations, {running_at_once} in flight", _conversations(1_500), running_at_once)
    hot = _text(random.Random(2), 2_000)  # noqa: S311 - prompts, no secrets
    yield Script("one hot prefix, none finishing", [f"{hot}{number:04}" for number in range(480)], 480)


def _conversations(requests: int) -> list[str]:
    """Return turns of 100 conversations behind 20 system prompts, each with what was said before."""
    rng = random.Random(1)  # noqa: S311 - prompts, no secrets
    systems = [_text(rng, rng.randrange(200, 1_200)) for _ in range(20)]
    said = [rng.choice(systems) + _text(rng, 200) for _ in range(100)]
    prompts = []
    for _ in range(requests):
        at = rng.randrange(len(said))
        said[at] += _text(rng, rng.randrange(50, 400))
        prompts.append(said[at])
        if len(said[at]) > LONGEST:
            said[at] = rng.choice(systems) + _text(rng, 200)
    return prompts


def _text(rng: random.Random, length: int) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=length))


def compare() -> Iterator[Comparison]:
    """Yield the share of decisions that agree, of each preset and script."""
    for preset, original in ROUTERS.items():
        for script in scripts():
            differing = asyncio.run(_differing(preset, original, script))
            what = f"preset {preset}, {script.name}: decisions that differ, of {len(script.prompts):,}"
            yield Comparison("decisions", what, f"{original} and {WORKERS} workers", 0, differing, "decisions")


async def _differing(preset: str, original: Original, script: Script) -> int:
    """Return in how many decisions the original chose a worker that ours would not."""
    names = [str(number) for number in range(WORKERS)]
    ours = pr.Router(names, policy=preset, block_size=1, load="in_flight", clock=lambda: 0.0)
    open_: list[tuple[Held, pr.Ticket]] = []
    differing = 0
    async with running(original, WORKERS) as theirs:
        for prompt in script.prompts:
            if len(open_) == script.running:
                await _end(theirs, *open_.pop(0))
            held = await theirs.send(prompt)
            tokens = np.frombuffer(prompt.encode(), np.uint8).astype(np.uint32)
            theirs_name = names[held.worker]
            agreeing = (one for _ in range(DRAWS) if (one := ours.choose(tokens)).replica == theirs_name)
            decision = next(agreeing, None)
            differing += decision is None
            open_.append((held, ours.commit(decision or ours.choose(tokens), theirs_name)))
        for held, ticket in open_:
            await _end(theirs, held, ticket)
    return differing


async def _end(theirs: Fleet, held: Held, ticket: pr.Ticket) -> None:
    await theirs.end(held)
    ticket.finish()
