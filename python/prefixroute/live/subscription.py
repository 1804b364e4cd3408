"""A subscribing socket: what arrives at it, whether it is connected, and back-off where the other side hangs up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

from prefixroute.extras import extra_module
from prefixroute.live.frames import MAX_MESSAGE_BYTES
from prefixroute.live.pending import MAX_PENDING, MAX_PENDING_BYTES
from prefixroute.validation import check_float, check_int

DRAIN = 1_000
"""Messages read from one socket before the others have their turn."""
ATTEMPT_S = 10.0
"""An attempt to connect that nobody answered for so long is given up: the host is unknown, or silent."""
KEEPALIVE_S, KEEPALIVE_TRIES = 10, 3
"""A connection that was idle for so many seconds is tried so often, as many seconds apart, before it has ended."""
_MONITOR, _NUMBERS = "inproc://prefixroute-monitor-{}", count()
_MAX_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """How feeds are followed. Times are seconds.

    Attributes:
        reconnect_s: wait before the first attempt to reconnect; it doubles up to ``reconnect_max_s`` until a message
            comes, or a connection lasts for as long as that.
        reconnect_max_s: longest wait between two attempts.
        replay_timeout_s: a replay without an answer for so long has ended.
        audit_s: a replica that was silent for so long is asked whether anything was published that did not arrive. A
            feed that has never received anything says so after as long.
        queue: messages that may wait in the transport for each replica. Beyond it the engine keeps them, as far as its
            own queue reaches (``hwm``, 100,000 by default); what it drops is seen as a gap and replayed.
        queue_bytes: bytes that messages may take there, at :data:`~prefixroute.live.frames.MAX_MESSAGE_BYTES` each, and
            again where batches wait for missing ones. At least one message is taken.
        max_pending: batches that may wait for missing ones.
    """

    reconnect_s: float = 0.1
    reconnect_max_s: float = 10.0
    replay_timeout_s: float = 2.0
    audit_s: float = 5.0
    queue: int = 1_000
    queue_bytes: int = MAX_PENDING_BYTES
    max_pending: int = MAX_PENDING

    def __post_init__(self) -> None:
        """Refuse what no socket can have."""
        for name in ("reconnect_s", "reconnect_max_s", "replay_timeout_s", "audit_s"):
            check_float(name, getattr(self, name), 0, above=True)
        check_int("queue", self.queue, 1, 1 << 30)
        check_int("queue_bytes", self.queue_bytes, 1)
        check_int("max_pending", self.max_pending, 1)

    def back_off(self, in_vain: int) -> float:
        """Return the seconds to wait after so many attempts in vain.

        Args:
            in_vain: attempts before the last one.
        """
        return min(self.reconnect_s * 2.0 ** min(in_vain, _MAX_DOUBLINGS), self.reconnect_max_s)

    @property
    def messages(self) -> int:
        """Messages that may wait in the transport, however long they are."""
        return max(1, min(self.queue, self.queue_bytes // MAX_MESSAGE_BYTES))


class Subscription:
    """A SUB socket at one address, and a second one that tells of its connections.

    Args:
        context: the ZeroMQ context.
        address: where to connect, or to listen.
        topic: only messages whose topic begins so.
        bind: listen there and let the other side connect.
        options: times and bounds.
        clock: returns seconds, only ever compared with each other.

    Raises:
        zmq.ZMQError: the address cannot be used. Every socket is closed then.
    """

    def __init__(
        self,
        context: Any,
        address: str,
        topic: bytes,
        *,
        bind: bool,
        options: FollowOptions,
        clock: Callable[[], float],
    ) -> None:
        zmq = self._zmq = zeromq()
        self.address, self._bind, self._options, self._clock = address, bind, options, clock
        self.connected = False
        self.since: float | None = None
        """When the present connection was made, or the last one."""
        self.attempts = self.connections = self.disconnections = 0
        self.deadline: float | None = None
        """When :meth:`tick` has something to do; ``None`` = nothing is awaited."""
        self._trying = False
        self._in_vain = 0  # attempts in a row that brought no message
        self._left: list[list[bytes]] = []  # what the last connection brought
        self.socket = context.socket(zmq.SUB)
        self.monitor: Any = None
        try:
            self._open(context, topic)
        except zmq.ZMQError:
            self.close()
            raise

    def _open(self, context: Any, topic: bytes) -> None:
        zmq = self._zmq
        self.monitor = context.socket(zmq.PAIR)
        self.socket.rcvhwm, self.socket.maxmsgsize = self._options.messages, MAX_MESSAGE_BYTES
        # The transport never connects again where a message is too long or the other side speaks something else, and
        # connects without back-off where it hangs up. So it is told to leave that.
        self.socket.reconnect_ivl = -1
        self.socket.ipv6, self.socket.linger, self.monitor.linger = True, 0, 0
        # A subscriber sends nothing, so that without this a host that has vanished is never noticed.
        self.socket.tcp_keepalive, self.socket.tcp_keepalive_cnt = 1, KEEPALIVE_TRIES
        self.socket.tcp_keepalive_idle = self.socket.tcp_keepalive_intvl = KEEPALIVE_S
        self.socket.subscribe(topic)
        place = _MONITOR.format(next(_NUMBERS))
        self.socket.monitor(place, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED)
        self.monitor.connect(place)
        if self._bind:
            self.socket.bind(self.address)
        else:
            self._attempt()

    def close(self) -> None:
        """Close both sockets."""
        if self.monitor is not None:
            self.socket.disable_monitor()
            self.monitor.close()
        self.socket.close()

    def read(self) -> tuple[int, list[list[bytes]]]:
        """Return how many connections are new, and what has come since by the last of them."""
        messages = drained(self.socket)
        made = 0
        # A message is read before the news of the connection that it came by, so that no news can be missing.
        for frames in drained(self.monitor):
            made += self._changed(frames)
        messages += self._left
        self._left = []
        if messages:
            self._in_vain = 0
        return made, messages

    def _changed(self, frames: list[bytes]) -> bool:
        """Take in a change; return whether it is a new connection."""
        from zmq.utils.monitor import parse_monitor_message  # noqa: PLC0415  # a library of an extra

        event = parse_monitor_message(frames)["event"]
        if event == self._zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self.connected, self.since = True, self._clock()
            self._trying, self.deadline = False, None
            self.connections += 1
            return True
        if event == self._zmq.EVENT_DISCONNECTED:
            self.disconnections += 1
        if self._bind:
            self.connected = self.connected and event != self._zmq.EVENT_DISCONNECTED
        else:
            self._ended()
        return False

    def _attempt(self) -> None:
        self.attempts += 1
        self._trying, self.deadline = True, self._clock() + ATTEMPT_S
        self.socket.connect(self.address)

    def _ended(self) -> None:
        """Wait before the next attempt, the longer the more of them were in vain."""
        options, now = self._options, self._clock()
        self._left += drained(self.socket, None)  # lost otherwise
        lasted = self.connected and self.since is not None and now - self.since >= options.reconnect_max_s
        self.connected = self._trying = False
        self._in_vain = 0 if lasted or self._left else self._in_vain + 1
        with contextlib.suppress(self._zmq.ZMQError):
            self.socket.disconnect(self.address)
        self.deadline = now + options.back_off(max(0, self._in_vain - 1))

    def tick(self, now: float) -> None:
        """Begin the next attempt, or give up one that nobody answers, if that is due."""
        if self.deadline is None or now < self.deadline:
            return
        if self._trying:
            self._ended()
            return
        try:
            self._attempt()
        except self._zmq.ZMQError:  # such as too many open files
            self._ended()


def drained(socket: Any, most: int | None = DRAIN) -> list[list[bytes]]:
    """Return the messages that a socket has, at most so many."""
    zmq = zeromq()
    messages: list[list[bytes]] = []
    try:
        while most is None or len(messages) < most:
            messages.append(socket.recv_multipart(zmq.NOBLOCK))
    except zmq.Again:
        pass
    return messages


@lru_cache(maxsize=1)
def zeromq() -> Any:
    """Return pyzmq."""
    return extra_module("zmq", "events")
