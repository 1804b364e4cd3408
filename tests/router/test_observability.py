"""What the router says of itself: counters, Prometheus text, explanations, records that replay."""

from __future__ import annotations

import io
import json
import logging
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from book import lost

from fake_belief import FakeBelief
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.index import PrefixIndex
from prefixroute.policies import POLICIES, CacheAware, presets
from prefixroute.router import Router, replay
from prefixroute.telemetry import read_view
from prefixroute.types import Namespace, Replica

Make = Callable[..., Router]
TOKENS = list(range(2_000))


def drive(router: Router, requests: int = 60) -> None:
    """Route mixed traffic: sessions and none, namespaces, exclusions, some left in flight under keys."""
    for i in range(requests):
        tokens = [100_000 * (i % 7) + j for j in range(1_040 + 16 * (i % 3))]
        router.update_load(f"r{i % 4}", waiting=i % 5, running=i % 3, waiting_tokens=100 * i, kv_use=(i % 10) / 10)
        ticket = router.route(
            tokens,
            session=[None, "", f"s{i % 5}"][i % 3],
            key=f"k{i}",
            namespace=Namespace(lora="ad", extra=((3, b"\x00\xff"),)) if i % 4 == 0 else None,
            exclude=["r1"] if i % 6 == 0 else None,
            attrs={"document": f"d{i % 4}"} if i % 2 else {},
            slo_ttft_s=1.0,
        )
        ticket.first_token()
        if i % 5:
            ticket.finish(reported_hit_tokens=16 if i % 2 else None)


@pytest.mark.parametrize("name", [*sorted(POLICIES), *presets()])
def test_every_decision_replays_from_its_record(make_router: Make, name: str) -> None:
    sink = io.StringIO()
    router = make_router(4, policy=name, record=sink, seed=3)
    router.sync({"r0": Replica(weight=2.0), "r1": None, "r2": None, "r3": None})
    drive(router)
    records = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert len(records) == 60
    for record in records:
        assert replay(record) == (record["replica"], record["reason"])
    assert [record["decision_id"] for record in records] == list(range(60))


def test_a_record_can_go_to_a_function_and_name_its_own_policy(make_router: Make) -> None:
    records: list[dict[str, Any]] = []
    policy = CacheAware(min_match_tokens=16)
    router = make_router(4, policy=policy, record=records.append)
    drive(router)
    assert [replay(record, policy) for record in records] == [(r["replica"], r["reason"]) for r in records]


def test_decisions_are_logged_at_debug(make_router: Make, caplog: pytest.LogCaptureFixture) -> None:
    router = make_router(2)
    with caplog.at_level(logging.DEBUG, "prefixroute"):
        router.choose(TOKENS)
    assert "'reason': 'no_match'" in caplog.text


def samples(text: str) -> dict[str, float]:
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def test_metrics_have_the_promised_names_and_parse(make_router: Make) -> None:
    ticks = iter(range(10_000))
    router = make_router(4, timer=lambda: next(ticks) * 1e-6)
    router.shadow("random", index=FakeBelief())
    drive(router)
    text = router.metrics_text()
    line = re.compile(r'^(# (HELP|TYPE) .+|prefixroute_\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? -?[\d.e+-]+)$')
    assert all(line.match(row) for row in text.splitlines())
    for name in [
        "decisions_total",
        "decision_seconds",
        "prompt_tokens_total",
        "hit_tokens_total",
        "best_hit_tokens_total",
        "index_blocks",
        "sessions",
        "session_moves_total",
        "inflight",
        "uncached_backlog_tokens",
        "load_skew",
        "shadow_regret_tokens_total",
        "shadow_regret_seconds_total",
        "shadow_regret_dollars_total",
        "predicted_vs_reported_hit_tokens",
    ]:
        assert f"# TYPE prefixroute_{name} " in text
    values = samples(text)
    assert sum(v for k, v in values.items() if k.startswith("prefixroute_decisions_total")) == 60
    assert (
        values['prefixroute_decision_seconds_bucket{le="+Inf"}'] == 60 == values["prefixroute_decision_seconds_count"]
    )
    assert values['prefixroute_decision_seconds_bucket{le="5e-06"}'] == 60
    for own_or_all in ("inflight", "inflight_with_peers"):  # without peers all are its own
        assert sum(v for k, v in values.items() if k.startswith(f"prefixroute_{own_or_all}{{")) == 12
    assert values["prefixroute_prompt_tokens_total"] == router.stats()["prompt_tokens"]


def test_labels_are_escaped(make_router: Make) -> None:
    router = make_router(['a"b\\c\nd'])
    router.route(TOKENS).finish()
    assert 'replica="a\\"b\\\\c\\nd"' in router.metrics_text()


def test_metrics_do_not_grow_with_every_pod_that_ever_was(make_router: Make) -> None:
    router = make_router(["steady"])

    def pods(first: int, last: int) -> int:
        for number in range(first, last):
            name = f"pod-{number:03}"
            router.add_replica(name)
            for _ in range(2):
                router.route(TOKENS, candidates=[name]).finish()
            router.remove_replica(name)
        return router.metrics_text().count("\n")

    assert pods(0, 1) == pods(1, 50)
    totals = re.findall(r'^prefixroute_decisions_total{.*replica=""} (\d+)$', router.metrics_text(), re.MULTILINE)
    assert sum(map(int, totals)) == 100
    assert router.stats()["hit_tokens"] == 50 * ((len(TOKENS) - 1) // 16 * 16)


def test_case_25_the_gap_between_the_text_s_match_and_the_engine_s_tokens_is_shown() -> None:
    """The text goes on as it was; the engine's generated tokens 30, 40 are 31, 5, 40 once they are tokenised again."""
    router = Router(["a"], prompt_kind="text", block_size=1)
    engine = PrefixIndex(block_size=1)
    engine.add_replica("a")
    engine.insert("a", [1, 2, 30, 40])
    router.route("four tokens, yes").finish(reported_hit_tokens=0)
    ticket = router.route("four tokens, yes and more")
    ticket.finish(reported_hit_tokens=int(engine.match([1, 2, 31, 5, 40])[0]))
    told = router.stats()["replicas"]["a"]
    assert (told["predicted_hit_tokens"], told["reported_hit_tokens"]) == (4, 2)
    assert router.stats()["predicted_hit_tokens"] - router.stats()["reported_hit_tokens"] == 2
    for which, tokens in (("predicted", 4), ("reported", 2)):
        assert re.search(f'hit_tokens.*replica="a".*{which}.* {tokens}$', router.metrics_text(), re.MULTILINE)


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize(
    ("held", "asked", "letters"),
    [
        ("가나다라마바사아", "가나다라마바사자", 6),  # 20 of 24 bytes are whole blocks: two bytes of the seventh letter
        ("日本語日本語日本語", "日本語日本語日本誤", 8),  # 24 of 27: the end of a letter
        ("x" * 255 + "漢字漢", "x" * 255 + "漢字元", 256),  # 260 of 264: two bytes of the second wide letter
        ("plain text of twenty!", "plain text of twenty?", 20),
    ],
)
def test_case_26_a_match_that_is_shown_ends_at_a_letter(held: str, asked: str, letters: int, calibrated: bool) -> None:
    for form in (str, str.encode):
        router = Router(["a"], prompt_kind="text", block_size=1)
        for number in range(60 if calibrated else 0):  # an engine that has two tokens for four bytes
            router.route(f"{number:04} " * 40, candidates=["a"]).finish(reported_prompt_tokens=100)
        router.route(form(held)).finish()
        decision = router.choose(form(asked))
        assert decision.prompt_tokens == -(-len(asked.encode()) // 4) * (2 if calibrated else 1)
        assert f" {letters} letters" in router.explain(decision)


def test_explain_says_why_and_what_became_of_it(make_router: Make) -> None:
    router = make_router(["a", "b"])
    router.index.insert("a", TOKENS)
    held = [router.route([1] * 3, candidates=["a"]) for _ in range(12)]
    ticket = router.route(TOKENS, key="req-9", session="chat")
    assert ticket.decision.reason == "spill"
    assert re.search(r"'req-9'.*'chat'.*\(2000 .*'b'.* 1984 .*'a'.* 12\..*flight\.$", router.explain("req-9"))
    ticket.abort()
    assert router.explain("req-9").endswith("aborted.")
    assert router.explain(ticket) == router.explain("req-9")
    assert router.explain(router.choose(TOKENS)).endswith("committed.")
    with pytest.raises(ConfigError, match="'never'"):
        router.explain("never")
    assert len(held) == 12


def test_explain_names_the_host_s_own_choice_and_retries(make_router: Make) -> None:
    router = make_router(["a", "b"])
    decision = router.choose(TOKENS, key="k")
    other = decision.ranked[1]
    kept = router.commit(decision, replica=other)
    assert repr(other) in router.explain("k")
    again = kept.retry()
    assert f": {other}." in router.explain("k")
    assert again.open


def test_explanations_are_kept_for_the_last_requests_only(make_router: Make) -> None:
    router = make_router(2)
    for i in range(300):
        router.route(TOKENS[:32], key=f"k{i}").finish()
    assert "k299" in router.explain("k299")
    with pytest.raises(ConfigError):
        router.explain("k0")


def test_scores_and_ranks_are_worked_out_when_asked_for(make_router: Make) -> None:
    router = make_router(3, policy="linear-cost")
    router.index.insert("r1", TOKENS)
    decision = router.choose(TOKENS)
    assert decision.replica == decision.ranked[0] == "r1"
    assert decision.scores == {"r0": -4_000.0, "r1": -2_016.0, "r2": -4_000.0}
    assert make_router(3, policy="random").choose(TOKENS).scores is None
    assert re.search("'r1' least_cost .*linear-cost", repr(decision))


def test_presets_override_arguments_and_say_so() -> None:
    router = Router(["a"], policy="llmd-approx", block_size=16, capacity_tokens=1_000)
    assert router.index.block_size == 64
    told = [re.findall(r"'.*'|\w+_\w+|\d+", note) for note in router.notes]
    assert told == [
        ["'llmd-approx'", "block_size", "16", "64"],
        ["'llmd-approx'", "capacity_tokens", "1000", "2000000"],
    ]
    assert "512" in Router(policy="llmd-approx", block_size=512).notes[0]
    assert Router(policy="cache-aware").notes == ()
    given = Router(policy="llmd-approx", index=FakeBelief())
    assert (given.index.block_size, len(given.notes)) == (16, 1)


def test_where_the_hits_went_as_far_as_a_router_knows(make_router: Make) -> None:
    """The sum rule of a trace's losses, on the belief; what engines report is told apart from it."""
    router = make_router(2, policy="round-robin")
    first = router.route(TOKENS)
    first.finish(reported_hit_tokens=0)  # new to all
    router.route(TOKENS).finish(reported_hit_tokens=160)  # the other replica held it; 160 that nobody knew of
    third = router.route(TOKENS)
    assert third.replica == first.replica
    third.finish(reported_hit_tokens=1_000)  # 984 of what was believed held are gone
    losses, stats = router.stats()["hit_losses"], router.stats()
    assert losses == {
        "first_sight": 2_000 + (2_000 - 1_984) * 2,
        "elsewhere": 1_984,
        "evicted": 984,
        "unknown": 160,
    }
    assert losses["first_sight"] + losses["elsewhere"] + stats["hit_tokens"] == stats["prompt_tokens"]
    # Of what was reported: recomputed = first sight + elsewhere + evicted - unknown.
    recomputed = stats["prompt_tokens"] - stats["reported_hit_tokens"]
    assert recomputed == losses["first_sight"] + losses["elsewhere"] + losses["evicted"] - losses["unknown"]
    assert lost_by(router, "hit_loss_tokens", "round-robin") == losses
    assert stats["hit_losses_usd"] is None  # a default is no price
    assert "dollars" not in router.metrics_text()


TOTALS = (
    "prompt_tokens",
    "hit_tokens",
    "best_hit_tokens",
    "predicted_hit_tokens",
    "reported_hit_tokens",
    "reported_requests",
)


@pytest.mark.parametrize("seed", range(4))
def test_totals_never_fall_whoever_joins_leaves_or_restarts(seed: int) -> None:
    """Of random steps, with hosts that commit replicas that were no candidates."""
    draw = random.Random(seed)  # noqa: S311
    names, restarts = [f"r{i}" for i in range(6)], 0
    router = Router(names, hash_key=1, clock=lambda: 0.0, cost=CostModel())
    before: dict[str, float] = {}
    for _ in range(300):
        present = sorted(router.stats()["replicas"])
        step, name = draw.random(), draw.choice(names)
        if step < 0.7 and present:
            prompt = [draw.randrange(8)] * draw.randrange(100, 2_000)
            decision = router.choose(prompt, candidates=draw.sample(present, draw.randrange(1, len(present) + 1)))
            ticket = router.commit(decision, draw.choice([None, draw.choice(present)]))
            if draw.random() < 0.2:
                router.remove_replica(ticket.replica)
            ticket.finish(reported_hit_tokens=draw.choice([None, 0, 50, len(prompt)]))
        elif step < 0.8:
            router.remove_replica(name) if name in present else router.add_replica(name)
        else:
            restarts += 1
            some = draw.sample(names, draw.randrange(1, len(names)))
            router.sync({one: Replica(incarnation=str(draw.choice([0, restarts]))) for one in some})
        stats = router.stats()
        after = {total: stats[total] or 0 for total in TOTALS} | lost_by(router, "hit_loss_tokens", "cache-aware")
        assert stats["hit_losses"].items() <= after.items()
        assert [total for total, value in after.items() if value < before.get(total, 0)] == []
        assert sum(after[part] for part in ("first_sight", "elsewhere", "hit_tokens")) == after["prompt_tokens"]
        before = after
    assert all(before.values())


def test_what_a_replica_lost_stays_counted_when_it_leaves() -> None:
    router = Router(["a", "b"], hash_key=1, clock=lambda: 0.0)
    for _ in range(2):
        router.route([1] * 16_016, candidates=["a"]).finish(reported_hit_tokens=0)
    before = router.stats()
    router.remove_replica("a")
    router.add_replica("a")
    after = router.stats()
    assert before["hit_losses"]["evicted"] == before["predicted_hit_tokens"] == 16_000
    assert [after[name] for name in ("hit_losses", *TOTALS)] == [before[name] for name in ("hit_losses", *TOTALS)]
    assert after["replicas"]["a"]["reported_hit_tokens"] is None  # nothing of the new process


def test_a_replica_that_was_no_candidate_counts_with_what_it_holds() -> None:
    router = Router(["r0", "r1"], hash_key=1, clock=lambda: 0.0)
    prompt = list(range(1_600))
    router.commit(router.choose(prompt, candidates=["r0"])).finish()
    router.commit(router.choose(prompt, candidates=["r1"]), "r0")
    losses = router.stats()["hit_losses"]
    assert losses == {"first_sight": 1_616, "elsewhere": 0, "evicted": 0, "unknown": 0}


def test_lost_hits_have_a_price_where_a_cost_was_given_and_each_policy_has_its_own(make_router: Make) -> None:
    cost = CostModel("H100", "Qwen3-8B", usd_per_gpu_hour=3.6)
    router = make_router(2, policy="round-robin", cost=cost)
    router.shadow("cache-aware")
    spent: list[float] = []
    for _ in range(3):
        router.route(TOKENS).finish()
        lost = lost_by(router, "hit_loss_tokens", "round-robin")
        dollars = lost_by(router, "hit_loss_dollars", "round-robin")
        assert dollars == pytest.approx({reason: tokens * cost.usd_per_token() for reason, tokens in lost.items()})
        assert router.stats()["hit_losses_usd"] == dollars
        spent.append(sum(dollars.values()))
    assert spent == sorted(spent)  # a counter
    followed = lost_by(router, "shadow_hit_loss_tokens", "cache-aware")
    assert (lost["elsewhere"], followed["elsewhere"]) == (1_984, 0)
    assert lost_by(router, "shadow_hit_loss_dollars", "cache-aware")["first_sight"] == pytest.approx(
        followed["first_sight"] * cost.usd_per_token()
    )


def lost_by(router: Router, family: str, policy: str) -> dict[str, float]:
    """Return a family of lost hits of a policy by reason."""
    return {reason: value for (of, reason), value in lost(router, family).items() if of == policy}


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("slo", [float("inf"), 2.5, None])
def test_a_record_is_strict_json_and_is_taken_again(slo: float | None) -> None:
    nan = float("nan")
    records: list[dict[str, Any]] = []
    attrs = {
        "score": nan,
        "nested": {"list": [1.5, -float("inf"), np.float64(nan)], nan: (nan,)},
        "kept": [1, "a", None],
    }
    stream = io.StringIO()
    for record in (stream, records.append):
        Router(["a", "b"], record=record).route(list(range(64)), slo_ttft_s=slo, attrs=attrs)
    line = json.loads(stream.getvalue(), parse_constant=no_constant)
    assert line["view"]["request"]["attrs"]["kept"] == [1, "a", None]
    assert line["view"]["request"]["attrs"]["score"] == "nan"
    for record in (line, json.loads(json.dumps(records[0], allow_nan=False))):
        assert replay(record) == (record["replica"], record["reason"])
        assert read_view(record).request.slo_ttft_s == slo
