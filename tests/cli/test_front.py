"""``simulate`` with several routers: what is refused, and what a result says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

SIMULATE = ("simulate", "chat,requests=60,arrivals=poisson:10", "--policies", "session", "--seeds", "1", "-q")
SHARING = ("--routers", "8", "--peer-delay", "100ms")


@pytest.mark.parametrize(
    ("options", "figures", "title"),
    [
        ((), {}, "1 seed, cache blocks"),
        (
            ("--routers", "2"),
            {"routers": 2, "front": "round-robin"},
            "2 routers (round-robin front, nothing shared)",
        ),
        (
            ("--timed", *SHARING),
            {"routers": 8, "front": "round-robin", "peer_delay_s": 0.1},
            "8 routers (round-robin front, commits shared 100 ms late)",
        ),
        (
            ("--routers", "2", "--sticky-front", "--peer-delay", "0"),
            {"routers": 2, "front": "sticky", "peer_delay_s": 0.0},
            "2 routers (sticky front, commits shared at once)",
        ),
    ],
)
def test_a_result_says_what_stands_before_the_fleet(
    prefixroute: Callable[..., Any], options: tuple[str, ...], figures: dict[str, Any], title: str
) -> None:
    assumptions = prefixroute(*SIMULATE, *options, "--json").json["assumptions"]
    said = {name: assumptions[name]["value"] for name in ("routers", "front", "peer_delay_s") if name in assumptions}
    assert said == figures
    shown = prefixroute(*SIMULATE, *options)
    assert shown.code == 0
    words = " ".join(shown.out.split())
    assert title in words
    assert (" routers (" in words) is bool(figures)


def test_a_comparison_says_so_too(prefixroute: Callable[..., Any]) -> None:
    work = ("compare", "chat,requests=60", "--replicas", "2", "--policies", "round-robin,session", "--seeds", "1", "-q")
    out = prefixroute(*work, "--routers", "2", "--sticky-front").out
    assert "2 routers (sticky front, nothing shared)" in " ".join(out.split())
