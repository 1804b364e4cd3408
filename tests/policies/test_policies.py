"""Each rule on views made by hand: small tables of loads and hits with the slot that the rule must take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixroute.errors import ConfigError, OverloadedError
from prefixroute.policies import (
    POLICIES,
    SCORERS,
    SIGNALS,
    Bounded,
    CacheAware,
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
    RoundRobin,
    Scores,
    View,
    Weighted,
    as_policy,
    describe,
    draw,
    presets,
)
from prefixroute.policies.base import kernel_of, resolve
from prefixroute.policies.catalog import policies_by_name
from prefixroute.policies.keyed import text_hash
from prefixroute.policies.preset import read_preset
from prefixroute.router import Router
from prefixroute.types import LoadReport
from prefixroute.validation import shown

LONG = 4_096


def view(loads: Sequence[float], hits: Sequence[int] | None = None, **fields: Any) -> View:
    """Return a view of so many replicas, with a prompt of 4,096 tokens."""
    count = len(loads)
    names = tuple(f"r{i}" for i in range(count))
    defaults: dict[str, Any] = {
        "slots": tuple(range(count)),
        "names": names,
        "hashes": tuple(text_hash(name) for name in names),
        "weights": None,
        "decision_id": 0,
        "seed": 0,
        "prompt_tokens": LONG,
        "hits": list(hits or [0] * count),
        "loads": list(loads),
        "binding": None,
        "request": RequestInfo(),
        "in_flight": [int(load) for load in loads],
        "queued": [0] * count,
        "decoding": [0] * count,
        "recent": [0] * count,
        "reports": [None] * count,
        "head": 7,
        "held": [0] * count,
        "last_miss": [-1] * count,
        "window_s": [0.0] * count,
        "rates": [None] * count,
    }
    return View(**{**defaults, **fields})


def picks(policy: Policy, seen: View, turns: int = 200) -> set[int]:
    """Return the slots that a policy takes over so many turns of the same view."""
    views = (seen._replace(decision_id=number) for number in range(turns))
    return {resolve(policy.decide(v), v, policy.name)[0] for v in views}


def reason(policy: Policy, seen: View) -> str:
    return resolve(policy.decide(seen), seen, policy.name)[1]


def test_draws_are_uniform_and_apart() -> None:
    values = [draw(0, turn, k) for turn in range(2_000) for k in range(3)]
    assert all(0.0 <= value < 1.0 for value in values)
    tenths = Counter(int(value * 10) for value in values)
    assert all(480 <= tenths[tenth] <= 720 for tenth in range(10))
    assert len(set(values)) == len(values)
    assert draw(1, 2, 3) == draw(1, 2, 3) != draw(2, 1, 3)


@pytest.mark.parametrize(
    ("policy", "loads", "hits", "expected"),
    [
        (CacheAware(), [5, 0, 0], [2_048, 0, 0], {0}),  # 5 - 0 is within the gap
        (CacheAware(), [11, 0, 3], [2_048, 0, 0], {1}),  # over 2 x 0 and by more than 10
        (CacheAware(), [25, 14, 14], [2_048, 0, 0], {0}),  # not over twice the other
        (CacheAware(), [11, 1, 0], [2_048, 2_048, 0], {1}),  # another holder before an empty replica
        (CacheAware(min_match_tokens=4_096), [0, 9], [2_048, 0], {0}),  # too short: the less loaded of two
        (CacheAware(min_match_tokens=0, min_match_ratio=0.5), [9, 0], [2_048, 0], {1}),  # not more than half
        (CacheAware(min_match_tokens=0, min_match_ratio=0.4), [9, 0], [2_048, 0], {0}),
        (CacheAware(spill="never"), [1_000, 0], [2_048, 0], {0}),
        (CacheAware(spill="never"), [9, 5, 7], [2_048, 2_048, 2_048], {0, 1, 2}),  # 0 if it is drawn twice
        (CacheAware(spill="never", holders="least"), [9, 5, 5], [2_048, 2_048, 2_048], {1, 2}),
        (CacheAware(spill="never", holders="least"), [9, 5, 0], [2_048, 2_048, 0], {1}),
        (CacheAware(spill="never", holders="one"), [9, 5, 0], [2_048, 2_048, 0], {0, 1}),
        (CacheAware(spill="mean", spill_gap=5), [12, 0, 0], [2_048, 0, 0], {1, 2}),
        (CacheAware(spill="mean", spill_gap=5), [12, 9, 9], [2_048, 0, 0], {0}),
        (CacheAware(spill="swing", spill_ratio=1.5), [10, 0, 4, 4], [2_048, 0, 0, 0], {1}),  # mean 4.5, swing 5
        (CacheAware(spill="swing", spill_ratio=1.5), [9, 1, 4, 4], [2_048, 0, 0, 0], {0}),
        (CacheAware(spill="swing", spill_ratio=1.5), [22, 8, 13, 13], [2_048, 0, 0, 0], {0}),  # mean 14, swing 8
        (CacheAware(spill="swing", spill_ratio=1.5), [23, 8, 12, 13], [2_048, 0, 0, 0], {1}),
        (CacheAware(spill="swing", spill_ratio=1.5, spill_gap=2), [9, 4, 5, 6], [2_048, 0, 0, 0], {0}),
        (CacheAware(spill="swing", spill_ratio=1.0, spill_gap=2), [9, 4, 5, 6], [2_048, 0, 0, 0], {1}),
        (CacheAware(spill="candidate", spill_gap=4), [6, 0, 5], [2_048, 0, 0], {1}),
        (CacheAware(spill="spread", spill_ratio=1, shorter=True), [9, 0, 1], [2_048, 0, 1_024], {2}),
        (CacheAware(spill="spread", spill_ratio=1), [9, 0, 1], [2_048, 0, 1_024], {1}),
        (CacheAware(gate_ratio=1.5, gate_gap=64), [0, 1, 100], [0, 2_048, 0], {0}),  # one is busy: all lose affinity
        (CacheAware(gate_ratio=1.5, gate_gap=64), [0, 1, 60], [0, 2_048, 0], {1}),
        (CacheAware(gate_gap=5, gated=PowerOfTwo()), [0, 1, 6], [0, 0, 2_048], {0, 1}),
        (LeastLoaded(), [3, 1, 1], None, {1, 2}),
        (PowerOfTwo(), [3, 1], None, {1}),
        (PowerOfTwo(), [3, 1, 2], None, {1, 2}),  # the busiest never wins
        (LinearCost(), [0, 0], [2_048, 0], {0}),
        (LMetric(), [3, 0], [2_048, 0], {1}),  # 2048 x 4 against 4096 x 1
        (LMetric(), [0, 0], [2_048, 0], {0}),
        (PrebleE2(), [0, 0], [2_064, 0], {0}),
    ],
)
def test_rules(policy: Policy, loads: list[float], hits: list[int] | None, expected: set[int]) -> None:
    assert picks(policy, view(loads, hits)) == expected


def test_a_subclass_that_decides_otherwise_is_asked() -> None:
    """A compiled rule stands for the class that has it, not for one that overrides its decision."""

    @dataclass(frozen=True, slots=True)
    class Last(CacheAware):
        def decide(self, view: View) -> tuple[int, str]:
            return view.slots[-1], "last"

    assert kernel_of(CacheAware()) is not None
    assert kernel_of(Weighted(((lambda view: [0.0] * len(view.slots), 1.0),))) is None
    assert kernel_of(Last()) is None
    decision = Router(["a", "b", "c"], policy=Last()).choose([1, 2, 3])
    assert (decision.replica, decision.reason) == ("c", "last")


def test_turns_are_taken_with_any_seed() -> None:
    for seed in (0, 7, -3, 2**63 - 1, 2**64 - 1, 2**80, -(2**70)):
        slots = [RoundRobin().decide(view([0] * 5, seed=seed, decision_id=number))[0] for number in range(12)]
        assert slots == [(number + seed) % 5 for number in range(12)]


def test_the_less_loaded_of_two_holders_stays() -> None:
    """Two draws with replacement: the busier of two holders is taken only when it is drawn twice."""
    seen = view([5, 0, 0], [2_048, 2_048, 0])
    taken = Counter(CacheAware().decide(seen._replace(decision_id=number))[0] for number in range(2_000))
    assert 1_400 <= taken[1] <= 1_600
    assert taken[0] + taken[1] == 2_000


def test_linear_cost_weighs_queue_and_decode() -> None:
    assert picks(LinearCost(), view([0, 0], [2_048, 0], queued=[3_000, 0])) == {1}
    assert picks(LinearCost(queue=0.5), view([0, 0], [2_048, 0], queued=[3_000, 0])) == {0}
    assert picks(LinearCost(), view([0, 0], [2_048, 0], decoding=[2_000, 0])) == {0}
    assert picks(LinearCost(decode=2.0), view([0, 0], [2_048, 0], decoding=[2_000, 0])) == {1}
    assert picks(LinearCost(credit=0.0), view([0, 0], [2_048, 0])) == {0, 1}
    assert picks(LinearCost(prefill=0.0), view([0, 0], [2_048, 0], decoding=[1, 0])) == {1}
    assert picks(LinearCost(temperature=4_096.0), view([0, 0], [2_048, 0])) == {0, 1}
    assert picks(LinearCost(unit="seconds"), view([0, 0], [2_048, 0])) == {0}
    assert picks(LinearCost(unit="seconds"), view([0, 0], [2_048, 0], queued=[9_000, 0])) == {1}


def test_preble_explores_by_window_and_price() -> None:
    assert reason(PrebleE2(), view([0, 0], [2_064, 0])) == "exploit"
    assert reason(PrebleE2(), view([0, 0], [2_048, 0])) == "explore"
    assert picks(PrebleE2(), view([0, 0], [2_048, 0], window_s=[5.0, 0.0])) == {1}
    assert reason(PrebleE2(share=0.4), view([0, 0], [2_048, 0])) == "exploit"
    assert picks(PrebleE2(), view([0, 0], [2_064, 2_064], window_s=[5.0, 0.0])) == {1}


def test_min_ttft_predicts_from_queue_match_and_rate() -> None:
    assert picks(MinTtft(), view([0, 0], [2_048, 0])) == {0}
    assert picks(MinTtft(), view([0, 0], [2_048, 0], queued=[9_000, 0])) == {1}
    slow = view([0, 0], rates=[1_000.0, 50_000.0])
    assert picks(MinTtft(), slow) == {1}
    assert picks(MinTtft(learn=False), slow) == {0, 1}
    times = MinTtft().predict(view([0, 0, 0], rates=[10_000.0, 30_000.0, None]))
    assert times[1] < times[2] < times[0]  # an unknown replica counts as the mean of the known


def test_min_ttft_may_fetch_and_may_refuse() -> None:
    fetching = MinTtft(transfer_tokens_per_s=1e6)
    busy_holder = view([0, 0], [4_080, 0], queued=[30_000, 0])
    assert fetching.predict(busy_holder)[1] < MinTtft().predict(busy_holder)[1]
    late = view([0], queued=[500_000], request=RequestInfo(slo_ttft_s=0.1))
    with pytest.raises(OverloadedError) as caught:
        MinTtft(reject=True).decide(late)
    assert caught.value.retry_after_s > 0
    assert picks(MinTtft(), late) == {0}


def report(waiting: int | None = 0, running: int | None = 0, kv: float | None = 0.0) -> LoadReport:
    return LoadReport(at=0.0, waiting=waiting, running=running, waiting_tokens=0, kv_use=kv, tokens_per_s=2_000.0)


def test_unknown_load_is_never_zero() -> None:
    half = view([0, 5], reports=[None, report(kv=0.9)])
    for policy in (LeastLoaded(by="kv-use"), LeastLoaded(by="seconds"), PowerOfTwo(by="ranks")):
        assert picks(policy, half) == {0}  # by the book: the one that has not reported is not taken for idle
        assert picks(policy, view([5, 0], reports=[None, report(kv=0.9)])) == {1}
    assert Weighted(scorers=(("kv-use", 1.0),)).decide(half).values == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize(
    ("by", "fields", "expected"),
    [
        ("requests", {"in_flight": [2, 1]}, {1}),
        ("uncached-tokens", {"queued": [10, 90]}, {0}),
        ("held-tokens", {"held": [10, 90]}, {0}),
        ("kv-use", {"reports": [report(kv=0.5), report(kv=0.4)]}, {1}),
        ("seconds", {"reports": [report(kv=0.9), report(kv=0.1)]}, {1}),
        ("seconds", {"reports": [report(), report()], "queued": [4_000, 0]}, {1}),
    ],
)
def test_least_loaded_by_other_measures(by: str, fields: dict[str, Any], expected: set[int]) -> None:
    assert picks(LeastLoaded(by=by), view([0, 0], **fields)) == expected


@pytest.mark.parametrize(
    "unknown", [LoadReport(0.0, kv_use=0.0), LoadReport(0.0, waiting=0), LoadReport(0.0, waiting_tokens=0)]
)
def test_half_a_report_is_not_a_load(unknown: LoadReport) -> None:
    seen = view([0, 5], reports=[report(kv=0.5), unknown])
    assert reason(LeastLoaded(by="seconds"), seen) == "unreported"
    assert picks(LeastLoaded(by="seconds"), seen) == {0}


def test_waiting_requests_stand_for_tokens() -> None:
    busy = LoadReport(0.0, waiting=4, kv_use=0.0)
    idle = LoadReport(0.0, waiting_tokens=4_000, kv_use=0.0)
    assert picks(LeastLoaded(by="seconds"), view([0, 0], reports=[busy, idle])) == {1}  # 4 x 1,024 against 4,000


def test_ranks_compare_in_order() -> None:
    policy = PowerOfTwo(by="ranks")
    assert picks(policy, view([9, 0], reports=[report(waiting=0), report(waiting=1)])) == {0}
    assert picks(policy, view([9, 0], reports=[report(running=2), report(running=1)])) == {1}
    assert picks(policy, view([9, 0], reports=[report(), report()])) == {1}
    assert picks(policy, view([0, 9], reports=[report(waiting=None), report()])) == {1}


@pytest.mark.parametrize(
    "policy", [Rendezvous(), Bounded(key="session"), Bounded(), PrefixHash(), Rendezvous(key="document")]
)
def test_keys_spread_and_stay(policy: Policy) -> None:
    def place(key: int) -> int:
        request = RequestInfo(session=f"s{key}", attrs={"document": f"d{key}"})
        seen = view([0] * 8, request=request, head=key)
        return resolve(policy.decide(seen), seen, policy.name)[0]

    counts = Counter(place(key) for key in range(4_000))
    assert all(400 <= counts[slot] <= 600 for slot in range(8))
    assert [place(key) for key in range(50)] == [place(key) for key in range(50)]


def test_rendezvous_honours_weights() -> None:
    weighted = [view([0] * 3, weights=(1.0, 1.0, 2.0), request=RequestInfo(session=f"s{i}")) for i in range(4_000)]
    counts = Counter(resolve(Rendezvous().decide(v), v, "")[0] for v in weighted)
    assert 1_850 <= counts[2] <= 2_150
    assert 900 <= counts[0] <= 1_100


def test_prefix_hash_leaves_an_overloaded_home() -> None:
    home = picks(PrefixHash(), view([0] * 4)).pop()
    loads = [0.0] * 4
    loads[home] = 12
    assert picks(PrefixHash(), view(loads)) == {home}  # above the mean of 3, but not by more than 10
    loads[home] = 20
    assert home not in picks(PrefixHash(), view(loads))


def test_bounded_overflow_feeds_the_starving_first() -> None:
    full = view([0] * 4)
    order = [full.names.index(name) for name in ("r0", "r1", "r2", "r3")]
    home = picks(Bounded(), full).pop()
    loads = [10.0] * 4
    loads[home] = 14
    starved = next(slot for slot in order if slot != home)
    loads[starved] = 0
    assert picks(Bounded(), view(loads)) == {starved}
    assert reason(Bounded(), view(loads)) == "overflow_starving"
    assert reason(Bounded(), view([0.5] * 4)) == "full"  # loads divided by weights need not leave room for a whole one


def test_weighted_scorers_and_filter() -> None:
    seen = view([0, 4, 8], [0, 2_048, 4_080])
    assert picks(Weighted((("prefix", 1.0),)), seen) == {2}
    assert picks(Weighted((("load", 1.0),)), seen) == {0}
    assert picks(Weighted((("queue", 2.0), ("prefix", 1.0))), seen) == {0}
    assert picks(Weighted((("queue", 2.0), ("prefix", 1.0)), affinity=0.4), seen) == {1}
    assert picks(Weighted((("prefix", 1.0),), temperature=5.0), seen) == {0, 1, 2}
    assert picks(Weighted((("tokens", 1.0),)), seen._replace(queued=[9, 1, 5])) == {1}
    assert picks(Weighted((("session", 1.0),)), seen._replace(binding=1)) == {1}
    assert picks(Weighted(((lambda v: [float(s == 1) for s in v.slots], 9.0), ("prefix", 1.0))), seen) == {1}
    assert picks(Weighted(((lambda v: np.array(v.slots) == 1, 9.0), ("prefix", 1.0))), seen) == {1}
    assert Weighted((("length", 1.0),)).decide(seen).values == pytest.approx([0.0, 1 / 16, (4_080 / 8_192) ** 2])


def test_no_hit_lru_spreads_cold_requests_only() -> None:
    policy = Weighted((("no-hit-lru", 1.0), ("prefix", 1.0)))
    assert picks(policy, view([0, 0, 0], last_miss=[5, 2, 9])) == {1}
    assert picks(policy, view([0, 0, 0], last_miss=[5, -1, 2])) == {1}
    assert picks(policy, view([0, 0, 0], [0, 0, 2_048], last_miss=[5, 2, 9])) == {2}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_policy("fastest"), "'fastest'.*round-robin, random"),
        (lambda: as_policy(3), "Policy.* 3$"),  # type: ignore[arg-type]
        (lambda: as_policy(CacheAware), "Policy.*CacheAware"),  # type: ignore[arg-type]
        (lambda: CacheAware(spill="often"), "spill.*least, candidate.*'often'"),
        (lambda: CacheAware(spill_gap=-1), "spill_gap.* 0,.* -1"),
        (lambda: CacheAware(min_match_ratio=2), "min_match_ratio.* 0 .* 1,.* 2"),
        (lambda: LeastLoaded(by="mood"), "by.*kv-use.*'mood'"),
        (lambda: PowerOfTwo(by="mood"), "by.*load, ranks.*'mood'"),
        (lambda: Bounded(factor=1.0), r"factor.* 1,.* 1\.0"),
        (lambda: Bounded(key="ip"), "key.*session, head, document.*'ip'"),
        (lambda: Rendezvous(key="ip"), "key.*session, head, document.*'ip'"),
        (lambda: LinearCost(unit="miles"), "unit.*tokens, seconds.*'miles'"),
        (lambda: LinearCost(temperature=-1), "temperature.* 0,.* -1"),
        (lambda: LinearCost(queue=float("nan")), "queue.*number.*nan"),
        (lambda: LinearCost(credit=float("inf")), "credit.*number.*inf"),
        (lambda: LMetric(batch="miles"), "batch.*'miles'"),
        (lambda: Weighted(()), "scorers.*saved, prefix"),
        (lambda: Weighted((("luck", 1.0),)), "luck"),
        (lambda: Weighted(affinity=2.0), r"affinity.* 0 .* 1,.* 2\.0"),
        (lambda: describe("none"), "'none'.*round-robin, random"),
    ],
)
def test_errors_say_what_was_given_and_what_is_allowed(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: 99, r" 99,.*\(0, 1, 2\)"),
        (lambda _: [1.0], " 1 .* 3 "),
        (lambda _: [float("nan")] * 3, "number.*nan, nan, nan"),
        (lambda _: [1.0, 2.0, float("nan")], "number.*nan"),
        (lambda _: ["a", "b", "c"], "number.*'a', 'b', 'c'"),
        (lambda _: [1.0, None, 2.0], "number.*None"),
        (lambda _: np.array([1.0, float("nan"), 2.0]), "number.*nan"),
        (lambda _: np.array(["a", "b", "c"]), "number.*'a', 'b', 'c'"),
        (lambda _: np.ones((3, 2)), r"score.*array\(\[\[1"),
        (lambda _: Scores(None, "r"), "score.*None"),  # type: ignore[arg-type]
        (lambda _: Scores([1.0, 2.0, 3.0], "r", math.nan), "temperature.*'<lambda>'.* 0.*nan"),
        (lambda _: Scores([1.0, 2.0, 3.0], "r", -1.0), r"temperature.*'<lambda>'.* 0.*-1\.0"),
        (lambda _: Scores([1.0, 2.0, 3.0], "r", "hot"), "temperature.*'<lambda>'.*number.*'hot'"),  # type: ignore[arg-type]
        (lambda _: Scores([1.0, 2.0, 3.0], None), "reason.*None"),  # type: ignore[arg-type]
        (lambda _: Scores({1.0, 2.0, 3.0}, "r"), "score.*{1.0, 2.0, 3.0}"),  # type: ignore[arg-type]
        (lambda _: [1.0, np.complex128(2), 3.0], "number.*complex128"),
        (lambda _: -4, " -4,"),
        (lambda _: (-1, "last"), " -1,"),
        (lambda _: -(2**70), f" {-(2**70)},"),
        (lambda _: np.ones(2), " 2 .* 3 "),
        (lambda _: np.ones(3, complex), r"number.*1\.\+0\.j"),
        (lambda _: (np.ones(3), "because"), r"\(slot, reason\).*'because'"),
        (lambda _: (np.ones((3, 3)), "because"), r"(?s)\(slot, reason\).*'because'"),
        (lambda _: np.array(99), " 99,"),
        (lambda _: None, r"\(slot, reason\).*None"),
        (lambda _: True, r"\(slot, reason\).*True"),
        (lambda _: "r0", r"\(slot, reason\).*'r0'"),
    ],
)
def test_a_wrong_answer_is_refused(answer: Any, message: str) -> None:
    policy, seen = as_policy(answer), view([0, 0, 0])
    with pytest.raises(ConfigError, match=message):
        resolve(policy.decide(seen), seen, policy.name)


def test_a_scorer_gives_a_number_for_each_slot() -> None:
    cases: list[tuple[Any, str]] = [
        ([1.0], "weighted.* 1 .* 3 "),
        (["a", 1, 2], "number.*str"),
        *((wrong, "weighted.*number") for wrong in (None, 3, {1, 2, 3}, "abc", np.ones((3, 1)), np.array(1))),
    ]
    for wrong, message in cases:
        with pytest.raises(ConfigError, match=message):
            Weighted(((lambda _, wrong=wrong: wrong, 1.0),)).decide(view([0, 0, 0]))


@pytest.mark.parametrize("load", [1, 7, 100, 12_345])
def test_a_load_at_the_limit_is_kept(load: int) -> None:
    """One of five is busy: its load is the mean plus exactly two standard deviations."""
    holds = view([0, 0, load, 0, 0], [0, 0, 2_048, 0, 0])
    assert picks(CacheAware(spill="spread", spill_ratio=2.0), holds) == {2}
    assert 2 not in picks(CacheAware(spill="spread", spill_ratio=1.999), holds)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("cache-aware:min_match_tokens=512:spill=mean:spill_ratio=1.5", CacheAware(512, spill="mean", spill_ratio=1.5)),
        ("cache-aware:shorter=true:fallback=random", CacheAware(shorter=True, fallback=as_policy("random"))),
        ("bounded:key=session:factor=2", Bounded(key="session", factor=2.0)),
        ("min-ttft:learn=false", MinTtft(learn=False)),
        ("ray:gate_gap=5", replace(presets()["ray"].policy, gate_gap=5.0)),
        ("smg-2026-10:spill=mean", replace(presets()["smg-2026-10"].policy, spill="mean")),
    ],
)
def test_parameters_follow_a_name(text: str, policy: Policy) -> None:
    assert as_policy(text) == policy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cache-awar:spill=mean", "'cache-awar'; .*round-robin.*'cache-aware'"),
        ("cache-aware:", "cache-aware .*''; .*min_match_tokens, "),
        ("cache-aware:spill", "cache-aware .*'spill'"),
        ("cache-aware:min_match=5", "cache-aware .*'min_match'; .*spill, .*'min_match_tokens'"),
        ("round-robin:a=1", "round-robin .*'a'; .*none"),
        ("cache-aware:min_match_tokens=1.5", r"min_match_tokens.*number.*'1\.5'"),
        ("cache-aware:min_match_tokens=-1", "min_match_tokens.* 0 .* -1"),
        ("cache-aware:shorter=yes", "shorter.*true.*false.*'yes'"),
        ("cache-aware:fallback=none", "'none'.*round-robin"),
        ("bounded:factor=fast", "factor.*number.*'fast'"),
        ("bounded:factor=nan", "factor.*number.*nan"),
        ("weighted:scorers=prefix", "weighted.*scorers.*Python"),
        ("linear-cost:cost=H100", "linear-cost.*cost.*Python"),
        ("dynamo:depth=1", "dynamo.*'depth'; .*prefill, "),
        ("ray:holders=all", "holders.*two, least, one.*'all'"),
        ("cache-aware:decide=1", "cache-aware .*'decide'; .*min_match_tokens, "),
        ("cache-aware:name=x", "cache-aware .*'name'; .*min_match_tokens, "),
    ],
)
def test_a_wrong_parameter_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        as_policy(text)


def test_answers_of_every_form() -> None:
    seen = view([0, 0, 0])
    assert picks(as_policy(lambda v: v.slots[1]), seen) == {1}
    assert picks(as_policy(lambda _: (2, "because")), seen) == {2}
    assert picks(as_policy(lambda _: [0.0, 5.0, 5.0]), seen) == {1, 2}
    assert picks(as_policy(lambda _: [Fraction(1, 3), True, 10**400]), seen) == {2}
    for kind in (np.float64, np.float32, np.int64, object):
        assert picks(as_policy(lambda _, kind=kind: np.array([0, 5, 5], kind)), seen) == {1, 2}
    assert picks(as_policy(lambda _: np.array(1)), seen) == {1}

    class Last(Policy):
        name = "last"

        def decide(self, view: View) -> int:  # type: ignore[override]  # the short form
            return view.slots[-1]

    assert picks(Last(), seen) == {2}


def test_random_reaches_everyone() -> None:
    assert picks(Random(), view([0] * 8)) == set(range(8))


@pytest.mark.parametrize("name", presets())
def test_presets_are_dated_and_say_how_they_differ(name: str) -> None:
    preset = presets()[name]
    assert preset.name == name
    assert preset.date >= "2026"
    assert preset.source
    assert len(preset.differs) > 40
    assert describe(name).differs == preset.differs
    assert describe(name).parameters


def test_it_is_said_of_every_preset_whether_the_original_was_run_beside_it() -> None:
    run = {"dynamo", "ray", "sglang-router-0.3", "smg-2026-08", "smg-2026-10"}
    assert {name for name, preset in presets().items() if preset.checked} == run
    for name in presets():
        first = "Checked against the original: " if name in run else "Not checked: "
        assert describe(name).checked.startswith(first)
    assert not any(describe(name).checked for name in POLICIES)


def test_presets_are_those_promised() -> None:
    assert set(presets()) == {
        "sglang-balanced",
        "sglang-prefer",
        "sglang-session",
        "sglang-router-0.3",
        "smg-2026-08",
        "smg-2026-10",
        "production-stack-session",
        "production-stack-prefix",
        "aibrix",
        "llmd-approx",
        "dynamo",
        "ray",
        "kubeai",
        "l7-header-hash",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name="x"\ndate="1"\nsource=""\ndiffers=""\nhue=1\n[policy]\nname="random"', "'x'.*hue"),
        ('name="x"\ndate="1"\nsource=""\ndiffers=""\n[policy]\nname="best"', "'best'.*round-robin"),
        ('name="x"\ndate="1"\nsource=""\ndiffers=""\n[policy]\nname="bounded"\nload=2', "bounded.*'load'; .*factor, "),
    ],
)
def test_a_wrong_preset_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_preset(text, POLICIES)


def order(seen: View, key: int) -> list[int]:
    """Each next choice of a key once those before it are gone."""
    first = Rendezvous("head").decide(seen._replace(head=key))[0]
    return [first, *order(seen.without(first), key)] if len(seen.slots) > 1 else [first]


def test_placement_is_the_same_for_ever() -> None:
    """Routers of different versions must agree without talking: these values are pinned."""
    names = [f"http://10.0.0.{i}:8000" for i in range(1, 6)]
    hashes = tuple(text_hash(name) for name in names)
    placed = [order(view([0] * 5, hashes=hashes), text_hash(f"chat-{i}")) for i in range(4)]
    assert text_hash("http://10.0.0.1:8000") == 0xF53A780B6CF36C46
    assert placed == [[2, 3, 0, 4, 1], [1, 0, 4, 3, 2], [0, 1, 2, 3, 4], [2, 0, 4, 1, 3]]


@pytest.mark.parametrize("name", POLICIES)
def test_what_a_policy_says_of_itself_has_no_markup_of_docstrings(name: str) -> None:
    words = describe(name)
    for text in (words.line, words.about):
        assert "``" not in text
        assert ":`" not in text


def test_the_table_of_signals_is_what_the_code_does() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/design/router.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    header = next(row for row in rows if row[0] == "policy" and "window_s" in row)
    table = {row[0].strip("`"): row for row in rows if len(row) == len(header) and row[0] != "policy"}
    assert set(table) == set(POLICIES)
    for name, row in table.items():
        marks = {signal: row[header.index(signal)] for signal in SIGNALS}
        signals = POLICIES[name]().required_signals()
        assert {signal for signal, mark in marks.items() if mark == "●"} == signals, name
        everything = {signal for policy in variants(name) for signal in policy.required_signals()}
        assert everything <= {signal for signal, mark in marks.items() if mark}, name


def variants(name: str) -> list[Policy]:
    """Return a policy with each value of each parameter that changes what it reads."""
    kind = POLICIES[name]
    options: dict[str, list[dict[str, Any]]] = {
        "least-loaded": [
            {"by": by} for by in ("load", "requests", "uncached-tokens", "held-tokens", "kv-use", "seconds")
        ],
        "power-of-two": [{"by": "ranks"}],
        "lmetric": [{"batch": "decode-tokens"}],
        "linear-cost": [{"unit": "seconds"}, {"active": True}],
        "weighted": [{"scorers": ((scorer, 1.0),)} for scorer in SCORERS],
        "rendezvous": [{"key": "head"}],
    }
    found = [kind(**option) for option in options.get(name, [{}])]
    return found + [kind(fallback=as_policy(lambda _: 0)) for _ in range("fallback" in kind.__dataclass_fields__)]


NOT_A_POLICY: tuple[object, ...] = ("least-loaded", None, 1)
WRONG: dict[str, tuple[object, ...]] = {
    "bool": (1, 0, None, "true", math.nan),
    "int": ("5", None, 1.5, True, math.nan, math.inf, -1, 10**400, [5]),
    "float": ("5", None, True, math.nan, 10**400, -(10**400), 1j, [1.0]),
    "str": (1, None, b"load", ["load"], math.nan, "no-such-word"),
    "str | Link": (None, True, math.nan, [1.0], "no-such-link"),
    "Policy": NOT_A_POLICY,
    "CostModel": ("H100", None, 1),
    "tuple[int, ...]": (5, None, ("5",), (None,), (1.5,), (10**400,), "16"),
    "tuple[tuple[str | Scorer, float], ...]": (
        5, None, (), ("load",), (("load", "1"),), (("load", None),), (("load", math.nan),), (("load", 10**400),),
        ((["load"], 1.0),), ((10**400, 1.0),),
    ),
}  # fmt: skip
"""What a parameter must not be, by how it is declared."""
PARAMETERS = [
    (name, field.name, value)
    for name, kind in POLICIES.items()
    for field in fields(kind)  # type: ignore[arg-type]  # every policy is a dataclass
    if field.init
    for value in WRONG[str(field.type)]
]


@pytest.mark.parametrize(("name", "parameter", "value"), PARAMETERS, ids=lambda value: shown(value, most=40))
def test_each_parameter_of_each_policy_refuses_what_it_cannot_be(name: str, parameter: str, value: object) -> None:
    with pytest.raises(ConfigError, match=parameter):
        POLICIES[name](**{parameter: value})


def test_a_class_that_lacks_something_is_refused_when_it_is_entered() -> None:
    class Bare:
        name = "bare"

        def decide(self, view: View) -> tuple[int, str]:
            return view.slots[0], ""

    class Nameless(Policy):
        def decide(self, view: View) -> tuple[int, str]:
            return view.slots[0], ""

    class Idle(Policy):
        name = "idle"

    lacking = {
        Bare: ["Policy", "dataclass"],
        dataclass(Bare): ["Policy"],
        dataclass(Nameless): ["name"],
        dataclass(Idle): ["decide"],
        Random: ["name"],
    }
    for policy, missing in lacking.items():
        with pytest.raises(ConfigError, match=f"{policy.__name__}.*{'.*'.join(missing)}"):
            policies_by_name([Random, policy])
    with pytest.raises(ConfigError, match=r"Policy"):
        as_policy(Bare())
    assert policies_by_name(POLICIES.values()) == POLICIES
