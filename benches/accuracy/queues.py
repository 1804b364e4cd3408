"""Waiting times: equal requests at random moments at one replica, beside Lindley's recursion on the same arrivals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accuracy.comparison import Comparison
from prefixroute.costmodel import CostModel
from prefixroute.hashing import BlockHashes
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import Request, Workload

PROMPT, BLOCK, REQUESTS = 8_192, 16, 20_000
LOADS = (0.3, 0.5, 0.7, 0.9)
COST = CostModel()
SERVICE_S = COST.step_seconds([(PROMPT, 0)])


def compare() -> Iterator[Comparison]:
    """Yield the mean time to first token at each load."""
    for load in LOADS:
        arrivals = np.cumsum(np.random.default_rng(7).exponential(SERVICE_S / load, REQUESTS))
        what, mean = f"M/D/1 at load {load}: mean TTFT", lindley(arrivals, SERVICE_S)
        yield Comparison("queues", what, "Lindley's recursion", mean, simulated(arrivals), "s")


def simulated(arrivals: np.ndarray) -> float:
    """Return the mean time to first token of our engine, which runs one request at a time."""
    engine = EngineModel(COST, max_running=1)
    scenario = Scenario(policy="round-robin", replicas=1, engine=engine, capacity_tokens=None)
    log = simulate(alike(arrivals), scenario).log
    return float((log.column("first_token") - log.column("arrival")).mean())


def lindley(arrivals: np.ndarray, service: float) -> float:
    """Return the mean of waiting plus service, where each waits for what is left of all before it."""
    waits, wait = [0.0], 0.0
    for gap in np.diff(arrivals):
        wait = max(0.0, wait + service - gap)
        waits.append(wait)
    return float(np.mean(waits)) + service


def alike(arrivals: np.ndarray) -> Workload:
    """Return requests of equal length that share nothing, with an answer of one token."""

    def source() -> Iterator[Request]:
        for number, at in enumerate(arrivals):
            first = number * PROMPT
            ids = np.arange(first, first + PROMPT // BLOCK, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            blocks = BlockHashes(ids + np.uint64(1), token_count=PROMPT, block_size=BLOCK)
            yield Request(float(at), blocks, blocks, PROMPT, 1)

    return Workload("equal requests", BLOCK, source, len(arrivals))
