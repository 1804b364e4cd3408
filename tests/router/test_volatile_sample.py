"""A Router tells what is new from what only a changing text makes new, as ``trace`` and the simulator tell it of the same requests."""

from __future__ import annotations

import json
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from book import in_threads, lost

from prefixroute.advise import compare
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.hashing import hash_blocks
from prefixroute.router import Router
from prefixroute.sim import Scenario
from prefixroute.telemetry import volatile as sampling
from prefixroute.workload import HitLosses, Workload, measure, read_trace

RULES = " ".join(f"w{number * number * 7_919 % 3_001:04d}" for number in range(300))
ENDLESS = 10**8
"""Tokens: nothing is ever forgotten."""


class Turn(NamedTuple):
    """A request, and how the log and the host say it."""

    session: str
    prompt: Any
    answer: Any
    row: dict[str, Any]


def chats(turns: int, head: str = "Now 2026-11-30 10:{minute:02}:{second:02}. ") -> list[Turn]:
    """Return turns of 20 chats whose system prompt begins with the time; the answer is in the next turn's prompt."""
    told, histories = [], dict[int, list[dict[str, str]]]()
    for number in range(turns):
        chat = number * 7 % 20
        said = histories.setdefault(chat, [])
        said.append({"role": "user", "content": f"question {number} of chat {chat}"})
        system = head.format(minute=number // 60, second=number % 60) + RULES
        prompt = [{"role": "system", "content": system}, *said]
        answer = {"role": "assistant", "content": f"the answer to {number} is {number * 31}, as ever. " * 5}
        said.append(answer)
        row = {
            "timestamp": number,
            "session_id": f"c{chat}",
            "messages": prompt,
            "response": {"choices": [{"message": answer}]},
        }
        told.append(Turn(f"c{chat}", prompt, answer, row))
    return told


def ids(turns: int) -> list[Turn]:
    """Return the like in token ids."""
    draw, told = np.random.default_rng(0), []
    rules = draw.integers(0, 150_000, 700).tolist()
    histories = {chat: draw.integers(0, 150_000, 3_000).tolist() for chat in range(20)}
    for number in range(turns):
        chat = number * 7 % 20
        length = 150 * (1 + number // 20)
        prompt = [5, 6, 2_000 + number, 3_000 + number * 7 % 60, *rules, *histories[chat][:length]]
        answer = histories[chat][length : length + 40]
        row = {"timestamp": number, "session_id": f"c{chat}", "prompt_token_ids": prompt, "output_token_ids": answer}
        told.append(Turn(f"c{chat}", prompt, answer, row))
    return told


def drive(router: Router, turns: list[Turn]) -> None:
    for turn in turns:
        router.route(turn.prompt, session=turn.session).finish(output=turn.answer)


def routed(turns: list[Turn], share: float, **options: Any) -> Router:
    kind = "messages" if isinstance(turns[0].prompt[0], dict) else "tokens"
    router = Router(
        ["a"], prompt_kind=kind, capacity_tokens=ENDLESS, volatile_sample=share, clock=lambda: 0.0, **options
    )
    drive(router, turns)
    return router


def trace_of(turns: list[Turn], folder: Path) -> Workload:
    path = folder / "log.jsonl"
    path.write_text("".join(f"{json.dumps(turn.row)}\n" for turn in turns), encoding="utf-8")
    return read_trace(path)


def new(losses: HitLosses | dict[str, int]) -> tuple[int, int]:
    """Return tokens of first sight and volatile ones."""
    figures = losses.to_dict() if isinstance(losses, HitLosses) else losses
    return figures["first_sight"], figures["volatile"]


@pytest.mark.parametrize("made", [chats, ids], ids=["messages", "token ids"])
def test_the_live_split_is_that_of_trace_and_of_the_simulator(made: Any, tmp_path: Path) -> None:
    turns = made(200)
    trace = trace_of(turns, tmp_path)
    expected = new(measure(trace).losses)
    assert expected[1] > 2 * expected[0] > 0
    assert new(routed(turns, 1.0).stats()["hit_losses"]) == expected
    fleet = Scenario(replicas=1, capacity_tokens=ENDLESS)
    simulated = compare(trace, ["round-robin"], scenario=fleet, seeds=1, infinite=True).losses["round-robin"]
    assert new(simulated) == expected


@pytest.mark.parametrize("made", [chats, ids], ids=["messages", "token ids"])
def test_a_sample_of_conversations_tells_about_the_same_and_always_the_same(made: Any) -> None:
    turns = made(400)
    whole = routed(turns, 1.0).stats()
    shares = []
    for seed in range(6):
        stats = routed(turns, 0.4, seed=seed).stats()
        assert stats == routed(turns, 0.4, seed=seed).stats()
        assert sum(new(stats["hit_losses"])) == sum(new(whole["hit_losses"]))
        assert stats["volatile"]["prompts"] % 20 == 0  # whole conversations
        shares.append(stats["volatile"]["share_of_first_sight"])
    assert len(set(shares)) > 1
    assert sum(shares) / len(shares) == pytest.approx(whole["volatile"]["share_of_first_sight"], abs=0.06)


def test_requests_without_a_session_are_drawn_by_their_number() -> None:
    router = Router(["a"], volatile_sample=0.25)
    for number in range(800):
        router.route([number] * 40).finish()
    assert router.stats()["volatile"]["prompts"] == pytest.approx(200, abs=40)


def test_without_a_sample_nothing_is_told_and_nothing_follows() -> None:
    router = routed(chats(40), 0.0)
    assert router.route([{"role": "user", "content": "x"}]).attempt.followers == ()
    stats = router.stats()
    assert stats["volatile"] is None
    assert "volatile" not in stats["hit_losses"]
    assert "volatile" not in router.metrics_text()


def test_no_counter_falls_and_each_policy_and_dollar_has_the_split() -> None:
    cost = CostModel("H100", "Qwen3-8B", usd_per_gpu_hour=3.6)
    router = Router(
        ["a", "b"], policy="round-robin", prompt_kind="messages", volatile_sample=0.5, cost=cost, hash_key=1
    )
    router.shadow("cache-aware")
    before: dict[Any, float] = {}
    steady = [turn._replace(prompt=[{"role": "system", "content": RULES}, *turn.prompt[1:]]) for turn in chats(60)]
    for number, turn in enumerate([*chats(60), *steady, *chats(60)]):
        router.route(turn.prompt, session=turn.session + str(number // 60)).finish(output=turn.answer)
        tokens = {family: lost(router, f"{family}_tokens") for family in ("hit_loss", "shadow_hit_loss")}
        after: dict[Any, float] = {(family, *key): value for family in tokens for key, value in tokens[family].items()}
        assert [key for key, value in after.items() if value < before.get(key, 0)] == []
        before = after
    stats = router.stats()
    assert sum(new(stats["hit_losses"])) == stats["prompt_tokens"] - stats["best_hit_tokens"]
    assert lost(router, "hit_loss_tokens")["round-robin", "volatile"] == stats["hit_losses"]["volatile"] > 10_000
    assert tokens["shadow_hit_loss"]["cache-aware", "volatile"] > 10_000
    dollars = {key: value * cost.usd_per_token() for key, value in tokens["hit_loss"].items()}
    assert lost(router, "hit_loss_dollars") == pytest.approx(dollars)


def test_what_begins_to_change_later_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first survey is long over when a deployment puts a counter in front."""
    monkeypatch.setattr(sampling, "MOST_PROMPTS", 40)
    before = [turn._replace(prompt=[{"role": "system", "content": RULES}, *turn.prompt[1:]]) for turn in chats(120)]
    router = routed(before, 1.0)
    assert router.stats()["hit_losses"]["volatile"] == 0
    assert router.stats()["volatile"]["found"] == []
    for turn in chats(200, "Request {second}{minute} of today. "):
        router.route(turn.prompt, session=f"late {turn.session}").finish(output=turn.answer)
    stats = router.stats()
    assert stats["hit_losses"]["volatile"] > 50_000
    assert [found["tokens_before"] < 10 for found in stats["volatile"]["found"]] == [True]


def test_prompts_that_cannot_be_compared_are_counted_and_harm_nobody() -> None:
    def render(messages: Any) -> str:
        if len(rendered) % 2:  # fails when the sample asks
            raise RuntimeError("no template")
        rendered.append(messages)
        return str(messages)

    rendered: list[Any] = []
    router = Router(["a"], prompt_kind="messages", render=render, volatile_sample=1.0)
    router.route([{"role": "user", "content": "x" * 400}]).finish()
    router.route(hash_blocks(list(range(1_600)), hash_key=router.hash_key)).finish()
    stats = router.stats()
    assert (stats["volatile"]["prompts"], stats["volatile"]["unreadable_prompts"]) == (2, 2)
    assert new(stats["hit_losses"])[1] == 0
    assert stats["counts"]["finished"] == 2


def test_requests_that_are_given_up_are_in_the_sample_and_pairs_are_too() -> None:
    router = Router(["a", "b"], volatile_sample=1.0, hash_key=1, capacity_tokens=ENDLESS)
    for turn in ids(60):
        router.route(turn.prompt).abort()
    for turn in ids(60):
        router.route_pair(turn.prompt).finish(output=turn.answer)
    stats = router.stats()
    assert stats["volatile"]["prompts"] == 120
    assert stats["hit_losses"]["volatile"] > 10_000


def test_memory_is_bounded_whatever_prompts_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SURVEY_BYTES", 256 * 1024)
    monkeypatch.setattr(sampling, "INDEX_BYTES", 1 << 20)
    router = Router(["a"], prompt_kind="text", volatile_sample=1.0, max_bytes=1 << 20)
    draw = np.random.default_rng(0)

    def many(count: int) -> None:
        for _ in range(count):
            text = draw.integers(97, 123, 50_000, np.uint8).tobytes().decode()
            router.route(f"{draw.integers(1_000_000)} {RULES} {text}").finish()

    many(20)  # 52 kB each
    tracemalloc.start()
    try:
        many(150)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
    assert router.stats()["hit_losses"]["volatile"] > 0


def test_threads_lose_no_request_but_those_that_had_to_wait_too_long() -> None:
    router = Router(["a", "b"], volatile_sample=1.0, capacity_tokens=ENDLESS)
    turns = ids(160)
    in_threads(partial(drive, router, turns[part::4]) for part in range(4))
    stats = router.stats()
    assert sampling.MOST_WAITING <= stats["volatile"]["prompts"] <= 160
    assert stats["volatile"]["share_of_first_sight"] > 0.5
    assert sum(new(stats["hit_losses"])) == stats["prompt_tokens"] - stats["best_hit_tokens"]


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), "all", None])
def test_a_share_is_a_share(share: Any) -> None:
    with pytest.raises(ConfigError, match="volatile_sample"):
        Router(["a"], volatile_sample=share)
