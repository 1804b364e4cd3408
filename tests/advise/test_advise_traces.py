"""The advisor on public traces: real and made-up sessions, keys and none, coarse blocks and fine ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contradictions import assert_not_contradicted

import prefixroute
from prefixroute.advise import Advice, Question, advise
from prefixroute.advise.choice import BY_TOKENS, JUDGED, OBJECTIVES, choose
from prefixroute.advise.sample import METRICS, Gaps
from prefixroute.report import answer
from prefixroute.sim import Scenario
from prefixroute.workload import read_trace

LARGE = Scenario(replicas=8, capacity_tokens=3_000_000)


@pytest.mark.parametrize(
    ("name", "requests", "policy", "router"),
    [
        # Prompts bring very unequal numbers of new tokens: counts of requests balance badly.
        ("mooncake_conversation", 2_000, "lmetric", ("lmetric", "requests")),
        ("mooncake_synthetic", 2_000, BY_TOKENS, ("cache-aware:spill_gap=16384", "uncached_tokens")),
        ("claude_code_weka", 400, "lmetric", ("lmetric", "requests")),
        # Its agents share heads of 64 tokens; the default minimum costs more at the busiest replica.
        ("lmcache_agents", 600, "cache-aware:min_match_tokens=80", ("cache-aware:min_match_tokens=80", "requests")),
    ],
)
def test_public_traces_get_advice(
    traces_dir: Path, name: str, requests: int, policy: str, router: tuple[str, str]
) -> None:
    workload = read_trace(traces_dir / f"{name}.jsonl.gz").head(requests)
    advice = advise(workload, Question(scenario=LARGE, seeds=1, policies=()))
    assert advice.deployment is not None
    assert (advice.policy, advice.deployment.policy, advice.deployment.load) == (policy, *router)
    document = json.loads(advice.to_json())
    rows = {row["policy"]: row for row in document["comparison"]["rows"]}
    assert rows[advice.policy]["recompute_ratio"] < rows["round-robin"]["recompute_ratio"] - 0.05
    assert all(row["floor"] <= row["recompute_ratio"] + 1e-9 for row in rows.values())
    shares = [document["profile"][name] for name in ("floor", "shared_head", "shared_session", "shared_others")]
    assert sum(shares) == pytest.approx(1.0)
    assert answer(advice).headline.startswith(router[0].split(":")[0])
    assert_not_contradicted(advice)
    names: dict[str, object] = {"pr": prefixroute, "replicas": ["a", "b"]}
    exec(advice.deployment.python, names)  # noqa: S102 - the line that users paste
    assert isinstance(names["router"], prefixroute.Router)

    randomised(advice)


def randomised(advice: Advice) -> None:
    """Choose again from the table of the trace with other figures and intervals: the choice never contradicts it."""
    rng = np.random.default_rng(7)
    found = advice.comparison
    for _ in range(50):
        factors = rng.lognormal(0.0, 0.2, (len(JUDGED), len(found.rows)))
        rows = tuple(
            replace(
                row, **{metric: getattr(row, metric) * factor for metric, factor in zip(JUDGED, column, strict=True)}
            )
            for row, column in zip(found.rows, factors.T, strict=True)
        )
        ends = found.gaps.ends.copy()
        for metric in JUDGED:
            values = np.array([getattr(row, metric) for row in rows])
            half = rng.uniform(0, 0.3) * values.min()
            apart = values[:, None] - values[None, :]
            ends[METRICS.index(metric)] = np.stack([apart, apart - half, apart + half], axis=2)
        table = replace(found, rows=rows, gaps=Gaps(found.gaps.policies, ends))
        choice = choose(table, objective=str(rng.choice(list(OBJECTIVES))), among=[row.policy for row in rows])
        again = replace(
            advice,
            policy=choice.policy,
            row=table.row(choice.policy),
            choice=choice,
            comparison=table.against(choice.policy),
            saving=None,
            need=None,
            deployment=None,
        )
        assert_not_contradicted(again)
