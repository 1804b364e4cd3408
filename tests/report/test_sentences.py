"""Every kind of finding has a text, with its figures, wherever an advice is shown; no two kinds read alike."""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from prefixroute import advise as advise_package
from prefixroute.advise import Advice, Finding, Question, advise
from prefixroute.report import advice_dict, advice_text
from prefixroute.report.answer import TOLD_IN_THE_OPENING
from prefixroute.report.figures import SHOWN
from prefixroute.report.sentences import CLOCKED, FINDINGS, IDLE_BECAUSE, finding
from prefixroute.sim import Scenario
from prefixroute.workload import chat

USD = "usd_per_million_requests_busiest"
GROUP = {
    "what": "id", "head": "c0ffee00", "head_tokens": 1_234, "tenant": "acme", "model": None, "session": "s-17",
    "share_of_affected": 0.61, "share_of_group": 0.83, "prompts": 4_321, "first_request": 765,
}  # fmt: skip
LOSSES = {
    f"{name}_{unit}": value
    for at, name in enumerate(("first_sight", "volatile", "elsewhere", "unknown", "evicted"), 1)
    for unit, value in (("share", at / 100), ("tokens", 1_111 * at), (USD, 10.5 * at))
}
MATCH = {
    "min_match_tokens": 96, "default_tokens": 1_024, "head_tokens": 2_048, "heads": 3, "short_hits": 0.4,
    "recompute_ratio": 0.11, "recompute_ratio_default": 0.22, "skew": 1.25, "skew_default": 1.5, "ttft_mean_s": 0.3,
    "ttft_mean_s_default": 0.4, "better": True, "taken": False, "advised": True,
}  # fmt: skip
CLOCK = {
    "timed": "session", "policy": "cache-aware", "why": "worse", "load": "recent", "load_timed": "requests", "skew": 1.11,
    "recompute_ratio": 0.12, "skew_timed": 1.33, "skew_instead": 1.44, "recompute_ratio_timed": 0.15,
    "recompute_ratio_instead": 0.16, "ttft_mean_s_timed": 0.17, "ttft_mean_s_instead": 0.18, "usd_timed_value": -1.5,
    "usd_timed_low": -2.5, "usd_timed_high": -0.5, "usd_untimed_value": None,
}  # fmt: skip
APART = {"split": "1+3", "wins": True, "better": "ttft_mean_s", "overloaded": False} | {
    f"{metric}{end}": seconds
    for at, metric in enumerate(("ttft_mean_s", "itl_mean_s", "e2e_mean_s"), 1)
    for end, seconds in (("", 0.1 * at), ("_mixed", 0.11 * at), ("_low", -0.02 * at), ("_high", -0.001 * at))
}
TRADEOFF = {
    "policy": "session", "chosen": "cache-aware", "better": "ttft_mean_s", "worse": "recompute_ratio",
    "recompute_ratio": 0.31, "recompute_ratio_chosen": 0.21, "ttft_mean_s": 0.041, "ttft_mean_s_chosen": 0.051, USD: 7.0,
    f"{USD}_chosen": 8.0,
}  # fmt: skip
ROUTERS = {"routers": 5, "round_robin": 0.41, "sticky": 0.32, "told_apart": True, "needed": True}
SPECIAL: dict[str, tuple[dict[str, Any], str]] = {
    "another-policy": (
        {"policy": "dynamo", "chosen": "session", "metrics": "ttft_mean_s", "usd_per_million_requests": -2.5, "recompute_ratio": 0.07},
        "dynamo session 7.0 2.50",
    ),
    "apart": (APART, "1 3 100 110 -20 200 220 -40 300 330 -60"),
    "clock": (CLOCK, "session cache-aware recent requests 1.11 12.0 1.33 1.44 15.0 16.0 170 180 1.50 -2.50 -0.50"),
    "fleet-size": ({"overloaded": False, "smaller": True, "replicas": 6}, "6"),
    "hottest": ({"who": "tenant", "name": "acme", "requests": 0.52, "tokens": 0.63, "head_tokens": 0}, "tenant acme 52.0 63.0"),
    "idle-replicas": ({"policy": "document", "idle": 3, "replicas": 4}, "document 3 4"),
    "load-signal": (
        {
            "unequal": 2.75, "taken": True, "recompute_ratio": 0.11, "recompute_ratio_default": 0.22, "ttft_mean_s": 0.3,
            "ttft_mean_s_default": 0.4, USD: 5.5, f"{USD}_default": 6.5,
        },
        "2.75 11.0 22.0 300 400 5.50 6.50",
    ),
    "losses": ({"policy": "session", **LOSSES}, "session 1.0 2.0 3.0 4.0 5.0 1,111 2,222 3,333 4,444 5,555 10.50 52.50"),
    "minimum-match": (MATCH, "3 2,048 1,024 96 11.0 22.0 1.25 1.50 300 400"),
    "not-kept": (
        {"policy": "random", "policy_assumed": True, "why": "beaten", "by": "session", "metrics": "ttft_mean_s", "ttft_mean_s": 0.1},
        "random session",
    ),
    "objectives": ({"objective": "cost", "policy": "session", "ttft": "cache-aware"}, "cost session ttft cache-aware"),
    "session-key": ({"inferred": False, "keyless": 0.37}, "37"),
    "several-routers": (ROUTERS, "5 41.0 32.0"),
    "tradeoff": (TRADEOFF, "session cache-aware 31.0 21.0 41 51"),
    "volatile-group": (GROUP, "id 61.0 1,234 c0ffee00 4,321 83.0 acme 765 s-17"),
    "volatile-head": (
        {**GROUP, "tokens": 11, "length": 22, "gain": 333, "share": 0.94, "floor": 0.55, "floor_if_fixed": 0.44, "groups": 1},
        "id 94 22 11 333 55.0 44.0 61.0 1,234 c0ffee00 4,321 83.0 acme 765 s-17",
    ),
}  # fmt: skip
"""Evidence of the kinds whose sentence is put together, and the names and figures that it must hold."""


def of_template(template: str) -> tuple[dict[str, Any], str]:
    """Return evidence for a sentence with figures in braces, and how these read."""
    fields = dict.fromkeys((name, spec) for _, name, spec, _ in Formatter().parse(template) if name)
    evidence: dict[str, Any] = {}
    for at, (name, spec) in enumerate(fields, 1):
        numbers = {"share": 0.01 * at + 0.003, "whole": 0.01 * at, "time": 0.011 * at, "ratio": 1.0 + at / 8}
        evidence[name] = numbers.get(spec or "", 1_000 * at + 7)
    return evidence, " ".join(SHOWN.get(spec or "", str)(evidence[name]) for name, spec in fields)


CASES = {kind: SPECIAL[kind] if kind in SPECIAL else of_template(str(said)) for kind, said in FINDINGS.items()}


def words(text: str) -> list[str]:
    return re.findall(r"[\w.,-]*\w", text)


@pytest.mark.parametrize("kind", CASES)
def test_a_sentence_holds_every_figure_and_leaves_no_brace(kind: str) -> None:
    evidence, figures = CASES[kind]
    text = finding(Finding(kind, "note", evidence))
    assert [figure for figure in words(figures) if figure not in words(text)] == []
    assert not re.search(r"[{}]|None|True|False", text)
    assert text.endswith(".")


def test_no_two_kinds_read_alike() -> None:
    texts = [re.sub(r"[\d.,]+", "", finding(Finding(kind, "note", evidence))) for kind, (evidence, _) in CASES.items()]
    assert len(set(texts)) == len(FINDINGS)


def variants() -> Iterator[list[Finding]]:
    """Yield findings of one kind that differ in one fact: their sentences must, too."""
    for kind, name, values in (
        ("apart", "wins", (True, False)),
        ("clock", "why", CLOCKED),
        ("fleet-size", "smaller", (True, False)),
        ("fleet-size", "overloaded", (True, False)),
        ("idle-replicas", "why", ("", *IDLE_BECAUSE)),
        ("load-signal", "taken", (True, False)),
        ("minimum-match", "taken", (True, False)),
        ("minimum-match", "better", (True, False)),
        ("not-kept", "why", ("overloaded", "preempts", "beaten")),
        ("session-key", "inferred", (True, False)),
        ("several-routers", "needed", (True, False)),
        ("volatile-group", "head", ("c0ffee00", None)),
    ):
        evidence = {"tokens": 64, "head_tokens": 128} | CASES[kind][0]
        yield [Finding(kind, "note", {**evidence, name: value}) for value in values]


@pytest.mark.parametrize("alike", list(variants()), ids=lambda alike: alike[0].kind)
def test_what_differs_in_one_fact_reads_differently(alike: list[Finding]) -> None:
    assert len({finding(one) for one in alike}) == len(alike)


def test_every_kind_that_advice_yields_has_a_sentence() -> None:
    sources = Path(advise_package.__file__).parent.glob("*.py")
    calls = [node for path in sources for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    named = [call.args[0] for call in calls if ast.unparse(call.func) == "Finding"]
    chosen = [one for node in named for one in ((node.body, node.orelse) if isinstance(node, ast.IfExp) else (node,))]
    assert {node.value for node in chosen if isinstance(node, ast.Constant)} == FINDINGS.keys()


@pytest.fixture(scope="module")
def advice() -> Advice:
    found = advise(partial(chat, requests=60), Question(scenario=Scenario(replicas=2), seeds=1, policies=()))
    return replace(found, findings=tuple(Finding(kind, "note", evidence) for kind, (evidence, _) in CASES.items()))


def test_text_page_and_json_say_the_same_of_every_kind(advice: Advice) -> None:
    document = json.loads(json.dumps(advice_dict(advice)))["findings"]
    assert [one["kind"] for one in document] == list(CASES)
    assert [one["text"] for one in document] == [finding(one) for one in advice.findings]
    listed = [one["text"] for one in document if one["kind"] not in TOLD_IN_THE_OPENING]
    lines = advice_text(advice).splitlines()
    assert [text for text in listed if f"  [note] {text}" not in lines] == []
    page = pytest.importorskip("prefixroute.report.advice", reason="the extra `report` is not installed").advice_page
    plain = html.unescape(re.sub(r"<[^>]+>", "", page(advice)))
    assert [text for text in listed if text.replace("`", "") not in plain] == []
