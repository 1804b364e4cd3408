"""Every compiled rule beside its twin in plain Python, on views of any kind: the same scores to the bit, the same picks."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_twins import PICKS, SCORED, best_of

from prefixroute.columns import Formula, Kernel
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.policies import (
    SCORERS,
    SIGNALS,
    Bounded,
    CacheAware,
    Document,
    LeastLoaded,
    LinearCost,
    LMetric,
    MinTtft,
    Policy,
    PowerOfTwo,
    PrebleE2,
    PrefixHash,
    Random,
    Rendezvous,
    RequestInfo,
    Session,
    TransferCost,
    TwoChoices,
    View,
    Weighted,
    as_policy,
)  # fmt: skip
from prefixroute.policies.base import kernel_of, resolve, seen
from prefixroute.policies.view import kept_of
from prefixroute.types import LoadReport


class Halved(CostModel):
    """Prices of a class of its own."""

    def prefill_seconds(self, new_tokens: Any, cached_tokens: Any = 0) -> Any:
        return super().prefill_seconds(new_tokens, cached_tokens) / 2


class Stepped(CostModel):
    def decode_seconds(self, sequences: int, context_tokens: int) -> float:
        return 1e-3 * sequences + 1e-7 * context_tokens


class Priced:
    """Whatever prices a prefill."""

    def prefill_seconds(self, new_tokens: int, cached_tokens: int = 0) -> float:
        assert type(new_tokens) is int
        return 1e-9 * new_tokens**2 + 1e-8 * cached_tokens


def given_scores(view: View) -> Any:
    return np.array([slot % 3 for slot in view.slots]) / 2


WEIGHTS = st.sampled_from([0.0, 0.3, 1.0, 1.7, -0.5])
COSTS = st.sampled_from([CostModel(), CostModel(overhead_s=0.003), Halved(), Stepped()])
FALLBACKS = st.sampled_from(
    [PowerOfTwo(), TwoChoices(), LeastLoaded("held-tokens"), as_policy(lambda view: (view.slots[-1], "last"))]
)
KEYS = st.sampled_from(Kernel.KEYS)
POLICIES: st.SearchStrategy[Policy] = st.one_of(
    st.builds(
        LinearCost, WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS, temperature=st.sampled_from([0.0, 900.0]), active=st.booleans()
    ),
    st.builds(LinearCost, WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS, st.just("seconds"), cost=COSTS),
    st.builds(LMetric, st.sampled_from(["requests", "decode-tokens"])),
    st.builds(PrebleE2, WEIGHTS, st.sampled_from([1.0, 1.5]), st.sampled_from([0.0, 10.0]), COSTS | st.just(Priced())),
    st.builds(MinTtft, st.booleans(), st.sampled_from([0.0, 1e5]), WEIGHTS, cost=COSTS | st.just(Priced())),
    st.builds(
        Weighted,
        st.lists(st.tuples(st.sampled_from([*SCORERS, given_scores]), WEIGHTS), min_size=1, max_size=4),
        affinity=st.sampled_from([0.0, 0.3]),
        temperature=st.sampled_from([0.0, 0.4]),
        spill_gap=st.sampled_from([inf, 1.0]),
    ),
    st.builds(TransferCost, output_tokens=st.integers(1, 500)),
    st.builds(PowerOfTwo, st.sampled_from(["load", "ranks"])),
    st.builds(LeastLoaded, st.sampled_from(Kernel.MEASURES)),
    st.just(TwoChoices()),
    st.builds(Session, FALLBACKS, st.sampled_from(["rendezvous", "fallback"])),
    st.builds(Rendezvous, KEYS, fallback=FALLBACKS),
    st.builds(Document, fallback=FALLBACKS),
    st.builds(Bounded, st.floats(1.01, 1.5), st.booleans(), KEYS, fallback=FALLBACKS),
    st.builds(PrefixHash, factor=st.sampled_from([0.9, 1.25]), gap=st.sampled_from([0.0, 2.0]), fallback=FALLBACKS),
)


def figure(values: st.SearchStrategy[float]) -> st.SearchStrategy[float | None]:
    return st.none() | values


REPORTS = st.builds(
    LoadReport,
    st.just(0.0),
    waiting=figure(st.integers(0, 3)),
    running=figure(st.integers(0, 3)),
    waiting_tokens=figure(st.integers(0, 2_000)),
    kv_use=figure(st.sampled_from([0.0, 0.5, 0.97])),
    tokens_per_s=figure(st.sampled_from([0.0, 5_000.0])),
)


@st.composite
def views(draw: st.DrawFn) -> View:
    count = draw(st.integers(1, 6))
    prompt = draw(st.sampled_from([0, 1, 1_040, 9_000]))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    tokens = st.sampled_from([0, 0, 16, 512, 3_001])
    return View(
        slots=tuple(sorted(draw(st.sets(st.integers(0, count - 1), min_size=1)))),
        names=tuple(f"r{slot}" for slot in range(count)),
        hashes=tuple(column(st.integers(0, (1 << 64) - 1))),
        weights=draw(st.none() | st.just((1.0, 0.5, 0.25, 0.5, 1.0, 0.25)[:count])),
        decision_id=draw(st.integers(0, 1 << 70)),
        seed=draw(st.integers(-(1 << 70), 1 << 70)),
        prompt_tokens=prompt,
        hits=column(st.sampled_from([hit for hit in (0, 0, 16, 512, 1_024, 8_960) if hit <= prompt])),
        loads=column(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0, 1 / 3])),
        binding=draw(st.none() | st.integers(-1, count - 1)),
        request=RequestInfo(
            session=draw(st.sampled_from([None, "", "a", "b\ud800"])),
            max_tokens=draw(st.none() | st.integers(1, 900)),
            attrs=draw(st.sampled_from([{}, {"document": "d"}, {"document": ""}, {"document": 7}])),
        ),
        in_flight=column(st.integers(0, 3)),
        queued=column(tokens),
        decoding=column(tokens),
        recent=column(st.integers(0, 3)),
        reports=column(st.none() | REPORTS) if draw(st.booleans()) else [draw(REPORTS) for _ in range(count)],
        head=draw(st.none() | st.integers(0, (1 << 64) - 1)),
        held=column(tokens),
        last_miss=column(st.integers(-1, 4)),
        window_s=column(st.sampled_from([0.0, 0.25, 3.1])),
        rates=column(st.none() | st.sampled_from([9_000.0, 31_234.5])),
        active=column(tokens),
        active_hits=column(tokens),
        kv_at=draw(st.none() | st.integers(0, count - 1)),
    )


@given(POLICIES, views())
def test_a_kernel_is_its_twin(policy: Policy, view: View) -> None:
    kernel, answer = kernel_of(policy), policy.decide(view)
    if type(policy) in PICKS:
        expected = PICKS[type(policy)](policy, view)
        assert answer == expected
    else:
        scores, reason = SCORED[type(policy)](policy, view)
        values, why, temperature = answer
        assert ([float(value).hex() for value in values], why) == ([float(score).hex() for score in scores], reason)
        expected = view.slots[best_of(scores, temperature, view)], reason
        assert resolve(answer, view, policy.name) == expected
    if kernel is not None:
        slot, reason = kernel.decide(*seen(view))
        assert reason == expected[1]
        assert slot in (-1, expected[0])  # -1: the fallback is no kernel
        assert slot >= 0 or kernel_of(getattr(policy, "fallback", Random())) is None


@pytest.mark.parametrize("cost", [CostModel(), Halved(), Stepped(), Priced()], ids=lambda cost: type(cost).__name__)
def test_every_price_has_a_kernel(cost: Any) -> None:
    for policy in (MinTtft(cost=cost), PrebleE2(cost=cost)):
        assert kernel_of(policy) is not None


def test_a_price_that_fails_ends_the_decision() -> None:
    class Failing:
        def prefill_seconds(self, new_tokens: int, cached_tokens: int = 0) -> Any:
            if new_tokens == 1_024:
                return 1.0
            return {0: 1 / (cached_tokens - 16), 512: "x"}[cached_tokens]

    policy, view = MinTtft(cost=Failing()), _view()
    with pytest.raises(KeyError):
        policy.decide(view)
    with pytest.raises(ZeroDivisionError):
        policy.decide(view._replace(hits=[16, 16]))
    with pytest.raises(ConfigError, match=r"price.*number.*str"):
        policy.decide(view._replace(hits=[512, 512]))


def _view() -> View:
    return View(
        (0, 1),
        ("a", "b"),
        (1, 2),
        None,
        0,
        0,
        4_096,
        [32, 0],
        [0.0, 0.0],
        None,
        RequestInfo(),
        queued=[0, 0],
        rates=[None] * 2,
    )


def test_what_a_kernel_needs_is_in_the_view() -> None:
    for policy, name in ((LMetric(), "in_flight"), (PrebleE2(), "window_s")):
        with pytest.raises(ConfigError, match=f"signal {name}"):
            policy.decide(_view())
    with pytest.raises(ConfigError, match="signal"):
        MinTtft().decide(_view()._replace(queued=[1]))
    with pytest.raises(ConfigError, match='"no-such"'):
        Formula("no-such")
    with pytest.raises(ConfigError, match="scores"):
        Kernel.random().scores(*seen(_view()))


def test_signals_lie_where_kernels_look_for_them() -> None:
    start = View._fields.index(Kernel.SIGNALS[0])
    fields, compiled = View._fields[start:], len(Kernel.SIGNALS)
    assert fields[:compiled] == Kernel.SIGNALS  # a row of `signals!` has no field, or not in its place
    assert [fields[place] for place in kept_of(SIGNALS) if place >= compiled] == []  # a field has no row of `signals!`


def test_a_closed_gate_and_a_fallback_are_kernels_too() -> None:
    policy = CacheAware(gate_gap=1.0, gated=LMetric(), fallback=MinTtft())
    view = _view()._replace(in_flight=[0, 0], loads=[0.0, 5.0])
    kernel = kernel_of(policy)
    assert kernel is not None
    assert kernel.decide(*seen(view)) == (policy.decide(view)) == (0, "imbalanced")
    idle = view._replace(loads=[0.0, 0.0], hits=[0, 0])
    assert kernel.decide(*seen(idle)) == policy.decide(idle)
    assert policy.decide(idle)[1] == "no_match"
