"""Several workers behind one socket: processes that are started, watched, and ended together."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import monotonic
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.serve.app import Service
from prefixroute.serve.discovery import sources_of
from prefixroute.serve.logs import set_up
from prefixroute.serve.operators import Operators
from prefixroute.serve.server import SIGNALS, Worker, address_of, bind, bind_path, run_loop, serving, uvicorn_server
from prefixroute.serve.settings import Settings

_LOG = logging.getLogger("prefixroute.serve")
TICK_S = 0.1
"""Time between two looks at the workers."""
SETTLED_S = 10.0
"""A worker that ran for so long and then died is started again at once."""
MAX_PAUSE_S = 30.0
"""Longest pause before a worker that dies again and again is started again; it doubles from a second."""
GRACE_S = 5.0
"""Beside the time to drain, before a worker is killed."""


def serve(settings: Settings, **options: Any) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: of the server.
        options: keywords of :class:`~prefixroute.serve.Service`; with several workers they are pickled.

    Raises:
        ConfigError: engines are not named, or an address cannot be used.
    """
    set_up(settings.log)
    sources_of(settings.discovery)
    listen = settings.listen
    listener = bind(listen.host, listen.port)
    admin = None if listen.admin_port is None else bind(listen.admin_host, listen.admin_port)
    if admin is not None:
        _LOG.info("operators' port at %s", address_of(admin))
    if listen.workers == 1:
        service = Service(settings, **options)
        _LOG.info(
            "listening at %s, engines: %s", address_of(listener), ", ".join(service.router.replicas) or "none yet"
        )
        run_loop(Worker(service, [listener], admin).run())
        return
    _LOG.info("listening at %s with %d workers", address_of(listener), listen.workers)
    options["siblings"] = f"serve-{os.getpid()}-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="prefixroute-") as folder:
        run_loop(Supervisor(settings, options, listener, admin, Path(folder)).run())


@dataclass(slots=True)
class Seat:
    """One worker's place.

    Attributes:
        process: that works there.
        began_at: when it was started.
        pause_s: before the next one is started, should this one die soon.
        due_at: when the next one is started; ``None`` = one is at work.
    """

    process: SpawnProcess
    began_at: float = field(default_factory=monotonic)
    pause_s: float = 1.0
    due_at: float | None = None


class Supervisor:
    """Keeps the workers running, and serves operators in front of all of them.

    Args:
        settings: of the server.
        options: keywords of each worker's Service.
        listener: that all workers accept from.
        admin: of operators; ``None`` = none.
        folder: for the workers' own sockets.
    """

    def __init__(
        self,
        settings: Settings,
        options: dict[str, Any],
        listener: socket.socket,
        admin: socket.socket | None,
        folder: Path,
    ) -> None:
        if not hasattr(socket, "AF_UNIX"):
            raise ConfigError(f"listen.workers must be 1 on this system, got {settings.listen.workers}")
        self._settings, self._options, self._listener, self._admin = settings, options, listener, admin
        self._paths = [folder / str(number) for number in range(settings.listen.workers)]
        self._context = multiprocessing.get_context("spawn")
        self._seats: list[Seat] = []
        self._told: list[signal.Signals] = []

    async def run(self) -> None:
        """Run the workers until a signal comes, then until they have ended."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._told.append, number)
        self._seats = [Seat(self._start(number)) for number in range(self._settings.listen.workers)]
        operators = Operators(self._paths)
        server = uvicorn_server(operators.app, self._settings, lifespan="on", drain_s=1.0)
        async with serving(server, self._admin):
            try:
                while not self._told:
                    await asyncio.sleep(TICK_S)
                    self._look()
                self._listener.close()
                await self._end()
            finally:
                for seat in self._seats:
                    if seat.process.is_alive():
                        seat.process.kill()

    def _start(self, number: int) -> SpawnProcess:
        process = self._context.Process(
            target=_work,
            args=(self._settings, self._options, self._listener, str(self._paths[number])),
            name=f"worker-{number}",
        )
        process.start()
        return process

    def _look(self) -> None:
        """Start again what has died."""
        now = monotonic()
        for number, seat in enumerate(self._seats):
            if seat.due_at is not None:
                if now >= seat.due_at:
                    seat.process, seat.began_at, seat.due_at = self._start(number), now, None
            elif not seat.process.is_alive():
                if now - seat.began_at >= SETTLED_S:
                    seat.pause_s = 1.0
                _LOG.error(
                    "worker %d has died (%s), and is started again in %g s", number, seat.process.exitcode, seat.pause_s
                )
                seat.due_at, seat.pause_s = now + seat.pause_s, min(2 * seat.pause_s, MAX_PAUSE_S)

    async def _end(self) -> None:
        """Tell all workers to end, pass further signals on, and kill who is left after the time to drain."""
        listen = self._settings.listen
        until = monotonic() + listen.lame_duck_s + listen.drain_s + GRACE_S
        passed = 0
        while any(seat.process.is_alive() for seat in self._seats) and monotonic() < until:
            for _ in self._told[passed:]:
                for seat in self._seats:
                    with suppress(ProcessLookupError, AttributeError):
                        seat.process.terminate()
            passed = len(self._told)
            await asyncio.sleep(TICK_S)


def _work(settings: Settings, options: dict[str, Any], listener: socket.socket, path: str) -> None:
    """Serve in a process of its own, until the supervisor says SIGTERM or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the supervisor passes it on
    set_up(settings.log)
    service = Service(settings, **options)
    worker = Worker(service, [listener], bind_path(path))
    run_loop(_while_supervised(worker))


async def _while_supervised(worker: Worker) -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("runs in a process that a supervisor has started")
    loop = asyncio.get_running_loop()

    def orphaned() -> None:
        loop.remove_reader(parent.sentinel)
        worker.end()

    loop.add_reader(parent.sentinel, orphaned)
    await worker.run()
