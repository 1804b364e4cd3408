"""A router of others as it is released, a process of its own, before workers that are nothing but a socket.

A worker says that it is healthy and keeps each request until it is told to answer: what the router has in flight is
known, and so is the worker that it chose. Nothing of the router is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from accuracy.wheels import unpacked

START_S, ANSWER_S = 60.0, 20.0
"""Seconds until a router must have found its workers, and until a request must have come to one."""
KNOWN = {
    "/v1/models": {"object": "list", "data": [{"id": "model", "object": "model"}]},
    "/server_info": {"model_path": "model", "served_model_name": "model"},
    "/model_info": {"model_path": "model", "is_generation": True},
}
"""What a worker says of itself; it has nothing else to say, and is well."""
logging.getLogger("aiohttp.server").disabled = True  # one router asks for HTTP/2 first, which workers refuse


@dataclass(frozen=True)
class Original:
    """A router to run, out of its wheel.

    Attributes:
        package: its name on PyPI.
        version: of the package.
        module: the module that starts it.
    """

    package: str
    version: str
    module: str

    def __str__(self) -> str:
        """Return name and version."""
        return f"{self.package} {self.version}"

    @asynccontextmanager
    async def running(self, workers: int) -> AsyncIterator[Fleet]:
        """Run the router with its own defaults before so many workers, numbered in the order of its command line."""
        folder = unpacked(self.package, self.version)
        came: asyncio.Queue[Held] = asyncio.Queue()
        async with contextlib.AsyncExitStack() as stack:
            urls = [await _worker(number, came, stack) for number in range(workers)]
            port, metrics = _free_ports(2)
            command = [
                sys.executable, "-m", self.module, "--policy", "cache_aware", "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics),
                "--worker-urls", *urls, "--disable-health-check",
            ]  # fmt: skip
            process = await asyncio.create_subprocess_exec(
                *command, stdout=DEVNULL, stderr=DEVNULL, env={**os.environ, "PYTHONPATH": str(folder)}
            )
            stack.push_async_callback(_stop, process)
            timeout = aiohttp.ClientTimeout(total=None)
            session = await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
            )
            url = f"http://127.0.0.1:{port}"
            await _ready(session, url, workers)
            yield Fleet(url, session, came)


@dataclass
class Held:
    """A request that a worker holds.

    Attributes:
        worker: number of the worker that the router chose.
        candidates: the workers that it could have chosen, where the router tells; None = it does not, or it draws.
        answer: set, it lets the worker answer.
        done: ends when the router has passed the answer on.
    """

    worker: int
    candidates: frozenset[int] | None = None
    answer: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Task[None] | None = None


class Fleet:
    """A running router and its workers."""

    def __init__(self, url: str, session: aiohttp.ClientSession, came: asyncio.Queue[Held]) -> None:
        self._url, self._session, self._came = url, session, came

    async def send(self, text: str) -> Held:
        """Send a prompt; return it as soon as a worker has it."""
        done = asyncio.create_task(self._ask(text))
        held = await asyncio.wait_for(self._came.get(), ANSWER_S)
        held.done = done
        return held

    async def end(self, held: Held) -> None:
        """Let the worker answer, and wait until the router has passed the answer on."""
        held.answer.set()
        if held.done is not None:
            await asyncio.wait_for(held.done, ANSWER_S)

    async def _ask(self, text: str) -> None:
        body = {"text": text, "sampling_params": {"max_new_tokens": 1}}
        async with self._session.post(f"{self._url}/generate", json=body) as response:
            response.raise_for_status()
            await response.read()


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _ready(session: aiohttp.ClientSession, url: str, workers: int) -> None:
    """Wait until the router knows all of its workers as healthy."""
    async with asyncio.timeout(START_S):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{url}/workers") as response:
                    listed: dict[str, Any] = await response.json()
                    if sum(bool(worker.get("is_healthy")) for worker in listed.get("workers", ())) == workers:
                        return
            await asyncio.sleep(0.1)


async def _worker(number: int, came: asyncio.Queue[Held], stack: contextlib.AsyncExitStack) -> str:
    async def generate(request: web.Request) -> web.Response:
        await request.read()
        held = Held(number)
        came.put_nowait(held)
        await held.answer.wait()
        return web.json_response({"text": "", "meta_info": {"prompt_tokens": 1, "completion_tokens": 1}})

    async def say(request: web.Request) -> web.Response:
        return web.json_response(KNOWN.get(request.path, {}))

    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/generate", generate)
    app.router.add_get("/{path:.*}", say)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    (port,) = _free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port, shutdown_timeout=0.1).start()
    return f"http://127.0.0.1:{port}"


def _free_ports(count: int) -> Sequence[int]:
    """Return ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
