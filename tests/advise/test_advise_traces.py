"""The advisor on public traces: real and made-up sessions, keys and none, coarse blocks and fine ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefixroute.advise import Question, advise
from prefixroute.sim import Scenario
from prefixroute.workload import read_trace

LARGE = Scenario(replicas=8, capacity_tokens=3_000_000)


@pytest.mark.parametrize(
    ("name", "requests", "policies"),
    [
        ("mooncake_conversation", 2_000, {"cache-aware"}),
        ("mooncake_synthetic", 2_000, {"cache-aware"}),
        ("claude_code_weka", 400, {"session", "cache-aware"}),
        ("lmcache_agents", 600, {"session", "cache-aware"}),
    ],
)
def test_public_traces_get_advice(traces_dir: Path, name: str, requests: int, policies: set[str]) -> None:
    workload = read_trace(traces_dir / f"{name}.jsonl.gz").head(requests)
    advice = advise(workload, Question(scenario=LARGE, seeds=1, policies=()))
    assert advice.policy in policies
    document = json.loads(advice.to_json())
    rows = {row["policy"]: row for row in document["comparison"]["rows"]}
    assert rows[advice.policy]["recompute_ratio"] < rows["round-robin"]["recompute_ratio"] - 0.05
    assert all(row["floor"] <= row["recompute_ratio"] + 1e-9 for row in rows.values())
    shares = [document["profile"][name] for name in ("floor", "shared_head", "shared_session", "shared_others")]
    assert sum(shares) == pytest.approx(1.0)
    assert advice.text().startswith(f"Advice for {workload.name} on 8 replicas: {advice.policy}")
