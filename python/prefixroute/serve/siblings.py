"""What the workers of one server tell each other: the commit feeds of their Routers, over sockets of the system."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from prefixroute.errors import PeerError
from prefixroute.router import Router

_LOG = logging.getLogger("prefixroute.serve")
_LENGTH = struct.Struct("<I")
DATAGRAM_BYTES = 32 * 1024
"""Messages are sent together up to this size."""
MAX_BYTES = 256 * 1024
"""No message is larger; the system takes no larger datagram."""
PENDING_BYTES = 1 << 20
"""What waits for a sibling that does not read; beyond it messages are lost, which the feed allows."""
AGAIN_S = 0.005
"""Before what a full socket did not take is offered again."""
READS = 64
"""Datagrams that are read before others of the loop have their turn."""
BEAT_S = 1.0
"""Time between two signs of life of a worker without requests."""


class Siblings:
    """The feed of one worker: what its Router books goes to the others, and what theirs book comes to it.

    Args:
        router: of this worker. All workers' Routers have the same hash key and block size.
        paths: of the workers' datagram sockets.
        number: of this worker among them.
    """

    def __init__(self, router: Router, paths: list[Path], number: int) -> None:
        self._router, self._own = router, paths[number]
        self._pending: dict[str, bytearray] = {str(path): bytearray() for at, path in enumerate(paths) if at != number}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False
        self.lost = 0

    async def run(self) -> None:
        """Talk until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._own.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as self._socket:
            self._socket.settimeout(0)
            self._socket.bind(str(self._own))
            self._loop.add_reader(self._socket, self._receive)
            link = self._router.peer_feed(self._send)
            try:
                while True:
                    await asyncio.sleep(BEAT_S)
                    link.tick()
            finally:
                link.close()
                self._flush()
                self._loop.remove_reader(self._socket)
                self._own.unlink(missing_ok=True)

    def _send(self, message: bytes) -> None:
        """Put a message aside: this is called within a decision."""
        framed = _LENGTH.pack(len(message)) + message
        for waiting in self._pending.values():
            if len(waiting) < PENDING_BYTES:
                waiting.extend(framed)
            else:
                self.lost += 1
        if not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        for path, waiting in self._pending.items():
            while waiting:
                end = _end_of(waiting)
                try:
                    self._socket.sendto(waiting[:end], path)
                except BlockingIOError:
                    self._later()
                    break
                except OSError:  # not started yet, or dead: when it is back it asks for a snapshot
                    waiting.clear()
                    break
                del waiting[:end]

    def _later(self) -> None:
        if not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_later(AGAIN_S, self._flush)

    def _receive(self) -> None:
        for _ in range(READS):
            try:
                data = self._socket.recv(MAX_BYTES)
            except OSError:
                return
            for message in _messages(data):
                with suppress(PeerError):  # of another version: the Router counts and logs it
                    self._router.apply_peer(message)


def _end_of(waiting: bytearray) -> int:
    """Return the end of the whole messages that fit into a datagram, of one at least."""
    at = 0
    while at < len(waiting):
        following = at + _LENGTH.size + _LENGTH.unpack_from(waiting, at)[0]
        if at and following > DATAGRAM_BYTES:
            break
        at = following
    return at


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + _LENGTH.size <= len(data):
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(data, at)[0]
        yield data[begin:at]
