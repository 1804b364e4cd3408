"""Routers that share commits through a Ray actor, on a local cluster that really runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from mesh import prompt
from transport_laws import (
    Network,
    in_flight,
    test_a_fork_shares_no_connection_with_its_parent,
    test_a_killed_process_gives_back_once,
    test_a_late_router_learns_what_the_others_know,
)

from prefixroute.errors import ConfigError
from prefixroute.peers.transports import RayPeers
from waiting import until

ray = pytest.importorskip("ray", reason="needs ray, see `make hosts`")
__all__ = [
    "test_a_fork_shares_no_connection_with_its_parent",
    "test_a_killed_process_gives_back_once",
    "test_a_late_router_learns_what_the_others_know",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Yield the address of a cluster."""
    with pytest.raises(ConfigError, match=r"ray\.init"):
        RayPeers()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def kill(mailbox: str) -> None:
    ray.kill(ray.get_actor(mailbox, namespace="prefixroute"))


@pytest.fixture
def network(cluster: str) -> Iterator[Network]:
    """Yield routers that share by an actor, which is gone after the test."""
    with closing(Network("ray", cluster)) as network:
        yield network
    with suppress(ValueError):
        kill(network.name)


HOLDS = """
ticket = router.route(np.arange(160, dtype=np.uint32), candidates=["r1"])
sys.stdin.readline()
ticket.finish()
time.sleep(60)
"""


def test_a_silent_process_gives_back_once_and_is_believed_when_it_goes_on(network: Network) -> None:
    router, process = network.router(peer_s=1.5), network.process(HOLDS)
    until(lambda: in_flight(router) == {"r1": 1})
    os.kill(process.pid, signal.SIGSTOP)
    try:
        until(lambda: in_flight(router) == {})
        time.sleep(2.0)
        assert router.stats()["peers"]["expired"] == 1
    finally:
        os.kill(process.pid, signal.SIGCONT)
    until(lambda: in_flight(router) == {"r1": 1})
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    until(lambda: in_flight(router) == {})


def test_a_mailbox_that_dies_with_requests_in_flight_leaves_nothing_wrong(network: Network) -> None:
    router, other = network.router(), network.router()
    held = other.route(prompt(1), candidates=["r1"])
    until(lambda: in_flight(router) == {"r1": 1})
    kill(network.name)
    held.finish()
    until(lambda: in_flight(router) == {})
    mine = router.route(prompt(1), candidates=["r2"])
    until(lambda: in_flight(other) == {"r2": 1})
    mine.abort()
    until(lambda: in_flight(other) == {})


def test_an_actor_that_dies_is_replaced_and_what_waits_is_sent(network: Network) -> None:
    pair = [network.transport() for _ in range(2)]
    heard: list[bytes] = []
    pair[0].open(lambda _frame: None, lambda: None)
    pair[1].open(heard.append, lambda: None)
    pair[0].publish(b"before")
    until(lambda: heard == [b"before"])
    kill(network.name)
    pair[0].publish(b"after")
    until(lambda: b"after" in heard)
    until(lambda: pair[0].status()["connected"])
    for transport in pair:
        transport.close()


AFTER_RAY = """
import threading, time, ray
from prefixroute import Router
from prefixroute.peers.transports import RayPeers

def connected():
    return router.stats()["peers"]["transport"]["connected"]

def until(happens):
    end = time.monotonic() + 30
    while not happens() and time.monotonic() < end:
        router.route(list(range(64))).finish()
        time.sleep(0.05)
    return happens()

settings = {"num_cpus": 1, "include_dashboard": False, "logging_level": "ERROR"}
ray.init(**settings)
router = Router(["a", "b"], peers=RayPeers("test-after"), hash_key=7)
print(until(connected))
ray.shutdown()
print(until(lambda: not connected()))
time.sleep(1.0)
print(ray.is_initialized())
ray.init(**settings)
print(until(connected))
"""


def test_a_router_that_outlives_its_ray_starts_none_and_joins_the_next() -> None:
    ended = subprocess.run([sys.executable, "-c", AFTER_RAY], capture_output=True, text=True, timeout=90, check=False)
    assert ended.stdout.split() == ["True", "True", "False", "True"], ended.stderr
