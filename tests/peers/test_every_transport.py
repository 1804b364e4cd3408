"""The laws of transports over shared memory, Redis and ZeroMQ, and what their threads must not do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from mesh import prompt
from redis_server import RedisServer
from transport_laws import (
    Network,
    line_of,
    test_a_fork_shares_no_connection_with_its_parent,
    test_a_killed_process_gives_back_once,
    test_a_late_router_learns_what_the_others_know,
)

__all__ = [
    "test_a_fork_shares_no_connection_with_its_parent",
    "test_a_killed_process_gives_back_once",
    "test_a_late_router_learns_what_the_others_know",
]


@pytest.fixture(params=["ring", "redis", "zmq"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Network]:
    with ExitStack() as stack:
        url = stack.enter_context(closing(RedisServer(tmp_path))).url if request.param == "redis" else ""
        yield stack.enter_context(closing(Network(request.param, url)))


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
