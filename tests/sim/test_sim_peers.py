"""Several routers in simulation: what sharing nothing costs, and what the commit feed gives back, early or late."""

from __future__ import annotations

import pytest

from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload.spec import Spec

CHAT = "chat,requests=3600,system_tokens=0,user_tokens=220,answer_tokens=180,turns=12,slots=300,arrivals=poisson:40"
"""300 conversations of 12 turns of 400 tokens at 40 requests/s: docs/design/simulator.md has the whole table."""


def recomputed(routers: int, peer_delay_s: float | None, *, policy: str = "cache-aware") -> float:
    engine = EngineModel(CostModel())
    scenario = Scenario(policy=policy, engine=engine, routers=routers, peer_delay_s=peer_delay_s, seed=1)
    outcome = simulate(Spec.parse(CHAT)(1), scenario).outcome
    return outcome.recomputed_tokens / outcome.prompt_tokens


@pytest.mark.parametrize(
    ("routers", "peer_delay_s", "published"),
    [(1, None, 0.132), (8, None, 0.260), (8, 0.0, 0.136), (8, 0.1, 0.137)],
)
def test_sharing_commits_makes_eight_routers_as_good_as_one(
    routers: int, peer_delay_s: float | None, published: float
) -> None:
    assert recomputed(routers, peer_delay_s) == pytest.approx(published, abs=0.015)


def test_untimed_routers_share_at_once() -> None:
    workload = Spec.parse("chat,requests=1500")(1)
    runs = [
        simulate(workload, Scenario(routers=n, peer_delay_s=d)).outcome for n, d in ((1, None), (4, None), (4, 0.0))
    ]
    one, apart, shared = (outcome.recomputed_tokens / outcome.prompt_tokens for outcome in runs)
    assert shared < one + 0.02 < apart


def test_the_same_seed_gives_the_same_run() -> None:
    assert recomputed(4, 0.05) == recomputed(4, 0.05)


def test_a_delay_needs_a_clock() -> None:
    with pytest.raises(ConfigError, match=r"peer delay .*engine.*0\.1"):
        Scenario(routers=2, peer_delay_s=0.1)
    with pytest.raises(ConfigError, match=r"peer_delay_s .* 0.*-1"):
        Scenario(routers=2, peer_delay_s=-1.0, engine=EngineModel(CostModel()))


def test_one_router_has_no_peer() -> None:
    with pytest.raises(ConfigError, match=r"routers .*2.* 1"):
        Scenario(peer_delay_s=0.0)
