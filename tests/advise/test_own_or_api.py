"""APIs beside replicas of one's own on the same traffic."""

from __future__ import annotations

import json

import pytest

from prefixroute import ConfigError
from prefixroute.advise import Question, advise
from prefixroute.advise.own_or_api import default_models, own_or_api
from prefixroute.advise.slo import Slo
from prefixroute.costmodel import CostModel
from prefixroute.plan import plan_trace
from prefixroute.providers import find_model, providers
from prefixroute.sim import Scenario
from prefixroute.workload import Even, chat, documents

SONNET = find_model("claude-sonnet-5-5")


def test_offers_by_hand() -> None:
    traffic = chat(1, requests=400, arrivals=Even(2.0))
    found = own_or_api(traffic, [SONNET], cost=CostModel(usd_per_gpu_hour=1.0))
    assert found.requests_per_month == pytest.approx(2 * 730 * 3_600, rel=0.01)
    api, own = (next(one for one in found.offers if (one.provider == "own") is mine) for mine in (False, True))
    plan = plan_trace(traffic, SONNET)
    assert api.usd_per_month == pytest.approx(plan.total.best.usd / plan.span_s * 730 * 3_600)
    assert own.usd_per_month == 730 * (own.replicas or 0)
    assert own.ttft_s is not None
    assert own.ttft_s <= 2.0
    even = found.break_even_requests_per_month
    assert even == pytest.approx((own.usd_per_month or 0) / (api.usd_per_million_requests or 1) * 1e6)
    assert [one.usd_per_month for one in found.offers] == sorted(one.usd_per_month or 0 for one in found.offers)
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_promise_that_no_fleet_keeps_has_no_price() -> None:
    traffic = documents(1, requests=100, arrivals=Even(5.0))
    found = own_or_api(traffic, [SONNET], promise=Slo(95, 0.001), most=2)
    own = found.offers[-1]
    assert (own.provider, own.usd_per_month, own.replicas) == ("own", None, None)
    assert found.break_even_requests_per_month is None


def test_a_rate_of_ones_own_speeds_the_traffic_up() -> None:
    traffic = chat(1, requests=200, arrivals=Even(1.0))
    found = own_or_api(traffic, [SONNET], requests_per_day=864_000)
    assert found.requests_per_month == pytest.approx(10 * 730 * 3_600)


def test_no_model_is_no_comparison() -> None:
    with pytest.raises(ConfigError, match="one model"):
        own_or_api(chat(1, requests=10), [])


def test_every_api_is_priced_in_the_first_question_of_advice() -> None:
    traffic = chat(1, requests=300, arrivals=Even(2.0))
    apis = default_models(traffic, 149.5)
    compared = own_or_api(traffic, [provider.model() for provider in providers()]).offers
    assert [offer for offer in compared if offer.provider != "own"] == list(apis)
    assert {offer.provider for offer in apis} == {provider.name for provider in providers()}
    assert default_models(traffic, 0.0) == ()
    step = advise(traffic, Question(scenario=Scenario(replicas=2), policies=(), seeds=1)).steps[0]
    assert step.kind == "own-replicas"
    assert step.evidence["api"] == apis[0].name
    assert step.evidence["apis_usd_per_month"] == {offer.provider: offer.usd_per_month for offer in apis}
    assert step.evidence["rent_usd_per_month"] == CostModel().usd_per_month(2)
