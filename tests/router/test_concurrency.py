"""Threads, tasks and processes: one exact book under all of them, and the same decisions in each process."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from book import in_threads, loads

from prefixroute.errors import NoReplicaError, UnknownReplicaError
from prefixroute.hashing import hash_blocks
from prefixroute.limits import FIXED_HASH_KEY
from prefixroute.router import Router
from prefixroute.types import Replica

PROMPTS = [hash_blocks(np.arange(640) + 10_000 * i) for i in range(40)]


@pytest.fixture
def eager_switches() -> Iterator[None]:
    """Let threads interrupt each other every few instructions."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def beside(work: list[Callable[[], None]], changes: Callable[[threading.Event], None]) -> None:
    """Run functions at once, and beside them what goes on until all have ended."""
    stop = threading.Event()

    def traffic() -> None:
        try:
            in_threads(work)
        finally:
            stop.set()

    in_threads([traffic, partial(changes, stop)])


def live(router: Router, chance: random.Random, number: int, key: str) -> None:
    """Take one request through a life that its number and the dice decide."""
    prompt, session = chance.choice(PROMPTS), f"s{number % 9}"
    if number % 3:
        ticket = router.route(prompt, session=session, key=key if number % 2 else None)
    else:
        ticket = router.commit(router.choose(prompt, session=session))
    if number % 7 == 0:
        ticket = ticket.retry()
    if number % 11 == 0:
        ticket.hedge().first_token()
    ticket.first_token()
    if number % 5:
        ticket.finish(reported_hit_tokens=0)
    else:
        ticket.abort()


def requests(router: Router, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # a test's own dice
    for number in range(250):
        with suppress(NoReplicaError, UnknownReplicaError):
            live(router, chance, number, f"{seed}-{number}")
        router.abort(f"{seed}-{number}")


def changes(router: Router, stop: threading.Event, roles: Sequence[str] = ("mixed",) * 6) -> None:
    """Change a fleet, of a replica for each role, until the others have ended."""
    chance = random.Random(0)  # noqa: S311
    while not stop.is_set():
        change = chance.choice([router.drain, router.suspend, router.resume, router.clear, router.remove_replica])
        change(chance.choice(router.replicas))
        router.update_load(router.replicas[0], waiting=1)
        router.sync({f"r{i}": Replica(str(chance.randrange(3)), role=role) for i, role in enumerate(roles)})
        router.stats()
        router.metrics_text()


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("policy", ["cache-aware", "session", "min-ttft", "llmd-approx"])
def test_requests_beside_a_fleet_that_changes(policy: str) -> None:
    router = Router([f"r{i}" for i in range(6)], policy=policy, seed=1, hash_key=FIXED_HASH_KEY)
    router.shadow("cache-aware")
    beside([partial(requests, router, seed) for seed in range(4)], partial(changes, router))
    assert {loads(each) for each in (router, *map(Router.of, router.shadows.states))} == {(0, 0, 0)}


def pairs(router: Router, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # a test's own dice
    for number in range(200):
        key = f"{seed}-{number}" if number % 2 else None
        with suppress(NoReplicaError, UnknownReplicaError):
            ticket = router.route_pair(chance.choice(PROMPTS), session=f"s{number % 9}", key=key)
            if number % 3 == 0:
                ticket = ticket.retry(chance.choice(["prefill", "decode", "both"]))
            ticket.first_token()
            if number % 7 == 0:
                ticket = ticket.retry("decode")
            if number % 5:
                ticket.finish(reported_hit_tokens=0)
            elif number % 10:
                ticket.abort()
        if key is not None:
            router.abort(key)


@pytest.mark.usefixtures("eager_switches")
def test_pairs_beside_a_fleet_that_changes() -> None:
    router = Router({f"r{i}": None for i in range(9)}, seed=1, hash_key=FIXED_HASH_KEY)
    router.shadow("session")
    beside(
        [partial(pairs, router, seed) for seed in range(3)],
        partial(changes, router, roles=("prefill", "decode", "mixed") * 3),
    )
    gc.collect()
    assert {loads(each) for each in (router, *map(Router.of, router.shadows.states))} == {(0, 0, 0)}


def test_tasks_that_are_cancelled_anywhere() -> None:
    router = Router([f"r{i}" for i in range(4)], hash_key=FIXED_HASH_KEY)
    chance = random.Random(5)  # noqa: S311

    async def upstream() -> object:
        for i in range(5):
            await asyncio.sleep(0)
            yield i

    async def request(i: int) -> None:
        ticket = router.route(PROMPTS[i % 40], session=f"s{i % 7}")
        for _ in range(i % 3):
            await asyncio.sleep(0)
        async for _ in ticket.stream(upstream()):  # type: ignore[arg-type]
            await asyncio.sleep(0)

    async def main() -> None:
        tasks = [asyncio.create_task(request(i)) for i in range(400)]
        for _ in range(6):
            for task in chance.sample(tasks, 60):
                task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert loads(router) == (0, 0, 0)
    counts = router.stats()["counts"]
    assert counts["finished"] + counts["aborted"] + counts.get("dropped", 0) == counts["committed"]


DECIDE = """
import sys
from prefixroute.router import Router
router = Router([f"r{i}" for i in range(8)], policy=sys.argv[1], seed=11)
kept = [router.route(list(range(1000 * (i % 5), 1000 * (i % 5) + 1200)), session=f"s{i % 6}") for i in range(120)]
print(",".join(ticket.replica for ticket in kept))
"""


@pytest.mark.parametrize("policy", ["cache-aware", "session", "bounded", "weighted"])
def test_every_process_decides_alike(policy: str) -> None:
    def run(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", DECIDE, policy]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    first, second = run("1"), run("2")
    assert first == second
    assert first.count(",") == 119
