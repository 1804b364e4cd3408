"""What every transport between processes must keep.

Late routers learn, the killed give back once, a fork shares no socket.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from mesh import KEY, NAMES, load_of, prompt
from redis_server import RedisServer

from prefixroute.peers.transports import RedisPeers, RingPeers, ZmqPeers
from prefixroute.router import Router
from prefixroute.types import Timing
from waiting import until

NOTHING = dict.fromkeys(NAMES, (0, 0, 0))
PROCESS = """
import os, sys, time
import numpy as np
from prefixroute.peers.transports import RedisPeers, RingPeers, ZmqPeers
from prefixroute.router import Router
transport = {transport}
before = set(sys.modules)
router = Router({names!r}, peers=transport, hash_key={key})
print(getattr(transport, "endpoint", "up"), flush=True)
def wait(what):
    for _ in range(2_000):
        if what():
            return
        time.sleep(0.01)
    os._exit(9)
{body}
"""


class Network:
    """Transports of one kind that reach each other."""

    def __init__(self, kind: str, server: Callable[[], RedisServer]) -> None:
        self.kind, self.name, self.routers = kind, f"test-{uuid4().hex[:12]}", list[Router]()
        self._url = server().url if kind == "redis" else ""
        self._sockets: list[ZmqPeers] = []
        self._processes: list[subprocess.Popen[str]] = []

    def transport(self) -> Any:
        if self.kind == "redis":
            return RedisPeers(self._url)
        if self.kind == "ring":
            return RingPeers(self.name)
        made = ZmqPeers("tcp://127.0.0.1:*", [other.endpoint for other in self._sockets])
        for other in self._sockets:
            other.connect(made.endpoint)
        self._sockets.append(made)
        return made

    def router(self, peer_s: float = 10.0) -> Router:
        router = Router(NAMES, peers=self.transport(), hash_key=KEY, timing=Timing(peer_s=peer_s))
        self.routers.append(router)
        until(lambda: router.stats()["peers"]["transport"]["connected"])
        return router

    def process(self, body: str) -> subprocess.Popen[str]:
        """Start a process that routes, too; it has its standard input and output to talk."""
        made = {
            "redis": f"RedisPeers({self._url!r})",
            "ring": f"RingPeers({self.name!r})",
            "zmq": f"ZmqPeers('tcp://127.0.0.1:*', {[each.endpoint for each in self._sockets]!r})",
        }
        code = PROCESS.format(transport=made[self.kind], names=NAMES, key=KEY, body=body)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        endpoint = line_of(process)
        for socket in self._sockets:
            socket.connect(endpoint)
        return process

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        for router in self.routers:
            router.close()
        if self.kind == "ring":
            assert not Path(f"/dev/shm/prefixroute-{os.getuid()}-{self.name}").exists()  # noqa: S108


@pytest.fixture(params=["ring", "redis", "zmq"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Network]:
    servers: list[RedisServer] = []

    def server() -> RedisServer:
        servers.append(RedisServer(tmp_path))
        return servers[0]

    network = Network(request.param, server)
    yield network
    network.close()
    for each in servers:
        each.stop()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def in_flight(router: Router) -> dict[str, int]:
    """Return requests in flight by replica, as a decision sees them now."""
    router.choose(prompt(9))
    return {name: load[0] for name, load in load_of(router).items() if load[0]}


def test_a_late_router_learns_what_the_others_know(network: Network) -> None:
    first = network.router()
    first.route(prompt(1), session="s", candidates=["r2"]).finish()
    held = first.route(prompt(2), candidates=["r1"])
    first.drain("r0")
    late = network.router()
    until(lambda: late.choose(prompt(1), session="s").hit_tokens == 3_984)
    until(lambda: in_flight(late) == {"r1": 1})
    assert late.choose(prompt(1), session="s").view.binding == NAMES.index("r2")
    until(lambda: late.stats()["replicas"]["r0"]["state"] == "draining")
    held.finish()
    until(lambda: in_flight(late) == {})


BUSY = """
tickets = [router.route(np.arange(160, dtype=np.uint32) + number, candidates=["r1"]) for number in range(3)]
number = 0
while True:
    number += 1
    router.route(np.arange(number % 50 * 16, dtype=np.uint32) + number).finish()
    time.sleep(0.001)
"""


def test_a_killed_process_gives_back_once(network: Network) -> None:
    router, chance = network.router(peer_s=1.5), random.Random(1)  # noqa: S311
    for kills in (1, 2):
        process = network.process(BUSY)
        until(lambda: in_flight(router).get("r1", 0) >= 3)
        time.sleep(chance.random() * 0.05)
        process.kill()
        until(lambda: in_flight(router) == {})
        until(lambda kills=kills: router.stats()["peers"]["expired"] >= 3 * kills)  # type: ignore[misc]
    expired = router.stats()["peers"]["expired"]
    time.sleep(1.6)
    assert in_flight(router) == {}
    assert router.stats()["peers"]["expired"] == expired
    assert load_of(router) == NOTHING


IMPORTS = """
wait(lambda: router.stats()["peers"]["transport"]["connected"])
router.route(np.arange(160, dtype=np.uint32)).finish()
wait(lambda: router.stats()["peers"]["in_flight"] == 1)
print(sorted(set(sys.modules) - before), flush=True)
"""


def test_the_threads_of_a_transport_import_nothing(network: Network) -> None:
    """A module that one of them imports at the moment of a fork would stay half imported in the child, and its thread hang."""
    network.router().route(prompt(1), candidates=["r0"])
    assert line_of(network.process(IMPORTS)) == "[]"


UNREACHABLE = """
import logging, sys, threading
from prefixroute.peers.transports import RedisPeers
gone = threading.Event()
class Ear(logging.Handler):
    def emit(self, record):
        gone.set()
logging.getLogger("prefixroute").addHandler(Ear())
transport = RedisPeers("redis://localhost:1/0")
before = set(sys.modules)
transport.open(print, lambda: None)
gone.wait()
print(sorted(set(sys.modules) - before))
"""


def test_looking_up_the_host_of_a_server_imports_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", UNREACHABLE], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "[]\n"


FORKS = """
held = router.route(np.arange(160, dtype=np.uint32), candidates=["r0"])
child = os.fork()
if child == 0:
    mine = router.route(np.arange(320, dtype=np.uint32), candidates=["r1"])
    if {shares}:
        wait(lambda: router.choose(np.arange(16, dtype=np.uint32)) and router.stats()["replicas"]["r0"]["in_flight"] == 1)
        assert mine.open
    else:
        assert not router.stats()["peers"]["transport"]["connected"]
    time.sleep(1.2)  # rings are looked for twice a second
    mine.finish()
    router.close()
    os._exit(3)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
more = router.route(np.arange(480, dtype=np.uint32), candidates=["r2"])
print(code, flush=True)
time.sleep(60)
"""


def test_a_fork_shares_no_connection_with_its_parent(network: Network) -> None:
    """Over rings and Redis the child goes on as a router of its own; ZeroMQ's sockets cannot be made twice."""
    shares = network.kind != "zmq"
    router = network.router()
    seen = set[tuple[tuple[str, int], ...]]()
    process = network.process(FORKS.format(shares=shares))
    until(lambda: seen.add(tuple(sorted(in_flight(router).items()))) or in_flight(router).get("r2"))  # type: ignore[func-returns-value]
    assert line_of(process) == "3", "the child has done what it should"
    until(lambda: in_flight(router) == {"r0": 1, "r2": 1})
    assert any(dict(loads).get("r1") for loads in seen) is shares
    assert router.stats()["peers"]["transport"]["refused"] == 0
