"""Send calls that share a prefix so that one writes it to the provider's cache and the others read it there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from prefixroute.errors import ConfigError
from prefixroute.validation import check_callable, check_float, check_int, shown

Answer = TypeVar("Answer")
LIMIT = 16
"""Calls in flight unless given: far below the rate limits of any paid tier (ASSUMED)."""


class Started(Protocol):
    """What tells that a response has begun: an :class:`asyncio.Event`, or what has its two methods."""

    def is_set(self) -> bool:
        """Return whether it has."""
        ...

    def wait(self) -> Awaitable[object]:
        """Wait until it has."""
        ...


async def fan_out(
    first: Callable[[], Awaitable[Answer]],
    rest: Iterable[Callable[[], Awaitable[Answer]]],
    *,
    started: Started | None = None,
    limit: int = LIMIT,
    patience_s: float | None = None,
) -> list[Answer | BaseException]:
    """Send ``first``, wait until its response has begun, then send the others, ``limit`` at a time.

    An entry can be read once the response that writes it has begun; calls sent before that write it again (Claude's
    prompt caching guide). Each call is sent once. If the first fails, or is cancelled, before its response has begun,
    the next becomes the first. Cancelling ``fan_out`` cancels every call in flight, sends no other, and waits for
    those.

    Args:
        first: makes the call and returns its answer; called with no argument, in a task of its own.
        rest: the others.
        started: set by whichever call is the first as soon as its response has begun, in streaming at the first event.
            Without it, a response has begun when it is complete.
        limit: calls in flight, the first included; 1 or more.
        patience_s: seconds after which the others are sent though nothing has begun; for ever unless given. A call that
            hangs is the client library's to time out.

    Returns:
        For each call, in their order, its answer or the exception that it ended with, as :func:`asyncio.gather` with
        ``return_exceptions=True`` does: what was paid for is never lost to another call's error.

    Raises:
        ConfigError: something that is no function among the calls, or a figure out of bounds; nothing was sent.
    """
    calls = [first, *rest]
    for at, call in enumerate(calls):
        check_callable("first" if at == 0 else f"rest[{at - 1}]", call)
    check_int("limit", limit, 1)
    if patience_s is not None:
        check_float("patience_s", patience_s, 0, above=True)
    if started is not None and not (hasattr(started, "wait") and hasattr(started, "is_set")):
        raise ConfigError(f"started must be an asyncio.Event, or have its wait and is_set, got {shown(started)}")
    answers: dict[int, Answer | BaseException] = {}
    numbers = iter(range(len(calls)))
    gate = asyncio.Event()

    async def work(group: asyncio.TaskGroup, *, leads: bool) -> None:
        if not leads:
            await gate.wait()
        for number in numbers:
            task = group.create_task(_outcome(calls[number]))
            await asyncio.wait({task})
            answers[number] = answer = asyncio.CancelledError() if task.cancelled() else task.result()
            if not isinstance(answer, BaseException):
                gate.set()
        gate.set()

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work(group, leads=at == 0)) for at in range(min(limit, len(calls)))]
        watch = group.create_task(_open(gate, started, patience_s))
        await asyncio.wait(workers)
        watch.cancel()
    return [answers[number] for number in range(len(calls))]


async def _outcome(call: Callable[[], Awaitable[Answer]]) -> Answer | BaseException:
    """Return a call's answer or its exception. A call that is cancelled takes this task with it and no other."""
    try:
        return await call()
    except Exception as error:  # noqa: BLE001 - it is the caller's, in the place of the answer
        return error


async def _open(gate: asyncio.Event, started: Started | None, patience_s: float | None) -> None:
    """Open the gate when a response has begun, or when patience ends."""
    if started is None and patience_s is None:
        return
    try:
        async with asyncio.timeout(patience_s):
            await (started or gate).wait()
    except TimeoutError:
        pass
    gate.set()
