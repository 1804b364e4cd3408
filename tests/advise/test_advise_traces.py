"""The advisor on public traces: real and made-up sessions, keys and none, coarse blocks and fine ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import prefixroute
from prefixroute.advise import Advice, Question, advise
from prefixroute.advise.choice import beats
from prefixroute.report import answer
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
    assert advice.policy.split(",")[0] in policies
    document = json.loads(advice.to_json())
    rows = {row["policy"]: row for row in document["comparison"]["rows"]}
    assert rows[advice.policy]["recompute_ratio"] < rows["round-robin"]["recompute_ratio"] - 0.05
    assert all(row["floor"] <= row["recompute_ratio"] + 1e-9 for row in rows.values())
    shares = [document["profile"][name] for name in ("floor", "shared_head", "shared_session", "shared_others")]
    assert sum(shares) == pytest.approx(1.0)
    assert answer(advice).headline.startswith(advice.policy)
    assert_not_contradicted(advice)
    names: dict[str, object] = {"pr": prefixroute, "replicas": ["a", "b"]}
    assert advice.deployment is not None
    exec(advice.deployment.python, names)  # noqa: S102 - the line that users paste
    assert isinstance(names["router"], prefixroute.Router)


def assert_not_contradicted(advice: Advice) -> None:
    """No policy that may be advised is plainly better in the table than the one that is."""
    assert advice.choice is not None
    gone = {one.policy for one in advice.choice.rejected}
    for row in advice.comparison.rows:
        if row.policy not in gone:
            assert not beats(advice.comparison, row.policy, advice.policy)
