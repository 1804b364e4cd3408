"""The simulator beside implementations that nobody here wrote; the recorded values come from runs of those."""

from __future__ import annotations

import pytest

from prefixroute.sim import Scenario, simulate
from prefixroute.workload import chat


@pytest.mark.parametrize(("replicas", "hit_percent"), [(8, 55.4985), (2, 61.2278), (1, 64.5234)])
def test_hits_are_those_of_vllms_own_cache_manager(replicas: int, hit_percent: float) -> None:
    """``KVCacheManager`` of vLLM 0.33 on the same requests: a finished request caches prompt + output - 1 tokens."""
    scenario = Scenario(policy="round-robin", replicas=replicas, capacity_tokens=300_000)
    outcome = simulate(chat(1, requests=3_000), scenario).outcome
    assert 100 * (1 - outcome.recompute_ratio) == pytest.approx(hit_percent, abs=0.00005)
