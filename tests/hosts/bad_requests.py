"""A thousand requests at once, most of which end badly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any


async def make(kinds: Sequence[Callable[[int], Awaitable[None]]], *, at_once: int = 1_000) -> None:
    """Make a thousand requests, of each kind in turn and at most so many at once."""
    limit = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with limit:
            await kinds[number % len(kinds)](number)

    await asyncio.gather(*[one(number) for number in range(1_000)])


async def cancel(call: Coroutine[Any, Any, Any], *, after: int) -> None:
    """Cancel a call after so many turns of the event loop."""
    task = asyncio.create_task(call)
    for _ in range(after):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
