"""One replica in time, against queueing theory and against steps worked out by hand."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_fleet import Asked, Twin, log_of

from prefixroute.costmodel import CostModel, models
from prefixroute.errors import ConfigError
from prefixroute.hashing import BlockHashes
from prefixroute.sim.engine import FIRST_TOKEN, EngineModel
from prefixroute.sim.replica import ReplicaStore

CHUNK = 100


@dataclass(frozen=True)
class Ask:
    prompt_tokens: int
    output_tokens: int = 1
    hit: int = 0

    @property
    def known(self) -> int:
        return self.prompt_tokens if type(self.prompt_tokens) is int else 1


@dataclass
class Linear:
    """A second a prompt token, ten a decode step; ``draws`` replaces the time of the next steps with prompt tokens."""

    token_s: float = 1.0
    decode_s: float = 10.0
    overhead_s: float = 0.0
    draws: Iterable[float] = ()
    steps: list[tuple[tuple[tuple[int, int], ...], int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draws = iter(self.draws)

    def step_seconds(
        self, prefill: Iterable[tuple[int, int]] = (), *, decodes: int = 0, decode_context_tokens: int = 0
    ) -> float:
        chunks = tuple(prefill)
        self.steps.append((chunks, decodes, decode_context_tokens))
        seconds = next(self.draws, None) if chunks else None
        if seconds is None:
            seconds = self.token_s * sum(tokens for tokens, _ in chunks) + self.decode_s * bool(decodes)
        return seconds


@dataclass
class Job:
    """One request of a run, and its times."""

    ask: Ask
    arrival: float
    hit: int = 0
    started: float = -1.0
    first_token: float = -1.0
    finished: float = -1.0
    late: int = -1


def text(number: int, tokens: int) -> BlockHashes:
    """Text that no other request has, in blocks of one token."""
    hashes = np.arange(tokens, dtype=np.uint64) + np.uint64((number + 1) << 32)
    return BlockHashes(hashes, token_count=tokens, block_size=1)


class Fleet:
    """One replica, and the journal that the laws are read from. ``room``: tokens of its cache."""

    def __init__(self, cost: Any, room: int | None = None, late_s: float | None = None, **model: int) -> None:
        self.cost, self.store = cost, ReplicaStore(room, 1)
        self.cluster = EngineModel(cost, **({"chunk_tokens": CHUNK} | model)).cluster(late_s=late_s)
        self.replica = self.cluster.add(self.store, 0)
        self.jobs: list[Job] = []
        self.journal: list[tuple[float, int]] = []

    def arrive(self, at: float, ask: Ask) -> None:
        number = len(self.jobs)
        self.jobs.append(Job(ask, at))
        self.journal.append((at, +1))
        whole = ask.prompt_tokens + max(ask.output_tokens - 1, 0) if type(ask.prompt_tokens) is int else 1
        lengths = ask.prompt_tokens, ask.output_tokens
        self.cluster.submit(self.replica, number, 0, text(number, ask.known), text(number, whole), *lengths, at, at)

    def advance(self, until: float) -> list[tuple[int, float, int, Any]]:
        told = self.cluster.advance(until)
        for kind, at, number, hit in told:
            if kind == FIRST_TOKEN:
                self.jobs[number].first_token = at
            else:
                self.jobs[number].finished, self.jobs[number].hit = at, hit
                self.journal.append((at, -1))
        return told

    def run(self, asks: Iterable[tuple[float, Ask]]) -> list[Job]:
        asks = list(asks)
        for number, (_, ask) in enumerate(asks):
            self.store.serve(text(number, ask.hit), text(number, ask.hit))
        for at, ask in asks:
            self.advance(at)
            self.arrive(at, ask)
        while self.advance(inf):
            pass
        log = log_of(self.cluster)
        columns = (log.in_order(log.column(name)).tolist() for name in ("start", "late"))
        for job, started, late in zip(self.jobs, *columns, strict=True):
            job.started, job.late = started, late
        return self.jobs

    @property
    def idle(self) -> bool:
        return self.cluster.running(self.replica) == self.cluster.waiting(self.replica) == self.store.pinned_tokens == 0

    @property
    def busy_s(self) -> float:
        return self.cluster.busy_s(self.replica)


def poisson(rate: float, count: int, seed: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


@pytest.mark.parametrize("kind", ["M/M/1", "M/D/1"])
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_single_server_waits_as_theory_says(kind: str, load: float) -> None:
    count, service = 60_000, 1.0
    draws = np.random.default_rng(5).exponential(service, count) if kind == "M/M/1" else np.full(count, service)
    fleet = Fleet(Linear(draws=draws), max_running=1)
    jobs = fleet.run((at, Ask(CHUNK)) for at in poisson(load / service, count, 6))
    waited = np.mean([job.started - job.arrival for job in jobs])
    half = 1.0 if kind == "M/M/1" else 0.5
    expected = half * load / (1 - load) * service
    # Asymptotic variance of the mean wait in M/M/1 (Daley 1968); M/D/1 varies about half as much.
    deviation = half * (load * (load**3 - 4 * load**2 + 5 * load + 2) / (1 - load) ** 4 / count) ** 0.5
    assert waited == pytest.approx(expected, abs=4 * deviation)
    assert 4 * deviation < 0.25 * expected  # else the test could not fail
    assert fleet.busy_s == pytest.approx(draws.sum())


def random_run(seed: int, **model: int) -> tuple[Fleet, list[Job]]:
    rng = np.random.default_rng(seed)
    fleet = Fleet(Linear(), room=None, **({"max_running": 6} | model))
    sizes = zip(rng.integers(1, 400, 500), rng.integers(1, 12, 500), rng.uniform(0, 0.99, 500), strict=True)
    asks = [Ask(int(prompt), int(output), int(prompt * share)) for prompt, output, share in sizes]
    return fleet, fleet.run(zip(poisson(1 / 150, 500, seed).tolist(), asks, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_requests_are_conserved_and_their_times_are_in_order(seed: int) -> None:
    fleet, jobs = random_run(seed)
    assert len(jobs) == 500
    assert fleet.idle
    for job in jobs:
        assert job.arrival <= job.started < job.first_token <= job.finished
        assert (job.first_token == job.finished) == (job.ask.output_tokens == 1)
        assert job.hit == min(job.ask.hit, job.ask.prompt_tokens - 1)
    assert all(one.started <= other.started for one, other in pairwise(jobs))


@pytest.mark.parametrize("seed", range(4))
def test_no_replica_idles_beside_its_queue(seed: int) -> None:
    fleet, jobs = random_run(seed)
    present, idle, last = 0, 0.0, 0.0
    for at, change in sorted(fleet.journal):
        idle += (at - last) * (present == 0)
        present, last = present + change, at
    assert fleet.busy_s == pytest.approx(last - idle)
    assert sum(decodes for _, decodes, _ in fleet.cost.steps) > 0  # else this says little
    computed = sum(tokens for chunks, _, _ in fleet.cost.steps for tokens, _ in chunks)
    assert computed == sum(job.ask.prompt_tokens - job.hit for job in jobs)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 600), st.integers(1, 300), st.integers(0, 30), st.integers(0, 300)), max_size=25),
    st.sampled_from([1, 7, CHUNK]),
    st.none() | st.integers(20, 700),
    st.integers(1, 6),
)
def test_the_engine_keeps_time_with_its_twin_of_single_steps(
    rows: list[tuple[int, int, int, int]], chunk: int, room: int | None, max_running: int
) -> None:
    # Steps take whole seconds and no two requests share a fraction of one: none arrives at the boundary of two steps.
    asks = [
        Asked(number, at + 0.25 + number / 1000, prompt, output)
        for number, (at, prompt, output, _) in enumerate(sorted(rows))
    ]
    fleet = Fleet(Linear(), room=room, late_s=12.5, chunk_tokens=chunk, max_running=max_running)
    held = [min(hit, prompt) for _, prompt, _, hit in sorted(rows)]
    given = zip(asks, held, strict=True)
    jobs = fleet.run((ask.arrival, Ask(ask.prompt_tokens, ask.output_tokens, hit)) for ask, hit in given)
    twin = Twin(Linear(), chunk=chunk, room=room, max_running=max_running)
    for ask, hit in zip(asks, held, strict=True):
        twin.replicas[0].cache.serve(ask.text(hit), ask.text(hit))
    twin.serve(asks)
    for job, ask in zip(jobs, asks, strict=True):
        times = ask.started, ask.first_token, ask.finished
        assert (job.started, job.first_token, job.finished) == pytest.approx(times)
        assert job.late == sum(gap > 12.5 for gap in ask.gaps)
    assert fleet.cluster.preempted == twin.replicas[0].preempted
    assert fleet.idle
    gaps = [seconds for seconds, count in fleet.cluster.gaps() for _ in range(count)]
    assert gaps == pytest.approx(sorted(gap for ask in asks for gap in ask.gaps), rel=0.004)


class Asking(CostModel):
    """The same prices by a formula of its own, which the engine has to call."""

    __slots__ = ()

    def step_seconds(self, *chunks: object, **decodes: int) -> float:
        return super().step_seconds(*chunks, **decodes)  # type: ignore[arg-type]


@pytest.mark.parametrize("gpu", ["H100", "L40S"])
@pytest.mark.parametrize("model", sorted(models()))
def test_the_compiled_roofline_is_the_cost_models_to_the_last_bit(model: str, gpu: str) -> None:
    rng = np.random.default_rng(3)
    times = []
    sizes = rng.integers(1, 5_000, (300, 2)).tolist()
    asks = [(at, Ask(*pair)) for at, pair in zip(poisson(9.0, 300, 4), sizes, strict=True)]
    for cost in (CostModel, Asking):
        fleet = Fleet(cost(gpu, model, tensor_parallel=8), chunk_tokens=700)  # type: ignore[arg-type]
        times.append([(job.started, job.first_token, job.finished) for job in fleet.run(asks)])
    assert times[0] == times[1]


def test_littles_law() -> None:
    fleet, jobs = random_run(7)
    area = present = last = 0.0
    for at, change in sorted(fleet.journal):
        area += present * (at - last)
        present, last = present + change, at
    assert area == pytest.approx(sum(job.finished - job.arrival for job in jobs))


def test_chunks_are_filled_across_requests_and_decode_rides_along() -> None:
    cost = Linear()
    first, second = Fleet(cost).run([(0.0, Ask(150, 3)), (1.0, Ask(120, 1, hit=40))])
    chunks = [step[0] for step in cost.steps if step[0]]
    # The first request arrives at an idle engine and fills a step alone; its rest shares the next.
    assert chunks == [((100, 0),), ((50, 100), (50, 40)), ((30, 90),)]
    assert [step[1] for step in cost.steps] == [0, 0, 1, 1]
    assert first.first_token == 200.0
    assert second.first_token == first.first_token + 30 + 10
    assert first.finished == second.first_token + 10


def test_an_arrival_waits_for_the_decode_step_under_way_and_no_longer() -> None:
    early, late = Fleet(Linear()).run([(0.0, Ask(10, 100)), (35.0, Ask(5))])
    assert early.first_token == 10.0
    assert (late.started, late.first_token) == (40.0, 40.0 + 5 + 10)
    assert early.finished == 10 + 99 * 10 + 5  # one decode step is longer by the prefill of the other


def test_the_context_of_decode_is_what_was_computed() -> None:
    cost = Linear()
    Fleet(cost).run([(0.0, Ask(10, 4)), (0.0, Ask(20, 2))])
    # Both decode in steps 3 and on: (10 + 1 done) and 20, then the first alone.
    assert [(decodes, context) for chunks, decodes, context in cost.steps if decodes] == [(1, 10), (2, 31), (1, 12)]


def test_a_full_cache_delays_admission_until_a_request_ends() -> None:
    first, second = Fleet(Linear(), room=20).run([(0.0, Ask(10, 5)), (1.0, Ask(15))])
    assert second.started == first.finished


def test_an_answer_that_grows_takes_the_room_of_the_request_that_came_last() -> None:
    """Two prompts of 10 tokens in 40: after ten decode steps both hold 20, and the second goes back to the queue."""
    fleet = Fleet(Linear(), room=40)
    first, second = fleet.run([(0.0, Ask(10, 16)), (0.0, Ask(10, 16))])
    assert fleet.cluster.preempted == 1
    assert first.finished < second.finished
    alone = first.finished - second.first_token
    assert second.finished - first.finished < alone + 100  # most of what it had computed is still in the cache
    assert fleet.idle


def test_one_request_may_be_larger_than_the_cache() -> None:
    fleet = Fleet(Linear(), room=20)
    (grown,) = fleet.run([(0.0, Ask(10, 100))])
    assert (grown.finished, fleet.store.oversized, fleet.cluster.preempted) == (10 + 990.0, 1, 0)


def test_stopping_gives_back_every_request_and_nothing_runs_on() -> None:
    fleet = Fleet(Linear(), max_running=2)
    for at, ask in ((0.0, Ask(10, 50)), (1.0, Ask(300)), (2.0, Ask(10))):
        fleet.advance(at)
        fleet.arrive(at, ask)
    fleet.advance(15.0)
    assert fleet.cluster.stop(fleet.replica, 15.0) == ([0, 1, 2], [], 15.0)
    assert fleet.advance(inf) == []
    assert fleet.cluster.running(fleet.replica) == fleet.cluster.waiting(fleet.replica) == 0


def test_a_limit_beyond_the_machine_is_none() -> None:
    (job,) = Fleet(Linear(), chunk_tokens=1 << 70, max_running=1 << 70).run([(0.0, Ask(1_000))])
    assert job.finished == 1_000.0


@pytest.mark.parametrize("field_name", ["chunk_tokens", "max_running"])
def test_counts_below_one_are_refused(field_name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{field_name} .* 1.* 0"):
        EngineModel(Linear(), **{field_name: 0})


@pytest.mark.parametrize(("at", "wrong"), [(0, 0), (0, 2**32 + 1), (0, 10.5), (1, -1), (1, 2**32 + 1)])
def test_requests_of_impossible_length_are_refused_and_leave_the_engine_idle(at: int, wrong: Any) -> None:
    fleet, lengths = Fleet(Linear()), [10, 1]
    lengths[at] = wrong
    with pytest.raises(ConfigError, match=rf"[01]\.\.=4294967296.* {wrong}"):
        fleet.cluster.submit(fleet.replica, 99, 0, text(99, 1), text(99, 1), *lengths, 0.0, 0.0)
    assert [job.finished for job in fleet.run([(0.0, Ask(10))])] == [10.0]


def test_a_price_that_cannot_be_had_or_is_no_time_ends_the_run() -> None:
    fleet = Fleet(Linear(draws=[float("nan")]))
    with pytest.raises(ValueError, match=r"event.*(?i:nan)"):
        fleet.run([(0.0, Ask(10))])
    fleet = Fleet(Linear())
    fleet.cost.step_seconds = lambda *_, **__: 1 / 0
    with pytest.raises(ZeroDivisionError):
        fleet.run([(0.0, Ask(10))])


def test_a_context_that_is_not_of_its_prompt_is_refused() -> None:
    fleet = Fleet(Linear())
    fleet.cluster.submit(fleet.replica, 0, 0, text(0, 5), text(1, 9), 5, 4, 0.0, 0.0)
    with pytest.raises(ConfigError, match="prompt"):
        fleet.cluster.advance(inf)


def test_a_run_that_was_given_up_is_collected() -> None:
    fleet = Fleet(Linear(), max_running=1)
    fleet.arrive(0.0, Ask(10, 5))
    gone = weakref.ref(fleet)
    del fleet
    gc.collect()
    assert gone() is None
