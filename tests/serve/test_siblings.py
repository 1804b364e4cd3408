"""Workers' feeds over sockets: messages of any size and number arrive, and a full or dead sibling stops nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from prefixroute import Router
from prefixroute.serve.siblings import PENDING_BYTES, Siblings

KEY = 7
PROMPT = list(range(512))


def make_router() -> Router:
    return Router(["a", "b"], hash_key=KEY)


def in_flight(router: Router) -> int:
    return sum(replica["in_flight"] for replica in router.stats()["replicas"].values())


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not happened():  # noqa: ASYNC110  # what is waited for is in another object
            await asyncio.sleep(0.005)


async def talking(siblings: Siblings, stack: AsyncExitStack) -> None:
    task = asyncio.create_task(siblings.run())
    await asyncio.sleep(0.01)

    async def end() -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    stack.push_async_callback(end)


def paths_in(folder: Path, count: int) -> list[Path]:
    return [folder / str(number) for number in range(count)]


def test_what_one_books_the_others_know(tmp_path: Path) -> None:
    async def run() -> None:
        routers = [make_router() for _ in range(3)]
        paths = paths_in(tmp_path, 3)
        async with AsyncExitStack() as stack:
            for number, router in enumerate(routers):
                await talking(Siblings(router, paths, number), stack)
            tickets = [routers[0].route([number, *PROMPT], session=f"s{number}") for number in range(300)]
            places = {number: ticket.replica for number, ticket in enumerate(tickets)}
            await until(lambda: all(in_flight(router) == 300 for router in routers))
            for router in routers[1:]:
                for number, replica in places.items():
                    decision = router.choose([number, *PROMPT], candidates=[replica])
                    assert decision.hit_tokens > 480
            for ticket in tickets:
                ticket.finish()
            await until(lambda: all(in_flight(router) == 0 for router in routers))

    asyncio.run(run())


def test_one_that_ends_gives_its_load_back(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = make_router(), make_router()
        paths = paths_in(tmp_path, 2)
        async with AsyncExitStack() as stack:
            await talking(Siblings(first, paths, 0), stack)
            async with AsyncExitStack() as short:
                await talking(Siblings(second, paths, 1), short)
                second.route(PROMPT, session="s", key="k")
                await until(lambda: in_flight(first) == 1)
            await until(lambda: in_flight(first) == 0)

    asyncio.run(run())


def test_a_sibling_that_does_not_read_costs_messages_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        first, second = make_router(), make_router()
        paths = paths_in(tmp_path, 2)
        async with AsyncExitStack() as stack:
            sending, deaf = Siblings(first, paths, 0), Siblings(second, paths, 1)
            with monkeypatch.context() as patched:
                patched.setattr(deaf, "_receive", lambda: None)
                await talking(deaf, stack)
            await talking(sending, stack)
            count = 0
            while not sending.lost:
                first.route([count, *PROMPT]).finish()
                count += 1
                await asyncio.sleep(0)
                assert count * 100 < 40 * PENDING_BYTES
            assert in_flight(first) == 0

    asyncio.run(run())
