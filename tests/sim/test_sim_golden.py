"""The numbers the project grew from: both tables of the reference article, and the same traffic on a faithful cache.

Expected values and deviations of one run are means over 200 seeds of the reconstructed model. Tolerances are those
of means over 20 seeds; fewer seeds widen them by three standard errors, no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

import pytest

from prefixroute.costmodel import CostModel
from prefixroute.sim import Perfect, Scenario, floor, simulate
from prefixroute.sim.metrics import Outcome
from prefixroute.sim.scenario import CacheKind
from prefixroute.workload import Workload, chat, documents, read_trace

pytestmark = pytest.mark.golden

UNLIMITED = None
ARTICLE = 300_000
COST = CostModel(preset="article")
PUBLISHED_SEEDS = 20


@dataclass(frozen=True)
class Cell:
    """A cell of a published table.

    Percent recomputed with the deviation of a run, dollars, and the range of the skew.
    """

    source: Callable[[int], Workload]
    policy: str
    replicas: int
    percent: float
    deviation: float
    tolerance: float = 0.3
    capacity: int | None = ARTICLE
    usd: float | None = None
    skew: tuple[float, float] = (1.0, 1.2)

    def __str__(self) -> str:
        capacity = "" if self.capacity else "-unlimited"
        return f"{self.source.__name__}-{self.policy}-{self.replicas}{capacity}"


ENTRIES = [
    Cell(chat, "round-robin", 1, 48.62, 0.15),
    Cell(chat, "round-robin", 2, 48.99, 0.15),
    Cell(chat, "round-robin", 4, 49.69, 0.15),
    Cell(chat, "round-robin", 8, 51.00, 0.15, usd=127.56, skew=(1.0, 1.001)),
    Cell(chat, "round-robin", 4, 25.85, 0.15, capacity=UNLIMITED),
    Cell(chat, "round-robin", 8, 39.35, 0.15, capacity=UNLIMITED),
    Cell(chat, "session", 2, 34.70, 0.18),
    Cell(chat, "session", 4, 12.59, 0.15),
    Cell(chat, "session", 8, 3.74, 0.02, usd=9.63, skew=(1.03, 1.11)),
    Cell(chat, "cache-aware", 2, 34.68, 0.18),
    Cell(chat, "cache-aware", 4, 12.14, 0.15),
    Cell(chat, "cache-aware", 8, 4.27, 0.05, usd=10.95, skew=(1.0, 1.1)),
    Cell(documents, "random", 8, 60.61, 0.31, tolerance=0.5, usd=497.8, skew=(1.0, 1.05)),
    Cell(documents, "document", 8, 17.92, 0.38, tolerance=0.7, usd=148.0, skew=(1.3, 3.2)),
    Cell(documents, "cache-aware", 8, 19.09, 0.25, tolerance=0.5, usd=157.6, skew=(1.0, 1.1)),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield pool


def run(cell: Cell, cache: CacheKind, seed: int) -> Outcome:
    scenario = Scenario(
        policy=cell.policy,
        replicas=cell.replicas,
        cache=cache,
        capacity_tokens=cell.capacity,
        observe=Perfect(),
        seed=seed,
    )
    return simulate(cell.source(seed), scenario, cost=COST).outcome


@pytest.mark.parametrize("cell", ENTRIES, ids=str)
def test_the_seed_tables_are_reproduced(cell: Cell, golden_seeds: int, pool: Executor) -> None:
    seeds = golden_seeds
    outcomes = list(pool.map(partial(run, cell, "entries"), range(1, seeds + 1)))
    slack = 3 * cell.deviation * max(0.0, 1 / math.sqrt(seeds) - 1 / math.sqrt(PUBLISHED_SEEDS))
    assert 100 * mean(one.recompute_ratio for one in outcomes) == pytest.approx(
        cell.percent, abs=cell.tolerance + slack
    )
    assert all(one.requests == 40_000 for one in outcomes)
    if cell.usd:
        dollars = mean(one.usd_per_million_requests for one in outcomes)
        assert dollars == pytest.approx(cell.usd, rel=0.02 + slack / cell.percent)
    low, high = cell.skew
    assert low <= mean(one.skew for one in outcomes) <= high


@pytest.mark.parametrize(
    "cell",
    [
        Cell(chat, "round-robin", 1, 41.2, 0.0, tolerance=0.5),
        Cell(chat, "round-robin", 8, 46.9, 0.0, tolerance=0.5, usd=117.4),
        Cell(chat, "session", 8, 3.863, 0.0, tolerance=0.02, usd=10.07),  # mean of 20 seeds; one run: 0.002 about it
    ],
    ids=str,
)
def test_the_same_traffic_on_a_cache_of_blocks(cell: Cell) -> None:
    outcome = run(cell, "blocks", 1)
    assert 100 * outcome.recompute_ratio == pytest.approx(cell.percent, abs=cell.tolerance)
    if cell.usd:
        assert outcome.usd_per_million_requests == pytest.approx(cell.usd, rel=0.02)


def test_floors_of_chat() -> None:
    assert 100 * floor(chat(1), "entries") == pytest.approx(3.636, abs=0.05)
    assert 100 * floor(chat(1)) == pytest.approx(3.857, abs=0.05)  # the last token of an answer has no keys and values


def test_random_routing_with_unlimited_caches_follows_the_closed_form() -> None:
    """A conversation's turn k misses 600 N (1 - (1 - 1/N)^k) - 400 tokens if its replicas are drawn at random."""
    replicas, prompts = 4, [2_200 + 600 * turn for turn in range(12)]
    missing = [600 * replicas * (1 - (1 - 1 / replicas) ** (turn + 1)) - 400 for turn in range(12)]
    scenario = Scenario(policy="random", replicas=replicas, cache="entries", capacity_tokens=UNLIMITED)
    ratio = simulate(chat(1), scenario).outcome.recompute_ratio
    assert ratio == pytest.approx(sum(missing) / sum(prompts), abs=0.01)


@pytest.mark.parametrize(("cached", "ms"), [(0, 338.03), (2_000, 269.32), (8_600, 8.71)])
def test_ttft_of_turn_twelve_on_an_empty_gpu(cached: int, ms: float) -> None:
    assert 1e3 * COST.prefill_seconds(8_800 - cached, cached) == pytest.approx(ms, abs=0.01)


@pytest.fixture(scope="module")
def conversation(traces_dir: Path) -> Workload:
    return read_trace(traces_dir / "mooncake_conversation.jsonl.gz")


def test_the_floor_of_a_production_trace(conversation: Workload) -> None:
    assert 100 * floor(conversation) == pytest.approx(62.66, abs=0.005)


def test_cache_aware_does_not_follow_the_one_block_that_all_prompts_share(conversation: Workload) -> None:
    outcome = simulate(conversation, Scenario(policy="cache-aware", replicas=8)).outcome
    assert outcome.requests == 12_031
    assert outcome.skew < 1.3
