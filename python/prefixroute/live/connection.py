"""One replica's sockets: events in order to the index, replays, and load reports."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from prefixroute.errors import ConfigError, PrefixRouteError, UnknownReplicaError
from prefixroute.extras import extra_module
from prefixroute.live.diagnosis import RecentStores
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
from prefixroute.live.sequence import Action, Apply, Clear, Sequence, SequenceStats
from prefixroute.live.subscription import KEEPALIVE_S, KEEPALIVE_TRIES, FollowOptions, Subscription, drained
from prefixroute.validation import shown

if TYPE_CHECKING:
    from prefixroute.index import Applied

_LOG = logging.getLogger("prefixroute")
LOAD_QUEUE = 16
"""Load reports that may wait: only the newest matters."""
VANISHED_S = KEEPALIVE_S * (KEEPALIVE_TRIES + 2)
"""A connection that is up for so long after its process has ended is not: the transport would have noticed."""
REFILL_S, REFILL_MAX_S = 10.0, 3_600.0
"""Seconds from one reading of an engine's whole buffer, for blocks behind unknown parents, to the next: they double."""


class Sink(Protocol):
    """What a feed is applied to: :class:`prefixroute.Router` has it."""

    def apply(self, name: str, payload: bytes) -> Any:
        """Apply one batch of a replica's KV events.

        Args:
            name: of the replica.
            payload: the batch, as the engine has published it.

        Returns:
            What the batch says of its engine.
        """

    def clear(self, name: str) -> None:
        """Forget what a replica holds.

        Args:
            name: of the replica.
        """

    def update_load(self, name: str, **loads: float | None) -> bool:
        """Keep a replica's own report of its load.

        Args:
            name: of the replica.
            loads: fields of :class:`~prefixroute.types.LoadReport`; ``None`` = not reported.

        Returns:
            False for a report that is older than the last one.
        """


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
        self._sequence = Sequence(
            can_replay=self._replay_at is not None, max_pending=options.max_pending, max_bytes=options.queue_bytes
        )
        self._counts: Counter[str] = Counter()
        self._applied: Counter[str] = Counter()
        self._recent = RecentStores()
        self._note = ""
        self._listening = False  # whether it listens to every topic, to name the one that is published
        self._lag_s: float | None = None
        self._heard = clock()
        self._orphaned = False  # whether blocks continue an unknown parent, and no refill came since
        self._refill_at, self._refill_s = 0.0, REFILL_S
        self._replay_deadline: float | None = None
        self._replay: Any = None
        self._retry: tuple[float, int] | None = None  # when to ask again from which number: no socket was to be had
        self._retries = 0
        self._contradicted_at: float | None = None  # when a replay was first of another process than what is published
        self._published_at = self._heard
        self._live = self._subscription(self._events_at, self._topic, bind=feed.bind)
        self._load: Subscription | None = None
        self._add(self._live, self._read_live)
        if self._load_at is not None:
            try:
                self._load = self._subscription(self._load_at, feed.load_topic.encode(), queue=LOAD_QUEUE)
            except ConfigError:
                self.close()
                raise
            self._add(self._load, self._read_load)

    # -- sockets -----------------------------------------------------------------------------------------------------

    def _subscription(
        self, address: str, topic: bytes, *, bind: bool = False, queue: int | None = None
    ) -> Subscription:
        options = self._options if queue is None else replace(self._options, queue=queue)
        try:
            return Subscription(self._context, address, topic, bind=bind, options=options, clock=self._clock)
        except self._zmq.ZMQError as error:
            raise ConfigError(f"replica {shown(self.name)} cannot be followed at {address}: {error}") from error

    def _add(self, one: Subscription, read: Callable[[], None]) -> None:
        for socket in (one.socket, one.monitor):
            self._reactor.add_socket(socket, read)

    def close(self) -> None:
        """Close every socket."""
        self.closed = True
        self._end_replay()
        for one in (self._live, self._load):
            if one is not None:
                self._reactor.remove_socket(one.socket)
                self._reactor.remove_socket(one.monitor)
                one.close()

    # -- what arrives ------------------------------------------------------------------------------------------------

    def _read_live(self) -> None:
        made, messages = self._live.read()
        for _ in range(made):
            self._heard = self._clock()
            self._do(self._sequence.connected())
        if not self._live.connected:
            self._sequence.disconnected()
        for frames in messages:
            batch = read_live(frames)
            if batch is None:
                self._bad("malformed", f"{len(frames)} frames that are no batch")
            elif not batch.topic.startswith(self._topic):
                self._wrong_topic(batch)
            else:
                self._heard = self._published_at = self._clock()
                self._counts["received"] += 1
                self._do(self._sequence.live(batch.number, batch.payload))
        self._judge_replay()

    def _read_load(self) -> None:
        for frames in self._load.read()[1] if self._load is not None else ():
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
        for frames in drained(socket):
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
            elif batch.topic and not batch.topic.startswith(self._topic):  # the transport does not filter replays
                self._wrong_topic(batch)
            else:
                self._do(self._sequence.replayed(batch.number, batch.payload))
        self._judge_replay()

    def _judge_replay(self) -> None:
        """Stop asking for replays that are of another engine than what is published.

        An engine that restarts answers so for a moment, until the connection to its former process breaks. A connection
        that brings batches after that moment, or does not break at all, shows an engine that has not restarted.
        """
        if not self._sequence.contradicted:
            self._contradicted_at = None
            return
        if self._contradicted_at is None:
            self._contradicted_at = self._clock()
            self._bad("wrong_replay", f"{self._replay_at} answers with other batches than {self._events_at} publishes")
        silent = self._clock() < self._contradicted_at + VANISHED_S
        if silent and self._published_at < self._contradicted_at + self._options.audit_s:
            return
        if self._sequence.can_replay and self._live.connected:
            self._end_replay()
            self._do(self._sequence.distrust())

    def emptied(self) -> None:
        """Read again what the engine holds: somebody else has cleared the replica."""
        self._orphaned = False
        self._do(self._sequence.emptied())

    def _wrong_topic(self, batch: Batch) -> None:
        self._listen(every=False)
        self._bad("wrong_topic", f"the engine publishes under {batch.topic!r}, the feed asks for {self._topic!r}")

    def _listen(self, *, every: bool) -> None:
        """Listen to every topic, or to the feed's alone."""
        if self._topic and every != self._listening:
            self._listening = every
            (self._live.socket.subscribe if every else self._live.socket.unsubscribe)(b"")

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
                    self._orphaned = False
                else:
                    self._begin_replay(action.start)
            except UnknownReplicaError:
                self.closed = True  # it has left the fleet
        self._refill()

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
        self._count(applied, action.payload)
        sent = sent_at(action.payload)
        self._lag_s = None if sent is None else max(0.0, time.time() - sent)

    def _count(self, applied: Applied | None, payload: bytes) -> None:
        """Sum up what a batch did to the index."""
        if applied is None:
            return
        blocks = applied.stored + applied.confirmed + applied.placeless + applied.unfilled
        if blocks:
            self._recent.note(blocks, payload)
        if applied.rank is not None and applied.rank != self.feed.rank:
            self._bad(
                "wrong_rank", f"batches are of rank {applied.rank}, and the feed is that of rank {self.feed.rank}"
            )
        self._applied.update({name: getattr(applied, name) for name in APPLIED})
        # An engine that never told tokens is no reason: it tells none again.
        if applied.orphaned > applied.adopted or (applied.placeless and self._applied["stored"]):
            self._orphaned = True
        if applied.cleared:
            self._sequence.partial = self._orphaned = False  # what came before the reset is gone anyway
        if applied.reasons:
            self._note = applied.reasons[-1]

    def _refill(self) -> None:
        """Ask for the engine's whole buffer if the index lacks blocks that came before others, as soon as it may."""
        now = self._clock()
        if self._orphaned and now >= self._refill_at and (actions := self._sequence.refill()):
            self._refill_at, self._refill_s = now + self._refill_s, min(2 * self._refill_s, REFILL_MAX_S)
            self._orphaned = False
            self._do(actions)

    def _bad(self, kind: str, note: str) -> None:
        self._counts[kind] += 1
        self._note = note
        _LOG.debug("replica %s: %s: %s", self.name, kind, note)

    def _begin_replay(self, start: int) -> None:
        """Ask on a socket of its own, so that no answer of an earlier replay can be taken for one of this."""
        self._end_replay()
        try:
            socket = self._asking_socket(start)
        except self._zmq.ZMQError as error:  # such as too many open files: the replay is as under way as before
            self._retry = (self._clock() + self._options.back_off(self._retries), start)
            self._retries += 1
            self._bad("failed_sockets", f"no replay can be asked for at {self._replay_at}: {error}")
            return
        self._replay, self._retries = socket, 0
        self._reactor.add_socket(socket, self._read_replay)
        self._replay_deadline = self._clock() + self._options.replay_timeout_s

    def _asking_socket(self, start: int) -> Any:
        zmq = self._zmq
        socket = self._context.socket(zmq.DEALER)
        try:
            socket.linger = 0
            socket.rcvhwm = 0  # answers that do not fit are lost without a word
            socket.maxmsgsize = MAX_MESSAGE_BYTES
            socket.ipv6 = True
            socket.connect(self._replay_at)
            socket.send_multipart(replay_request(start), zmq.NOBLOCK)
        except zmq.ZMQError:
            socket.close()
            raise
        return socket

    def _end_replay(self) -> None:
        socket, self._replay, self._replay_deadline, self._retry = self._replay, None, None, None
        if socket is not None:
            self._reactor.remove_socket(socket)
            socket.close()

    @property
    def deadline(self) -> float:
        """When :meth:`tick` has something to do, unless a message comes first."""
        sockets = [one.deadline for one in (self._live, self._load) if one is not None]
        retry = None if self._retry is None else self._retry[0]
        times = (self._heard + self._options.audit_s, self._replay_deadline, retry, *sockets)
        return min(at for at in times if at is not None)

    def tick(self) -> None:
        """Do what is due: connect, end a replay that nobody answers, ask a silent replica for what it has published."""
        now = self._clock()
        for one in (self._live, self._load):
            if one is not None:
                one.tick(now)
        if self._retry is not None and now >= self._retry[0]:
            self._begin_replay(self._retry[1])
        if self._replay_deadline is not None and now >= self._replay_deadline:
            self._end_replay()
            self._do(self._sequence.replay_ended(marked=False))
        if now >= self._heard + self._options.audit_s:
            self._heard = now
            if self._live.connected:
                self._listen(every=not self._counts["received"] and self._sequence.last is None)
                self._do(self._sequence.audit())
        self._judge_replay()

    def stats(self) -> dict[str, Any]:
        """Return the state and the counts, see :meth:`Subscriber.stats`."""
        sequence, live = self._sequence, self._live
        return {
            **blank_stats(self._note or self._silence()),
            "connected": live.connected,
            "degraded": sequence.degraded,
            "partial": sequence.partial,
            "last": sequence.last,
            "waiting": sequence.waiting,
            "idle_s": self._clock() - self._heard,
            "lag_s": self._lag_s,
            **sequence.stats.to_dict(),
            **self._counts,
            "attempts": live.attempts,
            "connections": live.connections,
            "disconnections": live.disconnections,
            "events": dict(self._applied),
            "recent": tuple(self._recent.blocks),
            "samples": self._recent.samples,
        }

    def _silence(self) -> str:
        """Say that a connection has brought nothing for too long; empty = it has, or there is no connection."""
        live = self._live
        if not live.connected or live.since is None or self._counts["received"] or self._sequence.last is not None:
            return ""
        seconds = self._clock() - live.since
        if seconds < self._options.audit_s:
            return ""
        topic = f"under the expected topic {self.feed.topic!r}" if self._topic else "under any topic"
        return f"connected, and nothing received {topic} for {seconds:.0f} s"


def blank_stats(note: str = "") -> dict[str, Any]:
    """Return the state of a feed that has not been opened: what it would tell is unknown, and counts are zero."""
    state = {"connected": False, "degraded": True, "partial": True, "last": None, "waiting": 0, "idle_s": None}
    counts = dict.fromkeys(FEED_COUNTS, 0)
    return {**state, "lag_s": None, "note": note, **counts, "events": {}, "recent": (), "samples": ()}


BLOCKS = (
    "stored",
    "confirmed",
    "copies",
    "removed",
    "orphaned",
    "adopted",
    "dropped",
    "unindexed",
    "placeless",
    "unfilled",
    "unknown",
)
"""Fields of :class:`prefixroute.index.Applied` that count blocks."""
APPLIED = (*BLOCKS, "events", "cleared", "refused", "unrecognized")
"""Fields of :class:`prefixroute.index.Applied` that are summed for each replica."""
COUNTS = (
    "received",
    "attempts",
    "connections",
    "disconnections",
    "malformed",
    "wrong_topic",
    "bad_batches",
    "load_reports",
    "bad_load_reports",
    "wrong_rank",
    "wrong_replay",
    "failed_sockets",
)
"""What a connection counts, beside the counts of its sequence."""
FEED_COUNTS = (*SequenceStats().to_dict(), *COUNTS)
"""All counts of a feed."""
