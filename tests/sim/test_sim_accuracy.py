"""The simulator beside implementations that nobody here wrote; the recorded values come from runs of those."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from prefixroute.draws import chain
from prefixroute.hashing import BlockHashes
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import Request, Workload, chat
from prefixroute.workload.streams import chain_key


@pytest.mark.parametrize(("replicas", "hit_percent"), [(8, 55.4985), (2, 61.2278), (1, 64.5234)])
def test_hits_are_those_of_vllms_own_cache_manager(replicas: int, hit_percent: float) -> None:
    """``KVCacheManager`` of vLLM 0.33 on the same requests: a finished request caches prompt + output - 1 tokens."""
    scenario = Scenario(policy="round-robin", replicas=replicas, capacity_tokens=300_000)
    outcome = simulate(chat(1, requests=3_000), scenario).outcome
    assert 100 * (1 - outcome.recompute_ratio) == pytest.approx(hit_percent, abs=0.00005)


class Linear:
    """Steps as both sides were given them: a price a prompt token, and one a decode step with its context."""

    overhead_s = 0.0

    def step_seconds(
        self, prefill: Iterable[tuple[int, int]] = (), *, decodes: int = 0, decode_context_tokens: int = 0
    ) -> float:
        computed = 3.3165e-5 * sum(tokens for tokens, _ in prefill)
        return computed + (0.006 + 5.5021e-8 * decode_context_tokens if decodes else 0.0)


def growing(rate: float) -> Workload:
    """600 prompts of 2,000 tokens that nobody shares, with answers of 2,000."""
    times = np.round(np.cumsum(np.random.default_rng(3).exponential(1 / rate, 600)), 3)

    def source() -> Iterator[Request]:
        for number, time in enumerate(times.tolist()):
            hashes = chain(chain_key(0, "growing", number), 0, 62)
            context = BlockHashes(hashes, token_count=3_999, block_size=64)
            yield Request(time, context.head(31, 2_000), context, 2_000, 2_000)

    return Workload("growing", 64, source, 600)


@pytest.mark.parametrize(
    ("rate", "ttft_s", "e2e_s", "preempted"),
    [(0.5, 0.079, 15.24, 1), (0.8, 0.438, 18.19, 54), (1.0, 8.628, 29.72, 159), (1.3, 55.661, 80.02, 234)],
)
def test_answers_that_grow_wait_as_in_a_mock_engine(rate: float, ttft_s: float, e2e_s: float, preempted: int) -> None:
    """Dynamo 1.6.1's mock vLLM engine: 1 replica, 60,000 tokens; ``preempted`` is how many of its requests were."""
    scenario = Scenario(policy="round-robin", replicas=1, engine=EngineModel(Linear()), capacity_tokens=60_000)
    outcome = simulate(growing(rate), scenario).outcome
    assert outcome.ttft.mean == pytest.approx(ttft_s, rel=0.1)
    assert outcome.e2e is not None
    assert outcome.e2e.mean == pytest.approx(e2e_s, rel=0.1)
    assert outcome.preemptions is not None
    assert preempted <= outcome.preemptions <= 2 * preempted
