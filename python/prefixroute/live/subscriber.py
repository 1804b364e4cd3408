"""Follow the KV events of many engines, in a thread of its own or as a task of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.live.connection import Connection, Sink, blank_stats
from prefixroute.live.feed import KvFeed
from prefixroute.live.subscription import FollowOptions
from prefixroute.validation import check_instance

_LOG = logging.getLogger("prefixroute")
_LONGEST_WAIT_S = 1.0


class Subscriber:
    """Applies engines' KV events and load reports to a router.

    As a context manager (``with``) it runs in a daemon thread, with ``async with`` as a task of the running event loop;
    :meth:`start` and :meth:`close` do the same as the former. One thread follows all feeds. :meth:`add`,
    :meth:`remove`, :meth:`stats` and :meth:`close` may be called from any thread.

    Args:
        sink: the router.
        feeds: where each replica's engine publishes, by the replica's name.
        options: times and bounds.
        clock: returns seconds; used for time-outs only.
    """

    def __init__(
        self,
        sink: Sink,
        feeds: Mapping[str, KvFeed] = {},
        *,
        options: FollowOptions = FollowOptions(),  # noqa: B008  # frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_instance("options", options, FollowOptions)
        self._zmq = extra_module("zmq", "events")
        self._sink, self._options, self._clock = sink, options, clock
        self._wanted: SimpleQueue[tuple[str, KvFeed | None]] = SimpleQueue()
        self._connections: dict[str, Connection] = {}
        self._handlers: dict[Any, Callable[[], None]] = {}
        self._poller: Any = None
        self._context: Any = None
        self._closing = False
        self._runner: threading.Thread | asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._emptied: SimpleQueue[str] = SimpleQueue()
        self._unopened: dict[str, str] = {}  # feeds without a connection, and why
        self._later: dict[str, tuple[float, int, KvFeed]] = {}  # of these: when to try again, and how often that was
        self._pipe: tuple[int, int] | None = None  # written to wake whoever waits for the sockets
        self._pipe_lock = threading.RLock()  # a signal handler may remove a replica while another call wakes
        for name, feed in feeds.items():
            self.add(name, feed)

    # -- for every thread --------------------------------------------------------------------------------------------

    def add(self, name: str, feed: KvFeed) -> None:
        """Follow a replica's feed from now on, in place of any that was followed for it.

        Args:
            name: of the replica.
            feed: where its engine publishes.
        """
        check_instance(f"the feed of {name!r}", feed, KvFeed)
        self._unopened[name] = "not opened yet"
        self._wanted.put((name, feed))
        self._wake()

    def remove(self, name: str) -> None:
        """Stop following a replica. Nothing more of it is applied once this returns, but for a batch under way.

        Args:
            name: of the replica.
        """
        connection = self._connections.get(name)
        if connection is not None:
            connection.closed = True
        self._wanted.put((name, None))
        self._wake()

    def emptied(self, name: str) -> None:
        """Tell that a replica was cleared by somebody else: what its engine holds is read again, as far as that can be.

        Args:
            name: of the replica.
        """
        self._emptied.put(name)
        self._wake()

    def stats(self) -> dict[str, dict[str, Any]]:
        """Return the state of each feed by replica.

        ``connected``; ``degraded`` = batches are missing now; ``partial`` = the engine may hold blocks from before
        anything that could be read; ``last`` = number of the last batch applied; ``waiting`` = batches that wait for
        missing ones; ``idle_s`` = seconds since the last batch; ``lag_s`` = age of the last batch when it was applied,
        by both machines' clocks; ``note`` = what was wrong last; the counts of
        :class:`~prefixroute.live.sequence.SequenceStats` and of :data:`~prefixroute.live.connection.COUNTS`; ``events``
        = what the batches did to the index, summed; ``recent`` = blocks of the last batches that stored some;
        ``samples`` = such batches.
        """
        unopened = {name: blank_stats(note) for name, note in list(self._unopened.items())}
        return unopened | {name: connection.stats() for name, connection in list(self._connections.items())}

    def start(self) -> Self:
        """Run in a daemon thread. Returns itself."""
        self._begin()
        self._poller = self._zmq.Poller()
        thread = threading.Thread(target=self._run, name="prefixroute-events", daemon=True)
        try:
            thread.start()
        except BaseException:  # such as Ctrl-C, with the thread running or not
            self._closing = True
            self._wake()
            if thread.ident is None:
                self._finish()
            else:
                thread.join()
            raise
        self._runner = thread
        return self

    def close(self) -> None:
        """Stop, and wait until every socket is closed. Raise what ended the thread, if anything did."""
        runner = self._runner
        self._closing = True
        self._wake()
        if isinstance(runner, threading.Thread):
            runner.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def __enter__(self) -> Self:
        """Run in a thread, if it does not run already."""
        return self.start() if self._runner is None else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.close()

    async def __aenter__(self) -> Self:
        """Run as a task of this event loop."""
        self._begin()
        self._poller = extra_module("zmq.asyncio", "events").Poller()
        self._runner = asyncio.create_task(self._serve(), name="prefixroute-events")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait until every socket is closed."""
        self._closing = True
        self._wake()
        if isinstance(self._runner, asyncio.Task):
            await self._runner

    # -- for the thread or task that follows -------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._runner is not None or self._closing:
            raise ConfigError("a subscriber runs once: make another")
        pipe = os.pipe()
        for end in pipe:
            os.set_blocking(end, False)
        self._pipe, self._context = pipe, self._zmq.Context()

    def _run(self) -> None:
        try:
            self._poller.register(self._awake(), self._zmq.POLLIN)
            while not self._closing:
                self._step(self._poller.poll(self._wait_ms()))
        except BaseException as error:  # noqa: BLE001  # close() raises it in the caller's thread
            self._error = error
        finally:
            self._finish()

    async def _serve(self) -> None:
        try:
            self._poller.register(self._awake(), self._zmq.POLLIN)
            while not self._closing:
                self._step(await self._poller.poll(self._wait_ms()))
        finally:
            self._finish()

    def _step(self, ready: list[tuple[Any, int]]) -> None:
        """Handle what is ready, what was asked for and what is due."""
        self._change()
        for socket, _ in ready:
            if isinstance(socket, int):
                with contextlib.suppress(BlockingIOError):
                    os.read(socket, 4096)
            elif (handler := self._handlers.get(socket)) is not None:
                self._handle(handler)
        while not self._emptied.empty():
            connection = self._connections.get(self._emptied.get())
            if connection is not None:
                self._handle(connection.emptied)
        now = self._clock()
        for name, connection in list(self._connections.items()):
            if connection.closed:
                self._drop(name)
            elif connection.deadline <= now:
                self._handle(connection.tick)

    def _handle(self, handler: Callable[[], None]) -> None:
        """Call a handler of a connection. An error that nobody expects costs that connection, and is told."""
        connection: Connection = handler.__self__  # type: ignore[attr-defined]  # handlers are methods of connections
        if connection.closed:
            return
        try:
            handler()
        except Exception as error:  # noqa: BLE001  # whatever the sink raises
            _LOG.exception("replica %s is not followed any more", connection.name)
            connection.closed = True
            self._unopened[connection.name] = f"stopped by {type(error).__name__}: {error}"

    def _change(self) -> None:
        while not self._wanted.empty():
            name, feed = self._wanted.get()
            self._drop(name)
            self._later.pop(name, None)
            if feed is None:
                self._unopened.pop(name, None)
            else:
                self._open(name, feed, 0)
        now = self._clock()
        for name, (at, tries, feed) in list(self._later.items()):
            if at <= now:
                self._open(name, feed, tries)

    def _open(self, name: str, feed: KvFeed, tries: int) -> None:
        """Open a feed's sockets, or try again later: files may have run out, or an address be in use."""
        try:
            self._connections[name] = Connection(
                self._context, name, feed, sink=self._sink, reactor=self, options=self._options, clock=self._clock
            )
        except ConfigError as error:
            self._unopened[name] = str(error)
            self._later[name] = (self._clock() + self._options.back_off(tries), tries + 1, feed)
        else:
            self._unopened.pop(name, None)
            self._later.pop(name, None)

    def _drop(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            connection.close()

    def _wait_ms(self) -> int:
        """Return the milliseconds until something is due."""
        if not self._wanted.empty():
            return 0
        now = self._clock()
        dues = [connection.deadline for connection in self._connections.values()] + [
            one[0] for one in self._later.values()
        ]
        due = min(dues, default=now + _LONGEST_WAIT_S) - now
        return max(0, min(round(due * 1000) + 1, round(_LONGEST_WAIT_S * 1000)))

    def add_socket(self, socket: Any, handler: Callable[[], None]) -> None:
        """Call a handler whenever a socket has something to read.

        Args:
            socket: of ZeroMQ.
            handler: called in the subscriber's thread.
        """
        self._handlers[socket] = handler
        self._poller.register(socket, self._zmq.POLLIN)

    def remove_socket(self, socket: Any) -> None:
        """Stop doing so.

        Args:
            socket: that was added.
        """
        del self._handlers[socket]
        self._poller.unregister(socket)

    def _awake(self) -> int:
        """Return the end of the pipe that has something to read once :meth:`_wake` was called."""
        return -1 if self._pipe is None else self._pipe[0]

    def _wake(self) -> None:
        with self._pipe_lock, contextlib.suppress(BlockingIOError):
            if self._pipe is not None:
                os.write(self._pipe[1], b"\0")

    def _finish(self) -> None:
        for name in list(self._connections):
            self._drop(name)
        context, self._context = self._context, None
        if context is not None:
            context.destroy(linger=0)
        with self._pipe_lock:
            pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            os.close(end)
