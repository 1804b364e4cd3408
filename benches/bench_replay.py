"""What sending a request of a replay costs its sender, with fake engines in processes of their own.

    pytest benches/bench_replay.py --benchmark-enable -s

Requests of 1,800 prompt tokens are due 700 times a second; the sender is pinned to one core. The goal is 500 answered a
second by the clock. The limit that is checked is on processor time, which other work on the machine disturbs less: 2 ms
a request are 500 a second. Everything counts that a replay does in that time: making prompts, routing, HTTP, reading the
stream, rows.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from prefixroute.replay import ReplaySettings, replay
from prefixroute.workload import ChatShape, Even, chat

Benchmark = Callable[..., Any]
REQUESTS, RATE, GOAL = 7_000, 700.0, 500.0
LIMIT_S = 1 / GOAL
SHAPE = ChatShape(system_tokens=1_000, user_tokens=200, answer_tokens=50, turns=6, slots=32)
WAIT_S = 30.0


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1):  # noqa: S310  # of this machine
            return True
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def endpoints() -> Iterator[tuple[str, ...]]:
    """Start two engines that answer at once, each in a process of its own."""
    ports = [free_port() for _ in range(2)]
    fast = ["--prefill-s-per-1k", "0", "--decode-s", "0"]
    engines = [
        subprocess.Popen([sys.executable, "-m", "prefixroute.testing", "--port", str(port), *fast]) for port in ports
    ]
    urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
    end = time.monotonic() + WAIT_S
    while not all(map(answers, urls)):
        assert time.monotonic() < end, "the engines did not start"
        time.sleep(0.05)
    yield urls
    for engine in engines:
        engine.terminate()
        engine.wait()


@pytest.fixture
def one_core() -> Iterator[None]:
    """Keep this process on one core."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(every)})
    yield
    os.sched_setaffinity(0, every)


@pytest.mark.usefixtures("one_core")
def test_send(benchmark: Benchmark, endpoints: tuple[str, ...]) -> None:
    workload = chat(3, requests=REQUESTS, arrivals=Even(RATE), shape=SHAPE)
    benchmark.extra_info["per"] = REQUESTS  # type: ignore[attr-defined]
    spent: list[float] = []

    def run() -> Any:
        begun = time.process_time()
        found = asyncio.run(replay(workload, ReplaySettings(endpoints=endpoints)))
        spent.append((time.process_time() - begun) / REQUESTS)
        return found

    found = benchmark.pedantic(run, rounds=1)
    figures = found.figures[0]
    rate = REQUESTS / max(row.done_s or 0.0 for row in found.rows)
    print(
        f"\n{rate:.0f} answered a second, {1e3 * min(spent):.3f} ms of processor time a request "
        f"({1 / min(spent):.0f} a second of one core); TTFT p50 {1e3 * figures.ttft_p50_s:.1f} ms, p99 "
        f"{1e3 * figures.ttft_p99_s:.1f} ms; late {1e3 * figures.late_max_s:.1f} ms at worst"
    )
    assert figures.errors == 0
    assert min(spent) < LIMIT_S
