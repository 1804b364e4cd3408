"""Prefill and decode apart in the simulator: laws, times worked out by hand, and a reference model on random histories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_fleet import Asked, Twin, log_of

from prefixroute.costmodel import CostModel, Link, TransferPrices, find_link
from prefixroute.errors import ConfigError
from prefixroute.hashing import BlockHashes
from prefixroute.sim import EngineModel, Events, FleetChange, Perfect, RequestLog, Scenario, Split, simulate
from prefixroute.sim.replica import ReplicaStore
from prefixroute.sim.timed import TimedRun
from prefixroute.workload import Request, Workload, chat


@dataclass(frozen=True)
class Flat:
    """A second a prompt token, ten a decode step whatever the context.

    ``token_s`` a token that moves, whatever the link.
    """

    token_s: float = 0.0
    latency_s: float = 0.0
    decode_s: float = 10.0
    overhead_s: float = 0.0

    def step_seconds(
        self, prefill: Iterable[tuple[int, int]] = (), *, decodes: int = 0, decode_context_tokens: int = 0
    ) -> float:
        del decode_context_tokens
        return sum(tokens for tokens, _ in prefill) + self.decode_s * bool(decodes)

    def transfer_prices(self, link: str | Link) -> TransferPrices:
        find_link(link)
        return TransferPrices(self.latency_s, 0.0, [(self.token_s, inf)])


def text(number: int, tokens: int) -> BlockHashes:
    """Text that no other request has, in blocks of one token."""
    hashes = np.arange(tokens, dtype=np.uint64) + np.uint64((number + 1) << 32)
    return BlockHashes(hashes, token_count=tokens, block_size=1)


def asked(rows: Sequence[tuple[float, int, int]]) -> Workload:
    """Requests of (arrival, prompt tokens, output tokens), none of which shares a token."""
    requests = [
        Request(at, text(n, prompt), text(n, prompt + output - 1), prompt, output)
        for n, (at, prompt, output) in enumerate(rows)
    ]
    return Workload("asked", 1, lambda: iter(requests), len(requests))


def served(rows: Sequence[tuple[float, int, int]], cost: Any, split: Split | None, **given: Any) -> RequestLog:
    engine = EngineModel(cost, chunk_tokens=given.pop("chunk_tokens", 100), max_running=given.pop("max_running", 256))
    mixed = given.pop("replicas", 1)
    replicas = mixed if split is None else split.replicas
    scenario = Scenario(engine=engine, replicas=replicas, split=split, **({"capacity_tokens": None} | given))
    return simulate(asked(rows), scenario, cost=CostModel()).log


def column(log: RequestLog, name: str) -> np.ndarray:
    return log.in_order(log.column(name))


def random_rows(seed: int, count: int = 60, output: int | None = None) -> list[tuple[float, int, int]]:
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(40.0, count))
    prompts, outputs = rng.integers(1, 250, count), rng.integers(1, 12, count)
    return [(float(a), int(p), output or int(o)) for a, p, o in zip(at, prompts, outputs, strict=True)]


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("capacity", [None, 600])
def test_one_of_each_is_a_mixed_replica_to_requests_of_one_token(seed: int, capacity: int | None) -> None:
    """With nothing to decode and a transfer that takes no time, only prefill is left."""
    rows = random_rows(seed, output=1)
    apart = served(rows, Flat(), Split(1, 1), capacity_tokens=capacity)
    mixed = served(rows, Flat(), None, capacity_tokens=capacity)
    for name in ("start", "first_token", "finish", "hit"):
        assert column(apart, name).tolist() == column(mixed, name).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_decode_never_waits_for_the_prompts_of_others(seed: int) -> None:
    """A decode step costs the same whatever its context, so prompts show in TPOT only where they are computed."""
    rows = [(at, prompt, 8) for at, prompt, _ in random_rows(seed)]
    longer = [(at, 20 * prompt if n % 2 else prompt, 8) for n, (at, prompt, _) in enumerate(rows)]

    def tpot(rows: Sequence[tuple[float, int, int]], split: Split | None) -> np.ndarray:
        log = served(rows, Flat(), split, replicas=4)
        return (column(log, "finish") - column(log, "first_token")) / 7

    assert tpot(rows, Split(2, 2)) == pytest.approx(10.0)
    assert tpot(longer, Split(2, 2)) == pytest.approx(10.0)
    assert tpot(longer, None).mean() > 2 * tpot(rows, None).mean() > 20.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("observe", [None, Perfect(), Events(), Events(delay_s=2.0, loss=0.2)])
def test_requests_tokens_and_load_are_conserved(seed: int, observe: Any) -> None:
    workload, split = chat(seed, requests=400).scaled(2.0), Split(3, 2, "25:3ms")
    scenario = Scenario(
        engine=EngineModel(CostModel()), replicas=5, split=split, capacity_tokens=60_000, observe=observe, seed=seed
    )
    run = TimedRun(scenario, workload.block_size, scenario.engine or EngineModel(CostModel()))
    run.run(workload.requests())
    log = run.log
    assert sorted(log.column("number").tolist()) == list(range(400))
    assert {run.fleet.names[at].split("-")[0] for at in log.column("replica")} == {"prefill"}
    assert {run.fleet.names[at].split("-")[0] for at in log.column("decode")} == {"decode"}
    arrival, start, prefilled = (log.column(name) for name in ("arrival", "start", "prefilled"))
    first, finish = log.column("first_token"), log.column("finish")
    assert (arrival <= start).all()
    assert (start < prefilled).all()
    assert (prefilled + 0.003 <= first).all()
    assert (first <= finish).all()
    moved, prompt = log.column("moved"), log.column("prompt")
    assert ((moved >= 1) & (moved <= prompt)).all()
    assert ((prompt - moved) % 16 == 0).all()  # what does not move is held there in full blocks
    for router in run.front.routers:
        stats = router.stats()
        assert stats["in_flight"] == 0
        for one in stats["replicas"].values():
            assert (one["in_flight"], one["uncached_tokens"], one["decode_tokens"]) == (0, 0, 0)
    for name in run.fleet.names:
        store = run.fleet.stores[name].cache  # type: ignore[attr-defined]
        assert (store.pinned_tokens, store.running) == (0, 0)


def test_the_session_that_comes_back_moves_only_what_is_new() -> None:
    run = simulate(
        chat(1, requests=300), Scenario(engine=EngineModel(CostModel()), replicas=2, split=Split(1, 1, "1:0s"))
    )
    moved, prompt = run.log.column("moved").sum(), run.log.column("prompt").sum()
    assert moved < 0.4 * prompt
    assert run.outcome.moved_tokens == moved
    assert run.outcome.recompute_ratio > 0.05  # answers are not where the next prompt is computed


@pytest.mark.parametrize("seed", range(6))
def test_a_faster_link_is_never_slower(seed: int) -> None:
    """One of each and memory for all: requests keep their order, so each waits no longer where the link is faster."""
    rows = random_rows(seed)
    times = [
        column(served(rows, Flat(token_s, latency_s), Split(1, 1)), "first_token")
        for token_s, latency_s in ((0.0, 1e-9), (0.05, 1e-9), (0.05, 3.0), (0.5, 3.0))
    ]
    for faster, slower in pairwise(times):
        # The request joins at the end of a decode step: it may catch one 10 s earlier or later.
        assert (faster <= slower + 10.0).all()
        assert faster.mean() <= slower.mean() + 1e-9


def test_same_seed_same_bytes() -> None:
    scenario = Scenario(engine=EngineModel(CostModel()), replicas=4, split=Split(2, 2), seed=3)
    one, other = (simulate(chat(2, requests=200), scenario) for _ in range(2))
    assert one.outcome == other.outcome
    for name in ("number", "replica", "decode", "moved", "finish"):
        assert one.log.column(name).tobytes() == other.log.column(name).tobytes()


# -- worked out by hand ------------------------------------------------------------------------------------------------


def test_a_request_alone_takes_prefill_transfer_and_its_steps() -> None:
    log = served([(5.0, 50, 4)], Flat(token_s=0.5, latency_s=2.0), Split(1, 1))
    assert column(log, "start").tolist() == [5.0]
    assert column(log, "prefilled").tolist() == [55.0]
    assert column(log, "first_token").tolist() == [55.0 + 25.0 + 2.0]
    assert column(log, "finish").tolist() == [82.0 + 30.0]
    assert column(log, "moved").tolist() == [50]


def test_transfers_leave_one_after_another_and_latencies_overlap() -> None:
    log = served([(0.0, 60, 1), (0.0, 40, 1)], Flat(token_s=1.0, latency_s=5.0), Split(1, 1))
    assert column(log, "prefilled").tolist() == [60.0, 100.0]
    assert column(log, "first_token").tolist() == [125.0, 165.0]


def test_two_senders_share_the_receiver() -> None:
    log = served([(0.0, 40, 1), (0.0, 60, 1)], Flat(token_s=1.0), Split(2, 1), policy="round-robin")
    assert column(log, "first_token").tolist() == [80.0, 140.0]


def test_a_request_joins_at_the_end_of_a_decode_step() -> None:
    log = served([(0.0, 10, 9), (12.0, 10, 2)], Flat(latency_s=1.0), Split(1, 1))
    # The first decodes from 11 on, in steps of 10. The second is prefilled at 22, admitted at 31, and comes at 32.
    assert column(log, "first_token").tolist() == [11.0, 41.0]
    assert column(log, "finish").tolist() == [91.0, 51.0]


def test_the_prefill_replica_keeps_the_prompt_until_it_has_moved() -> None:
    """Room for one prompt of 80: the next one waits for the transfer of the first, not only for its prefill."""
    slow = Flat(token_s=10.0)
    log = served([(0.0, 80, 1), (1.0, 80, 1)], slow, Split(1, 1), capacity_tokens=100)
    assert column(log, "first_token").tolist() == [880.0, 1_760.0]
    assert column(log, "start").tolist() == [0.0, 880.0]


def test_a_full_decode_replica_holds_up_prefill() -> None:
    rows = [(0.0, 80, 20), (0.0, 80, 20), (0.0, 80, 20)]
    log = served(rows, Flat(), Split(1, 1), capacity_tokens=200)
    start, first, finish = (column(log, name) for name in ("start", "first_token", "finish"))
    assert first[2] >= finish[:2].min()  # no room to decode the third before one of the others has left
    assert start[2] >= first[0]  # room to prefill it once the first has moved


def test_a_preempted_request_is_computed_again_where_it_decodes() -> None:
    rows = [(0.0, 40, 60), (0.0, 40, 60)]
    workload, engine = asked(rows), EngineModel(Flat(), chunk_tokens=100)
    scenario = Scenario(engine=engine, replicas=2, split=Split(1, 1), capacity_tokens=120)
    run = simulate(workload, scenario)
    assert (run.outcome.preemptions or 0) >= 1
    assert sorted(run.log.column("number").tolist()) == [0, 1]
    assert column(run.log, "moved").tolist() == [40, 40]  # what is computed again does not move


def test_an_answer_that_a_replica_has_decoded_does_not_move_to_it_again() -> None:
    long = text(0, 130)
    first = Request(0.0, text(0, 60), text(0, 99), 60, 40, session="a")
    second = Request(900.0, text(0, 110), long, 110, 21, session="a")
    workload = Workload("two turns", 1, lambda: iter([first, second]), 2)
    scenario = Scenario(engine=EngineModel(Flat(), chunk_tokens=100), replicas=2, split=Split(1, 1))
    log = simulate(workload, scenario).log
    assert column(log, "hit").tolist() == [0, 60]  # the prefill replica has the first prompt alone
    assert column(log, "moved").tolist() == [60, 110 - 99]


# -- deaths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dies", ["prefill-0", "decode-0"])
def test_every_request_survives_the_death_of_either_half(dies: str, seed: int) -> None:
    rows = random_rows(seed)
    changes = tuple(
        FleetChange(at, action, dies)  # type: ignore[arg-type]
        for at, action in ((300.0, "die"), (700.0, "return"), (1_100.0, "die"), (1_500.0, "drain"))
        if action != "drain"
    )
    engine = EngineModel(Flat(token_s=0.05, latency_s=1.0), chunk_tokens=100)
    scenario = Scenario(
        engine=engine, replicas=4, split=Split(2, 2), capacity_tokens=900, changes=changes, seed=seed, routers=2
    )
    run = TimedRun(scenario, 1, engine)
    run.run(asked(rows).requests())
    assert sorted(run.log.column("number").tolist()) == list(range(len(rows)))
    assert run.retried > 0
    for router in run.front.routers:
        stats = router.stats()
        assert stats["in_flight"] == 0
        assert all(one["in_flight"] == 0 for one in stats["replicas"].values())
    for store in run.fleet.stores.values():
        assert store.cache.pinned_tokens == 0  # type: ignore[attr-defined]


def test_the_last_replica_of_a_kind_takes_its_requests_with_it() -> None:
    engine = EngineModel(Flat(), chunk_tokens=100)
    dies = (FleetChange(12.0, "die", "decode-0"),)
    scenario = Scenario(engine=engine, replicas=2, split=Split(1, 1), changes=dies)
    with pytest.raises(ConfigError, match=r"replica.*\b12 s"):
        simulate(asked([(0.0, 50, 4)]), scenario)


def test_a_fleet_grows_by_replicas_of_either_kind() -> None:
    engine = EngineModel(Flat(), chunk_tokens=100)
    grows = (FleetChange(1.0, "add", "decode-7"), FleetChange(1.0, "add", "prefill-7"))
    scenario = Scenario(engine=engine, replicas=2, split=Split(1, 1), changes=grows)
    run = simulate(asked(random_rows(1)), scenario)
    assert set(run.names) == {"prefill-0", "decode-0", "decode-7", "prefill-7"}
    assert all(count > 5 for count in (*run.outcome.served, *run.outcome.decoded))
    with pytest.raises(ConfigError, match=r"prefill-N.*decode-N.*'replica-9'"):
        simulate(asked(random_rows(1)), replace(scenario, changes=(FleetChange(1.0, "add", "replica-9"),)))


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"), [((0, 1), "prefill .* 0"), ((1, 0), "decode .* 0"), ((1, 1, "pigeon"), "link .*'pigeon'")]
)
def test_what_makes_no_split_is_refused(given: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Split(*given)


def test_a_cost_model_without_links_cannot_be_split() -> None:
    class Nothing:
        overhead_s = 0.0

        def step_seconds(self, *_: object, **__: object) -> float:
            return 1.0

    scenario = Scenario(engine=EngineModel(Nothing()), replicas=2, split=Split(1, 1))
    with pytest.raises(ConfigError, match="transfer_prices"):
        simulate(asked([(0.0, 5, 1)]), scenario)


def test_the_outcome_tells_both_kinds_apart() -> None:
    split = Split(1, 3, "rdma")
    run = simulate(
        chat(1, requests=300).scaled(4.0), Scenario(engine=EngineModel(CostModel()), replicas=4, split=split)
    )
    outcome = run.outcome
    assert (outcome.prefill_replicas, outcome.decode_replicas) == (1, 3)
    assert (len(outcome.served), len(outcome.decoded)) == (1, 3)
    assert sum(outcome.served) == sum(outcome.decoded) == 300
    assert outcome.skew == pytest.approx(max(outcome.decoded) * 3 / 300)
    assert 0 < (outcome.handover_mean_s or 0) < outcome.ttft.mean
    assert str(split) == "1+3"


# -- the twin ----------------------------------------------------------------------------------------------------------


class Pairs:
    """Replicas of the compiled cluster, with pairs that the test picks."""

    def __init__(self, cost: Flat, replicas: int, room: int | None, chunk: int, max_running: int) -> None:
        self.stores = [ReplicaStore(room, 1) for _ in range(replicas)]
        self.cluster = EngineModel(cost, chunk_tokens=chunk, max_running=max_running).cluster(link="rdma")
        self.replicas = [self.cluster.add(store, at) for at, store in enumerate(self.stores)]

    def serve(self, asks: Sequence[Asked]) -> RequestLog:
        for ask in asks:
            self.cluster.advance(ask.arrival)
            lengths = ask.prompt_tokens, ask.output_tokens
            texts = ask.text(ask.prompt_tokens), ask.context
            self.cluster.submit(ask.pair[0], ask.number, 0, *texts, *lengths, ask.arrival, ask.arrival, ask.pair[1])
        while self.cluster.advance(inf):
            pass
        return log_of(self.cluster)


ROWS = st.tuples(
    st.integers(0, 600),  # arrival
    st.integers(1, 200),  # prompt
    st.integers(0, 25),  # output
    st.integers(0, 3),  # pair
    st.integers(0, 2),  # group
    st.integers(0, 150),  # tokens shared in the group
)


@settings(max_examples=300)
@given(
    st.lists(ROWS, max_size=20),
    st.sampled_from([7, 100]),
    st.none() | st.integers(20, 500),
    st.integers(1, 6),
    st.sampled_from([0.000_713, 0.0371, 3.07]),
)
def test_the_cluster_keeps_time_with_its_twin(
    rows: list[tuple[int, ...]], chunk: int, room: int | None, max_running: int, token_s: float
) -> None:
    asks = [
        Asked(
            n, at + 0.25 + n / 1000, prompt, output, ((0, 2), (0, 3), (1, 2), (1, 3))[pair], group, min(shared, prompt)
        )
        for n, (at, prompt, output, pair, group, shared) in enumerate(sorted(rows))
    ]
    cost = Flat(token_s=token_s, latency_s=1e-6, decode_s=10.0123)  # so that no two steps end at one moment
    fleet = Pairs(cost, 4, room, chunk, max_running)
    log = fleet.serve(asks)
    limits: dict[str, Any] = {"chunk": chunk, "room": room, "max_running": max_running}
    twin = Twin(cost, 4, lambda tokens: tokens * token_s, cost.latency_s, **limits)
    twin.serve(asks)
    assert sorted(log.column("number").tolist()) == list(range(len(asks)))
    columns = [column(log, name) for name in ("start", "prefilled", "first_token", "finish", "moved", "hit")]
    for ask, (start, prefilled, first, finish, moved, hit) in zip(asks, zip(*columns, strict=True), strict=True):
        assert (start, prefilled, first, finish) == pytest.approx(
            (ask.started, ask.prefilled, ask.first_token, ask.finished)
        )
        assert (moved, hit) == (ask.moved, ask.hit)
    assert fleet.cluster.preempted == sum(replica.preempted for replica in twin.replicas)
    for at, replica in enumerate(fleet.replicas):
        assert (fleet.cluster.running(replica), fleet.cluster.waiting(replica)) == (0, 0)
        assert fleet.stores[at].pinned_tokens == 0
        assert fleet.stores[at].cached_tokens == len(twin.replicas[at].cache)
