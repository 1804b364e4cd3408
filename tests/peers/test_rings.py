"""Routers of one host over shared memory: processes that come, fork, close and are killed at any moment."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from mesh import NAMES, NOTHING, load_of, prompt, total

from prefixroute.errors import ConfigError
from prefixroute.peers import alone
from prefixroute.peers.transport import Flush, Receive, Tick, nothing
from prefixroute.peers.transports import RingPeers, rings
from prefixroute.router import Router, fleet_calls
from prefixroute.types import Replica
from waiting import until

pytestmark = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm")  # noqa: S108

CHILD = """
import sys, time, itertools
import numpy as np
from prefixroute.router import Router, fleet_calls
from prefixroute.types import Replica
router = Router({names!r}, peers={name!r})
print("up", flush=True)
{body}
"""
BUSY = """
for number in itertools.count():
    ticket = router.route(np.arange(number % 50 * 16, dtype=np.uint32) + number, key=str(number % 20))
    if number % 3 == 0:
        ticket.finish()
"""


class Deaf(RingPeers):
    """Takes in no message: loads need none."""

    def open(self, receive: Receive, tick: Tick, flush: Flush = nothing) -> None:
        super().open(lambda _: None, tick, flush)


@pytest.fixture
def name() -> Iterator[str]:
    """Return a name that no other test has; nothing may be left of it."""
    name = f"test-{uuid4().hex[:12]}"
    yield name
    assert not folder_of(name).exists()


def folder_of(name: str) -> Path:
    return Path(rings.SHARED_MEMORY) / f"prefixroute-{os.getuid()}-{name}"


def child(name: str, body: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(names=NAMES, name=name, body=body)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_load_is_known_at_once_and_blocks_soon(name: str) -> None:
    a, b = Router(NAMES, peers=name), Router(NAMES, peers=Deaf(name))
    assert a.hash_key == b.hash_key
    ticket = a.route(prompt(1), session="s")
    until(lambda: b.stats()["peers"]["transport"]["rings"] == 1)
    second = a.route(prompt(2), candidates=["r3"])
    b.choose(prompt(9))
    third = a.route(prompt(3), candidates=["r3"])
    assert load_of(b)["r3"] == (2, 8_000, 0)
    third.first_token()
    second.finish()
    b.choose(prompt(9))
    assert load_of(b)["r3"] == (1, 0, 4_000)
    third.finish()
    ticket.finish()
    assert load_of(b) == NOTHING
    a.close()
    b.close()


def test_the_next_to_come_removes_what_killed_ones_left(name: str) -> None:
    process = child(name, BUSY)
    kill(process)
    assert len(list(folder_of(name).iterdir())) == 2
    Router(NAMES, peers=name).close()


def test_a_paused_process_is_no_dead_one(name: str) -> None:
    router = Router(NAMES, peers=name)
    process = child(name, "ticket = router.route(np.arange(160, dtype=np.uint32), key='k')\ntime.sleep(60)")
    until(lambda: router.choose(prompt(9)) and total(router) == 1)
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.2)
    router.choose(prompt(9))
    assert total(router) == 1
    process.send_signal(signal.SIGCONT)
    kill(process)
    until(lambda: router.choose(prompt(9)) and load_of(router) == NOTHING)
    router.close()


def test_an_exit_without_close_leaves_nothing(name: str) -> None:
    process = child(name, "held = router.route(np.arange(160, dtype=np.uint32))")
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_router_that_is_collected_lets_its_ring_go(name: str) -> None:
    router = Router(NAMES, peers=name)
    del router
    gc.collect()
    until(lambda: not folder_of(name).exists())


def test_what_cannot_work_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("", "a/b", "x" * 65):
        with pytest.raises(ConfigError, match=r"peers.* 1 .*64 "):
            Router(NAMES, peers=wrong)
    with pytest.raises(ConfigError, match=r"shared memory.*/none"):
        RingPeers(name, folder=str(tmp_path / "none"))
    transport = RingPeers(name, folder=str(tmp_path), capacity_bytes=1 << 30)
    nothing_free = os.statvfs_result((4096, 4096, 10, 1, 1, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: nothing_free)
    with pytest.raises(ConfigError, match=r"1,073,774,656 bytes"):
        Router(NAMES, peers=transport)
    with pytest.raises(ConfigError, match="policy"):
        Router(NAMES, policy="no such policy", peers=name)
    assert not folder_of(name).exists()
    monkeypatch.setattr(rings, "fcntl", None)
    with pytest.raises(ConfigError, match="Redis"):
        Router(NAMES, peers=name)


def test_a_file_that_is_no_ring_is_passed_over(name: str) -> None:
    router = Router(NAMES, peers=name)
    (folder_of(name) / "00000000000000ff").write_bytes(b"no ring" * 100)
    (folder_of(name) / "other").write_bytes(b"")
    time.sleep(0.7)
    assert router.stats()["peers"]["transport"]["rings"] == 0
    until(lambda: len(list(folder_of(name).iterdir())) == 2)
    router.close()


# -- alone -------------------------------------------------------------------------------------------------------


def test_workers_without_peers_are_warned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert alone.warn_if_alone("cache-aware", ["a"], {"WEB_CONCURRENCY": "8"}, always=True)
        assert not alone.warn_if_alone("session", ["a"], {"WEB_CONCURRENCY": "8"}, always=True)
        assert not alone.warn_if_alone("cache-aware", ["a"], {"WEB_CONCURRENCY": "1"}, always=True)
    assert re.search(r"WEB_CONCURRENCY=8.*26 .*40 %", caplog.text)


def test_a_router_looks_around_once_it_has_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(fleet_calls, "warn_if_alone", lambda policy, addresses: asked.append((policy, addresses)))
    router = Router()
    assert asked == []
    router.sync({"pod-1": Replica(address="http://10.0.0.1:8000")})
    router.sync({"pod-1": Replica(address="http://10.0.0.1:8000"), "pod-2": Replica()})
    Router(NAMES)
    Router(NAMES, clock=lambda: 0.0)  # a simulation has no neighbours
    assert asked == [("cache-aware", ["http://10.0.0.1:8000"]), ("cache-aware", NAMES)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs names of sockets that the kernel forgets")
def test_two_processes_on_one_fleet_are_warned() -> None:
    fleet = [f"http://{uuid4().hex}:8000"]
    assert not alone.warn_if_alone("cache-aware", fleet, {}, always=True)
    assert not alone.warn_if_alone("cache-aware", fleet, {}, always=True)  # the same process may have several
    code = (
        f"from prefixroute.peers import alone; print(alone.warn_if_alone('cache-aware', {fleet!r}, {{}}, always=True))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"
