"""Routers that share what they book, over lists that tests deliver from as they like."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from prefixroute.peers.names import described
from prefixroute.peers.seal import seal_of
from prefixroute.peers.wire import PeerChains, PeerOutbox
from prefixroute.router import Router
from prefixroute.routing import RouterConfig, RouterState

NAMES = [f"r{number}" for number in range(4)]
NOTHING = dict.fromkeys(NAMES, (0, 0, 0))
KEY = 7
SEQUENCES = itertools.count(1)
"""Numbers of the frames of strangers."""


class Mesh:
    """Routers with a common clock; what each sends waits in ``sent`` until it is delivered."""

    def __init__(self, count: int, **options: Any) -> None:
        self.now = -10.0
        self.options = {"hash_key": KEY, "clock": lambda: self.now, **options}
        self.states: list[RouterState] = []
        self.routers: list[Router] = []
        self.sent: list[list[bytes]] = []
        self.links: list[Any] = []
        for _ in range(count):
            self.join()
        self.deliver()
        self.play(seconds=10.0)  # the snapshots of the beginning are over

    def join(self, *, secret: str | None = None, **options: Any) -> Router:
        """Let one more router in."""
        number = len(self.routers)
        state, sent = RouterState(RouterConfig(seed=number, **{**self.options, **options})), list[bytes]()
        router = Router.of(state)
        router.sync(NAMES)
        self.states.append(state)
        self.routers.append(router)
        self.sent.append(sent)
        self.links.append(router.peer_feed(sent.append, ident=number + 1, first_sequence=1, secret=secret))
        return router

    def take(self) -> list[tuple[int, bytes]]:
        """Return what waits, with the number of its sender."""
        found = [(number, data) for number, sent in enumerate(self.sent) for data in sent]
        for sent in self.sent:
            sent.clear()
        return found

    def play(self, times: int = 1, seconds: float = 1.0) -> None:
        """Let time pass so often, and deliver what the beats say."""
        for _ in range(times):
            self.tick(seconds)
            self.deliver()

    def deliver(self, messages: list[tuple[int, bytes]] | None = None) -> None:
        """Give messages to every router but their sender, and what these answer, until nobody says anything more."""
        while messages := self.take() if messages is None else messages:
            for sender, data in messages:
                for number, router in enumerate(self.routers):
                    if number != sender:
                        router.apply_peer(data)
            messages = None

    def tick(self, seconds: float = 1.0) -> None:
        """Let time pass, and every router beat."""
        self.now += seconds
        for link in self.links:
            if link.is_open:
                link.tick()


def stranger(send: Callable[[bytes], object] | None = None) -> PeerOutbox:
    """Return what a router that is in no mesh would write with, to say what none of a mesh does."""
    ledger = RouterState(RouterConfig(hash_key=KEY)).ledger
    return PeerOutbox(
        ledger,
        PeerChains(16, 10),
        seal_of(16, KEY),
        described,
        ident=99,
        first_sequence=next(SEQUENCES),
        send=send,
        failed=print,
    )


def meshed(count: int, **options: Any) -> tuple[Any, ...]:
    """Return a mesh, and its routers behind it."""
    mesh = Mesh(count, **options)
    return mesh, *mesh.routers


def load_of(router: Router) -> dict[str, tuple[int, int, int]]:
    """Return requests in flight, uncached tokens that wait and tokens decoding, by replica."""
    return {
        name: (numbers["in_flight"], numbers["uncached_tokens"], numbers["decode_tokens"])
        for name, numbers in router.stats()["replicas"].items()
    }


def total(router: Router) -> int:
    """Return requests in flight at all replicas."""
    return sum(load[0] for load in load_of(router).values())


def prompt(number: int, tokens: int = 4_000) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return a prompt; prompts of other numbers have no block in common with it."""
    return np.arange(tokens, dtype=np.uint32) + 1_000_000 * (number + 1)
