"""Decisions of presets beside the routers that they reproduce, as released.

SGLang's and SMG's as processes, Ray's in its own actors.

Requests come and end one after another, so that both sides see the same loads. After each decision ours is told which
worker the original chose, so that beliefs stay alike, and the next decision is a comparison of its own. Where several
workers are equally good the original draws, and so does ours: a decision agrees if the original's worker is among those
that ours draws from. Where the original tells all workers that it draws from, ours must draw from the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

import prefixroute as pr
from accuracy.comparison import Comparison
from accuracy.original import Held, Original
from accuracy.ray_router import RayOriginal
from accuracy.scripts import Script, fresh, scripts

WORKERS = 8
DRAWS = 1_024
"""How often ours is asked at most: as good as surely it then names each worker that it may draw."""
FAIR_DRAWS = 200
"""How often ours is asked where it must draw from the same workers as the original, evenly."""


class Fleet(Protocol):
    """A running router and its workers."""

    async def send(self, text: str) -> Held:
        """Send a prompt; return it as soon as a worker has it."""

    async def end(self, held: Held) -> None:
        """Let the worker answer."""


class Router(Protocol):
    """A router of others that can be run."""

    def running(self, workers: int) -> AbstractAsyncContextManager[Fleet]:
        """Run it before so many workers."""


@dataclass(frozen=True)
class Check:
    """A policy of ours beside a router.

    Attributes:
        policy: ours, a preset with what differs from its values.
        original: theirs.
        control: whether they have different rules, so that decisions must differ.
    """

    policy: str
    original: Router
    control: bool = False

    def __str__(self) -> str:
        """Return what is compared."""
        return f"{'control' if self.control else 'preset'} {self.policy}"


SMG_1_12 = Original("smg", "1.12.0", "smg.launch_router")
SMG_1_13 = Original("smg", "1.13.0", "smg.launch_router")
GAP = 5.0
"""Difference of queue lengths above which Ray's router is run with its balance on: off by default."""


CHECKS = (
    Check("sglang-router-0.3", Original("sglang-router", "0.3.2", "sglang_router.launch_router")),
    Check("smg-2026-08", SMG_1_12),
    Check("smg-2026-10", SMG_1_13),
    Check("ray", RayOriginal()),
    Check(f"ray:gate_gap={GAP:g}", RayOriginal(GAP)),
    Check("smg-2026-08", SMG_1_13, control=True),
    Check(f"ray:gate_gap={2 * GAP:g}", RayOriginal(GAP), control=True),
)
"""The presets beside their originals, and two pairs of different rules."""


def compare() -> Iterator[Comparison]:
    """Yield how many decisions differ.

    Of each preset in all scripts, of the controls in those that were there first.
    """
    for check in CHECKS:
        for script in (*scripts(), *(() if check.control else fresh())):
            differing = asyncio.run(_differing(check, script))
            what = f"{check}, {script.name}: decisions that differ, of {len(script.prompts):,}"
            yield Comparison("decisions", what, f"{check.original} and {WORKERS} workers", 0, differing, "decisions")


async def _differing(check: Check, script: Script) -> int:
    """Return in how many decisions the original chose a worker that ours would not, or drew from others."""
    names = [str(number) for number in range(WORKERS)]
    ours = pr.Router(names, policy=check.policy, block_size=1, load="in_flight", clock=lambda: 0.0)
    open_: list[tuple[Held, pr.Ticket]] = []
    differing = 0
    async with check.original.running(WORKERS) as theirs:
        for prompt, ends in zip(script.prompts, script.ends, strict=True):
            for at in ends:
                await _end(theirs, *open_.pop(at))
            held = await theirs.send(prompt)
            tokens = np.frombuffer(prompt.encode(), np.uint8).astype(np.uint32)
            decision = _agreeing(ours, tokens, held)
            differing += decision is None
            open_.append((held, ours.commit(decision or ours.choose(tokens), names[held.worker])))
        for held, ticket in open_:
            await _end(theirs, held, ticket)
    return differing


def _agreeing(ours: pr.Router, tokens: np.ndarray, held: Held) -> pr.Decision | None:
    """Return a decision of ours for the worker that the original chose.

    None = there is none, or ours draws from others.
    """
    if held.candidates is None:
        drawn = (ours.choose(tokens) for _ in range(DRAWS))
        return next((one for one in drawn if int(one.replica) == held.worker), None)
    decisions = {int(one.replica): one for one in (ours.choose(tokens) for _ in range(FAIR_DRAWS))}
    return decisions[held.worker] if set(decisions) == held.candidates else None


async def _end(theirs: Fleet, held: Held, ticket: pr.Ticket) -> None:
    await theirs.end(held)
    ticket.finish()
