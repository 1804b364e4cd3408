"""What should never happen, and does.

Clocks that jump, fleets that join at once, rings that are full, folders that are not ours.
"""

from __future__ import annotations

import errno
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from frames import framed, kinds
from mesh import KEY, NAMES, NOTHING, Mesh, load_of, meshed, prompt, total

from prefixroute._core import BlockHashes, hash_blocks
from prefixroute.errors import ConfigError, PeerError
from prefixroute.peers.seal import seal_of
from prefixroute.peers.transports import RingPeers
from prefixroute.peers.wire import PeerChains, PeerInbox
from prefixroute.policies import View
from prefixroute.router import Router
from prefixroute.types import Timing
from waiting import until

SECRET = "sixteen or more bytes"  # noqa: S105  # of a test


@pytest.mark.parametrize("jump", [3_600.0, -3_600.0, 1e9, -1e9])
def test_a_clock_that_jumps_heals_with_the_next_beats(jump: float) -> None:
    mesh, a, b = meshed(2, timing=Timing(peer_s=10.0, ticket_s=1e12))
    a.route(prompt(1), key="k")
    mesh.deliver()
    mesh.now += jump
    mesh.play(3)
    assert total(b) == 1
    mesh.links[0].is_open = False  # a falls silent
    mesh.play(12)
    assert load_of(b) == NOTHING
    assert mesh.links[1].stats()["expired"] == (2 if jump > 0 else 1)  # after a jump ahead everybody seems to be silent


def test_64_routers_that_join_at_once_learn_all_and_flood_nobody() -> None:
    mesh = Mesh(2)
    first = mesh.routers[0]
    for number in range(30):
        first.route(prompt(number), session=f"s{number}").finish()
    first.route(prompt(99), candidates=["r3"], key="open")
    mesh.deliver()
    mesh.play(seconds=10.0)
    late = [mesh.join() for _ in range(64)]
    mesh.deliver()
    mesh.play(6, 1.1)
    sent = {number: link.stats()["sent"] for number, link in enumerate(mesh.links)}
    assert sum(counts.get("chain", 0) for counts in sent.values()) <= 3 * 31  # one router tells newcomers what all know
    assert sum(counts.get("welcome", 0) for counts in sent.values()) <= 2 * 66
    assert sum(counts.get("missing", 0) for counts in sent.values()) == 0
    assert sum(counts.get("beat", 0) for counts in sent.values()) <= 12 * 66
    for router in late:
        assert load_of(router) == load_of(first)
        assert router.choose(prompt(7), session="s7").hit_tokens == 3_984


def test_a_large_snapshot_comes_in_parts() -> None:
    mesh, first = meshed(1)
    for number in range(200):
        first.route(prompt(number, 800), candidates=["r0"]).finish()
    mesh.take()
    mesh.tick(20.0)
    mesh.take()
    late = mesh.join()
    ((_, hello), *_) = mesh.take()
    first.apply_peer(hello)
    parts = [mesh.take()]
    for _ in range(9):
        mesh.tick(1.1)
        parts.append([item for item in mesh.take() if item[0] == 0])
    assert sum(any(kinds(data) == ["held"] for _, data in part) for part in parts) >= 3
    assert max(sum(kinds(data) == ["held"] for _, data in part) for part in parts) <= 64
    for part in parts:
        for _, data in part:
            late.apply_peer(data)
    assert [late.choose(prompt(number, 800)).best_hit_tokens for number in range(200)] == [784] * 200


def test_a_prompt_longer_than_a_message_is_told_in_pieces() -> None:
    mesh, a, b = meshed(2, capacity_tokens=2_000_000)
    blocks = hash_blocks(prompt(1, 16 * 70_005), hash_key=KEY)
    assert isinstance(blocks, BlockHashes)
    a.route(blocks, candidates=["r1"], key="k")
    told = mesh.take()
    assert [kind for _, data in told for kind in kinds(data)] == ["chain", "chain", "booked"]
    assert max(len(data) for _, data in told) < 300_000
    mesh.deliver(told[2:])  # both pieces are lost: the last asks for what it goes on behind
    assert b.choose(blocks).hit_tokens == blocks.token_count - 16
    assert load_of(b) == load_of(a)


def test_frames_are_believed_only_with_the_secret() -> None:
    mesh = Mesh(0)
    for _ in range(2):
        mesh.join(secret=SECRET)
    mesh.deliver()
    a, b = mesh.routers
    a.route(prompt(1), key="k")
    mesh.deliver()
    assert load_of(b) == load_of(a)
    cleared = b"\x06" + bytes(8)
    for secret in (b"", b"another of 16 bytes"):
        forged = framed(cleared, peer=1, sequence=2**40, block_size=16, hash_key=KEY, secret=secret)
        with pytest.raises(PeerError, match="peer_secret"):
            b.apply_peer(forged)
    whole = framed(cleared, peer=1, sequence=2**40, block_size=16, hash_key=KEY, secret=SECRET.encode())
    wrong_tag = bytes(8) + whole[8:]
    with pytest.raises(PeerError, match="tag"):
        b.apply_peer(wrong_tag)
    assert b.choose(prompt(1)).hit_tokens == 3_984
    assert b.apply_peer(whole)
    assert b.choose(prompt(1)).hit_tokens == 0


@pytest.mark.parametrize("secret", ["short", b"x" * 65, 7, ["x" * 16]])
def test_a_secret_that_is_none_is_refused(secret: Any) -> None:
    with pytest.raises(ConfigError, match=r"^peer_secret .*bytes"):
        Router(NAMES).peer_feed(print, secret=secret)
    name = f"test-{uuid4().hex[:12]}"
    with pytest.raises(ConfigError, match=r"^peer_secret .*bytes"):
        Router(NAMES, peers=name, peer_secret=secret)
    assert not Path(f"/dev/shm/prefixroute-{os.getuid()}-{name}").exists()  # noqa: S108


def test_nobody_can_book_at_a_slot_that_is_free() -> None:
    mesh, router = meshed(1)
    inbox = PeerInbox(mesh.states[0].ledger, PeerChains(16, 10), seal_of(16, KEY), counts=True)
    inbox.see([(77, 5, -1), (78, 0, -1), (79, 900, 3)])
    for mark in (77, 78, 79):
        booked = bytes([1, 0]) + mark.to_bytes(8, "little") + bytes([1, 1, 0])
        ended = bytes([3, 0, 1, 0])
        data = framed(booked + ended, peer=9, sequence=mark * 10, block_size=16, hash_key=KEY)
        frame = inbox.read(data, 1)
        while inbox.apply(frame, 0.0) is not None:  # type: ignore[arg-type]
            pass
    assert load_of(router) == NOTHING
    assert min(mesh.states[0].live.in_flight) >= 0


# -- rings -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where rings of a test are: as memory, but with nobody else."""
    return tmp_path


def test_a_ring_that_is_overrun_keeps_loads_exact_and_heals(folder: Path) -> None:
    go_on = Event()

    def waiting(view: View) -> int:
        go_on.wait(20.0)
        return view.slots[0]

    a, b = (
        Router(NAMES, policy=policy, peers=RingPeers("full", folder=str(folder), capacity_bytes=1 << 20), hash_key=KEY)
        for policy in ("cache-aware", waiting)
    )
    until(lambda: a.stats()["peers"]["living"] and b.stats()["peers"]["living"])
    with ThreadPoolExecutor() as pool:
        pool.submit(b.choose, prompt(9))  # while it decides, its reader waits
        for number in range(60):
            a.route(prompt(number, 100_000), candidates=["r1"]).finish()
            if number % 10 == 9:
                time.sleep(0.05)  # a's own thread writes what has gathered
        a.route(prompt(1), candidates=["r2"], key="k")
        until(lambda: a.stats()["peers"]["sent"]["booked"] == 61)
        time.sleep(0.1)
        go_on.set()
    b.choose(prompt(9))
    assert load_of(b)["r2"][0] == 1
    until(lambda: b.stats()["peers"]["transport"]["lost"] > 0)
    until(lambda: b.choose(prompt(59, 100_000)).best_hit_tokens >= 99_984)
    a.finish("k")
    b.choose(prompt(9))
    assert load_of(b) == NOTHING
    a.close()
    b.close()


@pytest.mark.parametrize("what", ["file", "link", "foreign", "full", "read-only"])
def test_a_folder_that_cannot_be_used_is_refused(folder: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / f"prefixroute-{os.getuid()}-x"
    if what == "file":
        path.write_bytes(b"of another program")
    elif what == "link":
        path.symlink_to("/etc")
    elif what == "foreign":
        other = os.getuid() + 1
        (folder / f"prefixroute-{other}-x").mkdir()
        monkeypatch.setattr(os, "getuid", lambda: other)
    elif what == "full":

        def fallocate(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", fallocate)
    else:
        monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match=r"Redis|user"):
        Router(NAMES, peers=RingPeers("x", folder=str(folder)))
    assert not [entry for entry in folder.rglob("*") if entry.suffix == ".new"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"block_size": 32}, "block_size 16 .*32"),
        ({"hash_key": 7}, " hash_key;"),
        ({"peer_secret": "another secret, long"}, " peer_secret;"),
    ],
)
def test_a_router_that_differs_cannot_join(folder: Path, options: dict[str, Any], why: str) -> None:
    first = Router(NAMES, peers=RingPeers("same", folder=str(folder)))
    with pytest.raises(PeerError, match=why):
        Router(NAMES, peers=RingPeers("same", folder=str(folder)), **options)
    Router(NAMES, peers=RingPeers("same", folder=str(folder))).close()
    first.close()
    assert list(folder.iterdir()) == []
    other = Router(NAMES, peers=RingPeers("same", folder=str(folder)), **options)  # nobody lives there any more
    other.close()


def test_a_refused_peer_is_noted_and_counted() -> None:
    sent: list[bytes] = []
    here, there = Router(NAMES, hash_key=KEY), Router(NAMES, hash_key=KEY, block_size=32)
    here.peer_feed(lambda _: None)
    there.peer_feed(sent.append)
    with pytest.raises(PeerError):
        here.apply_peer(sent[0])
    stats = here.stats()
    assert stats["peers"]["refused"] == {"version": 0, "settings": 1, "broken": 0}
    assert re.search(r"block_size .*32.*16", stats["peers"]["refusal"])
    assert any(stats["peers"]["refusal"] in note for note in stats["notes"])
    assert 'prefixroute_peer_refused_total{reason="settings"} 1' in here.metrics_text()
