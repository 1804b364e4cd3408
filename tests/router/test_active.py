"""Blocks of requests in flight: counted once a replica, whatever else is in flight there."""

from __future__ import annotations

import numpy as np

from prefixroute import BlockHashes
from prefixroute.routing.active import ActiveBlocks

SIZE, NAMES = 4, ("a", "b")


def chain(path: tuple[int, ...]) -> BlockHashes:
    """Return the hashes of a prompt that follows a path from the root of a tree."""
    hashes = [hash(path[: at + 1]) & (2**64 - 1) for at in range(len(path))]
    return BlockHashes(np.array(hashes, np.uint64), token_count=SIZE * len(path), block_size=SIZE)


def test_active_blocks_are_the_union_of_what_is_in_flight() -> None:
    rng = np.random.default_rng(5)
    active = ActiveBlocks(SIZE, 7)
    for name in NAMES:
        active.add_replica(name)
    flights: list[tuple[str, tuple[int, ...]]] = []
    for step in range(1_500):
        if flights and rng.random() < 0.49:
            name, path = flights.pop(rng.integers(len(flights)))
            active.leave(name, chain(path))
        else:
            name, path = NAMES[rng.integers(2)], tuple(rng.integers(2, size=rng.integers(12)).tolist())
            flights.append((name, path))
            active.enter(name, chain(path))
        if step == 700:
            active.clear("a")
            flights = [flight for flight in flights if flight[0] != "a"]
        blocks = {(name, path[: at + 1]) for name, path in flights for at in range(len(path))}
        asked = tuple(rng.integers(2, size=12).tolist())
        held = [[(name, asked[:length]) in blocks for length in range(1, 13)] for name in NAMES]
        assert active.tokens() == [SIZE * sum(owner == name for owner, _ in blocks) for name in NAMES]
        assert active.hits(chain(asked)) == [SIZE * ([*at, False].index(False)) for at in held]
