"""One replica's sockets: events in order to the index, replays, and load reports."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from prefixroute.errors import ConfigError, PrefixRouteError, UnknownReplicaError
from prefixroute.extras import extra_module
from prefixroute.live.feed import KvFeed
from prefixroute.live.frames import (
    END,
    MAX_MESSAGE_BYTES,
    Batch,
    read_live,
    read_load,
    read_replay,
    replay_request,
    sent_at,
)
from prefixroute.live.sequence import MAX_PENDING, Action, Apply, Clear, Sequence, SequenceStats
from prefixroute.validation import check_float, check_int, shown

if TYPE_CHECKING:
    from prefixroute.index import Applied

_LOG = logging.getLogger("prefixroute")
_DRAIN = 1_000
"""Messages read from one socket before the others have their turn."""
SAMPLE_BYTES = 1 << 20
"""A batch up to this size is kept, to say why nothing matches."""
LOAD_QUEUE = 16
"""Load reports that may wait: only the newest matters."""
_MONITOR, _NUMBERS = "inproc://prefixroute-monitor-{}", count()


class Sink(Protocol):
    """What a feed is applied to: :class:`prefixroute.Router` has it."""

    def apply(self, name: str, payload: bytes) -> Any:
        """Apply one batch of a replica's KV events."""

    def clear(self, name: str) -> None:
        """Forget what a replica holds."""

    def update_load(self, name: str, **loads: float | None) -> bool:
        """Keep a replica's own report of its load."""


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """How feeds are followed. Times are seconds.

    Attributes:
        reconnect_s: wait before the first attempt to reconnect; it doubles up to ``reconnect_max_s``.
        reconnect_max_s: longest wait between two attempts.
        replay_timeout_s: a replay without an answer for so long has ended.
        audit_s: a replica that was silent for so long is asked whether anything was published that did not arrive.
        queue: messages that may wait in the transport for each replica; beyond it they are lost, seen as a gap, and
            replayed. vLLM's own default is 100,000.
        max_pending: batches that may wait for missing ones.
    """

    reconnect_s: float = 0.1
    reconnect_max_s: float = 10.0
    replay_timeout_s: float = 2.0
    audit_s: float = 5.0
    queue: int = 100_000
    max_pending: int = MAX_PENDING

    def __post_init__(self) -> None:
        """Refuse what no socket can have."""
        for name in ("reconnect_s", "reconnect_max_s", "replay_timeout_s", "audit_s"):
            check_float(name, getattr(self, name), 0, above=True)
        check_int("queue", self.queue, 1, 1 << 30)
        check_int("max_pending", self.max_pending, 1)


class Reactor(Protocol):
    """Where a connection hangs its sockets."""

    def add_socket(self, socket: Any, handler: Callable[[], None]) -> None:
        """Call a handler whenever a socket has something to read."""

    def remove_socket(self, socket: Any) -> None:
        """Stop doing so."""


class Connection:
    """Follows one feed. Every method runs in the reactor's thread, except :attr:`closed`, which any thread may set.

    Args:
        context: the ZeroMQ context.
        name: the replica.
        feed: where its engine publishes.
        sink: what is applied to.
        reactor: who waits for the sockets.
        options: times and bounds.
        clock: returns seconds, only ever compared with each other.
    """

    def __init__(
        self,
        context: Any,
        name: str,
        feed: KvFeed,
        *,
        sink: Sink,
        reactor: Reactor,
        options: FollowOptions,
        clock: Callable[[], float],
    ) -> None:
        self.name, self.feed, self.closed = name, feed, False
        self._zmq, self._context = extra_module("zmq", "events"), context
        self._sink, self._reactor, self._options, self._clock = sink, reactor, options, clock
        self._events_at, self._replay_at, self._load_at = feed.addresses
        self._topic = feed.topic.encode()
        self._sequence = Sequence(can_replay=self._replay_at is not None, max_pending=options.max_pending)
        self._connected = False
        self._counts: Counter[str] = Counter()
        self._applied: Counter[str] = Counter()
        self._sample: bytes | None = None
        self._note = ""
        self._lag_s: float | None = None
        self._heard = clock()
        self._replay_deadline: float | None = None
        self._replay: Any = None
        self._live = self._subscription(self._topic, options.queue)
        self._monitor = self._watched(self._live)
        self._load = None if self._load_at is None else self._subscription(feed.load_topic.encode(), LOAD_QUEUE)
        reactor.add_socket(self._live, self._read_live)
        reactor.add_socket(self._monitor, self._read_monitor)
        self._open(self._live, self._events_at, bind=feed.bind)
        if self._load is not None and self._load_at is not None:
            reactor.add_socket(self._load, self._read_load)
            self._open(self._load, self._load_at)

    # -- sockets -----------------------------------------------------------------------------------------------------

    def _subscription(self, topic: bytes, queue: int) -> Any:
        zmq, options = self._zmq, self._options
        socket = self._context.socket(zmq.SUB)
        socket.linger = 0
        socket.rcvhwm = queue
        socket.maxmsgsize = MAX_MESSAGE_BYTES
        socket.reconnect_ivl = max(1, round(options.reconnect_s * 1000))
        socket.reconnect_ivl_max = max(1, round(options.reconnect_max_s * 1000))
        socket.ipv6 = True
        socket.subscribe(topic)
        return socket

    def _watched(self, socket: Any) -> Any:
        """Return a socket that tells of another's connections; to be made before there are any."""
        zmq, place = self._zmq, _MONITOR.format(next(_NUMBERS))
        socket.monitor(place, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        monitor = self._context.socket(zmq.PAIR)
        monitor.linger = 0
        monitor.connect(place)
        return monitor

    def _open(self, socket: Any, address: str, *, bind: bool = False) -> None:
        try:
            (socket.bind if bind else socket.connect)(address)
        except self._zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"replica {shown(self.name)} cannot be followed at {address}: {error}") from error

    def close(self) -> None:
        """Close every socket."""
        self.closed = True
        self._end_replay()
        for socket in (self._live, self._monitor, self._load):
            if socket is not None:
                self._reactor.remove_socket(socket)
        self._live.disable_monitor()
        for socket in (self._monitor, self._live, self._load):
            if socket is not None:
                socket.close()

    # -- what arrives ------------------------------------------------------------------------------------------------

    def _drain(self, socket: Any) -> list[list[bytes]]:
        """Return what a socket has, at most :data:`_DRAIN` messages."""
        messages: list[list[bytes]] = []
        try:
            while len(messages) < _DRAIN:
                messages.append(socket.recv_multipart(self._zmq.NOBLOCK))
        except self._zmq.Again:
            pass
        return messages

    def _read_live(self) -> None:
        messages = self._drain(self._live)
        self._read_monitor()  # a message is read after the news of the connection that it came by, never before
        for frames in messages:
            batch = read_live(frames)
            if batch is None:
                self._bad("malformed", f"{len(frames)} frames that are no batch")
                continue
            self._heard = self._clock()
            self._counts["received"] += 1
            self._do(self._sequence.live(batch.number, batch.payload))

    def _read_monitor(self) -> None:
        from zmq.utils.monitor import parse_monitor_message  # noqa: PLC0415  # a library of an extra

        for frames in self._drain(self._monitor):
            event = parse_monitor_message(frames)["event"]
            if event == self._zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._connected = True
                self._counts["connections"] += 1
                self._heard = self._clock()
                self._do(self._sequence.connected())
            elif event == self._zmq.EVENT_DISCONNECTED:
                self._connected = False

    def _read_load(self) -> None:
        for frames in self._drain(self._load):
            try:
                stat = read_load(frames[-1])
                self._sink.update_load(
                    self.name,
                    running=stat.running,
                    waiting=stat.waiting,
                    waiting_tokens=stat.waiting_tokens,
                    kv_use=stat.kv_use,
                )
            except UnknownReplicaError:
                self.closed = True
            except PrefixRouteError as error:
                self._bad("bad_load_reports", str(error))
            else:
                self._counts["load_reports"] += 1

    def _read_replay(self) -> None:
        socket = self._replay
        for frames in self._drain(socket):
            if self._replay is not socket:
                return  # a newer replay has begun
            batch = read_replay(frames)
            if batch is None:
                self._bad("malformed", f"{len(frames)} frames that are no answer of a replay")
                continue
            self._replay_deadline = self._clock() + self._options.replay_timeout_s
            if batch.number == END:
                self._end_replay()
                self._do(self._sequence.replay_ended())
            elif self._wanted(batch):
                self._do(self._sequence.replayed(batch.number, batch.payload))

    def _wanted(self, batch: Batch) -> bool:
        """Return whether a replayed batch is of the topic: replays are not filtered by the transport."""
        if not batch.topic or batch.topic.startswith(self._topic):
            return True
        self._bad("wrong_topic", f"the engine publishes under {batch.topic!r}, the feed asks for {self._topic!r}")
        return False

    # -- what is done ------------------------------------------------------------------------------------------------

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            if self.closed:
                return
            try:
                if isinstance(action, Apply):
                    self._apply(action)
                elif isinstance(action, Clear):
                    _LOG.info("replica %s cleared: %s", self.name, action.reason)
                    self._sink.clear(self.name)
                else:
                    self._begin_replay(action.start)
            except UnknownReplicaError:
                self.closed = True  # it has left the fleet

    def _apply(self, action: Apply) -> None:
        try:
            applied = self._sink.apply(self.name, action.payload)
        except UnknownReplicaError:
            raise
        except PrefixRouteError as error:
            self._bad("bad_batches", str(error))
            return
        finally:
            self._counts["applied"] += 1  # once it is, not once it is decided
        self._count(applied)
        if b"BlockStored" in action.payload and len(action.payload) <= SAMPLE_BYTES:
            self._sample = action.payload
        sent = sent_at(action.payload)
        self._lag_s = None if sent is None else max(0.0, time.time() - sent)

    def _count(self, applied: Applied | None) -> None:
        """Sum up what a batch did to the index."""
        if applied is None:
            return
        self._applied.update({name: getattr(applied, name) for name in APPLIED})
        if applied.cleared:
            self._sequence.partial = False  # what came before the reset is gone anyway
        if applied.reasons:
            self._note = applied.reasons[-1]

    def _bad(self, kind: str, note: str) -> None:
        self._counts[kind] += 1
        self._note = note
        _LOG.debug("replica %s: %s: %s", self.name, kind, note)

    def _begin_replay(self, start: int) -> None:
        """Ask on a socket of its own, so that no answer of an earlier replay can be taken for one of this."""
        self._end_replay()
        zmq = self._zmq
        socket = self._replay = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.rcvhwm = 0  # answers that do not fit are lost without a word
        socket.maxmsgsize = MAX_MESSAGE_BYTES
        socket.ipv6 = True
        socket.connect(self._replay_at)
        socket.send_multipart(replay_request(start), zmq.NOBLOCK)
        self._reactor.add_socket(socket, self._read_replay)
        self._replay_deadline = self._clock() + self._options.replay_timeout_s

    def _end_replay(self) -> None:
        socket, self._replay, self._replay_deadline = self._replay, None, None
        if socket is not None:
            self._reactor.remove_socket(socket)
            socket.close()

    @property
    def deadline(self) -> float:
        """When :meth:`tick` has something to do, unless a message comes first."""
        audit = self._heard + self._options.audit_s
        return audit if self._replay_deadline is None else min(audit, self._replay_deadline)

    def tick(self) -> None:
        """Do what is due: end a replay that nobody answers, ask a silent replica for what it has published."""
        now = self._clock()
        if self._replay_deadline is not None and now >= self._replay_deadline:
            self._end_replay()
            self._do(self._sequence.replay_ended(marked=False))
        if now >= self._heard + self._options.audit_s:
            self._heard = now
            if self._connected and not self._sequence.asking:
                self._do(self._sequence.audit())

    def stats(self) -> dict[str, Any]:
        """Return the state and the counts, see :meth:`Subscriber.stats`."""
        sequence = self._sequence
        return {
            **blank_stats(self._note),
            "connected": self._connected,
            "degraded": sequence.degraded,
            "partial": sequence.partial,
            "last": sequence.last,
            "waiting": sequence.waiting,
            "idle_s": self._clock() - self._heard,
            "lag_s": self._lag_s,
            **sequence.stats.to_dict(),
            **self._counts,
            "events": dict(self._applied),
            "sample": self._sample,
        }


def blank_stats(note: str = "") -> dict[str, Any]:
    """Return the state of a feed that has not been opened: what it would tell is unknown, and counts are zero."""
    state = {"connected": False, "degraded": True, "partial": True, "last": None, "waiting": 0, "idle_s": None}
    counts = {**SequenceStats().to_dict(), **dict.fromkeys(COUNTS, 0)}
    return {**state, "lag_s": None, "note": note, **counts, "events": {}, "sample": None}


APPLIED = (
    "events",
    "stored",
    "confirmed",
    "copies",
    "orphaned",
    "adopted",
    "dropped",
    "unindexed",
    "placeless",
    "unfilled",
    "removed",
    "unknown",
    "cleared",
    "refused",
    "unrecognized",
)
"""Fields of :class:`prefixroute.index.Applied` that are summed for each replica."""
COUNTS = (
    "received",
    "connections",
    "malformed",
    "wrong_topic",
    "bad_batches",
    "load_reports",
    "bad_load_reports",
)
"""What a connection counts, beside the counts of its sequence."""
