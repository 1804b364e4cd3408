"""Blocks of requests in flight: counted once a replica, whatever else is in flight there."""

from __future__ import annotations

import numpy as np

from prefixroute import BlockHashes, Replica, Router
from prefixroute.router import Ticket

SIZE, NAMES = 4, ("a", "b")


def chain(path: tuple[int, ...]) -> BlockHashes:
    """Return the hashes of a prompt that follows a path from the root of a tree."""
    hashes = [hash(path[: at + 1]) & (2**64 - 1) for at in range(len(path))]
    return BlockHashes(np.array(hashes, np.uint64), token_count=SIZE * len(path), block_size=SIZE)


def test_active_blocks_are_the_union_of_what_is_in_flight() -> None:
    rng = np.random.default_rng(5)
    router = Router({name: Replica(incarnation="1") for name in NAMES}, policy="dynamo", block_size=SIZE, hash_key=7)
    flights: list[tuple[Ticket, tuple[int, ...]]] = []
    for step in range(1_500):
        now = step / 10
        if flights and rng.random() < 0.49:
            ticket, _ = flights.pop(rng.integers(len(flights)))
            ticket.finish(now=now) if step % 3 else ticket.abort()
        else:
            path = tuple(rng.integers(2, size=rng.integers(12)).tolist())
            decision = router.choose(chain(path), now=now)
            flights.append((router.commit(decision, NAMES[rng.integers(2)], now=now), path))
        if step == 700:
            router.sync({"a": Replica(incarnation="2"), "b": Replica(incarnation="1")})
            for ticket, _ in flights:
                if ticket.replica == "a":
                    ticket.finish(now=now)
            flights = [(ticket, path) for ticket, path in flights if ticket.replica != "a"]
        blocks = {(ticket.replica, path[: at + 1]) for ticket, path in flights for at in range(len(path))}
        asked = tuple(rng.integers(2, size=12).tolist())
        held = [[(name, asked[:length]) in blocks for length in range(1, 13)] for name in NAMES]
        view = router.choose(chain(asked), now=now).view
        assert view.active == [SIZE * sum(owner == name for owner, _ in blocks) for name in NAMES]
        assert view.active_hits == [SIZE * ([*at, False].index(False)) for at in held]
