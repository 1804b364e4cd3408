"""The simulated cache on the chat workload: what one request costs, beside a dict of blocks that does the same."""

from __future__ import annotations

import time
from collections import OrderedDict
from functools import cache
from itertools import islice
from typing import Any

import pytest

from prefixroute.hashing import BlockHashes
from prefixroute.sim.replica import ReplicaCache
from prefixroute.workload import Request, chat

REPLICAS, CAPACITY, REQUESTS = 8, 300_000, 10_000


class BlockByBlock:
    """The least recently used blocks of requests that are served one after the other."""

    def __init__(self, capacity_tokens: int, block_size: int) -> None:
        self.block_size = block_size
        self.capacity = capacity_tokens // block_size
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def serve(self, prompt: BlockHashes, context: BlockHashes) -> int:
        held = 0
        for block in prompt.array.tolist():
            if block not in self.blocks:
                break
            held += 1
        for block in reversed(context.array.tolist()):
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
        return min(held, (prompt.token_count - 1) // self.block_size) * self.block_size


@cache
def requests() -> list[Request]:
    return list(islice(chat(seed=1).requests(), REQUESTS))


def serve_all(caches: list[Any]) -> int:
    return sum(
        caches[turn % REPLICAS].serve(request.prompt, request.context) for turn, request in enumerate(requests())
    )


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize(("who", "make"), [("prefixroute", ReplicaCache), ("OrderedDict", BlockByBlock)])
def test_serve(benchmark: Any, who: str, make: Any) -> None:
    benchmark.group = "simulated cache: a chat request"
    benchmark.extra_info.update(who=who, unit="us", per=REQUESTS)
    make_all = lambda: (([make(CAPACITY, 16) for _ in range(REPLICAS)],), {})  # noqa: E731
    hits = benchmark.pedantic(serve_all, setup=make_all, rounds=3)
    assert hits == serve_all([ReplicaCache(CAPACITY, 16) for _ in range(REPLICAS)])
