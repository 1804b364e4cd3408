"""Traces under a provider's rules.

Lifetimes that reads renew, minimum sizes, classes, bindings, exact entries, units.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prefixroute import ConfigError, TraceError
from prefixroute.hashing import BlockHashes
from prefixroute.plan import Binding, plan_trace
from prefixroute.providers import find_model
from prefixroute.workload import Options, Request, Workload, chat, read_trace

SONNET = find_model("claude-sonnet-5-5")
BLOCK = 64


def prompt(*layers: tuple[str, int]) -> BlockHashes:
    """Blocks of layers, each named: equal names in equal places are equal blocks."""
    names, key = [], 0
    for name, blocks in layers:
        for at in range(blocks):
            key = hash((key, name, at)) % 2**64
            names.append(key)
    return BlockHashes(np.array(names, np.uint64), token_count=BLOCK * len(names), block_size=BLOCK)


def trace(*requests: tuple[float, BlockHashes], **given: object) -> Workload:
    def source() -> list[Request]:
        return [Request(at, blocks, blocks, blocks.token_count, 0, **given) for at, blocks in requests]  # type: ignore[arg-type]

    return Workload("made", BLOCK, lambda: iter(source()), len(requests))


def hits(workload: Workload, model: str = "claude-sonnet-5-5", **given: object) -> dict[str, float]:
    plan = plan_trace(workload, find_model(model), by=(), **given)  # type: ignore[arg-type]
    return {name: reuse.hit_tokens for name, reuse in plan.total.kept.items()}


def test_a_read_renews_the_lifetime() -> None:
    same = prompt(("a", 10))
    assert hits(trace((0, same), (299, same), (598, same))) == {"5m": 1_280, "1h": 1_280}
    assert hits(trace((0, same), (301, same), (601, same))) == {"5m": 640, "1h": 1_280}


def test_dollars_by_hand() -> None:
    same, longer = prompt(("a", 10)), prompt(("a", 10), ("b", 10))
    total = plan_trace(trace((0, same), (10, longer)), SONNET).total
    assert total.uncached.usd == pytest.approx(1_920 * 2e-6)
    assert total.kept["5m"].usd == pytest.approx((640 * 2.5 + 640 * 0.1 + 640 * 2.5) * 1e-6)
    assert total.kept["1h"].usd == pytest.approx((640 * 4 + 640 * 0.1 + 640 * 4) * 1e-6)


def test_prompts_under_the_minimum_are_plain_input() -> None:
    short = trace((0, prompt(("a", 7))), (1, prompt(("a", 7))))
    total = plan_trace(short, SONNET).total
    assert total.short == 2
    assert total.kept["5m"].usd == pytest.approx(total.uncached.usd)
    # 5,000 tokens, of which 3,200 are shared: under the 4,096 of this model.
    long = trace((0, prompt(("a", 50), ("b", 30))), (1, prompt(("a", 50), ("c", 30))))
    assert hits(long, "claude-opus-4-6") == {"5m": 0, "1h": 0}
    assert hits(long)["5m"] == 3_200


def test_steps_of_128_tokens() -> None:
    shared = trace((0, prompt(("a", 19), ("b", 5))), (1, prompt(("a", 19), ("c", 5))))
    assert hits(shared, "gpt-5") == {"in_memory": 1_152, "24h": 1_152}  # 1,216 rounded down to 1,024 + 128


def test_exact_breakpoints_have_no_shorter_fallback() -> None:
    base, longer, other = prompt(("a", 20)), prompt(("a", 20), ("b", 5)), prompt(("a", 20), ("c", 5))
    assert hits(trace((0, base), (1, longer)), "gpt-5.6")["30m"] == 1_280
    assert hits(trace((0, longer), (1, other)), "gpt-5.6")["30m"] == 0


def test_units_hit_a_common_prefix_only_after_it_was_seen() -> None:
    branches = [prompt(("a", 20), (name, 5)) for name in ("b", "c", "d")]
    assert hits(trace(*enumerate(branches)), "deepseek-v4-flash")["disk"] == 1_280
    assert hits(trace(*enumerate(branches[:2])), "deepseek-v4-flash")["disk"] == 0


def test_classes_have_their_own_best_lifetime() -> None:
    quick, slow = prompt(("q", 20)), prompt(("s", 20))
    rows = [(60.0 * n, quick, "opus") for n in range(20)] + [(1_800.0 * n, slow, "haiku") for n in range(20)]
    rows.sort(key=lambda row: row[0])

    def source() -> list[Request]:
        return [Request(at, one, one, one.token_count, 0, session=name, model=name) for at, one, name in rows]

    plan = plan_trace(Workload("made", BLOCK, lambda: iter(source()), 40), SONNET, by=("model",))
    assert {one.name: one.best.lifetime for one in plan.classes} == {"opus": "5m", "haiku": "1h"}
    assert plan.mixed_usd < plan.total.best.usd


def test_a_binding_shorter_than_the_lifetime_is_a_trap() -> None:
    same = prompt(("a", 20))
    rows = [(600.0 * n, same) for n in range(10)]
    plan = plan_trace(trace(*rows, session="s"), SONNET, binding=Binding(300, targets=4))
    assert plan.total.kept["1h"].hit_tokens == 9 * 1_280
    assert plan.total.bound["1h"].hit_tokens == pytest.approx(9 * 1_280 / 4)
    assert plan.binding_loss == {"1h": pytest.approx(9 * 1_280 * 0.75 * 3.9e-6)}
    assert plan_trace(trace(*rows, session="s"), SONNET, binding=Binding(3_600, 4)).binding_loss == {}


def test_claude_code_weka(traces_dir: Path) -> None:
    workload = read_trace(traces_dir / "claude_code_weka.jsonl.gz", Options(), check=False)
    plan = plan_trace(workload, SONNET)
    ratios = {name: plan.total.ratio(reuse) for name, reuse in plan.total.kept.items()}
    assert ratios == pytest.approx({"5m": 0.916, "1h": 0.960}, abs=0.0005)
    assert plan.total.best.lifetime == "1h"
    gaps = {name: plan.total.long_gaps[name] / plan.total.gaps for name in plan.total.kept}
    assert gaps == pytest.approx({"5m": 0.049, "1h": 0.0035}, rel=0.02)
    assert {one.name: one.best.lifetime for one in plan.classes}["opus-4-1, main"] == "5m"


def test_calls_in_parallel_write_again_until_one_has_begun() -> None:
    same, longer = prompt(("a", 20)), prompt(("a", 20), ("b", 10))
    at_once = trace((0.0, same), (0.1, same), (0.2, longer), (1.05, longer), (1.5, longer))
    plan = plan_trace(at_once, SONNET, by=(), begin_s=1.0)
    kept = plan.total.kept["5m"]
    # The fourth comes when the first has begun (at 1.0) and the third has not (at 1.2); the fifth finds all.
    assert kept.hit_tokens == 1_280 + 1_920
    assert kept.early_tokens == 1_280 + 1_280 + 640
    assert plan_trace(at_once, SONNET, by=()).total.kept["5m"].early_tokens == 0


def test_an_entry_that_expired_is_read_by_no_lifetime_that_is_too_short() -> None:
    base, longer = prompt(("a", 20)), prompt(("a", 20), ("b", 5))
    rows = trace((0, base), (3_600, longer), (5_000, prompt(("a", 20), ("c", 5))))
    assert hits(rows, "gpt-5.6") == {"30m": 0, "12h": 2 * 1_280}


def test_a_made_up_chat_and_its_json() -> None:
    plan = plan_trace(chat(1, requests=500), SONNET)
    told = plan.to_dict()
    assert told["mode"] == "marks"
    assert 0 < told["total"]["lifetimes"]["5m"]["hit_ratio"] <= 1  # type: ignore[index]


def test_mistakes() -> None:
    with pytest.raises(TraceError, match="request"):
        plan_trace(trace(), SONNET)
    with pytest.raises(ConfigError, match=r"model, tenant, .*mood"):
        plan_trace(trace((0, prompt(("a", 1)))), SONNET, by=("mood",))
    with pytest.raises(ConfigError, match="made by hand"):
        plan_trace(trace((0, prompt(("a", 1)))), find_model("gemini-2.5-pro"), mode="explicit")
    for seconds, targets in ((float("nan"), 2), (-1, 2), (300, 0)):
        with pytest.raises(ConfigError, match="binding"):
            Binding(seconds, targets)
