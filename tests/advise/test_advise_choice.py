"""The rule by which a policy is taken, on figures made up for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.advise import Comparison, Profile, Slo, profile
from prefixroute.advise.apart import judged, winner
from prefixroute.advise.choice import (
    AWARE,
    BY_TOKENS,
    JUDGED,
    METRIC,
    OBJECTIVES,
    UNEQUAL,
    Choice,
    beats,
    candidates,
    choose,
    simplicity,
)
from prefixroute.advise.findings import measured
from prefixroute.advise.sample import METRICS, Gaps
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.hashing import BlockHashes
from prefixroute.sim import EngineModel, ResultRow, Scenario
from prefixroute.workload import Request, Workload

PLAIN = {"recompute_ratio": 0.1, "ttft_mean_s": 0.1}


def compared(figures: Mapping[str, Mapping[str, float]], noise: float = 0.0, *, timed: bool = False) -> Comparison:
    """A comparison of policies by what is judged.

    Differences of up to ``noise`` of the smaller value are within the noise.
    """
    names = list(figures)
    rows = tuple(
        ResultRow(
            policy=name,
            replicas=8,
            seeds=1,
            requests=1_000,
            prompt_tokens=1_000_000,
            recomputed_tokens=100_000,
            recompute_ratio=one["recompute_ratio"],
            recompute_ratio_spread=0.0,
            floor=0.01,
            skew=1.2,
            usd_per_million_requests=one[METRIC] / one.get("skew", 1.0),
            ttft_mean_s=one["ttft_mean_s"],
            ttft_p50_s=one["ttft_mean_s"],
            ttft_p90_s=one["ttft_mean_s"],
            ttft_p99_s=one["ttft_mean_s"],
            usd_per_million_requests_busiest=one[METRIC],
            queue_mean_s=0.0 if timed else None,
            preemptions=one.get("preemptions"),
            itl_mean_s=one.get("itl_mean_s"),
            e2e_mean_s=one.get("e2e_mean_s"),
            missed_ratio=one.get("missed_ratio"),
        )
        for name, one in figures.items()
    )
    ends = np.zeros((len(METRICS), len(names), len(names), 3))
    for at, metric in enumerate(METRICS):
        values = np.array([getattr(row, metric) or 0.0 for row in rows])
        ends[at, :, :, 0] = values[:, None] - values[None, :]
        half = noise * np.minimum(values[:, None], values[None, :])
        ends[at, :, :, 1] = ends[at, :, :, 0] - half
        ends[at, :, :, 2] = ends[at, :, :, 0] + half
    best = min(rows, key=lambda row: row.usd_per_million_requests_busiest).policy
    return Comparison("made", METRIC, rows, best, Gaps(tuple(names), ends), 30, (), ())


def by_cost(costs: Mapping[str, float]) -> dict[str, dict[str, float]]:
    return {name: {**PLAIN, METRIC: cost} for name, cost in costs.items()}


@pytest.mark.parametrize(
    ("costs", "noise", "in_use", "taken"),
    [
        # A wide interval is no licence to pay half as much again.
        ({"round-robin": 20.0, "session": 22.2, "cache-aware": 14.9}, 0.6, "round-robin", "cache-aware"),
        ({"round-robin": 20.0, "session": 16.3, "cache-aware": 14.9}, 0.2, None, "session"),
        ({"round-robin": 20.0, "session": 16.5, "cache-aware": 14.9}, 0.2, None, "cache-aware"),
        # Without noise, 3 % is what simplicity is worth.
        ({"round-robin": 20.0, "session": 15.3, "cache-aware": 14.9}, 0.0, None, "session"),
        ({"round-robin": 20.0, "session": 15.4, "cache-aware": 14.9}, 0.0, None, "cache-aware"),
        # Never dearer than what is in use.
        ({"round-robin": 20.0, "session": 15.3, "cache-aware": 14.9}, 0.1, "cache-aware", "cache-aware"),
        ({"round-robin": 10.2, "least-loaded": 10.1, "session": 10.0}, 0.0, "least-loaded", "least-loaded"),
        ({"round-robin": 10.3, "session": 10.1, "dynamo": 10.05}, 0.0, "dynamo", "dynamo"),
    ],
)
def test_the_simplest_is_taken_that_costs_no_more_than_it_may(
    costs: dict[str, float], noise: float, in_use: str | None, taken: str
) -> None:
    assert choose(compared(by_cost(costs), noise), objective="cost", in_use=in_use).policy == taken


@pytest.mark.parametrize(
    ("costs", "noise", "in_use", "taken"),
    [
        # What is in use stays while nothing is better by 3 % beyond the noise, or by 10 % within it.
        ({"round-robin": 10.0, "least-loaded": 10.0, "cache-aware": 10.0}, 0.0, "least-loaded", "least-loaded"),
        ({"round-robin": 10.2, "least-loaded": 10.0, "cache-aware": 9.8}, 0.0, "cache-aware", "cache-aware"),
        ({"round-robin": 10.0, "least-loaded": 10.2, "session": 10.2}, 0.0, "least-loaded", "least-loaded"),
        ({"round-robin": 10.0, "cache-aware": 10.9}, 0.2, "cache-aware", "cache-aware"),
        ({"round-robin": 10.0, "cache-aware": 11.1}, 0.2, "cache-aware", "round-robin"),
        ({"round-robin": 10.0, "cache-aware": 10.4}, 0.0, "cache-aware", "round-robin"),
        # The simplest of those that are worth leaving it for, not of all.
        ({"round-robin": 10.15, "session": 9.98, "cache-aware": 10.3}, 0.0, "cache-aware", "session"),
    ],
)
def test_what_is_in_use_stays_unless_another_is_worth_the_change(
    costs: dict[str, float], noise: float, in_use: str, taken: str
) -> None:
    assert choose(compared(by_cost(costs), noise), objective="cost", in_use=in_use).policy == taken


def test_a_policy_is_not_taken_for_its_simplicity_if_another_is_better_in_all_that_is_judged() -> None:
    def figures(better: float) -> dict[str, dict[str, float]]:
        known = {"round-robin": 2.0, "document": 1.0, "cache-aware": better}
        return {name: dict.fromkeys(JUDGED, value) for name, value in known.items()}

    assert choose(compared(figures(0.96), 0.2)).policy == "cache-aware"
    assert choose(compared(figures(0.98), 0.2)).policy == "document"
    assert choose(compared(figures(0.96), 0.2), in_use="document").policy == "document"
    mixed = figures(0.96) | {"cache-aware": dict.fromkeys(JUDGED, 0.96) | {"recompute_ratio": 1.0}}
    assert choose(compared(mixed, 0.2)).policy == "document"


def test_requests_of_very_unequal_lengths_are_balanced_by_tokens_too() -> None:
    def lengths(*tokens: int) -> Profile:
        hashes = np.arange(1, 10_001, dtype=np.uint64)

        def source() -> Iterator[Request]:
            for number, count in enumerate(tokens):
                prompt = BlockHashes(hashes[: count // 16] + number * 100_000, token_count=count, block_size=16)
                yield Request(float(number), prompt, prompt, count, 10, session=f"s{number}")

        return profile(Workload("lengths", 16, source, len(tokens)))

    uneven, even = lengths(*[1_000] * 9, 20_000), lengths(*[1_000] * 5, *[2_000] * 5)
    assert even.unequal < UNEQUAL <= uneven.unequal == pytest.approx(np.std([1_000] * 9 + [20_000]) / 2_900)
    timed = Scenario(replicas=4, engine=EngineModel(CostModel()))
    more = {one.policy_name: one.load_signal for one in candidates(uneven, timed)[-2:]}
    assert more == {BY_TOKENS: "uncached_tokens", "lmetric": "requests"}
    for facts, fleet in ((even, timed), (uneven, Scenario(replicas=4)), (uneven, replace(timed, load="in_flight"))):
        assert "lmetric" not in {one.policy_name for one in candidates(facts, fleet)}
    assert len(candidates(uneven, replace(timed, replicas=1))) == 1


def test_a_policy_that_preempts_more_than_is_borne_is_not_taken_if_another_does_not() -> None:
    def figures(*preemptions: float) -> dict[str, dict[str, float]]:
        known = by_cost({"round-robin": 10.0, "session": 10.0, "cache-aware": 20.0})
        return {
            name: {**one, "preemptions": count} for (name, one), count in zip(known.items(), preemptions, strict=True)
        }

    found = choose(compared(figures(51, 60, 50), timed=True))  # of 1,000 requests
    assert found.policy == "cache-aware"
    assert {one.policy: one.why for one in found.rejected} == {"round-robin": "preempts", "session": "preempts"}
    assert choose(compared(figures(51, 60, 50), timed=True), most_preempted=0.1).policy == "round-robin"
    everywhere = compared(figures(200, 200, 200), timed=True)
    assert choose(everywhere).policy == "round-robin"
    (finding,) = (one for one in measured(everywhere.rows[0], Scenario()) if one.kind == "preemptions")
    assert finding.evidence["preempted"] == 0.2


def test_a_policy_that_is_far_slower_than_what_is_in_use_is_not_taken() -> None:
    known = {"round-robin": (20.0, 0.10), "session": (15.0, 0.16), "cache-aware": (15.0, 0.14)}
    figures = {
        name: {"recompute_ratio": 0.1, METRIC: cost, "ttft_mean_s": ttft} for name, (cost, ttft) in known.items()
    }
    assert choose(compared(figures, 0.3, timed=True), objective="cost").policy == "cache-aware"
    assert choose(compared(figures, 0.3), objective="cost").policy == "session"  # untimed, nobody knows of queues


@pytest.mark.parametrize(
    ("round_robin", "aware", "noise", "cost"),
    [
        ((0.949, 0.436, 100.0), (0.887, 0.400, 99.5), 0.02, None),
        ((0.9485, 0.4023, 507.2), (0.8884, 0.3803, 532.3), 0.01, (25.1, -54.0, 104.0)),  # untimed, on 8 replicas
    ],
)
def test_what_is_better_in_recompute_and_ttft_is_advised_where_the_cost_is_within_the_noise(
    round_robin: tuple[float, ...], aware: tuple[float, ...], noise: float, cost: tuple[float, ...] | None
) -> None:
    """The Mooncake conversation trace: the noise hides the dollars of the busiest replica, and nothing else."""
    known = {"round-robin": round_robin, "cache-aware": aware}
    figures = {
        name: dict(zip(("recompute_ratio", "ttft_mean_s", METRIC), each, strict=True)) for name, each in known.items()
    }
    found = compared(figures, noise)
    if cost is not None:
        wide = found.gaps.ends.copy()
        value, low, high = cost
        wide[METRICS.index(METRIC), 1, 0], wide[METRICS.index(METRIC), 0, 1] = cost, (-value, -high, -low)
        found = replace(found, gaps=Gaps(found.gaps.policies, wide))
    choice = choose(found, objective="balanced" if cost else "cost")
    assert choice.policy == "cache-aware"
    (rejected,) = choice.rejected
    assert (rejected.policy, rejected.why, rejected.by) == ("round-robin", "beaten", "cache-aware")
    assert rejected.metrics == ("recompute_ratio", "ttft_mean_s")


def test_a_wide_interval_of_the_cost_excuses_no_cost() -> None:
    figures = {
        "session": {"recompute_ratio": 0.060, "ttft_mean_s": 0.0027, METRIC: 3.65},
        "cache-aware": {"recompute_ratio": 0.053, "ttft_mean_s": 0.0024, METRIC: 6.41},
    }
    found = compared(figures, 0.1)
    wide = found.gaps.ends.copy()
    wide[METRICS.index(METRIC), ..., 1:] = [-100.0, 100.0]
    choice = choose(replace(found, gaps=Gaps(found.gaps.policies, wide)))
    assert (choice.policy, choice.rejected) == ("session", ())


def test_where_objectives_disagree_each_takes_its_own_and_the_tradeoff_is_named() -> None:
    figures = {
        "session": {"recompute_ratio": 0.05, "ttft_mean_s": 0.200, METRIC: 10.0},
        "cache-aware": {"recompute_ratio": 0.05, "ttft_mean_s": 0.100, METRIC: 12.0},
    }
    found = compared(figures, 0.01)
    taken = {objective: choose(found, objective=objective).policy for objective in OBJECTIVES}
    assert taken == {"cost": "session", "ttft": "cache-aware", "balanced": "cache-aware"}
    choice = choose(found, objective="cost")
    assert choice.by_objective == taken
    (tradeoff,) = choice.tradeoffs
    assert (tradeoff.policy, tradeoff.better, tradeoff.worse) == ("cache-aware", ("ttft_mean_s",), (METRIC,))
    with pytest.raises(ConfigError, match=r"objective\b.*cost, ttft, balanced.*'joy'"):
        choose(found, objective="joy")


def test_what_cannot_keep_up_is_not_taken_unless_nothing_can() -> None:
    found = compared(by_cost({"round-robin": 20.0, "session": 10.0, "cache-aware": 15.0}))
    assert choose(replace(found, behind={"session": 1})).policy == "cache-aware"
    assert (
        choose(replace(found, behind=dict.fromkeys(("round-robin", "session", "cache-aware"), 8))).policy == "session"
    )


figure = st.floats(0.01, 1_000, allow_nan=False)
table = st.dictionaries(
    st.sampled_from([*simplicity(), f"{AWARE}:min_match_tokens=2016"]),
    st.fixed_dictionaries({"recompute_ratio": st.floats(0.01, 1), "ttft_mean_s": figure, METRIC: figure}),
    min_size=1,
)


@given(
    table,
    st.floats(0, 2),
    st.sampled_from(list(OBJECTIVES)),
    st.sampled_from([None, *simplicity()]),
    st.sets(st.sampled_from(simplicity())),
)
def test_the_choice_never_contradicts_the_table(
    figures: dict[str, dict[str, float]], noise: float, objective: str, in_use: str | None, behind: set[str]
) -> None:
    found = replace(compared(figures, noise), behind=dict.fromkeys(behind & figures.keys(), 1))
    in_use = in_use if in_use in figures else None
    choice = choose(found, objective=objective, in_use=in_use, among=list(figures))
    check(found, choice)
    for other in OBJECTIVES:
        assert choose(found, objective=other, in_use=in_use, among=list(figures)).policy == choice.by_objective[other]


def check(found: Comparison, choice: Choice) -> None:
    """Check what a reader of the table would object to."""
    left = [row.policy for row in found.rows if row.policy not in {one.policy for one in choice.rejected}]
    assert choice.policy in left
    assert found.row(choice.policy)
    keeping_up = [row.policy for row in found.rows if not found.is_overloaded(row.policy)]
    assert not keeping_up or choice.policy in keeping_up or keeping_up == ["round-robin"]  # which may be a coincidence
    for other in left:
        assert not beats(found, other, choice.policy) or all(
            any(beats(found, third, name) for third in left if third != name) for name in left
        )  # noise can make a circle
    for one in choice.tradeoffs:
        assert one.better
        assert one.worse
    for one in choice.rejected:
        if one.why == "beaten":
            assert beats(found, str(one.by), one.policy) == one.metrics
            assert set(one.metrics) <= set(JUDGED)


def test_beside_dollars_stands_the_skew_of_prefill_time() -> None:
    found = compared({"session": {**PLAIN, METRIC: 10.0, "skew": 1.67}})
    (finding,) = measured(found.row("session"), Scenario())
    assert (finding.kind, finding.severity) == ("skew", "warning")
    assert finding.evidence == {"prefill_skew": pytest.approx(1.67), "skew": 1.2}


@pytest.mark.parametrize(
    ("times", "slos", "noise", "wins"),
    [
        ((0.10, 0.020, 2.0, 0.2), "", 0.01, ("itl_mean_s", "e2e_mean_s")),  # an even pace, and nothing lost
        ((0.13, 0.020, 2.0, 0.1), "", 0.01, None),  # but prompts move for 30 ms
        ((0.13, 0.020, 2.0, 0.1), "tpot_p95=50ms", 0.01, ("missed_ratio",)),  # which breaks no promise
        ((0.10, 0.020, 2.0, 0.3), "tpot_p95=50ms", 0.01, None),  # more requests break theirs
        ((0.10, 0.020, 2.0, 0.1), "", 0.6, None),  # within the noise
        ((0.10, 0.030, 3.0, 0.2), "", 0.01, None),  # nothing is better
    ],
)
def test_a_split_wins_where_it_is_better_beyond_the_noise_and_worse_in_nothing_promised(
    times: tuple[float, ...], slos: str, noise: float, wins: tuple[str, ...] | None
) -> None:
    names = ("ttft_mean_s", "itl_mean_s", "e2e_mean_s", "missed_ratio")
    figures = {"session": (0.10, 0.030, 3.0, 0.2), "session, 1+3": times, "session, 2+2": (0.5, 0.02, 9.0, 0.9)}
    found = compared(
        {name: {**PLAIN, METRIC: 10.0, **dict(zip(names, each, strict=True))} for name, each in figures.items()},
        noise=noise,
        timed=True,
    ).against("session")
    won = winner(found, judged(Slo.parse_all(slos) if slos else ()))
    assert won == (None if wins is None else ("session, 1+3", wins))
