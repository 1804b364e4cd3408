"""What a simulation costs, for every policy.

A production trace over 8 replicas, up to a million requests over 64, and growth.

    pytest benches/bench_sim.py --benchmark-enable
    PREFIXROUTE_BENCH_REQUESTS=1000000 pytest benches/bench_sim.py --benchmark-enable -k "every_policy and not untimed"

Goals on one core, in processor seconds: the trace in under 2 s per policy, a million requests in under 25 s. The lines
of chat are per request: level as requests grow means linear. ``peak_mb`` in ``--benchmark-json`` is the most memory the
process has held so far: some 90 bytes a request untimed and 120 timed (a record each, a name a session, and the sorting
at the end) beside what the caches hold.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from prefixroute.costmodel import CostModel
from prefixroute.policies import POLICIES
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import ChatShape, Poisson, Workload, chat, read_trace

TRACES = Path(os.environ.get("PREFIXROUTE_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
MOST = int(os.environ.get("PREFIXROUTE_BENCH_REQUESTS", "40000"))
MODES = {"untimed": None, "timed": EngineModel(CostModel())}


def measure(benchmark: Any, workload: Workload, scenario: Scenario, **line: Any) -> None:
    """Simulate once, and describe the line of the table."""
    outcome = benchmark.pedantic(lambda: simulate(workload, scenario).outcome, rounds=1)
    assert sum(outcome.served) == outcome.requests
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    benchmark.extra_info.update(peak_mb=peak, recompute_ratio=outcome.recompute_ratio, **line)


@pytest.fixture(scope="module")
def conversation() -> Workload:
    if not TRACES.is_dir():
        pytest.skip(f"no traces in {TRACES}: set PREFIXROUTE_TRACES")
    return read_trace(TRACES / "mooncake_conversation.jsonl.gz")


@pytest.mark.benchmark(group="simulate 12,031 requests of a trace, 8 replicas", timer=time.process_time)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_production_trace(benchmark: Any, conversation: Workload, policy: str, mode: str) -> None:
    scenario = Scenario(policy=policy, replicas=8, engine=MODES[mode])
    measure(benchmark, conversation, scenario, who=f"{policy}, {mode}", unit="s", goal="<= 2")


def measure_chat(benchmark: Any, requests: int, policy: str, mode: str) -> None:
    """Simulate 1,280 open conversations and 192 requests a second: 64 replicas are busy, but keep up."""
    workload = chat(1, requests=requests, shape=ChatShape(slots=1_280), arrivals=Poisson(192.0))
    scenario = Scenario(policy=policy, replicas=64, engine=MODES[mode])
    benchmark.group = f"simulate {requests:,} requests, 64 replicas"
    measure(benchmark, workload, scenario, who=f"{policy}, {mode}", unit="us", per=requests, goal="<= 25")


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy(benchmark: Any, policy: str, mode: str) -> None:
    measure_chat(benchmark, MOST, policy, mode)


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("requests", [MOST // 4, MOST // 2])
def test_growth(benchmark: Any, requests: int, mode: str) -> None:
    measure_chat(benchmark, requests, "cache-aware", mode)
