"""How many replicas are needed.

What the advice says of it is what ``size`` finds for the times that the fleet has today.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from contradictions import assert_not_contradicted

from prefixroute.advise import Headroom, Question, Slo, advise, size
from prefixroute.advise.behind import replicas_behind
from prefixroute.advise.busiest import busiest
from prefixroute.advise.fleet import SLOWER, needed
from prefixroute.advise.size import NO_HEADROOM
from prefixroute.costmodel import CostModel
from prefixroute.report import advice_text, answer
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import Poisson, chat, documents

BUSY = chat(1, requests=1_200, arrivals=Poisson(20.0))
COST = CostModel()
ALL = busiest(BUSY, 10_000)


def test_the_advice_names_the_fleet_that_size_finds() -> None:
    asked = Scenario(given=frozenset({"replicas"}))
    advice = advise(BUSY, Question(scenario=asked, policies=(), seeds=1, current="random"))
    need = advice.need
    assert need is not None
    run = simulate(BUSY, Scenario(policy="random", engine=EngineModel(COST), seed=1))
    assert need.now.seconds == tuple(slo.measured(run) for slo in need.asked)
    assert [(slo.time, slo.seconds) for slo in need.slos] == [
        (time, SLOWER[time] * max(seconds))
        for time, *seconds in zip(SLOWER, need.now.seconds, need.then.seconds, strict=True)
    ]
    fleet = size(BUSY, need.slos, [advice.policy], headroom=Headroom(), most=32).fleets[0]
    assert need.size == fleet
    assert fleet.replicas is not None
    assert need.is_smaller == (fleet.replicas < 8)
    assert need.saved_usd_per_month == pytest.approx(COST.usd_per_month(max(0, 8 - fleet.replicas)))
    assert answer(advice).headline.startswith(advice.policy.split(":")[0])
    assert (f" {fleet.replicas} of 8 " in answer(advice).headline) == need.is_smaller
    assert need.saved_usd_per_month is not None
    assert advice.saving is None or need.saved_usd_per_month > (advice.saving.usd_per_month or 0)
    if need.is_smaller:  # the larger saving comes first
        assert f" {fleet.policy} on {fleet.replicas}: " in answer(advice).opening[0]
    assert {"chunk_tokens", "max_running"} <= {item.name for item in advice.comparison.assumptions}


def test_an_assumed_fleet_saves_no_rent_and_is_called_assumed() -> None:
    advice = advise(BUSY, Question(policies=(), seeds=1))
    assert advice.need is not None
    assert advice.need.is_smaller
    assert advice.need.saved_usd_per_month is None
    assert (advice.assumes("replicas"), advice.assumes("current_policy")) == (True, True)
    assert advice.steps[0].evidence["replicas_assumed"]
    said = answer(advice)
    assert "$" not in said.headline
    assert "8 replicas (ASSUMED)" in said.headline
    assert all(one.evidence["policy_assumed"] for one in advice.findings if one.kind == "not-kept")


def test_a_fleet_that_today_s_policy_serves_too_is_not_put_down_to_routing() -> None:
    calm = chat(1, requests=600, arrivals=Poisson(2.0))
    advice = advise(calm, Question(scenario=Scenario(replicas=4), policies=(), seeds=1, current="round-robin"))
    need = advice.need
    assert need is not None
    assert need.size.replicas is not None
    assert need.is_smaller_today
    own = size(calm, need.slos, ["round-robin"], headroom=Headroom(), most=need.size.replicas).fleets[0]
    assert own.replicas == need.size.replicas
    headline = answer(advice).headline
    saving = advice.saving
    assert saving is not None
    assert saving.usd_per_month is not None
    rent, less = (f"${usd:,.0f} " for usd in (need.saved_usd_per_month, saving.usd_per_month))
    assert all(part in headline for part in (f" {need.size.replicas} of 4 ", rent, f"; {advice.policy} ", less))
    only = answer(replace(advice, need=replace(need, alike=False))).headline
    assert (rent in only, less in only) == (
        True,
        False,
    )  # the rent is saved by the policy too, which has no other saving
    assert [re.findall(r"\bnot\b", text) for text in (headline, only)] == [[], ["not"]]
    assert "round-robin" in headline
    assert "round-robin" in only


def test_the_advised_fleet_keeps_up_and_so_does_one_replica_less() -> None:
    """With the default headroom, on traffic for which today's round robin is too slow."""
    rush = chat(1, requests=2_500, arrivals=Poisson(60.0))
    advice = advise(rush, Question(policies=(), seeds=1))
    need = advice.need
    assert need is not None
    assert need.now.is_overloaded
    assert need.slos == ()  # times that grow with the log promise nothing
    assert not need.then.is_overloaded
    assert need.size.replicas is not None
    for count in (need.size.replicas, need.size.replicas - 1):
        assert advice.deployment is not None
        scenario = Scenario(policy=advice.deployment.policy, replicas=count, engine=EngineModel(COST), seed=1)
        assert replicas_behind(simulate(rush, scenario).log, count) == 0
    assert need.size.replicas >= (need.size.least or 0) + 1


def test_a_fleet_that_cannot_keep_up_is_called_so_and_is_never_enough() -> None:
    advice = advise(BUSY.scaled(6.0), Question(scenario=Scenario(replicas=2), policies=(), seeds=1))
    need = advice.need
    assert need is not None
    assert need.then.is_overloaded
    assert not need.is_smaller
    assert need.size.replicas is None or need.size.replicas > 2
    headline = answer(advice).headline
    assert (" 2 replicas " in headline, " of 2 " in headline) == (True, False)
    assert_not_contradicted(advice)
    assert advice.finding("fleet-size") is not None


def test_a_long_trace_is_looked_at_where_it_is_busiest() -> None:
    calm, rush = chat(1, requests=900, arrivals=Poisson(2.0)), chat(2, requests=300, arrivals=Poisson(40.0))
    end = max(request.arrival_s for request in calm.requests())

    def source():  # type: ignore[no-untyped-def]  # noqa: ANN202
        yield from calm.requests()
        for request in rush.requests():
            yield request._replace(arrival_s=end + request.arrival_s, session=f"rush-{request.session}")

    part = busiest(replace(calm, source=source, request_count=1_200), 200)
    assert (part.requests, part.warmup, part.whole) == (200, 200, False)
    assert part.begins_s >= end - 1
    assert part.times_mean > 3
    inside = list(part.workload.requests())
    assert len(inside) == 400
    assert inside[0].arrival_s == 0.0
    whole = busiest(calm, 900)
    assert (whole.whole, whole.warmup, whole.requests) == (True, 0, 900)
    assert busiest(chat(1, requests=0), 10).requests == 0


def test_promises_of_ones_own_replace_todays() -> None:
    fleet, today = (Scenario(policy=policy, replicas=4) for policy in ("session", "random"))
    ask = partial(needed, ALL, fleet, today, cost=COST, headroom=NO_HEADROOM)
    own = ask(slos=(Slo(95, 30.0),))
    assert own.slos == (Slo(95, 30.0),)
    as_today = ask()
    assert own.size.least is not None
    assert as_today.size.least is not None
    assert own.size.least <= as_today.size.least
    assert as_today.alike in (True, False, None)


def test_what_would_be_advised_elsewhere_is_what_is_advised_there() -> None:
    """The rows of the sensitivity come from the same choice, minimum match and clock included."""
    question = Question(scenario=Scenario(replicas=4, capacity_tokens=60_000), policies=(), seeds=1)
    documents_ = partial(documents, requests=300)
    flips = advise(documents_, replace(question, vary=("capacity", "replicas"))).sensitivity
    assert len(flips) == 5
    for flip in flips[::3]:
        change = {"replicas": flip.value} if flip.setting == "replicas" else {"capacity_tokens": flip.value}
        there = advise(documents_, replace(question, scenario=replace(question.scenario, **change)))  # type: ignore[arg-type]
        assert (flip.policy, flip.recompute_ratio) == (there.policy, there.row.recompute_ratio)


def test_without_time_or_a_choice_there_is_no_fleet_to_size() -> None:
    for workload, replicas in ((BUSY.head(200), 1), (BUSY.head(1), 4)):
        advice = advise(workload, Question(scenario=Scenario(replicas=replicas), policies=(), seeds=1))
        assert advice.need is None
        assert np.isfinite(advice.row.ttft_mean_s)
        assert answer(advice).headline in advice_text(advice).splitlines()[0]


@pytest.mark.parametrize("rate", [4.0, 20.0, 40.0])
def test_no_more_replicas_are_needed_than_a_reserve_beyond_a_fleet_that_keeps_up(rate: float) -> None:
    """A percentile that the advised policy is worse in asks for no replica: none would take it back."""
    part = busiest(chat(1, requests=600, arrivals=Poisson(rate)), 10_000)
    fleet = Scenario(replicas=4, engine=EngineModel(COST))
    today, later = replace(fleet, policy="session"), replace(fleet, policy="round-robin")
    need = needed(part, later, today, cost=COST)
    assert not need.then.is_overloaded
    assert need.then.seconds[0] > 1.1 * need.now.seconds[0]
    assert need.size.least is not None
    assert need.size.least <= need.replicas
