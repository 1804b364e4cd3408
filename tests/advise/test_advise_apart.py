"""Sizes of fleets that prefill and decode apart, against every split tried, and beside mixed fleets."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.advise import Headroom, Slo, size
from prefixroute.advise.size import NO_HEADROOM
from prefixroute.advise.slo import SloReading
from prefixroute.advise.trials import Fleet, Trials
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim import EngineModel, Scenario
from prefixroute.workload import Spec

SLO = Slo(95, 1.0)


def tries(needs: list[Fleet], most: int = 40) -> Trials:
    """Fleets that keep the promise where they have what one of ``needs`` asks for."""

    def run(fleet: Fleet, peak: bool, _: object) -> SloReading:
        del peak
        enough = any(all(count >= least for count, least in zip(fleet, need, strict=True)) for need in needs)
        return SloReading((0.5 if enough else 2.0,), 0.1, 0.5, 0.0, is_overloaded=False)

    return Trials("session", run, (SLO,), None, most, kinds=len(needs[0]))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=2).map(tuple))
def test_the_smallest_fleet_of_either_kind_is_found(need: Fleet) -> None:
    assert tries([need]).smallest() == need


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=4))
def test_what_is_found_keeps_the_promise_and_one_less_of_either_does_not(needs: list[Fleet]) -> None:
    apart = tries(needs)
    found = apart.smallest()
    assert found is not None
    prefill, decode = found
    assert apart.keeps(found)
    assert decode == 1 or not apart.keeps((prefill, decode - 1))
    best = min(sum(pair) for pair in product(range(1, 13), repeat=2) if apart.keeps(pair))
    assert sum(found) <= 2 * best


def test_none_is_enough_where_the_limit_is_reached() -> None:
    assert tries([(30, 30)], most=16).smallest() is None


@pytest.fixture(scope="module")
def source() -> Spec:
    return Spec.parse("chat,requests=500,arrivals=poisson:12")


def test_both_kinds_of_fleets_are_sized_for_the_same_promises(source: Spec) -> None:
    slos = Slo.parse_all("ttft_p95=300ms,tpot_p95=15ms")
    scenario = Scenario(engine=EngineModel(CostModel()))
    found = size(source, slos, ["session"], scenario=scenario, link="rdma", headroom=Headroom(0.8, 1))
    mixed, apart = found.fleets
    assert (mixed.policy, mixed.prefill) == ("session", None)
    assert apart.policy == f"session, {apart.prefill}+{apart.decode}"
    assert apart.replicas == (apart.prefill or 0) + (apart.decode or 0) == apart.gpus
    assert all(told <= slo.seconds for told, slo in zip(apart.seconds, slos, strict=True))
    assert apart.seconds_one_less is not None
    assert all(told <= slo.seconds for told, slo in zip(apart.seconds_one_less, slos, strict=True))
    first, *splits = found.equal
    assert first.prefill is None
    assert first.keeps
    assert [(one.prefill or 0) + (one.decode or 0) for one in splits] == [mixed.replicas] * len(splits)
    assert [one.prefill for one in splits] == list(range(1, mixed.replicas or 0))
    told = found.to_dict()
    assert "prefill" not in told["fleets"][0]
    assert told["fleets"][1]["decode"] == apart.decode
    assert [row.get("prefill") for row in told["equal"]][:2] == [None, 1]
    assert told["assumptions"]["link"]["value"] == "rdma"
    assert told["assumptions"]["link"]["assumed"]


def test_a_slow_link_asks_for_more_or_breaks_the_promise(source: Spec) -> None:
    slos = Slo.parse_all("ttft_p95=300ms")
    slow = size(source, slos, ["session"], link="0.5:200ms", headroom=NO_HEADROOM, most=8).fleets[1]
    fast = size(source, slos, ["session"], link="50", headroom=NO_HEADROOM, most=8).fleets[1]
    assert fast.replicas is not None
    assert slow.replicas is None or slow.replicas > fast.replicas
    assert slow.seconds[0] > fast.seconds[0]


def test_an_unknown_link_is_refused_before_anything_is_run(source: Spec) -> None:
    with pytest.raises(ConfigError, match=r"nvlink, pcie,.*'string'"):
        size(source, (), ["session"], link="string")
