"""``simulate`` with several routers: what is refused, and what a result says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SIMULATE = ("simulate", "chat,requests=60,arrivals=poisson:10", "--policies", "session", "--seeds", "1", "-q")
NAMES = ("routers", "front", "peer_delay_s")
SHARING = ("--routers", "8", "--peer-delay", "100ms")


FRONTS: dict[tuple[str, ...], tuple[dict[str, Any], tuple[str, ...]]] = {
    (): ({}, ()),
    ("--routers", "2"): ({"routers": 2, "front": "round-robin"}, ("2 routers", "round-robin")),
    ("--timed", *SHARING): (
        {"routers": 8, "front": "round-robin", "peer_delay_s": 0.1},
        ("8 routers", "round-robin", "100 ms"),
    ),
    ("--routers", "2", "--sticky-front", "--peer-delay", "0"): (
        {"routers": 2, "front": "sticky", "peer_delay_s": 0.0},
        ("2 routers", "sticky"),
    ),
    ("--routers", "2", "--sticky-front"): ({"routers": 2, "front": "sticky"}, ("2 routers", "sticky")),
}
"""Options, the assumptions that they make, and what the title names of them."""


def test_a_result_says_what_stands_before_the_fleet(prefixroute: Callable[..., Any]) -> None:
    titles = []
    for options, (figures, named) in FRONTS.items():
        assumptions = prefixroute(*SIMULATE, *options, "--json").json["assumptions"]
        assert {name: assumptions[name]["value"] for name in NAMES if name in assumptions} == figures
        (title,) = prefixroute(*SIMULATE, *options).lines(SIMULATE[1], " 1 seed", *named)
        assert ("routers" in title) is bool(figures)
        titles.append(title)
    assert len(set(titles)) == len(FRONTS)  # what is shared, and when, is told apart


def test_a_comparison_says_so_too(prefixroute: Callable[..., Any]) -> None:
    work = ("compare", "chat,requests=60", "--replicas", "2", "--policies", "round-robin,session", "--seeds", "1", "-q")
    assert prefixroute(*work, "--routers", "2", "--sticky-front").lines("chat,requests=60", "2 routers", "sticky")
