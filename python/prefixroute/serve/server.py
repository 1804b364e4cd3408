"""One worker: sockets, signals, and an end in which requests in flight are served."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from prefixroute.errors import ConfigError
from prefixroute.serve.app import Service
from prefixroute.serve.protocol import bounded_by
from prefixroute.serve.settings import Listen, Settings

_LOG = logging.getLogger("prefixroute.serve")
SIGNALS = (signal.SIGTERM, signal.SIGINT)
COLLECT_AFTER = (20_000, 20, 50)
"""Thresholds of the garbage collector, see :func:`gc.set_threshold`."""
BACKLOG = 4096
"""Connections that wait to be accepted."""


class SilentServer(uvicorn.Server):
    """A server that leaves signals alone: there are two in a process.

    Attributes:
        on_started: called when it accepts connections.
    """

    on_started: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self.on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: the address cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With its protocol named, asyncio sets TCP_NODELAY on what it accepts.
        listener = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen at {host}:{port}: {error}") from error
    listener.set_inheritable(True)
    return listener


def bind_path(path: str) -> socket.socket:
    """Return a listening socket at a path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    Path(path).unlink(missing_ok=True)
    listener.bind(path)
    listener.listen(BACKLOG)
    return listener


def address_of(listener: socket.socket) -> str:
    """Return where a socket listens, as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Worker:
    """Serves clients and operators in one event loop until it is told to end.

    Attributes:
        serving: set when clients are served.

    Args:
        service: what is served.
        sockets: of clients.
        admin: of operators, a socket or the path of one; ``None`` = none.
    """

    def __init__(self, service: Service, sockets: list[socket.socket], admin: socket.socket | None = None) -> None:
        settings = service.settings
        self.serving = asyncio.Event()
        self._service, self._sockets, self._admin_socket = service, sockets, admin
        self._listen: Listen = settings.listen
        self._server = uvicorn_server(service.app, settings, lifespan="on", drain_s=settings.listen.drain_s)
        self._server.on_started = self.serving.set
        self._admin = uvicorn_server(service.admin, settings, lifespan="off", drain_s=1)
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until told to end, by SIGTERM or SIGINT in a process's main thread or by :meth:`end`."""
        loop = asyncio.get_running_loop()
        handled = []
        for number in SIGNALS:
            try:
                loop.add_signal_handler(number, self.end)
                handled.append(number)
            except (NotImplementedError, RuntimeError, ValueError):  # another thread, or a system without them
                break
        try:
            async with serving(self._admin, self._admin_socket):
                await self._server.serve(self._sockets)
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def end(self) -> None:
        """Begin to end; a second time, end at once."""
        if self._ending is not None:
            self._server.should_exit = self._server.force_exit = True
            return
        self._service.drain()
        _LOG.info("told to end, with %d requests in flight", self._service.router.stats()["in_flight"])
        self._ending = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        await asyncio.sleep(self._listen.lame_duck_s)
        self._server.should_exit = True


def uvicorn_server(app: Any, settings: Settings, *, lifespan: Any, drain_s: float) -> SilentServer:
    """Return a server of an app with the settings' limits."""
    limits = settings.limits
    return SilentServer(
        uvicorn.Config(
            app,
            http=bounded_by(limits),
            ws="none",
            lifespan=lifespan,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=limits.keep_alive_s,  # type: ignore[arg-type]  # a time like any other
            timeout_graceful_shutdown=drain_s,  # type: ignore[arg-type]
        )
    )


@asynccontextmanager
async def serving(server: SilentServer, listener: socket.socket | None) -> AsyncIterator[None]:
    """Serve beside what the body does, until that has ended.

    Args:
        server: of operators.
        listener: theirs; ``None`` = nothing is served.
    """
    if listener is None:
        yield
        return
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run in an event loop of its own: uvloop's, where that is installed. For a process that does nothing else.

    What was imported until now is taken out of the garbage collector's sight, and it looks less often: with 2,000
    streams open it stopped the loop for up to 0.76 s at a time, and for 1.9 of 5 s in all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    try:
        import uvloop  # noqa: PLC0415  # not on every system
    except ImportError:
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
