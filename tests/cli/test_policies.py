from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from prefixroute.policies import POLICIES

Prefixroute = Callable[..., Any]


def test_every_policy_has_a_line(prefixroute: Prefixroute) -> None:
    listing = prefixroute("policies")
    assert listing.code == 0
    assert [name for name in POLICIES if name not in listing.out] == []
    assert "min_match_tokens=1024" in listing.out


def test_the_json_carries_summaries_and_defaults(prefixroute: Prefixroute) -> None:
    listing = json.loads(prefixroute("policies", "--json").out)
    assert set(POLICIES) <= set(listing["policies"])
    described = listing["policies"]["cache-aware"]
    assert described["parameters"]["min_match_tokens"] == 1_024
    assert all(each["summary"].endswith(".") for each in listing["policies"].values())


@pytest.mark.parametrize("name", ["cache-aware", "session"])
def test_one_policy_is_shown_whole(prefixroute: Prefixroute, name: str) -> None:
    shown = prefixroute("policies", name)
    assert shown.out.startswith(name)
    assert "Defaults:" in shown.out
