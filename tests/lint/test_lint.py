"""Every check finds what it is for, with evidence and dollars, and is silent on a log in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefixroute.lint import (
    CHECKS,
    RULES,
    ApiSettings,
    LintFinding,
    LintReport,
    LintSettings,
    RouterSettings,
    ServingSettings,
    lint,
    read_entries,
)
from prefixroute.providers import find_model
from prefixroute.report.sarif import sarif
from prefixroute.workload import chat, read_trace

SONNET = find_model("claude-sonnet-5-5")
RULES_TEXT = "The rules of the house. " * 400  # 2,400 tokens
TOOLS = [{"name": f"tool_{n}", "description": "What it does. " * 20} for n in range(3)]
MARK = {"cache_control": {"type": "ephemeral"}}


def row(number: int, **changed: Any) -> dict[str, Any]:
    """Return one request of ten sessions, two seconds after the one before."""
    body = {
        "model": "claude-sonnet-5-5",
        "tools": TOOLS,
        "system": [{"type": "text", "text": RULES_TEXT, **MARK}],
        "messages": [{"role": "user", "content": f"Question {number}?"}],
    }
    outer = {"timestamp": 1_790_000_000 + 2 * number, "session_id": f"s{number % 10}"}
    outer |= {name: changed.pop(name) for name in ("workspace", "timestamp", "usage") if name in changed}
    return {**outer, "request": body | changed}


@pytest.fixture
def linted(tmp_path: Path) -> Callable[..., LintReport]:
    def run(rows: list[dict[str, Any]], **given: Any) -> LintReport:
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        return lint(read_trace(path), entries=read_entries(path), **given)

    return run


def names(report: LintReport) -> list[str]:
    return [finding.rule.name for finding in report.findings]


def found(report: LintReport, name: str) -> LintFinding:
    """Return the first finding of a rule."""
    return next(one for one in report.findings if one.rule.name == name)


def test_a_log_in_order_has_no_finding(linted: Callable[..., LintReport]) -> None:
    rows = [row(number) for number in range(60)]
    assert names(linted(rows, model=SONNET)) == []
    assert names(linted(rows)) == []


def test_a_volatile_head_is_named_with_place_and_dollars(linted: Callable[..., LintReport]) -> None:
    rows = [row(n, system=[{"type": "text", "text": f"Now: 10:{n:02}. {RULES_TEXT}", **MARK}]) for n in range(60)]
    report = linted(rows, model=SONNET)
    finding = found(report, "volatile-head")
    assert (finding.evidence["where"], finding.evidence["character"]) == ("system[0]", len("Now: "))
    assert finding.line is not None
    # 2,400 tokens at $2.40 a million, 60 requests in 118 s, a month of 730 h
    assert finding.usd_per_month == pytest.approx(2_400 * 2.4e-6 * 60 / 118 * 730 * 3_600, rel=0.03)
    assert "10:" in "".join(finding.evidence["examples"])


def test_tools_and_system_blocks_in_another_order(linted: Callable[..., LintReport]) -> None:
    parts = [{"type": "text", "text": f"Part {n}. {RULES_TEXT}"} for n in range(2)]
    rows = [row(n, tools=TOOLS if n % 4 else TOOLS[::-1], system=parts if n % 3 else parts[::-1]) for n in range(60)]
    report = linted(rows, model=SONNET)
    for name, count, line in (("tools-reordered", 15, 1), ("system-reordered", 20, 1)):
        finding = found(report, name)
        assert (finding.evidence["count"], finding.evidence["prompts"], finding.line) == (count, 60, line)
        assert (finding.usd_per_month or 0) > 0


def test_short_prefixes(linted: Callable[..., LintReport]) -> None:
    head = "The rules of the house. " * 60  # 360 tokens
    rows = [row(n, tools=[], system=head, messages=[{"role": "user", "content": f"{n} " * 900}]) for n in range(40)]
    report = linted(rows, model=SONNET)
    finding = found(report, "prefix-too-short")
    assert finding.evidence["head_tokens"] == pytest.approx(365, abs=15)
    opus = linted([row(number) for number in range(20)], model=find_model("claude-opus-4-6"))
    assert "prompts-below-minimum" in names(opus)


def test_a_lifetime_that_does_not_fit(linted: Callable[..., LintReport]) -> None:
    rows = [row(n, timestamp=1_790_000_000 + 1_200 * n) for n in range(40)]
    report = linted(rows, model=SONNET)
    finding = found(report, "lifetime")
    assert (finding.evidence["lifetime"], finding.evidence["best"]) == ("5m", "1h")
    rare = [row(n, timestamp=1_790_000_000 + 90_000 * n) for n in range(40)]
    assert "written-for-nothing" in names(linted(rare, model=SONNET))
    asked = LintSettings(api=ApiSettings(lifetime="1h"))
    assert "lifetime" not in names(linted(rows, model=SONNET, settings=asked))


def test_no_marks(linted: Callable[..., LintReport]) -> None:
    bare = [row(n, system=RULES_TEXT) for n in range(40)]
    assert "no-marks" in names(linted(bare, model=SONNET))
    assert "no-marks" not in names(linted(bare, model=find_model("gpt-5")))
    top = [row(n, system=RULES_TEXT, cache_control={"type": "ephemeral"}) for n in range(40)]
    assert "no-marks" not in names(linted(top, model=SONNET))


def test_reuse_that_is_possible_and_not_reported(linted: Callable[..., LintReport]) -> None:
    def rows(cached: int) -> list[dict[str, Any]]:
        usage = {"input_tokens": 2_700 - cached, "output_tokens": 1, "cache_read_input_tokens": cached}
        return [row(n, usage=usage) for n in range(40)]

    few, none = names(linted(rows(500), model=SONNET)), linted(rows(0), model=SONNET)
    assert "reuse-not-reached" in few
    assert "no-hits-reported" not in few
    assert "reuse-not-reached" not in names(none)
    finding = found(none, "no-hits-reported")
    assert finding.evidence["requests"] == 40
    assert f"{100 * finding.evidence['ideal']:.1f} %" in finding.message
    assert "reuse-not-reached" not in names(linted(rows(2_600), model=SONNET))


def test_the_providers_own_diagnoses_are_read(linted: Callable[..., LintReport]) -> None:
    rows = [row(number) for number in range(40)]
    for number in (5, 9, 12):
        reason = {"type": "tools_changed", "cache_missed_input_tokens": 2_000}
        rows[number]["response"] = {"content": [], "diagnostics": {"cache_miss_reason": reason}}
    (finding,) = linted(rows, model=SONNET).findings
    assert (finding.rule.name, finding.line) == ("miss-diagnosed", 6)
    assert (finding.evidence["reason"], finding.evidence["count"]) == ("tools_changed", 3)
    assert finding.usd_per_month == pytest.approx(6_000 * 2.4e-6 / 78 * 730 * 3_600)


def test_keys_over_their_rate(linted: Callable[..., LintReport]) -> None:
    one = [row(n, prompt_cache_key="k") for n in range(60)]
    finding = found(linted(one, model=find_model("gpt-5")), "key-over-rate")
    assert finding.evidence["busiest"] == 30
    assert finding.evidence["shards"] == 2
    assert "cache_key(user_id, 2)" in finding.remedy
    two = [row(n, prompt_cache_key=f"k{n % 2}") for n in range(60)]
    assert "key-over-rate" not in names(linted(two, model=find_model("gpt-5")))


def test_workspaces_write_for_themselves(linted: Callable[..., LintReport]) -> None:
    rows = [row(n, workspace=f"w{n % 4}") for n in range(40)]
    finding = found(linted(rows, model=SONNET), "workspaces")
    assert finding.evidence["workspaces"] == 4
    tokens = finding.evidence["tokens"]
    assert finding.usd_per_month == pytest.approx(3 * tokens * 2.4e-6 / 78 * 730 * 3_600, rel=0.01)
    assert "workspaces" not in names(linted([row(n, workspace="w") for n in range(40)], model=SONNET))


def test_a_binding_shorter_than_the_lifetime(linted: Callable[..., LintReport]) -> None:
    rows = [row(n, timestamp=1_790_000_000 + 100 * n) for n in range(60)]
    settings = LintSettings(api=ApiSettings(lifetime="1h", binding_s=300.0, targets=4))
    finding = found(linted(rows, model=SONNET, settings=settings), "binding-shorter-than-lifetime")
    assert (finding.usd_per_month or 0) > 0
    longer = LintSettings(api=ApiSettings(lifetime="1h", binding_s=3_600.0))
    assert "binding-shorter-than-lifetime" not in names(linted(rows, model=SONNET, settings=longer))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (LintSettings((ServingSettings("a", prefix_caching=False),)), "cache-off"),
        (LintSettings((ServingSettings("a", capacity_tokens=2_000),)), "cache-too-small"),
        (LintSettings((ServingSettings("a", hash_seed="0"), ServingSettings("b", hash_seed="1"))), "hash-seeds-differ"),
        (LintSettings((ServingSettings("a", hash_seed="0"), ServingSettings("b"))), "hash-seeds-differ"),
        (LintSettings(router=RouterSettings(processes=4)), "routers-not-sticky"),
        (
            LintSettings((ServingSettings("a", capacity_tokens=300_000),), RouterSettings(capacity_tokens=600_000)),
            "capacity-told-wrongly",
        ),
        (LintSettings((ServingSettings("a", block_size=16),), RouterSettings(block_size=64)), "block-size-differs"),
    ],
)
def test_settings_that_stand_in_the_way(linted: Callable[..., LintReport], settings: LintSettings, name: str) -> None:
    assert names(linted([row(number) for number in range(60)], settings=settings)) == [name]


def test_settings_in_order(linted: Callable[..., LintReport]) -> None:
    engines = tuple(ServingSettings(name, True, 16, 300_000, "0", "sha256") for name in "ab")
    router = RouterSettings(2, sticky=True, capacity_tokens=300_000, block_size=16)
    assert names(linted([row(number) for number in range(60)], settings=LintSettings(engines, router))) == []


def test_a_trace_without_bodies_is_checked_as_far_as_it_goes() -> None:
    report = lint(chat(1, requests=300), model=SONNET)
    assert report.bodies == 0
    json.dumps(report.to_dict(), allow_nan=False)


def test_every_rule_has_a_check_that_finds_it() -> None:
    folder = Path(CHECKS[0].__code__.co_filename).parent
    source = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "rules.py")
    assert [name for name in RULES if f'"{name}"' not in source] == []
    assert len({rule.id for rule in RULES.values()}) == len(RULES)


def test_sarif(linted: Callable[..., LintReport]) -> None:
    rows = [row(n, tools=TOOLS if n % 4 else TOOLS[::-1]) for n in range(40)]
    log = sarif(linted(rows, model=SONNET), "logs/day.jsonl", "0.1.0")
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    (result,) = run["results"]
    rules = run["tool"]["driver"]["rules"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert result["level"] == "error"
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "logs/day.jsonl"}, "region": {"startLine": 1}}
    json.dumps(log, allow_nan=False)
