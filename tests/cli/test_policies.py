from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prefixroute.policies import POLICIES, presets

Prefixroute = Callable[..., Any]


def test_every_policy_and_preset_has_a_line(prefixroute: Prefixroute) -> None:
    listing = prefixroute("policies")
    assert listing.code == 0
    assert [name for name in (*POLICIES, *presets()) if name not in listing.out] == []
    assert "min_match_tokens=1024" in listing.out
    assert listing.out.count("Differs: ") == len(presets())


def test_the_json_carries_lines_parameters_and_differences(prefixroute: Prefixroute) -> None:
    listed = prefixroute("policies", "--json").json["policies"]
    assert set(listed) == {*POLICIES, *presets()}
    assert listed["cache-aware"]["parameters"]["min_match_tokens"] == "1024"
    assert all(each["line"] for each in listed.values())
    assert all(bool(each["differs"]) == bool(each["checked"]) == (name in presets()) for name, each in listed.items())


@pytest.mark.parametrize("name", ["cache-aware", "session", "sglang-balanced"])
def test_one_is_shown_whole(prefixroute: Prefixroute, name: str) -> None:
    shown = prefixroute("policies", name)
    facts = prefixroute("policies", name, "--json").json["policies"][name]
    assert shown.out.startswith(f"{name}: ")
    assert all(f"{name}={value}" in shown.out for name, value in facts["parameters"].items())
    assert bool(facts["differs"]) == (name in presets())
    assert " ".join((facts["differs"] or "").split()) in " ".join(shown.out.split())


def test_a_policy_with_parameters_is_shown_with_them(prefixroute: Prefixroute) -> None:
    shown = prefixroute("policies", "cache-aware:spill_gap=5.5", "--json").json["policies"]["cache-aware:spill_gap=5.5"]
    usual = prefixroute("policies", "cache-aware", "--json").json["policies"]["cache-aware"]
    assert {name for name, value in shown["parameters"].items() if value != usual["parameters"][name]} == {"spill_gap"}
    assert shown["about"] == usual["about"]
    preset = prefixroute("policies", "ray:gate_gap=5")
    assert preset.code == 0
    assert "gate_gap=5" in preset.out
