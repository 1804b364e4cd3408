"""Peers on several hosts by ZeroMQ sockets, without a server: each router publishes, and subscribes to the others."""

from __future__ import annotations

import time
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.peers.transports.threads import Threads
from prefixroute.peers.wire import MAX_PEER_FRAME_BYTES
from prefixroute.validation import check_instance

HIGH_WATER = 100_000
"""Frames that ZeroMQ holds for a peer that does not read; later ones are lost."""
LINGER_MS = 500
"""What closing waits for frames to leave."""
READ_FRAMES = 1_000
SETTLE_S = 0.3
"""Seconds in which subscriptions reach the others; what was published before would be lost."""


class ZmqPeers(Threads):
    """Carries frames by PUB and SUB sockets, each router to each. A peer that returns is connected again by ZeroMQ.

    Args:
        bind: endpoint at which this router publishes, e.g. ``"tcp://0.0.0.0:5600"`` or ``"tcp://127.0.0.1:*"``; every
            router needs one of its own. Sockets carry no password: bind where only the fleet reaches.
        peers: endpoints of other routers; its own among them does no harm. :meth:`connect` adds more.

    Raises:
        ConfigError: pyzmq is not installed, or an endpoint cannot be used.
    """

    def __init__(self, bind: str, peers: Iterable[str] = ()) -> None:
        """Bind, so that a port that is taken is told at once."""
        super().__init__("zmq")
        peers = list(peers)
        for endpoint in (bind, *peers):
            _check(endpoint)
        self._zmq: Any = extra_module("zmq", "zmq")
        self._context = self._zmq.Context()
        self._pub, self._sub = self._context.socket(self._zmq.PUB), self._context.socket(self._zmq.SUB)
        self._changes: SimpleQueue[tuple[str, bool]] = SimpleQueue()
        self._pub.setsockopt(self._zmq.SNDHWM, HIGH_WATER)
        for option, value in ((self._zmq.RCVHWM, HIGH_WATER), (self._zmq.MAXMSGSIZE, MAX_PEER_FRAME_BYTES)):
            self._sub.setsockopt(option, value)
        self._sub.subscribe(b"")
        self.endpoint = self._use(bind, self._bind)
        """Where this router publishes, with the port that was found for ``*``."""
        for peer in peers:
            self._use(peer, self._sub.connect)

    def connect(self, endpoint: str) -> None:
        """Hear a peer, e.g. one that discovery has found.

        Args:
            endpoint: where it publishes.

        Raises:
            ConfigError: it is no endpoint.
        """
        self._change(endpoint, add=True)

    def disconnect(self, endpoint: str) -> None:
        """Hear a peer no more.

        Args:
            endpoint: as it was given to :meth:`connect`.

        Raises:
            ConfigError: it is no endpoint.
        """
        self._change(endpoint, add=False)

    def _change(self, endpoint: str, *, add: bool) -> None:
        _check(endpoint)
        self._changes.put((endpoint, add))

    def _bind(self, endpoint: str) -> str:
        self._pub.bind(endpoint)
        bound: str = self._pub.getsockopt_string(self._zmq.LAST_ENDPOINT)
        return bound

    def _use(self, endpoint: str, call: Any) -> Any:
        try:
            return call(endpoint)
        except self._zmq.ZMQError as error:
            self._release()
            raise ConfigError(f"endpoint {endpoint!r}: {error}") from error

    def _position(self) -> None:
        self._apply_changes()
        time.sleep(SETTLE_S)

    def _send(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._pub.send(frame)

    def _read(self, wait_s: float) -> Iterable[bytes]:
        self._apply_changes()
        if not self._sub.poll(1_000 * wait_s):
            return
        for _ in range(READ_FRAMES):
            try:
                parts = self._sub.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            if len(parts) == 1:
                yield parts[0]

    def _apply_changes(self) -> None:
        while True:
            try:
                endpoint, add = self._changes.get_nowait()
            except Empty:
                return
            (self._sub.connect if add else self._sub.disconnect)(endpoint)

    def _release(self) -> None:
        self._pub.close(LINGER_MS)
        self._sub.close(0)
        self._context.term()


def _check(endpoint: str) -> None:
    check_instance("endpoint", endpoint, str)
    if "://" not in endpoint:
        raise ConfigError(f"an endpoint must be like tcp://host:port, got {endpoint!r}")
