"""Feeds that begin, end and begin again under one number."""

from __future__ import annotations

import struct
import threading

import pytest
from frames import framed
from mesh import KEY, NAMES, NOTHING, Mesh, load_of, meshed, prompt, total

import prefixroute as pr
from prefixroute.errors import ConfigError, PeerError
from prefixroute.router import Router


def test_of_two_threads_one_gets_the_feed() -> None:
    """The first feed is being opened, in its ``send``, while a second thread asks for one."""
    opening, asked, refused = threading.Event(), threading.Event(), list[ConfigError]()

    def send(_: bytes) -> None:
        opening.set()
        asked.wait(0.2)

    router = Router(NAMES)

    def second() -> None:
        opening.wait()
        try:
            router.peer_feed(lambda _: None)
        except ConfigError as error:
            refused.append(error)
        asked.set()

    thread = threading.Thread(target=second)
    thread.start()
    link = router.peer_feed(send)
    thread.join()
    assert len(refused) == 1
    peers = Mesh(1, block_size=router.index.block_size, hash_key=router.hash_key)
    peers.routers[0].route(prompt(1))
    for _, data in peers.take():
        router.apply_peer(data)
    assert total(router) == 1
    link.close()
    assert load_of(router) == NOTHING


def test_a_closed_feed_gives_back_what_it_had_though_another_listens() -> None:
    peers, a, b = meshed(2)
    ticket = a.route(prompt(1))
    peers.deliver()
    peers.states[1].listener = None
    peers.links[1].close()
    assert load_of(b) == NOTHING
    assert ticket.open


@pytest.mark.parametrize("ends", ["closed", "killed"])
def test_a_router_that_starts_again_under_its_number_is_heard(ends: str) -> None:
    there = Router(NAMES, hash_key=KEY)
    there.peer_feed(lambda _: None, ident=2)
    here = Router(NAMES, hash_key=KEY)
    link = here.peer_feed(there.apply_peer, ident=1)
    for number in range(50):
        here.route(prompt(number, 64)).finish()
    link.tick()
    left = here.route(prompt(99, 64))
    if ends == "closed":
        link.close()
    again = Router(NAMES, hash_key=KEY)
    link = again.peer_feed(there.apply_peer, ident=1)
    tickets = [again.route(prompt(number, 64)) for number in range(5)]
    assert load_of(there) == load_of(again)
    link.close()
    assert load_of(there) == NOTHING
    link = again.peer_feed(there.apply_peer, ident=1)
    tickets.append(again.route(prompt(7, 64)))
    assert load_of(there) == load_of(again)
    for ticket in (*tickets, left):
        ticket.abort()
    assert load_of(there) == NOTHING


def test_late_messages_of_an_earlier_life_change_nothing() -> None:
    _, there = meshed(1)
    here, earlier, later = Router(NAMES, hash_key=KEY), list[bytes](), list[bytes]()
    link = here.peer_feed(earlier.append, ident=9, first_sequence=1)
    here.route(prompt(1), key="k")
    link.close()
    here.abort("k")
    here.peer_feed(later.append, ident=9, first_sequence=1_000)
    here.route(prompt(2), key="k")
    *before, left = earlier
    for data in (*before, *later, left, *earlier):
        there.apply_peer(data)
    assert total(there) == 1  # a late farewell ends no later life
    for data in (*later, *earlier):
        there.apply_peer(data)
    assert load_of(there) == load_of(here)


def test_the_first_sequence_is_checked() -> None:
    router = Router(NAMES)
    with pytest.raises(ConfigError, match="first_sequence"):
        router.peer_feed(lambda _: None, first_sequence=0)
    router.peer_feed(lambda _: None, first_sequence=1)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        (b"", " 1 .*1024"),
        (bytes([11]) * 1_025, " 1 .*1024"),
        (b"\x06" + bytes(7), "kind 6 "),
        (b"\x06" + bytes(9), "kind .*1 .*13.* 0"),
        (b"\x0e", "kind .*1 .*13.* 14"),
        (b"\x02" + b"\xff" * 11, "kind 2 "),
        (b"\x04\x81\x80\x02", "open attempts.*kind 4 .*32768.*32769"),
        (b"\x07\x81\x20", "bindings.*kind 7 .*4096.*4097"),
        (b"\x0a\x00\x81\x80\x02", "block hashes.*kind 10 .*32768.*32769"),
        (b"\x01\x00" + bytes(8) + b"\x02\x01\x00", "uncached tokens.*kind 1 .* 1,.* 2"),
        (b"\x01\x02" + bytes(8) + b"\x01\x01\x00", "flags.*kind 1 .* 5,.* 2"),
        (b"\x03\x03\x01\x00", "end .*kind 3 .* 2,.* 3"),
        (b"\x07\x01" + bytes(24) + struct.pack("<f", -1.0), "age .*kind 7 "),
        (b"\x07\x01" + bytes(24) + struct.pack("<f", float("nan")), "age .*kind 7 "),
        (b"\x05" + bytes(17) + b"\x03" + bytes(9), "state.*kind 5 .* 2,.* 3"),
        (b"\x05" + bytes(18) + struct.pack("<d", float("inf")) + b"\0", "seconds left.*kind 5 .*inf"),
        (b"\x05" + bytes(26) + b"\x01\xff", "incarnation.*UTF-8.*0xff"),
        (b"\x06" + bytes(8) + b"\x0f", "kind .*1 .*13.* 15"),
    ],
)
def test_messages_outside_of_their_limits_are_refused_and_nothing_of_their_frame_is_applied(
    messages: bytes, why: str
) -> None:
    _, router = meshed(1)
    router.route(prompt(1)).finish()
    for before in (b"", b"\x06" + bytes(8)):  # the weights have changed
        data = framed(before + messages, peer=9, sequence=1, block_size=16, hash_key=KEY)
        if before and not messages:
            continue
        with pytest.raises(PeerError, match=why):
            router.apply_peer(data)
    assert router.choose(prompt(1)).hit_tokens == 3_984  # the belief was not cleared
    assert "peers" in router.stats()


def crossed(mesh: Mesh) -> list[int]:
    """Return the requests in flight at r0, as each router counts them."""
    return [router.stats()["replicas"]["r0"]["in_flight"] for router in mesh.routers]


@pytest.mark.parametrize("again", ["removed and added", "x, y, x", "x, y, x by sync"])
def test_a_process_that_comes_back_under_its_mark_has_nothing_in_flight(again: str) -> None:
    mesh = Mesh(2)
    one = mesh.routers[0]
    before = pr.Replica(incarnation="x")
    for router in mesh.routers:
        router.sync({name: before if name == "r0" else None for name in NAMES})
    mesh.deliver()
    tickets = [one.route(list(range(64)), candidates=["r0"]) for _ in range(5)]
    mesh.deliver()
    assert crossed(mesh) == [5, 5]
    if again == "removed and added":
        one.remove_replica("r0")
        one.add_replica("r0", before)
    else:
        for incarnation in ("y", "x"):
            replica = pr.Replica(incarnation=incarnation)
            one.sync({name: replica if name == "r0" else None for name in NAMES})
            if "sync" in again:
                mesh.deliver()
    mesh.deliver()
    mesh.play(2)
    assert crossed(mesh) == [0, 0]
    fresh = one.route(list(range(64)), candidates=["r0"])
    mesh.deliver()
    mesh.play()
    assert crossed(mesh) == [1, 1]
    for ticket in tickets:
        ticket.finish()
    mesh.deliver()
    assert crossed(mesh) == [1, 1]
    fresh.finish()
    mesh.deliver()
    assert crossed(mesh) == [0, 0]
