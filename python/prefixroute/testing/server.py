"""Run a fake engine: in a thread of this process, or as a process of its own (``python -m prefixroute.testing``)."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.live import KvFeed
from prefixroute.testing.app import FakeApp
from prefixroute.testing.core import EngineCore
from prefixroute.testing.publisher import LOCAL
from prefixroute.testing.settings import Behaviour, EngineSettings

START_TIMEOUT_S = 30.0


async def _serve(server: Any, listener: socket.socket) -> None:
    """Serve until told to exit; then break what is open, which a loop that ends leaves to the garbage collector."""
    await server.serve([listener])
    for _ in range(2):  # one that was just accepted is known after a turn of the loop
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


class FakeEngine:
    """A fake engine in a thread, served over HTTP at a port of this machine.

    As a context manager it runs until the end.

    Args:
        settings: what it is. KV events are published at a free port unless ``settings`` names one.
        behaviour: how it behaves at first.
        port: of HTTP; 0 = a free one. It keeps its ports when it is restarted.

    Raises:
        ConfigError: it did not start.
    """

    def __init__(
        self,
        settings: EngineSettings = EngineSettings(),  # noqa: B008  # frozen
        behaviour: Behaviour = Behaviour(),  # noqa: B008  # frozen
        *,
        port: int = 0,
    ) -> None:
        self.settings = replace(settings, events=settings.events or LOCAL, replay=settings.replay or LOCAL)
        self.behaviour, self.port = behaviour, port
        self._app: FakeApp | None = None
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self.start()

    @property
    def url(self) -> str:
        """Base URL, without ``/v1``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def feed(self) -> KvFeed:
        """Where it publishes its KV events."""
        places = self.app.endpoints
        size, capacity = self.settings.block_size, self.settings.capacity_tokens
        endpoint = places["endpoint"] or ""
        return KvFeed(endpoint, places["replay"], load=places["load"], block_size=size, capacity_tokens=capacity)

    @property
    def app(self) -> FakeApp:
        """What is served; another after a restart."""
        if self._app is None:
            raise ConfigError("the engine is not running")
        return self._app

    @property
    def core(self) -> EngineCore:
        """The engine itself. Only to be looked at while no request is in flight."""
        return self.app.core

    def start(self) -> None:
        """Start it, with an empty cache.

        Raises:
            ConfigError: it does not answer at its port.
        """
        uvicorn = extra_module("uvicorn", "testing")
        app = FakeApp(self.settings, self.behaviour, die=self._die)
        # With its protocol named, asyncio sets TCP_NODELAY on what it accepts.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(app.asgi, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        run = threading.Thread(target=lambda: asyncio.run(_serve(server, listener)), name="fake-engine", daemon=True)
        run.start()
        self._app, self._server, self._thread = app, server, run
        end = time.monotonic() + START_TIMEOUT_S
        while not server.started:
            if not run.is_alive() or time.monotonic() > end:
                raise ConfigError(f"the fake engine did not start at port {self.port}")
            time.sleep(0.001)
        places = app.endpoints  # free ports are chosen once
        self.settings = replace(self.settings, events=places["endpoint"], replay=places["replay"])

    def kill(self) -> None:
        """End it at once: open connections break, what it held is gone."""
        server, thread, app = self._server, self._thread, self._app
        self._server = self._thread = self._app = None
        if server is None or thread is None or app is None:
            return
        server.should_exit = server.force_exit = True
        thread.join()
        app.close()

    def restart(self) -> None:
        """Kill it and start it again at the same ports, with an empty cache."""
        self.kill()
        self.start()

    def _die(self) -> None:
        server = self._server
        if server is not None:
            server.should_exit = server.force_exit = True
        raise ConnectionAbortedError("told to die")

    def __enter__(self) -> Self:
        """Serve until the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.kill()
