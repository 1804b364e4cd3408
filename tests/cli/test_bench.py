from __future__ import annotations

from collections.abc import Callable
from typing import Any

Prefixroute = Callable[..., Any]


def test_every_step_is_timed_at_both_fleets(prefixroute: Prefixroute) -> None:
    document = prefixroute("bench", "--seconds", 0.01, "--json").json
    steps = [(row["what"], row["replicas"]) for row in document["rows"]]
    assert steps == [
        ("hash an array", None),
        ("hash a list", None),
        *((what, n) for n in (8, 64) for what in ("choose (changes nothing)", "route + finish")),
    ]
    assert all(0 < row["median_us"] <= row["p99_us"] for row in document["rows"])


def test_the_table_has_a_line_per_step(prefixroute: Prefixroute) -> None:
    shown = prefixroute("bench", "--seconds", 0.01)
    assert shown.code == 0
    assert shown.out.count("route + finish") == 2
