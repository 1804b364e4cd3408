"""Registers of the fleet: who tells them, how long they are kept, and what a forged one may do."""

from __future__ import annotations

import pytest
from mesh import KEY, NAMES, Mesh, meshed, stranger

from prefixroute.errors import PeerError
from prefixroute.peers import registers
from prefixroute.peers.names import mark_of
from prefixroute.peers.registers import ABSENT_S, MAX_ABSENT
from prefixroute.peers.wire import MAX_PEER_VERSION
from prefixroute.router import Router
from prefixroute.types import Replica


def state_of(router: Router, name: str) -> str:
    return str(router.stats()["replicas"][name]["state"])


def forged(name: str, version: int, state: int = 1, author: int = 99) -> bytes:
    outbox = stranger()
    outbox.register(mark_of(name), version, author, state, -1.0, b"")
    (frame,) = outbox.take()
    return frame


def kept(mesh: Mesh, number: int) -> int:
    return int(mesh.links[number].stats()["registers"])


@pytest.mark.parametrize("leaves", [True, False])
def test_a_newcomer_learns_what_a_router_that_is_gone_has_changed(leaves: bool) -> None:
    mesh, a, b = meshed(2)
    for _ in range(3):
        a.drain("r1")
        a.resume("r1")
    a.drain("r1")
    mesh.deliver()
    link = mesh.links.pop(0)
    if leaves:
        link.close()
    mesh.deliver()
    mesh.tick(20.0)
    mesh.take()
    late = mesh.join()
    mesh.deliver()
    assert state_of(late, "r1") == state_of(b, "r1") == "draining"
    late.suspend("r1")
    mesh.deliver()
    assert state_of(late, "r1") == state_of(b, "r1") == "suspended"  # its versions go on behind those it has learnt


def test_the_elder_tells_again_what_a_router_that_is_gone_has_changed() -> None:
    """Of three the first drains a replica and dies; the third has lost the message."""
    mesh, a, b, c = meshed(3)
    a.drain("r1")
    for _, data in mesh.take():
        b.apply_peer(data)
    mesh.links.pop(0).close()
    mesh.deliver()
    assert state_of(c, "r1") == "active"
    mesh.play(6, 1.1)
    assert state_of(b, "r1") == state_of(c, "r1") == "draining"


def test_registers_of_replicas_that_left_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registers, "MAX_ABSENT", 8)
    mesh, a, b = meshed(2)
    a.drain("r0")
    for number in range(30):
        name = f"pod{number}"
        a.add_replica(name)
        b.add_replica(name)
        a.drain(name)
        mesh.deliver()
        assert state_of(b, name) == "draining"
        a.remove_replica(name)
        b.remove_replica(name)
        assert max(kept(mesh, 0), kept(mesh, 1)) <= 1 + 8 + 1
    mesh.play(8, ABSENT_S / 5)
    for _ in range(6):
        mesh.play(seconds=1.1)
    assert (kept(mesh, 0), kept(mesh, 1)) == (1, 1)  # that of r0, which is still there
    assert state_of(b, "r0") == "draining"


def test_a_replica_that_comes_back_takes_the_latest_register() -> None:
    mesh, a, b = meshed(2)
    a.drain("r0")
    mesh.deliver()
    b.remove_replica("r0")
    mesh.tick(1.1)
    b.add_replica("r0", Replica())
    assert state_of(b, "r0") == "draining"


def test_registers_of_unknown_replicas_are_bounded() -> None:
    mesh, router = meshed(1)
    for number in range(MAX_ABSENT + 50):
        router.apply_peer(forged(f"unknown{number}", 1))
    assert kept(mesh, 0) == MAX_ABSENT
    router.apply_peer(forged("r0", 2))
    assert state_of(router, "r0") == "draining"  # a replica of the fleet has its register however many are unknown


def test_a_forged_version_is_refused_and_the_highest_stops_no_change() -> None:
    mesh, router = meshed(1)
    for version in (2**64 - 1, MAX_PEER_VERSION + 1):
        with pytest.raises(PeerError, match="version"):
            router.apply_peer(forged("r1", version))
    assert state_of(router, "r1") == "active"
    router.apply_peer(forged("r1", MAX_PEER_VERSION))
    mesh.take()
    for name in NAMES:
        router.suspend(name)
        assert state_of(router, name) == "suspended"
        router.resume(name)
    peer = Router(NAMES, hash_key=KEY)
    peer.peer_feed(lambda _: None)
    router.drain("r3")
    for _, data in mesh.take():
        peer.apply_peer(data)
    assert state_of(peer, "r3") == "draining"
