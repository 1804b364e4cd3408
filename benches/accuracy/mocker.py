"""Seconds of a fleet beside Dynamo's mock engine, which replays the same trace with the same cost of a step."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accuracy import mock_engine
from accuracy.comparison import Comparison
from accuracy.hits import TRACES
from prefixroute.costmodel import CostModel
from prefixroute.hashing import BlockHashes
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.sim.request_log import RequestLog
from prefixroute.workload import Request, Workload, read_trace

TRACE = "mooncake_conversation.jsonl.gz"
REPLICAS, BLOCK = 8, 512
ROUND_ROBIN = ((300_000, 1.0), (3_000_000, 3.0))
"""Tokens of a replica, and how much faster than the trace."""
GROWTH = (0.5, 0.8, 1.0, 1.3)
"""Requests a second at one replica of 60,000 tokens, of 2,000 tokens each that share nothing, with answers of 2,000."""
GROWN, MEMORY, REQUESTS, SMALL = 2_000, 60_000, 600, 64


def compare() -> Iterator[Comparison]:
    """Yield round robin on a trace, and output that grows until the engine preempts."""
    path = TRACES / TRACE
    for capacity, speed in ROUND_ROBIN:
        theirs = mock_engine.replay(
            spread(path), replicas=REPLICAS, capacity_tokens=capacity, block_size=BLOCK, speed=speed
        )
        log = round_robin(path, capacity, speed)
        yield from both("mocker", f"Mooncake conversation, round robin, {capacity:,} tokens, x{speed:g}", theirs, log)
    for rate in GROWTH:
        arrivals = np.round(np.cumsum(np.random.default_rng(3).exponential(1 / rate, REQUESTS)), 3)
        theirs = mock_engine.replay(unlike(arrivals), replicas=1, capacity_tokens=MEMORY, block_size=SMALL)
        log = run(growing(arrivals), Scenario(policy="round-robin", replicas=1, capacity_tokens=MEMORY))
        yield from both("mocker", f"output that grows, {rate} requests/s", theirs, log, with_hits=False)


def round_robin(path: Path, capacity: int, speed: float) -> RequestLog:
    """Return our log of the trace, routed in turn."""
    return run(trace(path, speed), Scenario(policy="round-robin", replicas=REPLICAS, capacity_tokens=capacity))


def mean_ttft(path: Path, capacity: int, speed: float) -> float:
    """Return our mean time to first token of the trace, routed in turn."""
    log = round_robin(path, capacity, speed)
    return float((log.column("first_token") - log.column("arrival")).mean())


def both(
    study: str, what: str, theirs: list[dict[str, Any]], log: RequestLog, *, with_hits: bool = True
) -> Iterator[Comparison]:
    """Yield mean TTFT, mean end-to-end time and, if asked for, the share of cached tokens.

    Theirs counts what a preempted request finds again as a hit; ours is the hit of its first start.
    """
    arrival = log.column("arrival")
    seconds = {
        "mean TTFT": ("ttft_ms", log.column("first_token") - arrival),
        "mean end to end": ("e2e_latency_ms", log.column("finish") - arrival),
    }
    for name, (field, ours) in seconds.items():
        mean = 1e-3 * float(np.mean([row[field] for row in theirs]))
        yield Comparison(study, f"{what}: {name}", mock_engine.source(), mean, float(ours.mean()), "s")
    reused, total = (sum(row[name] for row in theirs) for name in ("reused_input_tokens", "input_length"))
    if with_hits:
        share = 100 * float(log.column("hit").sum() / log.column("prompt").sum())
        yield Comparison(study, f"{what}: hits", mock_engine.source(), 100 * reused / total, share, "%")


def run(workload: Workload, scenario: Scenario) -> RequestLog:
    """Return our log of a timed run with the cost that both sides have."""
    cost = CostModel(step_times=mock_engine.step_times())
    engine = EngineModel(cost, chunk_tokens=mock_engine.CHUNK_TOKENS, max_running=mock_engine.MAX_RUNNING)
    return simulate(workload, replace(scenario, engine=engine), cost=cost).log


def spread(path: Path) -> list[dict[str, Any]]:
    """Return the trace's rows; those of one moment follow each other by a millisecond, so that their order is known."""
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    last, later = None, 0
    for row in rows:
        later = later + 1 if row["timestamp"] == last else 0
        last = row["timestamp"]
        row["timestamp"] = last + later
    return [{name: row[name] for name in ("timestamp", "input_length", "output_length", "hash_ids")} for row in rows]


def trace(path: Path, speed: float) -> Workload:
    """Return the trace with the same arrivals, as much faster."""
    workload = read_trace(path)
    arrivals = [row["timestamp"] * mock_engine.MILLISECOND for row in spread(path)]

    def source() -> Iterator[Request]:
        for at, request in zip(arrivals, workload.requests(), strict=True):
            yield request._replace(arrival_s=at / speed)

    return replace(workload, source=source)


def unlike(arrivals: np.ndarray) -> list[dict[str, Any]]:
    """Return rows of requests that share nothing."""
    return [
        {
            "timestamp": round(at / mock_engine.MILLISECOND),
            "input_length": GROWN,
            "output_length": GROWN,
            "hash_ids": list(range(4 * number, 4 * number + 4)),
        }
        for number, at in enumerate(arrivals)
    ]


def growing(arrivals: np.ndarray) -> Workload:
    """Return the same requests for our simulation, in blocks of 64."""
    size = 2 * GROWN // SMALL

    def source() -> Iterator[Request]:
        for number, at in enumerate(arrivals):
            ids = (np.arange(number * 100, number * 100 + size, dtype=np.uint64) + np.uint64(1)) * np.uint64(
                0x9E3779B97F4A7C15
            )
            prompt = BlockHashes(ids[: GROWN // SMALL], token_count=GROWN, block_size=SMALL)
            yield Request(float(at), prompt, BlockHashes(ids, token_count=2 * GROWN, block_size=SMALL), GROWN, GROWN)

    return Workload("output that grows", SMALL, source, len(arrivals))
