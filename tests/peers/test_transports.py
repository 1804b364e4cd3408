"""Transports between hosts.

Frames arrive once each way, a server that is gone stops nobody, and its return is caught up.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mesh import KEY, NAMES, load_of, prompt
from redis_server import RedisServer

import prefixroute as pr
from prefixroute.errors import ConfigError, PeerError
from prefixroute.peers.transport import Transport
from prefixroute.peers.transports import RedisPeers, ZmqPeers
from prefixroute.peers.transports import threads as threads_module
from prefixroute.peers.transports.ray import Mailbox
from prefixroute.peers.transports.threads import Threads
from waiting import until

PATIENCE_S = 20.0


class Ear:
    """The receiving side of a transport: what came, and how often time passed."""

    def __init__(self, transport: Threads) -> None:
        self.frames: list[bytes] = []
        self.ticks = 0
        self.transport = transport
        transport.open(self.hear, self.tick)

    def hear(self, frame: bytes) -> None:
        if frame.startswith(b"bad"):
            raise PeerError("a frame that is none")
        self.frames.append(frame)

    def tick(self) -> None:
        self.ticks += 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def ears() -> Iterator[Callable[[Threads], Ear]]:
    opened: list[Ear] = []

    def listen(transport: Threads, *, at_once: bool = False) -> Ear:
        opened.append(Ear(transport))
        if not at_once:
            until(lambda: transport.status()["connected"])
        return opened[-1]

    yield listen
    for ear in opened:
        ear.transport.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefixroute-")]


def zmq_pair() -> list[Threads]:
    one, two = ZmqPeers("tcp://127.0.0.1:*"), ZmqPeers("tcp://127.0.0.1:*")
    one.connect(two.endpoint)
    two.connect(one.endpoint)
    return [one, two]


@pytest.fixture(params=["redis", "zmq"])
def pair(request: pytest.FixtureRequest) -> Iterator[list[Threads]]:
    if request.param == "zmq":
        pair = zmq_pair()
    else:
        server = request.getfixturevalue("server")
        pair = [RedisPeers(server.url) for _ in range(2)]
    yield pair
    for transport in pair:
        transport.close()


def test_every_frame_arrives_in_order_and_time_passes(pair: list[Threads], ears: Any) -> None:
    one, two = ears(pair[0]), ears(pair[1])
    assert isinstance(pair[0], Transport)
    pair[0].publish(b"first")
    until(lambda: b"first" in two.frames)
    frames = [b"%d" % number for number in range(3_000)]
    for frame in frames:
        pair[0].publish(frame)
    until(lambda: two.frames[-1:] == frames[-1:])
    assert two.frames == [b"first", *frames]
    pair[1].publish(b"back")
    until(lambda: b"back" in one.frames)
    until(lambda: one.ticks and two.ticks)
    status = pair[0].status()
    assert status["connected"] is True
    assert (status["sent"], status["lost"], status["waiting"]) == (3_001, 0, 0)


def test_a_refused_frame_is_counted_and_the_next_is_read(pair: list[Threads], ears: Any) -> None:
    ears(pair[0])
    two = ears(pair[1])
    for frame in (b"bad one", b"bad two", b"good"):
        pair[0].publish(frame)
    until(lambda: b"good" in two.frames)
    assert pair[1].status()["refused"] == 2
    assert pair[1].status()["connected"] is True


def test_what_waits_is_sent_at_the_end(pair: list[Threads], ears: Any) -> None:
    two = ears(pair[1])
    ears(pair[0])
    for number in range(1_000):
        pair[0].publish(b"%d" % number)
    pair[0].close()
    until(lambda: two.frames[-1:] == [b"999"])
    pair[0].close()
    assert pair[0].status()["connected"] is False


def test_a_transport_carries_one_router(pair: list[Threads], ears: Any) -> None:
    ears(pair[0])
    with pytest.raises(ConfigError, match="once"):
        pair[0].open(print, print)
    pair[1].close()


def test_routers_on_two_hosts_route_as_one(pair: list[Threads]) -> None:
    routers = [pr.Router(NAMES, hash_key=KEY, seed=number) for number in range(2)]
    for router, transport in zip(routers, pair, strict=True):
        link = router.peer_feed(transport.publish)
        transport.open(router.apply_peer, link.tick)
    until(lambda: all(router.stats()["peers"]["living"] == 1 for router in routers))
    ticket = routers[0].route(prompt(1), session="chat")
    until(lambda: load_of(routers[1])[ticket.replica][0] == 1)
    decision = routers[1].choose(prompt(1), session="chat")
    assert (decision.replica, decision.hit_tokens) == (ticket.replica, 3_984)
    ticket.finish()
    until(lambda: load_of(routers[1])[ticket.replica][0] == 0)
    for transport in pair:
        transport.close()


# -- a server that is gone ---------------------------------------------------------------------------------------


def test_a_killed_server_stops_nobody_and_what_waited_is_sent_on_its_return(
    server: RedisServer, ears: Any, caplog: pytest.LogCaptureFixture
) -> None:
    pair = [RedisPeers(server.url) for _ in range(2)]
    ears(pair[0])
    two = ears(pair[1])
    pair[0].publish(b"before")
    until(lambda: two.frames == [b"before"])
    with caplog.at_level(logging.WARNING, "prefixroute"):
        server.kill()
        until(lambda: not pair[0].status()["connected"])
        pair[0].publish(b"meanwhile")
        server.start()
        until(lambda: b"meanwhile" in two.frames)
        until(lambda: pair[0].status()["connected"])
    assert "ConnectionError" in caplog.text
    assert "again" in caplog.text


def test_a_paused_server_is_waited_for_by_nobody(server: RedisServer, ears: Any) -> None:
    pair = [RedisPeers(server.url, timeout_s=0.2) for _ in range(2)]
    one, two = ears(pair[0]), ears(pair[1])
    server.pause()
    until(lambda: not pair[0].status()["connected"])
    ticks = one.ticks
    pair[0].publish(b"late")
    until(lambda: one.ticks > ticks)
    server.go_on()
    until(lambda: b"late" in two.frames)
    until(lambda: pair[0].status()["connected"])


def test_a_flushed_stream_begins_anew(server: RedisServer, ears: Any) -> None:
    pair = [RedisPeers(server.url) for _ in range(2)]
    ears(pair[0])
    two = ears(pair[1])
    pair[0].publish(b"one")
    until(lambda: b"one" in two.frames)
    server.client.flushall()
    pair[0].publish(b"two")
    until(lambda: b"two" in two.frames)


def _other_type(client: Any) -> Callable[[], object]:
    client.delete("prefixroute:peers")
    client.set("prefixroute:peers", "of somebody else")
    return lambda: client.delete("prefixroute:peers")


def _full(client: Any) -> Callable[[], object]:
    client.config_set("maxmemory", "1mb")
    return lambda: client.config_set("maxmemory", "0")


def _read_only(client: Any) -> Callable[[], object]:
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    return lambda: client.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize(
    ("refuses", "why"), [(_other_type, "WRONGTYPE"), (_full, "OutOfMemory"), (_read_only, "ReadOnly")]
)
def test_a_server_that_refuses_is_gone_until_it_takes_frames_again(
    server: RedisServer, ears: Any, caplog: pytest.LogCaptureFixture, refuses: Callable[[Any], Any], why: str
) -> None:
    pair = [RedisPeers(server.url) for _ in range(2)]
    ears(pair[0])
    two = ears(pair[1])
    pair[0].publish(b"one")
    until(lambda: b"one" in two.frames)
    again = refuses(server.client)
    pair[0].publish(b"a frame with hashes " * 100)
    until(lambda: not pair[0].status()["connected"])
    until(lambda: any("cannot send" in record.getMessage() for record in caplog.records))
    said = [record.getMessage() for record in caplog.records if "cannot send" in record.getMessage()]
    assert why in said[0]
    assert "hashes" not in said[0]  # frames are not for logs
    again()
    until(lambda: b"a frame with hashes " * 100 in two.frames)
    until(lambda: all(transport.status()["connected"] for transport in pair))


def test_a_stream_of_a_server_whose_clock_is_behind_is_read(server: RedisServer, ears: Any) -> None:
    server.client.xadd("prefixroute:peers", {"f": b"old"}, id=f"{2**50}-1")
    pair = [RedisPeers(server.url) for _ in range(2)]
    two = ears(pair[1])
    until(lambda: two.ticks)
    server.client.delete("prefixroute:peers")
    ears(pair[0])
    pair[0].publish(b"young")
    until(lambda: b"young" in two.frames)
    assert b"old" not in two.frames


def test_foreign_entries_are_passed_over_and_the_stream_is_capped(server: RedisServer, ears: Any) -> None:
    pair = [RedisPeers(server.url, max_entries=200) for _ in range(2)]
    ears(pair[0])
    two = ears(pair[1])
    server.client.xadd("prefixroute:peers", {"other": b"thing"})
    for number in range(2_000):
        pair[0].publish(b"%d" % number)
    until(lambda: pair[0].status()["sent"] == 2_000)
    assert server.client.xlen("prefixroute:peers") < 500
    pair[0].publish(b"last")
    until(lambda: b"last" in two.frames)


def test_a_key_of_another_type_is_reported_and_does_not_stop_the_router(server: RedisServer, ears: Any) -> None:
    server.client.set("prefixroute:peers", "no stream")
    one = RedisPeers(server.url)
    ear = ears(one, at_once=True)
    until(lambda: not one.status()["connected"])
    until(lambda: ear.ticks > 1)
    server.client.delete("prefixroute:peers")
    until(lambda: one.status()["connected"])


@pytest.mark.parametrize("wrong", ["10.0.0.1:6379", "http://x", 7])
def test_a_wrong_url_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="url"):
        RedisPeers(wrong)


@pytest.mark.parametrize("wrong", ["nowhere", "tcp://nohost", 7])
def test_a_wrong_endpoint_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="endpoint"):
        ZmqPeers(wrong)


def test_a_full_queue_loses_frames_and_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "MAX_WAITING", 10)
    transport = ZmqPeers("tcp://127.0.0.1:*")
    for _ in range(15):
        transport.publish(b"frame")
    assert transport.status()["lost"] == 5
    assert transport.status()["waiting"] == 10
    transport.close()


def test_zmq_peers_come_go_and_come_again(ears: Any) -> None:
    one, two = zmq_pair()
    ear = ears(one)
    ears(two)
    two.publish(b"first")
    until(lambda: b"first" in ear.frames)
    two.close()
    again = ZmqPeers(two.endpoint)
    ears(again)

    def heard() -> bool:
        again.publish(b"second")
        return b"second" in ear.frames

    until(heard)
    one.disconnect(two.endpoint)
    time.sleep(2 * threads_module.READ_WAIT_S)
    count = len(ear.frames)
    again.publish(b"third")
    until(lambda: again.status()["waiting"] == 0)
    assert b"third" not in ear.frames[count:]


# -- what the Ray actor runs -------------------------------------------------------------------------------------


async def test_a_mailbox_hands_out_what_is_new_and_wakes_who_waits() -> None:
    box = Mailbox(max_frames=5)
    await box.publish([b"before"])
    life, cursor, frames = await box.read(0, 0, 0.0)
    assert (cursor, frames) == (1, [])
    waiting = asyncio.create_task(box.read(life, cursor, 10.0))
    await asyncio.sleep(0)
    await box.publish([b"a", b"b"])
    assert (await waiting)[1:] == (3, [b"a", b"b"])
    assert (await box.read(life, 3, 0.01))[1:] == (3, [])
    await box.publish([b"%d" % number for number in range(8)])
    assert (await box.read(life, 3, 0.0))[1:] == (11, [b"3", b"4", b"5", b"6", b"7"])
    assert (await box.read(life + 1, 50, 0.0))[:2] == (life, 0)  # of an actor that has died: all that is there
