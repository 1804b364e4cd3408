"""The subscriber over real ZeroMQ sockets on this machine: loss, repeats, restarts, silence, other topics."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
import zmq

from prefixroute import ConfigError, EventError, UnknownReplicaError
from prefixroute.live import FollowOptions, KvFeed, Subscriber
from prefixroute.live.connection import APPLIED
from prefixroute.testing import EventPublisher
from waiting import until

QUICK = FollowOptions(reconnect_s=0.01, reconnect_max_s=0.05, replay_timeout_s=0.2, audit_s=0.1)


class Held:
    """Stands for a router: the payloads of each replica since it was last cleared."""

    def __init__(self, *names: str) -> None:
        self.held: dict[str, list[bytes]] = {name: [] for name in names or ("a",)}
        self.clears = 0
        self.loads: list[dict[str, Any]] = []
        self.slow = threading.Event()
        self.slow.set()

    def apply(self, name: str, payload: bytes) -> None:
        self.slow.wait()
        if name not in self.held:
            raise UnknownReplicaError(name)
        if payload.startswith(b"bad"):
            raise EventError("told to fail")
        self.held[name].append(payload)

    def clear(self, name: str) -> None:
        if name not in self.held:
            raise UnknownReplicaError(name)
        self.clears += 1
        self.held[name].clear()

    def update_load(self, name: str, **loads: float | None) -> bool:
        self.loads.append(loads)
        return True


class Engine:
    """A publisher and what it has published in its present life."""

    def __init__(self, **options: Any) -> None:
        self.publisher = EventPublisher(**options)
        self.options = options
        self.published: list[bytes] = []
        self.life = 0

    @property
    def feed(self) -> KvFeed:
        return KvFeed(self.publisher.endpoint, self.publisher.replay)

    def publish(self, count: int = 1, fault: Any = None) -> None:
        for _ in range(count):
            payload = f"{self.life}:{self.publisher.number}".encode()
            self.publisher.publish(payload, fault)
            if fault != "burn":
                self.published.append(payload)

    def restart(self) -> None:
        publisher = self.publisher
        publisher.close()
        self.life += 1
        self.published = []
        self.publisher = EventPublisher(publisher.endpoint, **{**self.options, "replay": publisher.replay})


@pytest.fixture
def engine() -> Iterator[Engine]:
    one = Engine()
    yield one
    one.publisher.close()


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def subscriber(engine: Engine, held: Held) -> Iterator[Subscriber]:
    with Subscriber(held, {"a": engine.feed}, options=QUICK) as one:
        engine.publisher.wait_for_subscriber()
        yield one


def test_batches_arrive_in_order(engine: Engine, held: Held, subscriber: Subscriber) -> None:
    engine.publish(200)
    until(lambda: held.held["a"] == engine.published)
    until(lambda: not subscriber.stats()["a"]["degraded"])
    stats = subscriber.stats()["a"]
    assert stats["connected"]
    assert (stats["applied"], stats["last"], stats["gaps"]) == (200, 199, 0)


def test_what_was_published_before_is_read_from_the_buffer(engine: Engine, held: Held) -> None:
    engine.publish(50)
    with Subscriber(held, {"a": engine.feed}, options=QUICK):
        until(lambda: held.held["a"] == engine.published)
        engine.publish(5)
        until(lambda: held.held["a"] == engine.published)


def test_dropped_repeated_and_burnt_batches(engine: Engine, held: Held, subscriber: Subscriber) -> None:
    for fault in (None, "drop", "drop", None, "burn", "twice", "burn", None, "drop", None):
        engine.publish(fault=fault)
    until(lambda: held.held["a"] == engine.published)
    until(lambda: subscriber.stats()["a"]["burnt"] == 2)
    stats = subscriber.stats()["a"]
    assert (stats["lost"], stats["rebuilds"]) == (0, 0)


def test_a_lost_tail_is_found_without_another_batch(engine: Engine, held: Held, subscriber: Subscriber) -> None:
    engine.publish(3)
    engine.publish(4, fault="drop")
    until(lambda: held.held["a"] == engine.published)


def test_reordered_batches(engine: Engine, held: Held, subscriber: Subscriber) -> None:
    engine.publish(2)
    payloads = {number: f"0:{number}".encode() for number in range(2, 8)}
    for payload in payloads.values():
        engine.publisher.publish(payload, "drop")
    for number in (4, 2, 3, 7, 5, 6):
        engine.publisher.send(number, payloads[number])
    engine.published += payloads.values()
    until(lambda: held.held["a"] == engine.published)


def test_a_buffer_that_is_too_short_clears_and_rebuilds(held: Held) -> None:
    engine = Engine(buffer_steps=5)
    options = replace(QUICK, audit_s=3600.0)  # one amid what is lost would fill a part of it
    with engine.publisher, Subscriber(held, {"a": engine.feed}, options=options) as subscriber:
        engine.publisher.wait_for_subscriber()
        engine.publish(3)
        until(lambda: held.held["a"] == engine.published)
        engine.publish(20, fault="drop")
        engine.publish()
        until(lambda: held.held["a"] == engine.published[-5:])
        stats = subscriber.stats()["a"]
        assert stats["partial"]
        assert stats["rebuilds"] == 1


@pytest.mark.parametrize("after", [0, 3, 30])
def test_a_killed_and_restarted_engine_begins_empty(
    engine: Engine, held: Held, subscriber: Subscriber, after: int
) -> None:
    engine.publish(10)
    until(lambda: held.held["a"] == engine.published)
    engine.restart()
    engine.publish(after)
    until(lambda: held.held["a"] == engine.published)
    until(lambda: subscriber.stats()["a"]["restarts"] == 1)
    assert subscriber.stats()["a"]["connections"] == 2


def test_a_publisher_that_dies_between_batches_leaves_what_arrived(
    engine: Engine, held: Held, subscriber: Subscriber
) -> None:
    engine.publish(4)
    until(lambda: held.held["a"] == engine.published)
    engine.publisher.close()
    until(lambda: not subscriber.stats()["a"]["connected"])
    assert held.held["a"] == engine.published


def test_a_slow_consumer_loses_nothing_for_good(engine: Engine, held: Held) -> None:
    options = FollowOptions(reconnect_s=0.01, replay_timeout_s=1.0, audit_s=0.1, queue=10)
    with Subscriber(held, {"a": engine.feed}, options=options) as subscriber:
        engine.publisher.wait_for_subscriber()
        held.slow.clear()
        engine.publish(2_000)
        held.slow.set()
        until(lambda: held.held["a"] == engine.published)
        assert subscriber.stats()["a"]["lost"] == 0


class LossyReplay(EventPublisher):
    """A publisher whose replays lose answers and end with their marker all the same, as SGLang's do when one is late."""

    replays = 0

    def _answer(self, frames: list[bytes]) -> None:
        self.replays += 1
        client, empty, first = frames
        kept = [batch for batch in self._kept if batch[0] >= int.from_bytes(first, "big")]
        # The first answers are never lost, of the others every third arrives.
        for number, payload in [*kept[:2], *kept[2::3]]:
            self._router.send_multipart([client, empty, self.topic, struct.pack(">q", number), payload])
        self._router.send_multipart([client, empty, b"", struct.pack(">q", -1), b""])


def test_an_end_marker_is_never_trusted(held: Held) -> None:
    with LossyReplay() as publisher:
        payloads = [f"0:{number}".encode() for number in range(20)]
        for payload in payloads:
            publisher.publish(payload)
        with Subscriber(held, {"a": KvFeed(publisher.endpoint, publisher.replay)}, options=QUICK) as subscriber:
            until(lambda: held.held["a"] == payloads)
            until(lambda: not subscriber.stats()["a"]["degraded"])
            assert subscriber.stats()["a"]["lost"] == 0
            assert publisher.replays > 2


def test_without_replay_a_gap_clears(held: Held) -> None:
    engine = Engine(replay=None)
    with engine.publisher, Subscriber(held, {"a": engine.feed}, options=QUICK):
        engine.publisher.wait_for_subscriber()
        engine.publish(3)
        until(lambda: held.held["a"] == engine.published)
        engine.publish(2, fault="drop")
        engine.publish(2)
        until(lambda: held.held["a"] == engine.published[-2:])


def test_a_replay_endpoint_where_nobody_listens_does_not_stop_live_batches(held: Held) -> None:
    engine = Engine(replay=None)
    feed = KvFeed(engine.publisher.endpoint, "tcp://127.0.0.1:1")
    with engine.publisher, Subscriber(held, {"a": feed}, options=QUICK) as subscriber:
        engine.publisher.wait_for_subscriber()
        engine.publish(3)
        until(lambda: held.held["a"] == engine.published)
        assert subscriber.stats()["a"]["failed_replays"]


def test_a_wrong_topic_is_named(held: Held) -> None:
    engine = Engine(topic="kv@pod@model")
    feed = KvFeed(engine.publisher.endpoint, engine.publisher.replay, topic="kv@other")
    with engine.publisher, Subscriber(held, {"a": feed}, options=QUICK) as subscriber:
        engine.publish(3)
        until(lambda: subscriber.stats()["a"]["wrong_topic"] >= 3)
        assert "kv@pod@model" in subscriber.stats()["a"]["note"]
        assert held.held["a"] == []


def test_a_wrong_topic_without_replay_is_told_and_then_named(held: Held) -> None:
    engine = Engine(topic="kv@pod@model", replay=None)
    feed = KvFeed(engine.publisher.endpoint, topic="kv@other")
    with engine.publisher, Subscriber(held, {"a": feed}, options=QUICK) as subscriber:
        stats = until(lambda: "'kv@other'" in subscriber.stats()["a"]["note"] and subscriber.stats()["a"])
        assert stats["connected"]

        def named() -> bool:
            engine.publish()
            return "kv@pod@model" in subscriber.stats()["a"]["note"]

        until(named)
        assert held.held["a"] == []


def test_an_idle_engine_is_told_apart_from_one_that_publishes(held: Held) -> None:
    engine = Engine(replay=None)
    with engine.publisher, Subscriber(held, {"a": engine.feed}, options=QUICK) as subscriber:
        until(lambda: subscriber.stats()["a"]["note"])
        engine.publish()
        until(lambda: subscriber.stats()["a"]["note"] == "")


class HangsUp:
    """Accepts connections at a port and ends each at once, or says something that is no ZeroMQ before."""

    def __init__(self, says: bytes = b"") -> None:
        self.accepted, self.says = 0, says
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            with contextlib.suppress(OSError):
                one.sendall(self.says)
            one.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def test_a_side_that_accepts_and_hangs_up_is_asked_less_and_less_often(held: Held) -> None:
    other = HangsUp()
    address = f"tcp://127.0.0.1:{other.port}"
    options = FollowOptions(reconnect_s=0.001, reconnect_max_s=1_000.0, audit_s=0.05)
    with Subscriber(held, {"a": KvFeed(address, load=address)}, options=options) as subscriber:
        until(lambda: subscriber.stats()["a"]["disconnections"] >= 6)
        stats = subscriber.stats()["a"]
        assert stats["connections"] == 0
        assert not stats["connected"]
        # The waits double: 1, 2, 4, ... ms. Without that there would be a thousand attempts a second.
        until(lambda: subscriber.stats()["a"]["disconnections"] >= 8)
        assert other.accepted <= 40
    other.close()


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 200], ids=["nothing", "HTTP"])
def test_a_feed_recovers_after_something_else_has_answered_for_a_while(held: Held, says: bytes) -> None:
    other = HangsUp(says)
    options = FollowOptions(reconnect_s=0.001, reconnect_max_s=0.02, replay_timeout_s=0.2, audit_s=0.1)
    with Subscriber(held, {"a": KvFeed(f"tcp://127.0.0.1:{other.port}")}, options=options) as subscriber:
        until(lambda: subscriber.stats()["a"]["disconnections"] >= 6)
        other.close()
        engine = Engine(endpoint=f"tcp://127.0.0.1:{other.port}", replay=None)
        with engine.publisher:
            engine.publisher.wait_for_subscriber()
            engine.publish(3)
            until(lambda: held.held["a"] == engine.published)


def test_a_side_that_never_answers_is_given_up_and_tried_again(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefixroute.live.subscription.ATTEMPT_S", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        feeds = {"a": KvFeed(f"tcp://127.0.0.1:{silent.getsockname()[1]}"), "b": KvFeed("tcp://unknown.invalid:1")}
        with Subscriber(held, feeds, options=QUICK) as subscriber:
            until(lambda: all(stats["attempts"] >= 4 for stats in subscriber.stats().values()))
            assert not any(stats["connected"] for stats in subscriber.stats().values())


@pytest.mark.parametrize(
    ("options", "messages"),
    [({}, 16), ({"queue": 3}, 3), ({"queue_bytes": 1}, 1), ({"queue_bytes": 1 << 30}, 64), ({"queue": 5}, 5)],
    ids=str,
)
def test_what_waits_in_the_transport_is_bounded_in_messages_and_bytes(options: dict[str, int], messages: int) -> None:
    assert FollowOptions(**options).messages == messages


def test_a_message_that_is_too_long_costs_itself(engine: Engine, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefixroute.live.subscription.MAX_MESSAGE_BYTES", 1_000)
    with Subscriber(held, {"a": engine.feed}, options=QUICK) as subscriber:
        engine.publisher.wait_for_subscriber()
        engine.publish(2)
        until(lambda: held.held["a"] == engine.published)
        engine.publisher.send(2, b"x" * 2_000)
        until(lambda: subscriber.stats()["a"]["disconnections"] >= 1)
        engine.publish(2)
        until(lambda: held.held["a"] == engine.published)


class Orphaned(Held):
    """A router whose index loses what it holds, and does not know the parents of what follows."""

    lost = False

    def apply(self, name: str, payload: bytes) -> Any:
        super().apply(name, payload)
        return SimpleNamespace(**dict.fromkeys(APPLIED, 0) | {"orphaned": int(self.lost), "rank": None, "reasons": ()})

    def clear(self, name: str) -> None:
        super().clear(name)
        self.lost = False


def test_blocks_behind_an_unknown_parent_are_read_again_from_the_engine_s_buffer(engine: Engine) -> None:
    held = Orphaned()
    with Subscriber(held, {"a": engine.feed}, options=QUICK) as subscriber:
        engine.publisher.wait_for_subscriber()
        engine.publish(5)
        until(lambda: held.held["a"] == engine.published)
        held.lost = True
        held.held["a"].clear()
        engine.publish()
        until(lambda: held.held["a"] == engine.published)
        until(lambda: subscriber.stats()["a"]["rebuilds"] == 1)
        held.lost = True
        engine.publish(3)  # again: not before some time has passed
        until(lambda: subscriber.stats()["a"]["applied"] >= 6 + 6 + 3)
        assert subscriber.stats()["a"]["rebuilds"] == 1


def test_blocks_behind_an_unknown_parent_that_a_replay_brings_are_read_again_once_it_has_ended(engine: Engine) -> None:
    held = Orphaned()
    options = replace(QUICK, audit_s=3600.0)
    with Subscriber(held, {"a": engine.feed}, options=options) as subscriber:
        engine.publisher.wait_for_subscriber()
        engine.publish(5)
        until(lambda: held.held["a"] == engine.published)
        held.lost = True
        engine.publish(fault="drop")
        engine.publish()
        until(lambda: held.held["a"] == engine.published and subscriber.stats()["a"]["rebuilds"] == 1)
        assert (subscriber.stats()["a"]["applied"], held.clears) == (7 + 7, 2)


def test_a_replay_of_another_engine_is_told_and_not_believed(engine: Engine, held: Held) -> None:
    with EventPublisher() as other:
        for number in range(8):
            other.publish(b"other %d" % number)
        with Subscriber(held, {"a": KvFeed(engine.publisher.endpoint, other.replay)}, options=QUICK) as subscriber:
            engine.publisher.wait_for_subscriber()
            until(lambda: bool(held.held["a"]))  # nothing has told yet that it is of another engine
            engine.publish(3)
            until(lambda: subscriber.stats()["a"]["wrong_replay"])
            assert subscriber.stats()["a"]["degraded"]
            engine.publish(fault="drop")
            engine.publish()
            before = len(engine.published) - 1
            until(lambda: engine.publish() or {*held.held["a"][:1]} & {*engine.published[before:]})
            asked = subscriber.stats()["a"]["replays"]
            engine.publish(fault="drop")
            engine.publish(2)
            until(lambda: held.held["a"] == engine.published[-2:])
            stats = subscriber.stats()["a"]
            assert (stats["replays"], stats["degraded"], stats["partial"]) == (asked, True, True)


class _Scarce(zmq.Context):  # type: ignore[type-arg]
    """A context at the limit of open files: it makes no sockets of a kind, so many times."""

    kind, refusals = zmq.DEALER, 0

    def socket(self, kind: int, *args: Any, **options: Any) -> Any:
        if kind == self.kind and self.refusals > 0:
            type(self).refusals -= 1
            raise zmq.ZMQError(errno.EMFILE)
        return super().socket(kind, *args, **options)


@pytest.mark.parametrize("kind", [zmq.DEALER, zmq.SUB, zmq.PAIR])
def test_a_moment_without_open_files_loses_nothing(
    engine: Engine, held: Held, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    monkeypatch.setattr(_Scarce, "kind", kind)
    monkeypatch.setattr(_Scarce, "refusals", 3)
    monkeypatch.setattr(zmq, "Context", _Scarce)
    engine.publish(3)
    with Subscriber(held, {"a": engine.feed}, options=QUICK) as subscriber:
        until(lambda: held.held["a"] == engine.published)
        engine.publish()
        until(lambda: held.held["a"] == engine.published)
        until(lambda: not subscriber.stats()["a"]["degraded"])
        assert subscriber.stats()["a"]["failed_sockets"] == (3 if kind == zmq.DEALER else 0)


def test_what_stops_the_start_leaves_nothing_open(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    def files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    subscriber = Subscriber(held, {"a": KvFeed("tcp://127.0.0.1:1")}, options=QUICK)
    before = files()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            subscriber.start()
    assert files() == before
    subscriber.close()
    with pytest.raises(ConfigError):
        subscriber.start()


def test_the_engine_may_connect_and_the_subscriber_listen(held: Held) -> None:
    with EventPublisher() as free:
        endpoint = free.endpoint
    with Subscriber(held, {"a": KvFeed(endpoint, bind=True)}, options=QUICK):
        engine = Engine(endpoint=endpoint, connect=True, replay=None)
        with engine.publisher:
            engine.publisher.wait_for_subscriber()
            engine.publish(5)
            until(lambda: held.held["a"] == engine.published)


def test_bad_batches_and_frames_are_counted_and_cost_only_themselves(
    engine: Engine, held: Held, subscriber: Subscriber
) -> None:
    engine.publish(1)
    engine.publisher.publish(b"bad batch")
    engine.publisher.send_frames([b"", b"short", b"x"])
    engine.publisher.send_frames([b""])
    engine.publish(1)
    until(lambda: held.held["a"] == engine.published)
    stats = subscriber.stats()["a"]
    assert (stats["bad_batches"], stats["malformed"]) == (1, 2)


def test_an_error_of_the_sink_stops_one_feed_and_is_told(engine: Engine, held: Held) -> None:
    other = Engine()
    with other.publisher, Subscriber(held, {"a": engine.feed, "b": other.feed}, options=QUICK) as subscriber:
        held.held["b"] = None  # what is appended to it raises
        other.publish()
        until(lambda: "AttributeError" in subscriber.stats()["b"]["note"])
        engine.publish(3)
        until(lambda: held.held["a"] == engine.published)


def test_many_replicas_come_and_go(held: Held) -> None:
    engines = {name: Engine() for name in "abc"}
    held.held.update(b=[], c=[])
    with Subscriber(held, {"a": engines["a"].feed}, options=QUICK) as subscriber:
        for name in "bc":
            subscriber.add(name, engines[name].feed)
        for engine in engines.values():
            engine.publisher.wait_for_subscriber()
            engine.publish(20)
        until(lambda: all(held.held[name] == engine.published for name, engine in engines.items()))
        subscriber.remove("b")
        until(lambda: set(subscriber.stats()) == {"a", "c"})
        del held.held["c"]  # the replica leaves the fleet
        engines["c"].publish()
        until(lambda: set(subscriber.stats()) == {"a"}, seconds=5)
        for engine in engines.values():
            engine.publisher.close()


def test_an_address_that_cannot_be_used_is_reported_and_disturbs_nobody(engine: Engine, held: Held) -> None:
    wrong = "tcp://not an address"
    feeds = {"x": KvFeed(wrong), "y": KvFeed(engine.publisher.endpoint, load=wrong), "a": engine.feed}
    with Subscriber(held, feeds, options=QUICK) as subscriber:
        engine.publish(3)
        until(lambda: held.held["a"] == engine.published)
        assert all("not an address" in subscriber.stats()[name]["note"] for name in "xy")


def test_load_reports_reach_the_router(held: Held) -> None:
    report = msgpack.packb(["LoadStat", 3, 2, 12000, 300000, 1, 8000, 20000, 64, 1000000, 5000000])
    load = EventPublisher(topic="load", replay=None)
    with EventPublisher() as events, load:
        feed = KvFeed(events.endpoint, events.replay, load=load.endpoint)
        with Subscriber(held, {"a": feed}, options=QUICK) as subscriber:
            load.wait_for_subscriber()
            load.publish(b"\xc1")
            load.publish(report)
            until(lambda: bool(held.loads))
            assert held.loads == [{"running": 3, "waiting": 2, "waiting_tokens": 8000, "kv_use": 0.04}]
            assert subscriber.stats()["a"]["bad_load_reports"] == 1


async def test_it_runs_as_a_task_of_an_event_loop(engine: Engine, held: Held) -> None:
    async with Subscriber(held, {"a": engine.feed}, options=QUICK) as subscriber:
        engine.publish(5)
        engine.publish(2, fault="drop")
        engine.publish(5)
        async with asyncio.timeout(20):
            while held.held["a"] != engine.published:  # noqa: ASYNC110  # the condition is another's
                await asyncio.sleep(0.002)
        assert subscriber.stats()["a"]["applied"] == 12


def test_it_closes_cleanly_whatever_it_is_doing(engine: Engine, held: Held) -> None:
    before = threading.active_count()
    for _ in range(5):
        one = Subscriber(held, {"a": engine.feed, "b": KvFeed("tcp://127.0.0.1:1")}, options=QUICK).start()
        engine.publish(3, fault="drop")
        engine.publish()
        one.close()
        one.close()
    assert threading.active_count() == before
    with pytest.raises(ConfigError, match="once"):
        one.start()


SERVER_INFO = {
    "max_total_num_tokens": 123_456,
    "kv_events": {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": 5557,
        "topic": "kv",
        "block_size": 64,
        "dp_size": 4,
        "replay_endpoint_port_base": 6557,
        "load_endpoint_port_base": 7557,
        "load_topic": "load",
    },
}


def test_a_feed_is_discovered_from_server_info() -> None:
    feed = KvFeed.of_server_info(json.loads(json.dumps(SERVER_INFO)), host="10.0.0.1", rank=2)
    assert feed.addresses == ("tcp://10.0.0.1:5559", "tcp://10.0.0.1:6559", "tcp://10.0.0.1:7559")
    assert (feed.topic, feed.block_size, feed.ranks, feed.capacity_tokens) == ("kv", 64, 4, 123_456)
    assert feed.of_rank(0).addresses[0] == "tcp://10.0.0.1:5557"
    assert KvFeed.of_server_info(SERVER_INFO, host="::1").endpoint == "tcp://[::1]:5557"


@pytest.mark.parametrize("answer", [{}, {"kv_events": None}, {"kv_events": {"topic": ""}}, [], None, 5])
def test_a_server_without_events_is_refused(answer: Any) -> None:
    with pytest.raises(ConfigError, match="no KV events"):
        KvFeed.of_server_info(answer, host="h")


@pytest.mark.parametrize(
    ("address", "rank", "expected"),
    [
        ("tcp://h:5557", 3, "tcp://h:5560"),
        ("tcp://[::1]:5557", 1, "tcp://[::1]:5558"),
        ("inproc://cache", 3, "inproc://cache_dp3"),
        ("ipc:///x", 0, "ipc:///x"),
    ],
)
def test_ranks_shift_ports(address: str, rank: int, expected: str) -> None:
    assert KvFeed(address, rank=rank).addresses[0] == expected


@pytest.mark.parametrize("wrong", [("ipc:///x", 1), ("h:5557", 0), ("tcp://h:5557", -1)])
def test_wrong_addresses_are_refused(wrong: tuple[str, int]) -> None:
    with pytest.raises(ConfigError):
        KvFeed(wrong[0], rank=wrong[1])


@pytest.mark.parametrize("field", ["endpoint_port_base", "replay_endpoint_port_base", "block_size", "dp_size"])
def test_what_a_server_says_of_its_feed_is_checked(field: str) -> None:
    for wrong in ("x", [1], -1, 1.5, {"a": 1}):
        block = SERVER_INFO["kv_events"] | {field: wrong}  # type: ignore[operator]
        with pytest.raises(ConfigError):
            KvFeed.of_server_info({"kv_events": block}, host="h", rank=1)


@pytest.mark.parametrize("field", ["topic", "load_topic", "rank", "ranks", "bind", "block_size", "capacity_tokens"])
def test_a_field_of_a_feed_of_the_wrong_type_is_refused(field: str) -> None:
    wrongs: list[Any] = [-1, 1.5, [], b"q", float("nan")]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=field):
            KvFeed("tcp://h:5557", **{field: wrong})


def test_no_server_info_is_an_error_of_ours() -> None:
    with pytest.raises(ConfigError, match="server_info"):
        KvFeed.from_server_info("http://127.0.0.1:1", timeout_s=1)
