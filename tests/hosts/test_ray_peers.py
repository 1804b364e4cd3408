"""Routers that share commits through a Ray actor, on a local cluster that really runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from waiting import until

ray = pytest.importorskip("ray", reason="needs ray, see `make hosts`")

from prefixroute.errors import ConfigError  # noqa: E402
from prefixroute.peers.transports import RayPeers  # noqa: E402
from prefixroute.router import Router  # noqa: E402
from prefixroute.types import Timing  # noqa: E402

PROMPT = np.arange(4_000, dtype=np.uint32)


def in_flight(router: Router, name: str) -> int:
    """Return how many requests a router believes to be at a replica."""
    return int(router.stats()["replicas"][name]["in_flight"])


def make(mailbox: str, peer_s: float = 10.0) -> Router:
    """Return a router that shares by an actor of this name, and reaches it."""
    router = Router(["a", "b"], hash_key=7, peers=RayPeers(mailbox), timing=Timing(peer_s=peer_s))
    until(lambda: router.stats()["peers"]["transport"]["connected"])
    return router


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with pytest.raises(ConfigError, match=r"ray\.init"):
        RayPeers()
    for module in (__name__, until.__module__):  # workers cannot import a test
        ray.cloudpickle.register_pickle_by_value(sys.modules[module])
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@ray.remote(num_cpus=0)
class Worker:
    """A router in another process."""

    def __init__(self, mailbox: str) -> None:
        self.router = make(mailbox)

    def pid(self) -> int:
        return os.getpid()

    def route(self, *candidates: str) -> str:
        self.ticket = self.router.route(PROMPT, session="chat", candidates=candidates or None)
        return str(self.ticket.replica)

    def finish(self) -> None:
        self.ticket.finish()

    def sees(self) -> dict[str, Any]:
        """Return what this router would do with the prompt, and what it knows of others."""
        decision = self.router.choose(PROMPT, session="chat")
        replicas = self.router.stats()["replicas"]
        return {
            "replica": decision.replica,
            "hit_tokens": decision.hit_tokens,
            "binding": decision.view.binding,
            "states": {name: replica["state"] for name, replica in replicas.items()},
            "in_flight": {name: replica["in_flight"] for name, replica in replicas.items()},
        }


@pytest.fixture
def mailbox(cluster: None) -> Iterator[str]:
    """Return the name of an actor, which is gone after the test."""
    name = f"mailbox-{uuid4().hex[:8]}"
    yield name
    with suppress(ValueError):
        ray.kill(ray.get_actor(name, namespace="prefixroute"))


def test_routers_in_two_processes_route_as_one(mailbox: str) -> None:
    router, worker = make(mailbox), Worker.remote(mailbox)
    replica = ray.get(worker.route.remote())
    until(lambda: in_flight(router, replica) == 1)
    decision = router.choose(PROMPT, session="chat")
    assert (decision.replica, decision.hit_tokens) == (replica, 3_984)
    ray.get(worker.finish.remote())
    until(lambda: in_flight(router, replica) == 0)
    router.close()
    ray.kill(worker)


def test_a_late_router_learns_what_the_others_know(mailbox: str) -> None:
    router = make(mailbox)
    router.route(PROMPT, session="chat", candidates=["b"]).finish()
    held = router.route(PROMPT[:160], candidates=["b"])
    router.drain("a")
    late = Worker.remote(mailbox)
    known = {"replica": "b", "hit_tokens": 3_984, "binding": 1}
    known |= {"states": {"a": "draining", "b": "active"}, "in_flight": {"a": 0, "b": 1}}
    until(lambda: ray.get(late.sees.remote()) == known)
    held.finish()
    until(lambda: ray.get(late.sees.remote())["in_flight"] == {"a": 0, "b": 0})
    router.close()
    ray.kill(late)


def test_a_killed_process_gives_back_once(mailbox: str) -> None:
    router = make(mailbox, peer_s=1.5)
    for kills in (1, 2):
        worker = Worker.remote(mailbox)
        ray.get(worker.route.remote("a"))
        until(lambda: in_flight(router, "a") == 1)
        os.kill(ray.get(worker.pid.remote()), signal.SIGKILL)
        until(lambda: in_flight(router, "a") == 0)
        assert router.stats()["peers"]["expired"] == kills
    router.close()


def test_a_silent_process_gives_back_once_and_is_believed_when_it_goes_on(mailbox: str) -> None:
    router, worker = make(mailbox, peer_s=1.5), Worker.remote(mailbox)
    ray.get(worker.route.remote("a"))
    pid = ray.get(worker.pid.remote())
    until(lambda: in_flight(router, "a") == 1)
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: in_flight(router, "a") == 0)
        time.sleep(2.0)
        assert router.stats()["peers"]["expired"] == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: in_flight(router, "a") == 1)
    ray.get(worker.finish.remote())
    until(lambda: in_flight(router, "a") == 0)
    router.close()
    ray.kill(worker)


FORKS = """
import logging, os, sys, time
import numpy as np
import ray
logging.basicConfig()
ray.init(address=sys.argv[1], namespace="forks", log_to_driver=False, logging_level="ERROR")
from prefixroute.peers.transports import RayPeers
from prefixroute.router import Router
router = Router(["a", "b"], peers=RayPeers(sys.argv[2]), hash_key=7)
held = router.route(np.arange(160, dtype=np.uint32), candidates=["a"])
child = os.fork()
if child == 0:
    mine = router.route(np.arange(320, dtype=np.uint32), candidates=["b"])
    shares = router.stats().get("peers", {}).get("transport", {}).get("connected")
    mine.finish()
    router.close()
    os._exit(1 if shares else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
more = router.route(np.arange(480, dtype=np.uint32), candidates=["b"])
time.sleep(60)
"""


def test_a_forked_child_routes_alone_and_its_parent_goes_on(mailbox: str) -> None:
    """A connection to Ray cannot be made twice in a process; the child says so in its log, see docs/peers.md."""
    router = make(mailbox)
    command = [sys.executable, "-c", FORKS, ray.get_runtime_context().gcs_address, mailbox]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().strip() == "3", "the child has routed, without peers"
        until(lambda: (in_flight(router, "a"), in_flight(router, "b")) == (1, 1))
        process.kill()
        assert "make its router after the fork" in process.stderr.read()
    router.close()


def test_a_mailbox_that_dies_with_requests_in_flight_leaves_nothing_wrong(mailbox: str) -> None:
    router, worker = make(mailbox), Worker.remote(mailbox)
    ray.get(worker.route.remote("a"))
    until(lambda: in_flight(router, "a") == 1)
    ray.kill(ray.get_actor(mailbox, namespace="prefixroute"))
    ray.get(worker.finish.remote())
    until(lambda: in_flight(router, "a") == 0)
    mine = router.route(PROMPT, candidates=["b"])
    until(lambda: ray.get(worker.sees.remote())["in_flight"] == {"a": 0, "b": 1})
    mine.abort()
    until(lambda: ray.get(worker.sees.remote())["in_flight"] == {"a": 0, "b": 0})
    router.close()
    ray.kill(worker)


def test_an_actor_that_dies_is_replaced_and_what_waits_is_sent(mailbox: str) -> None:
    pair = [RayPeers(mailbox) for _ in range(2)]
    heard: list[bytes] = []
    pair[0].open(lambda _frame: None, lambda: None)
    pair[1].open(heard.append, lambda: None)
    pair[0].publish(b"before")
    until(lambda: heard == [b"before"])
    ray.kill(ray.get_actor(mailbox, namespace="prefixroute"))
    pair[0].publish(b"after")
    until(lambda: b"after" in heard)
    until(lambda: pair[0].status()["connected"])
    for transport in pair:
        transport.close()


AFTER_RAY = """
import time, ray
from prefixroute import Router
from prefixroute.peers.transports import RayPeers
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
router = Router(["a", "b"], peers=RayPeers("test-after"), hash_key=7)
ray.shutdown()
for _ in range(20):
    router.route(list(range(64))).finish()
    time.sleep(0.1)
assert not ray.is_initialized()
print("alone")
"""


def test_a_router_that_outlives_its_ray_starts_none() -> None:
    ended = subprocess.run([sys.executable, "-c", AFTER_RAY], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.split() == ["alone"], ended.stderr
