"""Ray Serve's own routers and ours on one workload, with engines that have a prefix cache and take time.

    PYTHONPATH=python .venv-hosts/bin/python benches/hosts/ray_serve.py [SESSIONS] [TURNS]

The engines are fakes: a bounded LRU cache of blocks, 20 ms a request and 100 µs for each token that is not held.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections import Counter, OrderedDict
from types import SimpleNamespace
from typing import Any

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from prefixroute.hashing import hash_blocks
from prefixroute.messages import canonical

REPLICAS, CAPACITY_TOKENS = 4, 60_000
HEAD = "You are a helpful assistant of a large company. " * 90
OURS = "prefixroute.hosts.ray:PrefixRouter"
AFFINITY = "ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router:PrefixCacheAffinityRouter"
ROUTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Ray: power of two choices": ("ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter", {}),
    "Ray: PrefixCacheAffinityRouter": (AFFINITY, {}),
    "Ray: PrefixCacheAffinityRouter, threshold 5": (AFFINITY, {"imbalanced_threshold": 5}),
    "prefixroute: cache-aware": (OURS, {"policy": "cache-aware", "capacity_tokens": CAPACITY_TOKENS, "seed": 1}),
    "prefixroute: session": (OURS, {"policy": "session", "capacity_tokens": CAPACITY_TOKENS, "seed": 1}),
}


class Engine:
    """A fake engine with a prefix cache."""

    def __init__(self) -> None:
        self.name = serve.get_replica_context().replica_id.unique_id
        self.blocks: OrderedDict[int, None] = OrderedDict()

    async def __call__(self, request: Any) -> tuple[str, int, int]:
        """Return the engine's name, the tokens of the prompt, and those that it held."""
        hashes = hash_blocks(canonical(request.messages), 16, hash_key=1)
        held = 0
        for block in hashes.array.tolist():
            if block not in self.blocks:
                break
            self.blocks.move_to_end(block)
            held += 16
        for block in hashes.array.tolist():
            self.blocks[block] = None
        while len(self.blocks) > CAPACITY_TOKENS // 16:
            self.blocks.popitem(last=False)
        await asyncio.sleep(0.02 + (hashes.token_count - held) * 1e-4)
        return self.name, hashes.token_count, held


async def talk(handle: Any, session: int, turns: int, rows: list[tuple[str, int, int, float]]) -> None:
    """One conversation: a turn after each answer, with a pause for thought."""
    rng = random.Random(session)  # noqa: S311
    messages = [{"role": "system", "content": HEAD}]
    await asyncio.sleep(rng.random() * 2)
    for turn in range(turns):
        messages = [*messages, {"role": "user", "content": f"session {session} turn {turn}: " + "and so on " * 120}]
        begun = time.perf_counter()
        answer = await handle.options(session_id=f"s{session}").remote(SimpleNamespace(messages=messages))
        rows.append((*answer, time.perf_counter() - begun))
        messages = [*messages, {"role": "assistant", "content": "an answer " * 60}]
        await asyncio.sleep(rng.expovariate(4.0))


async def everybody(handle: Any, sessions: int, turns: int) -> list[tuple[str, int, int, float]]:
    """All conversations at once."""
    rows: list[tuple[str, int, int, float]] = []
    await asyncio.gather(*[talk(handle, session, turns, rows) for session in range(sessions)])
    return rows


def measure(number: int, path: str, kwargs: dict[str, Any], sessions: int, turns: int) -> str:
    """Deploy engines under a router, talk to them, and return a line of a table."""
    config = RequestRouterConfig(request_router_class=path, request_router_kwargs=kwargs)
    engines = serve.deployment(
        num_replicas=REPLICAS,
        max_ongoing_requests=64,
        ray_actor_options={"num_cpus": 0.1},
        request_router_config=config,
    )(Engine)
    name = f"bench-{number}"
    handle = serve.run(engines.bind(), name=name, route_prefix=None)
    handle.remote(SimpleNamespace(messages=[{"role": "user", "content": "warm"}])).result()
    rows = asyncio.run(everybody(handle, sessions, turns))
    serve.delete(name)
    prompt, held = sum(row[1] for row in rows), sum(row[2] for row in rows)
    counts = Counter(row[0] for row in rows)
    skew = max(counts.values()) / (len(rows) / REPLICAS)
    times = sorted(row[3] for row in rows)
    p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
    return f"{100 * (1 - held / prompt):.1f} % | {skew:.2f} | {1e3 * p50:.0f} ms | {1e3 * p99:.0f} ms"


def main() -> None:
    """Print a table."""
    sessions, turns = (int(text) for text in (*sys.argv[1:], "60", "8")[:2])
    ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    print(f"{sessions} conversations of {turns} turns, {REPLICAS} replicas of {CAPACITY_TOKENS:,} tokens\n")
    print("| router | recomputed | skew | p50 | p99 |\n|---|---|---|---|---|")
    for number, (name, (path, kwargs)) in enumerate(ROUTERS.items()):
        print(f"| {name} | {measure(number, path, kwargs, sessions, turns)} |", flush=True)
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
