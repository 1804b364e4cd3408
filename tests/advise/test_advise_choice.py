"""The rule by which a policy is taken, on figures made up for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefixroute.advise import Comparison, Difference, Interval
from prefixroute.advise.choice import choose, simplicity
from prefixroute.advise.findings import measured
from prefixroute.advise.tree import because, margin
from prefixroute.sim import Row, Scenario

NOTHING = Interval(0.0, 0.0, 0.0)


def compared(
    costs: dict[str, float], ties: tuple[str, ...] = (), ttft: dict[str, float] | None = None, skew: float = 1.0
) -> Comparison:
    """A comparison of policies by their dollars at the busiest replica, ``skew`` times the mean."""
    reference = min(costs, key=costs.__getitem__)
    rows, differences = [], []
    for name, cost in costs.items():
        seconds = (ttft or {}).get(name, 0.1)
        rows.append(
            Row(
                policy=name,
                replicas=8,
                seeds=1,
                requests=1_000,
                prompt_tokens=1_000_000,
                recomputed_tokens=100_000,
                recompute_ratio=0.1,
                recompute_ratio_spread=0.0,
                floor=0.05,
                skew=1.2,
                usd_per_million_requests=cost / skew,
                ttft_mean_s=seconds,
                ttft_p50_s=seconds,
                ttft_p90_s=seconds,
                ttft_p99_s=seconds,
                usd_per_million_requests_busiest=cost,
                queue_mean_s=None if ttft is None else 0.0,
            )
        )
        verdict = "reference" if name == reference else "tie" if name in ties else "worse"
        gap = cost - costs[reference]
        differences.append(
            Difference(name, verdict, *[NOTHING] * 6, Interval(gap, gap / 2 - (verdict == "tie") * gap, 2 * gap))
        )
    return Comparison("made", "usd", tuple(rows), reference, tuple(differences), None, 30, (), ())


@pytest.mark.parametrize(
    ("costs", "ties", "in_use", "taken"),
    [
        # The trace of few sessions: a wide interval is no licence to pay half as much again.
        ({"round-robin": 20.0, "session": 22.2, "cache-aware": 14.9}, ("session",), "round-robin", "cache-aware"),
        ({"round-robin": 20.0, "session": 16.3, "cache-aware": 14.9}, ("session",), None, "session"),
        ({"round-robin": 20.0, "session": 16.5, "cache-aware": 14.9}, ("session",), None, "cache-aware"),
        # Without noise, 3 % is what simplicity is worth.
        ({"round-robin": 20.0, "session": 15.3, "cache-aware": 14.9}, (), None, "session"),
        ({"round-robin": 20.0, "session": 15.4, "cache-aware": 14.9}, (), None, "cache-aware"),
        # Never dearer than what is in use.
        ({"round-robin": 20.0, "session": 15.3, "cache-aware": 14.9}, ("session",), "cache-aware", "cache-aware"),
        ({"round-robin": 10.2, "least-loaded": 10.1, "session": 10.0}, (), "least-loaded", "least-loaded"),
        ({"round-robin": 10.3, "session": 10.1, "dynamo": 10.05}, (), "dynamo", "dynamo"),
    ],
)
def test_the_simplest_is_taken_that_costs_no_more_than_it_may(
    costs: dict[str, float], ties: tuple[str, ...], in_use: str | None, taken: str
) -> None:
    assert choose(compared(costs, ties), in_use=in_use) == taken


def test_a_policy_that_is_far_slower_than_what_is_in_use_is_not_taken() -> None:
    costs = {"round-robin": 20.0, "session": 15.0, "cache-aware": 15.0}
    known = {"round-robin": 0.10, "session": 0.16, "cache-aware": 0.14}
    assert choose(compared(costs, ttft=known)) == "cache-aware"
    assert choose(compared(costs, ttft={**known, "session": 0.15})) == "session"
    assert choose(compared(costs)) == "session"  # in order nobody knows of queues
    assert choose(compared(costs), slow={"session"}) == "cache-aware"


def test_what_is_advised_stands_first_in_each_sentence() -> None:
    found = compared({"round-robin": 20.0, "session": 15.3, "cache-aware": 14.9, "dynamo": 17.0}, ("session",))
    told = margin(found, "session", simplicity())
    assert told.startswith(
        "cache-aware would cost $0.40 less per million requests, inside the noise; session is simpler."
    )
    assert told.endswith(
        "dynamo is dearer than cache-aware beyond the noise, and costs $1.70 more than session by the point estimate."
    )
    wide = compared({"round-robin": 20.0, "session": 22.2, "cache-aware": 14.9}, ("session",))
    assert "session is simpler and its interval is wide, but by the point estimate it costs 49 % more" in margin(
        wide, "cache-aware", simplicity()
    )


def test_beside_dollars_stands_the_skew_of_prefill_time() -> None:
    found = compared({"round-robin": 20.0, "session": 10.0}, skew=1.67)
    assert "busiest replica has 1.67 times the mean of the prefill time" in because(found, "session", "round-robin")
    (finding,) = measured(found.row("session"), Scenario())
    assert finding.evidence["prefill_skew"] == pytest.approx(1.67)
    assert "1.20 times the mean of the requests" in finding.text


def test_no_routing_is_needed_only_where_none_recomputes_much_less() -> None:
    found = compared({"round-robin": 10.0, "session": 20.0})
    assert because(found, "round-robin", "round-robin").startswith("No prefix-aware routing is needed")
    heavy = replace(found.row("round-robin"), recompute_ratio=0.7)
    uneven = replace(found, rows=(heavy, found.row("session")))
    assert because(uneven, "round-robin", "round-robin") == (
        "session would recompute 10.0 % of the prompt tokens instead of 70.0 %, but costs more at its busiest replica."
    )
