"""The fleet in time: laws that hold whatever the policy, and the router's view of it."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from prefixroute.advise.behind import replicas_behind
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.hashing import BlockHashes
from prefixroute.policies import POLICIES as POLICIES_OF_THE_PACKAGE
from prefixroute.policies import MinTtft, Policy, View, presets
from prefixroute.policies.view import SIGNALS
from prefixroute.router import Decision
from prefixroute.sim import (
    EngineModel,
    Events,
    FleetChange,
    Perfect,
    Promise,
    ResultRow,
    Scenario,
    Sweep,
    Tier,
    simulate,
    sweep,
)
from prefixroute.sim.front import Front
from prefixroute.sim.scenario import replica_names
from prefixroute.sim.timed import LET_GO_EVERY, TimedRun
from prefixroute.workload import Poisson, Request, Workload, chat, few_shot

COST = CostModel()
ENGINE = EngineModel(COST)
POLICIES = ("round-robin", "least-loaded", "session", "cache-aware")


def busy_chat(seed: int = 1, requests: int = 1_500, rate: float = 60.0) -> Workload:
    return chat(seed, requests=requests, arrivals=Poisson(rate))


def timed(policy: str | Policy = "cache-aware", **settings: object) -> Scenario:
    return Scenario(policy=policy, replicas=4, engine=ENGINE, **settings)  # type: ignore[arg-type]


def inspected(workload: Workload, scenario: Scenario) -> TimedRun:
    run = TimedRun(scenario, workload.block_size, ENGINE)
    run.run(workload.requests())
    return run


LATE = {
    "events half a minute late": {"observe": Events(delay_s=30.0)},
    "events ten minutes late": {"observe": Events(delay_s=600.0)},
    "a drain": {"changes": (FleetChange(3_600, "drain", "replica-0"),)},
    "a death": {"changes": (FleetChange(3_600, "die", "replica-0"),)},
    "a replica more": {"changes": (FleetChange(3_600, "add", "replica-9"),)},
}


@pytest.mark.parametrize("late", LATE)
def test_what_happens_after_the_last_answer_leaves_no_mark_on_the_time_busy(late: str) -> None:
    workload = busy_chat(requests=300)
    plain, changed = (simulate(workload, timed("session", **more)).outcome for more in ({}, LATE[late]))
    assert changed.busy == plain.busy


def test_a_replica_lives_from_the_first_request_to_the_last_answer_or_its_death() -> None:
    workload = busy_chat(requests=300)
    plain = inspected(workload, timed("session"))
    start, end = plain.log.column("arrival").min(), plain.log.column("finish").max()
    assert plain.alive_s(plain.fleet.names) == pytest.approx(4 * (end - start))
    changes = FleetChange(start + 1.0, "die", "replica-1"), FleetChange(start + 2.0, "add", "replica-4")
    changed = inspected(workload, timed("session", changes=changes))
    end = changed.log.column("finish").max()
    assert changed.alive_s(changed.fleet.names) == pytest.approx(3 * (end - start) + 1.0 + (end - start - 2.0))
    shifted = replace(
        workload, source=lambda: (one._replace(arrival_s=one.arrival_s + 500) for one in workload.requests())
    )
    later, names = inspected(shifted, timed("session")), plain.fleet.names
    assert later.alive_s(names) == pytest.approx(plain.alive_s(names))


@pytest.mark.parametrize("policy", POLICIES)
def test_requests_and_blocks_are_conserved_and_times_are_in_order(policy: str) -> None:
    workload = busy_chat()
    run = inspected(workload, timed(policy))
    log = run.log
    assert len(log) == 1_500
    assert log.column("prompt").sum() == sum(one.prompt_tokens for one in workload.requests())
    assert np.array_equal(np.sort(log.column("arrival")), [one.arrival_s for one in workload.requests()])
    arrival, start, first, finish = (log.column(name) for name in ("arrival", "start", "first_token", "finish"))
    assert (arrival <= start).all()
    assert (start < first).all()
    assert (first <= finish).all()
    assert (np.diff(finish) >= 0).all()
    for store in run.fleet.stores.values():
        assert store.cache.running == store.cache.pinned_tokens == 0
        assert store.cache.cached_tokens <= 300_000
    for router in run.front.routers:
        assert router.stats()["in_flight"] == 0


def test_littles_law_over_the_fleet() -> None:
    log = simulate(busy_chat(), timed()).log
    arrival, finish = log.column("arrival"), log.column("finish")
    moments = np.concatenate([arrival, finish])
    order = np.argsort(moments, kind="stable")
    present = np.cumsum(np.concatenate([np.ones(len(log)), -np.ones(len(log))])[order])
    area = (present[:-1] * np.diff(moments[order])).sum()
    assert area == pytest.approx((finish - arrival).sum())


def test_load_over_time_is_the_time_spent_inside() -> None:
    run = simulate(busy_chat(), timed())
    edges, load = run.load(buckets=37)
    stays = run.log.column("finish") - run.log.column("arrival")
    assert load.shape == (37, 4)
    assert (load >= 0).all()
    per_replica = np.bincount(run.log.column("replica"), stays)
    assert (load * np.diff(edges)[:, None]).sum(axis=0) == pytest.approx(per_replica)
    with pytest.raises(ConfigError, match=r"buckets .*1.* 0"):
        run.load(0)


@pytest.mark.parametrize("policy", [*POLICIES_OF_THE_PACKAGE, *presets()])
def test_every_policy_and_preset_runs_in_both_modes(policy: str) -> None:
    workload = busy_chat(requests=120)
    for engine in (None, ENGINE):
        run = simulate(workload, Scenario(policy=policy, replicas=4, engine=engine))
        assert sum(run.outcome.served) == run.outcome.requests == 120
        assert run.outcome.policy == policy
        assert (run.log.column("hit") < run.log.column("prompt")).all()


def test_an_idle_fleet_gives_the_prefill_time_of_the_cost_model() -> None:
    workload = chat(1, requests=60, arrivals=Poisson(0.001))
    log = simulate(workload, timed("session")).log
    measured = log.column("first_token") - log.column("arrival")
    prompt, hit = log.column("prompt"), log.column("hit")
    chunks = [
        [(min(8_192, end - begun), begun) for begun in range(start, end, 8_192)]
        for start, end in zip(hit.tolist(), prompt.tolist(), strict=True)
    ]
    expected = [sum(COST.step_seconds([chunk]) for chunk in request) for request in chunks]
    assert measured == pytest.approx(expected)
    assert np.median(measured / COST.prefill_seconds(prompt - hit, hit)) == pytest.approx(1.0, abs=0.05)


def test_more_load_means_more_waiting_and_better_routing_means_less() -> None:
    calm, busy = (simulate(busy_chat(rate=rate), timed("round-robin")).outcome for rate in (0.2, 60.0))
    assert calm.queue_mean_s < busy.queue_mean_s
    assert calm.busy < busy.busy <= 1.0
    sticky = simulate(busy_chat(rate=60.0), timed("session")).outcome
    assert sticky.ttft.mean < busy.ttft.mean
    assert sticky.recomputed_tokens < busy.recomputed_tokens


class Spy(Policy):
    """Looks at everything it is given, and keeps it."""

    name: ClassVar[str] = "spy"
    signals: ClassVar[frozenset[str]] = SIGNALS - {"held"}

    def __init__(self) -> None:
        self.views: list[View] = []

    def decide(self, view: View) -> tuple[int, str]:
        self.views.append(view)
        return view.slots[view.decision_id % len(view.slots)], "turn"


def test_policies_never_see_the_output_length() -> None:
    """Two workloads that differ in their outputs alone look the same until one of the outputs has ended."""

    def with_outputs(tokens: int) -> Workload:
        one = busy_chat(requests=40, rate=1e6)

        def source() -> Iterator[Request]:
            return (request._replace(output_tokens=tokens, context=request.prompt) for request in one.requests())

        return replace(one, source=source)

    short, long = Spy(), Spy()
    simulate(with_outputs(50), timed(short))
    simulate(with_outputs(5_000), timed(long))
    assert len(short.views) == 40
    assert [repr(view) for view in short.views] == [repr(view) for view in long.views]


def test_a_policy_that_weighs_seconds_uses_the_prices_of_the_run() -> None:
    slow = CostModel(utilization=0.05)
    scenario = Scenario(policy="min-ttft", replicas=4, engine=EngineModel(slow))
    by_name = simulate(busy_chat(requests=400), scenario, cost=slow)
    by_object = simulate(busy_chat(requests=400), replace(scenario, policy=MinTtft(cost=slow)), cost=slow)
    assert by_name.outcome.policy == "min-ttft"
    by_parameters = simulate(busy_chat(requests=400), replace(scenario, policy="min-ttft:learn=true"), cost=slow)
    assert by_parameters.outcome.policy == "min-ttft:learn=true"
    assert by_parameters.log.column("replica").tolist() == by_object.log.column("replica").tolist()
    assert by_name.log.column("replica").tolist() == by_object.log.column("replica").tolist()


def test_same_seed_same_run_and_another_seed_another() -> None:
    first, second, other = (simulate(busy_chat(), timed("random", seed=seed)).log for seed in (1, 1, 2))
    for name in ("replica", "hit", "first_token", "finish"):
        assert np.array_equal(first.column(name), second.column(name))
    assert not np.array_equal(first.column("replica"), other.column("replica"))


def test_late_events_cost_hits() -> None:
    policy = "cache-aware:adaptive=false:fallback=power-of-two"
    fresh, late, perfect = (
        simulate(busy_chat(), timed(policy, observe=observe)).outcome.recompute_ratio
        for observe in (Events(), Events(delay_s=60.0), Perfect())
    )
    assert fresh == pytest.approx(perfect, abs=0.03)
    assert late > fresh + 0.02


def test_a_death_loses_no_request_and_its_sessions_pay_once() -> None:
    workload = busy_chat(requests=3_000)
    middle = [one.arrival_s for one in workload.requests()][1_000]
    victim = replica_names(4)[1]
    dies = FleetChange(middle, "die", victim)
    returns = FleetChange(middle + 5.0, "return", victim)
    whole, broken = (simulate(workload, timed("session", changes=changes)) for changes in ((), (dies, returns)))
    assert broken.outcome.requests == 3_000
    assert broken.retried > 0
    assert broken.outcome.recompute_ratio > whole.outcome.recompute_ratio
    log = broken.log
    gone = (log.column("start") > middle) & (log.column("start") < middle + 5.0)
    assert not (log.column("replica")[gone] == 1).any()
    assert (log.column("replica")[log.column("start") > middle + 5.0] == 1).any()


def test_a_rolling_restart_loses_nothing() -> None:
    changes = [
        FleetChange(at + back, action, f"replica-{number}")  # type: ignore[arg-type]
        for number, at in ((0, 5.0), (1, 7.0))
        for back, action in ((0.0, "die"), (1.0, "return"))
    ]
    slow = EngineModel(CostModel(utilization=0.02))
    scenario = Scenario(policy="round-robin", replicas=2, engine=slow, changes=tuple(changes))
    run = simulate(busy_chat(requests=400, rate=20.0), scenario)
    assert run.outcome.requests == 400
    assert run.retried > 100


def test_the_last_replica_may_not_die_under_requests() -> None:
    scenario = replace(timed("round-robin"), replicas=1, changes=(FleetChange(0.1, "die", "replica-0"),))
    with pytest.raises(ConfigError, match=r"replica.*\b0\.\d+ s"):
        simulate(busy_chat(requests=200, rate=200.0), scenario)


class Sluggish:
    """Steps that take five seconds, whatever they hold."""

    overhead_s = 0.0

    def step_seconds(self, prefill: object = (), *, decodes: int = 0, decode_context_tokens: int = 0) -> float:
        del prefill, decodes, decode_context_tokens
        return 5.0


def overloaded(*changes: FleetChange) -> TimedRun:
    """A replica that gets every request, at a hundred times its pace, and one that gets none."""
    workload = chat(1, requests=1_000, arrivals=Poisson(0.5))
    engine = EngineModel(Sluggish(), max_running=1)
    scenario = Scenario(policy=lambda view: (view.slots[0], "first"), replicas=2, engine=engine, changes=changes)
    return TimedRun(scenario, workload.block_size, engine)


def test_in_an_overload_only_requests_that_the_router_still_waits_for_keep_their_decisions() -> None:
    def decisions() -> int:
        gc.collect()
        return sum(isinstance(one, Decision) for one in gc.get_objects())

    def look() -> None:
        seen.append((decisions() - others, run.front.routers[0].stats()["in_flight"]))

    seen: list[tuple[int, int]] = []
    others = decisions()
    run = overloaded()
    run.agenda.plan(1_900.0, look)
    run.run(chat(1, requests=1_000, arrivals=Poisson(0.5)).requests())
    assert len(run.log) == 1_000
    ((kept, in_flight),) = seen
    assert 200 < in_flight < 400  # half a request a second, and a ticket expires after ten minutes
    assert kept <= in_flight + 2 + LET_GO_EVERY  # one that ran, one that expired, and those since the last look


def test_a_death_in_an_overload_moves_requests_that_the_router_has_given_up() -> None:
    run = overloaded(FleetChange(1_900.0, "die", "replica-0"))
    run.run(chat(1, requests=1_000, arrivals=Poisson(0.5)).requests())
    log = run.log
    assert np.array_equal(np.sort(log.column("number")), np.arange(1_000))
    assert run.retried > 800
    assert (log.column("replica")[log.column("start") > 1_900.0] == 1).all()
    assert run.front.routers[0].stats()["in_flight"] == 0


@pytest.mark.parametrize("policy", [*POLICIES, "linear-cost", "dynamo", "preble-e2"])
def test_the_cluster_tells_the_router_what_its_tickets_would(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """First tokens and ends go to the compiled ledger without Python in between.

    Nothing differs, with deaths and drains.
    """
    changes = (FleetChange(4.0, "die", "replica-1"), FleetChange(6.0, "add", "replica-1"))
    scenario = timed(policy, capacity_tokens=60_000, changes=(*changes, FleetChange(9.0, "drain", "replica-2")))
    told = inspected(busy_chat(requests=800), scenario)
    monkeypatch.setattr(Front, "is_alone", False)
    by_tickets = inspected(busy_chat(requests=800), scenario)
    assert told.retried == by_tickets.retried > 0
    for name in ("number", "replica", "hit", "start", "first_token", "finish"):
        assert np.array_equal(told.log.column(name), by_tickets.log.column(name)), name
    stats = [run.front.routers[0].stats() for run in (told, by_tickets)]
    blocks = [one.pop("index")["blocks"] for one in stats]  # the bytes of its tables go by a random key
    assert (stats[0], blocks[0]) == (stats[1], blocks[1])


def test_a_tier_saves_prefill_and_costs_its_loading() -> None:
    small = {"capacity_tokens": 40_000}
    workload = busy_chat(requests=2_000, rate=20.0)
    without = simulate(workload, timed("session", **small)).outcome
    fast = simulate(workload, timed("session", **small, tiers=(Tier("CPU", 2_000_000, 1e-6),))).outcome
    slow = simulate(workload, timed("session", **small, tiers=(Tier("DISK", 2_000_000, 1e-4),))).outcome
    assert fast.recompute_ratio == pytest.approx(slow.recompute_ratio, abs=0.01)
    assert fast.recompute_ratio < without.recompute_ratio - 0.1
    assert fast.ttft.mean < without.ttft.mean
    assert fast.ttft.mean < slow.ttft.mean


def test_a_prompt_larger_than_the_cache_is_served_and_counted() -> None:
    hashes = BlockHashes(np.arange(1, 101), token_count=1_601, block_size=16)
    workload = Workload("large", 16, lambda: iter([Request(0.0, hashes, hashes, 1_601, 5)]), 1)
    run = inspected(workload, Scenario(policy="round-robin", replicas=1, engine=ENGINE, capacity_tokens=800))
    assert len(run.log) == 1
    assert run.fleet.stores["replica-0"].cache.oversized == 1


def test_a_fleet_that_cannot_keep_up_is_named() -> None:
    def found(rate: float) -> Sweep:
        workload = chat(1, requests=3_000, arrivals=Poisson(rate))
        return sweep(workload, policies=("round-robin",), replicas=(2, 4), seeds=1, scenario=Scenario(engine=ENGINE))

    assert found(6.0).notes == ()
    busy = found(60.0)
    (note,), row = busy.notes, busy.rows[0]
    assert row.arrivals_per_s == pytest.approx(60.0, rel=0.05)
    assert row.is_overloaded
    assert re.search(f"round-robin .*2 .*{row.requests_per_s:,.3g} .*{row.arrivals_per_s:,.3g} ", note)
    assert json.loads(busy.to_json())["rows"][0]["arrivals_per_s"] == row.arrivals_per_s


def test_a_timed_run_measures_tokens_goodput_and_what_caches_hold_twice() -> None:
    loose, strict = (Promise(ttft_s=limit, tpot_s=1.0, e2e_s=600.0) for limit in (600.0, 1e-9))
    run = simulate(busy_chat(requests=400), timed("round-robin", promise=loose))
    outcome, log = run.outcome, run.log
    gaps, decode = log.column("output") - 1, log.column("finish") - log.column("first_token")
    assert outcome.tpot is not None
    assert outcome.e2e is not None
    assert outcome.tpot.mean == pytest.approx((decode / gaps).mean())
    assert outcome.itl is not None
    assert outcome.itl.mean == pytest.approx(decode.sum() / gaps.sum())
    assert run.gaps.counts.sum() == gaps.sum()
    assert run.gaps.seconds @ run.gaps.counts == pytest.approx(decode.sum(), rel=0.004)
    assert 0 < outcome.itl.p50 <= outcome.itl.p90 <= outcome.itl.p99 <= run.gaps.seconds[-1]
    assert ResultRow.over([outcome]).to_dict()["itl_p99_s"] == outcome.itl.p99
    assert outcome.e2e.mean == pytest.approx((log.column("finish") - log.column("arrival")).mean())
    assert outcome.goodput_per_s == pytest.approx(outcome.requests_per_s)
    assert simulate(busy_chat(requests=400), timed("round-robin", promise=strict)).outcome.goodput_per_s == 0.0
    assert outcome.kv_duplicated_gb > simulate(busy_chat(requests=400), timed("session")).outcome.kv_duplicated_gb


def test_goodput_counts_requests_whose_own_gaps_between_tokens_keep_the_promise() -> None:
    def good(promise: Promise) -> float:
        return simulate(busy_chat(requests=400), timed("round-robin", promise=promise)).outcome.goodput_per_s

    run = simulate(busy_chat(requests=400), timed("round-robin"))
    longest, shortest = run.gaps.seconds[-1], run.gaps.seconds[0]
    usual = run.gaps.percentile(90)
    assert good(Promise(itl_s=longest * 1.01)) == pytest.approx(run.outcome.requests_per_s)
    assert good(Promise(itl_s=shortest * 0.99)) == 0.0
    # The more of the gaps of an answer may be longer, the more answers keep the promise.
    goods = [good(Promise(itl_s=usual, itl_percentile=percentile)) for percentile in (100, 99, 95, 50, 1)]
    assert goods == sorted(goods)
    assert 0 < goods[0] < goods[2] < run.outcome.requests_per_s
    assert good(Promise(itl_s=usual, ttft_s=1e-9)) == 0.0


def test_a_burst_that_ends_before_it_is_answered_is_too_short_to_tell() -> None:
    """20 requests in a fifth of a second wait, and their rate of service is that of the end; 1,200 in 12 s are an overload."""
    engine = EngineModel(CostModel())
    found = {
        requests: sweep(
            few_shot(1, requests=requests, arrivals=Poisson(100.0)),
            policies=["round-robin"],
            replicas=[8],
            seeds=1,
            scenario=Scenario(engine=engine, capacity_tokens=50_000),
        )
        for requests in (20, 1_200)
    }
    burst, overload = (each.rows[0] for each in found.values())
    assert (burst.is_overloaded, burst.is_too_short) == (False, True)
    assert (overload.is_overloaded, overload.is_too_short) == (True, False)
    told = [
        f"{burst.requests / burst.arrivals_per_s:.3g} s.*round-robin .*8$",
        f"round-robin .*8 .*{overload.requests_per_s:,.3g} ",
    ]
    for each, pattern in zip(found.values(), told, strict=True):
        (note,) = each.notes
        assert re.search(pattern, note)
    assert (
        replicas_behind(simulate(few_shot(1, requests=20, arrivals=Poisson(100.0)), Scenario(engine=engine)).log, 8)
        == 0
    )
