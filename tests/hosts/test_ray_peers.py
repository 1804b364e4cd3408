"""Routers that share commits through a Ray actor, on a local cluster that really runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

ray = pytest.importorskip("ray", reason="needs ray, see `make hosts`")

from prefixroute.errors import ConfigError  # noqa: E402
from prefixroute.peers.transports import RayPeers  # noqa: E402
from prefixroute.router import Router  # noqa: E402

PROMPT = np.arange(4_000, dtype=np.uint32)


def eventually(what: Callable[[], Any]) -> Any:
    """Return the first true answer."""
    for _ in range(3_000):
        if found := what():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def join(router: Router, transport: RayPeers) -> None:
    """Let a router share by a transport."""
    link = router.peer_feed(transport.publish)
    transport.open(router.apply_peer, link.tick)


def in_flight(router: Router, name: str) -> int:
    """Return how many requests a router believes to be at a replica."""
    return int(router.stats()["replicas"][name]["in_flight"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with pytest.raises(ConfigError, match=r"ray\.init"):
        RayPeers()
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@ray.remote(num_cpus=0)
class Worker:
    """A router in another process."""

    def __init__(self, mailbox: str) -> None:
        self.router = Router(["a", "b"], hash_key=7)
        self.transport = RayPeers(mailbox)
        join(self.router, self.transport)

    def route(self) -> str:
        self.ticket = self.router.route(PROMPT, session="chat")
        return str(self.ticket.replica)

    def finish(self) -> None:
        self.ticket.finish()


def test_routers_in_two_processes_route_as_one(cluster: None) -> None:
    router, transport = Router(["a", "b"], hash_key=7), RayPeers("mailbox-1")
    join(router, transport)
    worker = Worker.remote("mailbox-1")
    replica = ray.get(worker.route.remote())
    eventually(lambda: in_flight(router, replica) == 1)
    decision = router.choose(PROMPT, session="chat")
    assert (decision.replica, decision.hit_tokens) == (replica, 3_984)
    ray.get(worker.finish.remote())
    eventually(lambda: in_flight(router, replica) == 0)
    transport.close()
    ray.kill(worker)


def test_an_actor_that_dies_is_replaced_and_what_waits_is_sent(cluster: None) -> None:
    pair = [RayPeers("mailbox-2") for _ in range(2)]
    heard: list[bytes] = []
    pair[0].open(lambda _frame: None, lambda: None)
    pair[1].open(heard.append, lambda: None)
    pair[0].publish(b"before")
    eventually(lambda: heard == [b"before"])
    ray.kill(ray.get_actor("mailbox-2", namespace="prefixroute"))
    pair[0].publish(b"after")
    eventually(lambda: b"after" in heard)
    eventually(lambda: pair[0].status()["connected"])
    for transport in pair:
        transport.close()
    ray.kill(ray.get_actor("mailbox-2", namespace="prefixroute"))
