"""A transport of two threads: one sends what waits, the other takes in what has come. Neither is ever waited for."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.peers.transport import Flush, Receive, Tick, deliver, nothing

_LOG = logging.getLogger("prefixroute")
MAX_WAITING = 65_536
"""Frames that may wait to be sent: each of 10 ms, so ten minutes. Later ones are lost, and counted."""
BATCH = 512
"""Frames that are sent at once at most."""
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.05, 2.0
"""Seconds before a failed server is tried again: doubled from the first to the last."""
GATHER_S = 0.01
"""Seconds for which messages gather before they are sent: far less than what a delay begins to cost."""
READ_WAIT_S = 0.5
"""Seconds that the reader waits for a frame at most, so that time passes."""
TICK_S = 1.0
CLOSE_S = 2.0
"""Seconds that :meth:`Threads.close` waits for each thread."""


class Threads(ABC):
    """Base of transports over a server or sockets. A subclass says how a batch is sent and how frames are read.

    While sending or reading fails, the router goes on alone. That is logged once, shown by ``status()["connected"]``,
    and tried again with growing pauses; what waits is sent then.

    Args:
        kind: name of the transport in logs and metrics.
    """

    def __init__(self, kind: str) -> None:
        """Start nothing."""
        self.kind = kind
        self._begin()

    def _begin(self) -> None:
        """Have no threads, and nothing to send."""
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._ending, self._closed = threading.Event(), threading.Event()
        self._gone: dict[str, bool] = {"send": False, "read": False}
        self._counts = {"sent": 0, "lost": 0, "refused": 0}
        self._ticked = float("-inf")
        self._unsent: list[bytes] = []
        self._positioned = threading.Event()

    def _position(self) -> None:  # noqa: B027  # not every transport has a past
        """Note from where on to read.

        Nothing is sent before: what peers answer to this router's first frame must be read.
        """

    @abstractmethod
    def _send(self, frames: list[bytes]) -> None:
        """Send a batch. May block; raises if the other side is gone."""

    @abstractmethod
    def _read(self, wait_s: float) -> Iterable[bytes]:
        """Return what has come, waiting up to ``wait_s`` seconds; raises if the other side is gone."""

    def _release(self) -> None:  # noqa: B027  # not every transport holds something
        """Let go of connections; both threads have ended, or are stuck in a call."""

    def open(self, receive: Receive, tick: Tick, flush: Flush = nothing) -> None:
        """Start both threads, see :meth:`Transport.open <prefixroute.peers.transport.Transport.open>`."""
        if self._threads or self._closed.is_set():
            raise ConfigError(f"a transport carries the frames of one router, once: make another {type(self).__name__}")
        work = [
            lambda: self._keep("send", lambda: self._send_waiting(flush)),
            lambda: self._keep("read", lambda: self._take_in(receive, tick)),
        ]
        for target, name in zip(work, ("send", "read"), strict=True):
            self._threads.append(threading.Thread(target=target, name=f"prefixroute-{self.kind}-{name}", daemon=True))
        for thread in self._threads:
            thread.start()

    def publish(self, frame: bytes) -> None:
        """Put a frame into the queue; when that is full, the frame is lost and counted."""
        if self._waiting.qsize() >= MAX_WAITING:
            self._counts["lost"] += 1
        else:
            self._waiting.put(frame)

    def status(self) -> dict[str, Any]:
        """Return the state of the connection and what it has carried, see ``Transport.status``."""
        return {
            "kind": self.kind,
            "connected": self._running() and self._positioned.is_set() and not any(self._gone.values()),
            "waiting": self._waiting.qsize(),
            **self._counts,
        }

    def _running(self) -> bool:
        """Whether both threads live; those of a parent process do not live on in a child."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Send what waits unless the other side is gone, and end both threads."""
        if self._closed.is_set():
            return
        self._waiting.put(None)
        self._ending.set()
        if self._threads and not any(self._gone.values()):
            self._threads[0].join(CLOSE_S)
        self._closed.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(CLOSE_S)
        self._release()

    def _keep(self, side: str, work: Callable[[], bool]) -> None:
        """Repeat a piece of work until it says that it is done, with pauses while the other side is gone."""
        pause = FIRST_BACKOFF_S
        while not self._closed.is_set():
            try:
                if work():
                    return
            except Exception as error:  # noqa: BLE001  # whatever a server does, the router must live
                self._tell(side, gone=True, why=error)
                self._closed.wait(pause)
                pause = min(2 * pause, LAST_BACKOFF_S)
            else:
                pause = FIRST_BACKOFF_S
                self._tell(side, gone=False)

    def _tell(self, side: str, *, gone: bool, why: Exception | None = None) -> None:
        if self._gone[side] is gone:
            return
        self._gone[side] = gone
        if self._closed.is_set():
            return
        if gone:
            _LOG.warning(
                "peers by %s: cannot %s, this router goes on alone (%s: %.200s)",
                self.kind,
                side,
                type(why).__name__,
                why,
            )
        else:
            _LOG.warning("peers by %s: can %s again", self.kind, side)

    def _send_waiting(self, flush: Flush) -> bool:
        """Send a batch, first the one that failed before; return whether that was all and the transport is closed."""
        if not self._positioned.wait(READ_WAIT_S):
            return False
        last = False
        if not self._unsent:
            self._ending.wait(GATHER_S)
            flush()
            last, self._unsent = self._batch()
        if self._unsent:
            self._send(self._unsent)
            self._counts["sent"] += len(self._unsent)
            self._unsent = []
        return last

    def _batch(self) -> tuple[bool, list[bytes]]:
        """Return what waits, up to a batch, and whether nothing comes after it."""
        batch: list[bytes] = []
        with suppress(Empty):
            while len(batch) < BATCH:
                frame = self._waiting.get_nowait()
                if frame is None:
                    return True, batch
                batch.append(frame)
        return False, batch

    def _take_in(self, receive: Receive, tick: Tick) -> bool:
        try:
            if not self._positioned.is_set():
                self._position()
                self._positioned.set()
            deliver(self._read(READ_WAIT_S), receive, self._counts, self.kind)
        finally:
            if (now := time.monotonic()) - self._ticked >= TICK_S:
                self._ticked = now
                tick()
        return False
