"""The planner and the local server, which follow the same documents by different code, agree on one log."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from examples.providers.caches import ClaudeCache, Turn

from prefixroute.plan import place_breakpoints, plan_trace
from prefixroute.plan.breakpoints import ROLLING
from prefixroute.providers import Usage, find_model
from prefixroute.workload import read_trace

SONNET = find_model("claude-sonnet-5-5")
RULES = "The rules of the house. " * 250


def conversations(seed: int) -> list[tuple[float, str, dict[str, Any]]]:
    """Return (time, session, body) of 12 conversations of 6 turns with gaps from 20 seconds to 10 minutes."""
    rng = random.Random(seed)  # noqa: S311 - a test
    rows = []
    for chat in range(12):
        time, messages = rng.uniform(0, 3_000), []
        for turn in range(6):
            messages = [*messages, {"role": "user", "content": f"Question {turn} of {chat}. " + "More of it. " * 80}]
            mark = {"cache_control": {"type": "ephemeral"}}
            system = [{"type": "text", "text": RULES, **mark}]
            rows.append((time, f"c{chat}", {"model": SONNET.id, "system": system, "messages": messages, **mark}))
            messages = [*messages, {"role": "assistant", "content": f"Answer {turn} of {chat}. " + "So it is. " * 80}]
            time += rng.choice([20, 100, 250, 400, 600])
    return sorted(rows, key=lambda row: row[0])


def usage(turn: Turn) -> Usage:
    return Usage(turn.input, turn.read, turn.write)


@pytest.mark.parametrize("seed", range(3))
def test_reuse_and_dollars_of_a_log(tmp_path: Path, seed: int) -> None:
    rows, clock = conversations(seed), [0.0]
    cache = ClaudeCache(lambda: clock[0])
    reported = []
    for clock[0], _, body in rows:
        turn = cache.meet("w", body)
        turn.begin()
        reported.append(usage(turn))
    log = tmp_path / "log.jsonl"
    lines = [{"timestamp": 1.79e9 + at, "session_id": session, "request": body} for at, session, body in rows]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plan = plan_trace(read_trace(log), SONNET)
    total = sum(one.prompt_tokens for one in reported)
    assert plan.total.ratio(plan.total.kept["5m"]) == pytest.approx(
        sum(one.read_tokens for one in reported) / total, abs=0.02
    )
    per_token = sum(one.usd(SONNET) for one in reported) / total
    assert plan.total.kept["5m"].usd / plan.total.prompt_tokens == pytest.approx(per_token, rel=0.05)


def test_marks_that_were_placed_are_what_the_server_reads() -> None:
    bodies = [body for _, _, body in conversations(1)]
    placed = place_breakpoints(bodies, SONNET)
    assert [mark.where for mark in placed.marks] == ["system[0]", ROLLING]
    cache = ClaudeCache(lambda: 0.0)
    read = total = 0
    for body in bodies:
        turn = cache.meet("w", body)
        turn.begin()
        read, total = read + turn.read, total + usage(turn).prompt_tokens
    assert placed.reused_tokens / placed.prompt_tokens == pytest.approx(read / total, abs=0.01)
    assert placed.reused_as_marked == placed.reused_tokens
