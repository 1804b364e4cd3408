"""What every transport between processes must keep.

Late routers learn, the killed give back once, a fork shares no socket. Modules that import these tests have a fixture
``network``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from mesh import KEY, NAMES, NOTHING, load_of, prompt

from prefixroute.peers.transports import RayPeers, RedisPeers, RingPeers, ZmqPeers
from prefixroute.router import Router
from prefixroute.types import Timing
from waiting import until

PROCESS = """
import os, sys, time
import numpy as np
from prefixroute.peers.transports import RayPeers, RedisPeers, RingPeers, ZmqPeers
from prefixroute.router import Router
{before}
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
CONNECT = 'import ray; ray.init(address={!r}, namespace="other", log_to_driver=False, logging_level="ERROR")'


class Network:
    """Transports of one kind that reach each other.

    Args:
        kind: ``ring``, ``redis``, ``zmq`` or ``ray``.
        url: of the Redis server, or address of the Ray cluster.
    """

    def __init__(self, kind: str, url: str = "") -> None:
        self.kind, self.name, self.routers, self._url = kind, f"test-{uuid4().hex[:12]}", list[Router](), url
        self._sockets: list[ZmqPeers] = []
        self._processes: list[subprocess.Popen[str]] = []

    def transport(self) -> Any:
        if self.kind != "zmq":
            return {"redis": RedisPeers, "ring": RingPeers, "ray": RayPeers}[self.kind](self._url_or_name)
        made = ZmqPeers("tcp://127.0.0.1:*", [other.endpoint for other in self._sockets])
        for other in self._sockets:
            other.connect(made.endpoint)
        self._sockets.append(made)
        return made

    @property
    def _url_or_name(self) -> str:
        return self._url if self.kind == "redis" else self.name

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
            "ray": f"RayPeers({self.name!r})",
        }
        before = CONNECT.format(self._url) if self.kind == "ray" else ""
        code = PROCESS.format(before=before, transport=made[self.kind], names=NAMES, key=KEY, body=body)
        process = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True)
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
        until(lambda: router.stats()["peers"]["in_flight"] >= 3)  # the messages too: a ring tells of loads before them
        time.sleep(chance.random() * 0.05)
        process.kill()
        until(lambda: in_flight(router) == {})
        until(lambda kills=kills: router.stats()["peers"]["expired"] >= 3 * kills)  # type: ignore[misc]
    expired = router.stats()["peers"]["expired"]
    time.sleep(1.6)
    assert in_flight(router) == {}
    assert router.stats()["peers"]["expired"] == expired
    assert router.stats()["peers"]["transport"]["refused"] == 0
    assert load_of(router) == NOTHING


FORKS = """
held = router.route(np.arange(160, dtype=np.uint32), candidates=["r0"])
parent, child = router.stats()["peers"]["ident"], os.fork()
if child == 0:
    mine = router.route(np.arange(320, dtype=np.uint32), candidates=["r1"])
    if {shares}:
        wait(lambda: router.choose(np.arange(16, dtype=np.uint32)) and router.stats()["replicas"]["r0"]["in_flight"] == 1)
        assert mine.open
        assert router.stats()["peers"]["ident"] != parent
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
    """Over rings and Redis the child goes on as a router of its own; ZeroMQ's sockets and Ray cannot be had twice."""
    shares = network.kind in {"ring", "redis"}
    router = network.router()
    seen = set[tuple[tuple[str, int], ...]]()
    process = network.process(FORKS.format(shares=shares))
    until(lambda: seen.add(tuple(sorted(in_flight(router).items()))) or in_flight(router).get("r2"))  # type: ignore[func-returns-value]
    assert line_of(process) == "3"  # the child has done what it should
    until(lambda: in_flight(router) == {"r0": 1, "r2": 1})
    assert any(dict(loads).get("r1") for loads in seen) is shares
    assert router.stats()["peers"]["transport"]["refused"] == 0
