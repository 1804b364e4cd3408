"""Real parts for the proxy's tests: engine processes that can be killed, a scripted engine, a proxy in a thread."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from prefixroute import Decision, Namespace
from prefixroute.serve import Service, Settings
from prefixroute.serve.server import Worker, bind
from waiting import until

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak plain HTTP: reading the certificates of the system takes longer than most of these tests."""
DEADLINE_S = 30.0
"""Longest wait for something that must happen; how long it takes is not judged."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def whole(body: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    """Return the bytes of a whole answer, after which the connection is closed."""
    head = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers, "", ""]
    return "\r\n".join(head).encode() + body


HEALTHY, NO_SUCH_PAGE = whole(), whole(status="404 Not Found")


class Engine:
    """A fake engine in a process of its own, on one port for life: it can be killed and started again."""

    def __init__(self, **behaviour: float) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, trust_env=False, verify=PLAIN)
        self.behaviour = behaviour
        self.start()

    def start(self) -> None:
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in self.behaviour.items()]
        command = [sys.executable, "-m", "prefixroute.testing", f"--port={self.port}", *flags]
        self.process = subprocess.Popen(command, cwd=ROOT)

    def wait(self) -> Self:
        until(self.alive)
        return self

    def alive(self) -> bool:
        try:
            return self.client.get("/health").is_success
        except httpx.TransportError:
            assert self.process.poll() is None  # it still runs
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self.client.close()

    def control(self, **behaviour: float) -> None:
        self.client.post("/control", json=behaviour).raise_for_status()

    def stats(self) -> dict[str, int]:
        counters: dict[str, int] = self.client.get("/stats").json()
        return counters


class Listening:
    """Answers each connection in a thread of its own."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(BrokenPipeError, ConnectionResetError):
            self.answer(connection)

    def answer(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


class Scripted(Listening):
    """An engine of bytes.

    Answers every completion with the given pieces, one write each, and keeps what it was sent.
    """

    def __init__(self, pieces: list[bytes], health: bytes = HEALTHY, models: bytes = NO_SUCH_PAGE) -> None:
        self.pieces, self.health, self.models = pieces, health, models
        self.checks = 0
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        super().__init__()

    def answer(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65_536)
            if not data:
                return
        head, body = data.split(b"\r\n\r\n", 1)
        if head.startswith(b"GET /health"):
            self.checks += 1
            connection.sendall(self.health)
            return
        if head.startswith(b"GET "):
            connection.sendall(self.models)
            return
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        while len(body) < int(lengths[0]):
            body += connection.recv(65_536)
        self.heads.append(head)
        self.bodies.append(body)
        for piece in self.pieces:
            connection.sendall(piece)
            time.sleep(0.002)


def quick_settings(replicas: list[str], **options: Any) -> Settings:
    """Return settings for tests: ``health__interval_s=1`` is the option ``health.interval_s``."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    quick = {
        "discovery.replicas": replicas,
        "health.interval_s": 0.05,
        "health.reset_s": 0.1,
        "health.max_reset_s": 1.0,
        "listen.drain_s": 2.0,
        # A machine that is slow for a moment is no dead engine.
        "upstream.connect_timeout_s": DEADLINE_S,
        "health.timeout_s": DEADLINE_S,
    }
    return Settings.of({**quick, **given})


class Proxy:
    """The server on a loopback port, in a thread; ``router`` is its Router, which is safe to look at from here."""

    def __init__(self, replicas: list[Any], **options: Any) -> None:
        """Make a server before engines, or their URLs."""
        self.service = Service(quick_settings([getattr(one, "url", one) for one in replicas], **options))
        self.router = self.service.router
        self._socket = bind("127.0.0.1", 0)
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, trust_env=False, verify=PLAIN, timeout=DEADLINE_S)
        self._worker = Worker(self.service, [self._socket])
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._worker.run()

    def __enter__(self) -> Self:
        self._thread.start()
        until(self._worker.serving.is_set)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self._loop.call_soon_threadsafe(self._worker.end)
        self._thread.join()

    def metric(self, name: str, **labels: str) -> float:
        """Return a sample of the server's own metrics; 0 where there is none."""
        return self.service.metrics.registry.get_sample_value(f"prefixroute_serve_{name}", labels) or 0.0

    def load(self) -> dict[str, int]:
        return {name: replica["in_flight"] for name, replica in self.router.stats()["replicas"].items()}

    def state(self, name: str) -> str:
        return str(self.router.stats()["replicas"][name]["state"])

    def idle(self) -> bool:
        """Return whether all load has been given back."""
        replicas = self.router.stats()["replicas"].values()
        return not any(r["in_flight"] or r["uncached_tokens"] or r["decode_tokens"] for r in replicas)

    def decide(self, content: str, **limits: Any) -> Decision:
        """Return what the router would do with a chat request of one message."""
        prompt, namespace = chat_body(content)["messages"], Namespace(model="fake")
        decision: Decision = self.router.choose(prompt, namespace=namespace, **limits)
        return decision

    def chat(self, content: str = "hello", **fields: Any) -> httpx.Response:
        return self.client.post("/v1/chat/completions", json=chat_body(content, **fields))

    def said(self, *pieces: bytes) -> bytes:
        """Send bytes, and return all that comes back until the connection ends."""
        received = b""
        with self.connected() as connection, suppress(ConnectionResetError):
            for piece in pieces:
                connection.sendall(piece)
            while data := connection.recv(65_536):
                received += data
        return received

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    @contextmanager
    def opened(self, body: dict[str, Any]) -> Iterator[socket.socket]:
        """Send a chat request by hand and hold the connection.

        Leaving closes it at once, as a client that goes away.
        """
        content = json.dumps(body).encode()
        length = f"content-length: {len(content)}"
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\n{length}\r\n\r\n"
        with self.connected() as connection:
            connection.sendall(head.encode() + content)
            yield connection


MakeEngines = Callable[..., list[Engine]]
MakeScripted = Callable[..., Scripted]
MakeProxy = Callable[..., Proxy]


def chat_body(content: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "fake", "messages": [{"role": "user", "content": content}], **fields}


def events(stream: bytes) -> list[dict[str, Any]]:
    """Return the JSON of a stream's events."""
    data = [line[5:] for line in stream.splitlines() if line.startswith(b"data:")]
    return [json.loads(line) for line in data if line.strip() != b"[DONE]"]
