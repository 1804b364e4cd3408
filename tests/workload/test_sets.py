"""Sets of conversations, results of benchmarks, and Mooncake's shape as later tools write it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from logs import Rows, read, refused, write

from prefixroute.workload import Options, floor, measure, read_trace
from prefixroute.workload.readers.conversations import WITHOUT_QUESTION
from prefixroute.workload.readers.ids import UNCHAINED
from prefixroute.workload.readers.kinds import FAILED
from prefixroute.workload.readers.mooncake import DELAYS, DELTAS, WITHOUT_IDS
from prefixroute.workload.readers.record import BURST

SAID = [
    f"{whose} says this in turn {at}: " + "more words follow here. " * 12
    for at in range(3)
    for whose in ("ann", "model")
]
SHAREGPT: Rows = [
    {
        "id": "c1",
        "conversations": [{"from": "human" if at % 2 == 0 else "gpt", "value": text} for at, text in enumerate(SAID)],
    }
]
LMSYS: Rows = [{"conversation_id": "c1", "model": "vicuna-13b", "turn": 3, "language": "English",
                "conversation": [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(SAID)]}]  # fmt: skip
WILDCHAT: Rows = [{"conversation_hash": "c1", "model": "m", "timestamp": "2026-11-29T10:05:00+00:00", "conversation": [
    {"role": one["role"], "content": one["content"], "timestamp": f"2026-11-29T10:0{at // 2}:00+00:00" if at % 2 else None}
    for at, one in enumerate(LMSYS[0]["conversation"])]}]  # fmt: skip


@pytest.mark.parametrize("rows", [SHAREGPT, LMSYS, WILDCHAT])
def test_a_conversation_is_a_session_and_each_turn_of_its_user_a_request(tmp_path: Path, rows: Rows) -> None:
    workload = read_trace(write(tmp_path / "set.jsonl", rows))
    requests = list(workload.requests())
    assert [request.session for request in requests] == ["c1"] * 3
    for earlier, later in itertools.pairwise(requests):
        assert later.arrival_s - earlier.arrival_s == pytest.approx(60.0)
        assert (later.prompt.array[: len(earlier.context)] == earlier.context.array).all()
    drawn = [item.name for item in workload.assumptions if item.assumed]
    assert ("sessions_per_hour" in drawn) == ("timestamp" not in rows[0])
    (tmp_path / "set.json").write_text(json.dumps(rows, indent=1))  # ShareGPT is one document
    assert read(tmp_path / "set.json") == requests


def test_a_conversation_without_a_question_is_left_out(tmp_path: Path) -> None:
    unasked = [{"id": "c2", "conversations": [{"from": "gpt", "value": "hello"}]}, {"id": "c3", "conversations": []}]
    workload = read_trace(write(tmp_path / "set.jsonl", [*SHAREGPT, *unasked]))
    assert workload.request_count == 3
    assert workload.left_out == {WITHOUT_QUESTION: 2}
    refused(
        write(tmp_path / "set.jsonl", [*SHAREGPT, {"id": "c", "conversations": ["x"]}]),
        match=r"set\.jsonl:2: turn 0.*'x'",
    )


def result(**more: Any) -> dict[str, Any]:
    return {
        "backend": "vllm",
        "request_rate": 4.0,
        "input_lens": [100, 200, 300],
        "output_lens": [5, 6, 7],
        "errors": ["", "no", ""],
        **more,
    }


def test_results_of_a_benchmark_have_lengths_and_times_as_far_as_they_say(tmp_path: Path) -> None:
    recorded = read_trace(write(tmp_path / "run.json", [result(start_times=[50.0, 50.5, 51.0])]))
    assert [(one.prompt_tokens, one.output_tokens, one.arrival_s) for one in recorded.requests()] == [
        (100, 5, 0.0),
        (300, 7, 1.0),
    ]
    assert recorded.left_out == {FAILED: 1}
    assert floor(recorded) == 1
    drawn = read_trace(write(tmp_path / "run.json", [result()]))
    assert [item.name for item in drawn.assumptions] == ["request_rate"]
    burst = read_trace(write(tmp_path / "run.json", [result(request_rate="inf")]))
    assert BURST in burst.notes
    refused(write(tmp_path / "run.json", [result(output_lens=[1])]), match=r"run\.json:1: 3 input_lens.*output_lens")


def test_inputs_of_aiperf(tmp_path: Path) -> None:
    payloads = [[{"messages": [{"role": "user", "content": f"{who} {at} " * 30}]} for at in range(2)] for who in "ab"]
    document = {"data": [{"session_id": who, "payloads": some} for who, some in zip("ab", payloads, strict=True)]}
    (tmp_path / "inputs.json").write_text(json.dumps(document, indent=2))
    assert [request.session for request in read(tmp_path / "inputs.json")] == ["a", "a", "b", "b"]
    turns = [
        {"session_id": who, "turns": [{"text": "first " * 40}, {"text": "second " * 40, "delay": 5}]} for who in "ab"
    ]
    first, second, *_ = read(write(tmp_path / "turns.jsonl", turns))
    assert (second.prompt.array[: len(first.prompt) - 1] == first.prompt.array[:-1]).all()
    assert len(read(write(tmp_path / "single.jsonl", [{"text": "hello " * 20}] * 3))) == 3


def test_failures_of_burstgpt_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "burst.csv").write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n1,ChatGPT,472,18,490,API log\n2,GPT-4,99,0,99,API log\n"
    )
    workload = read_trace(tmp_path / "burst.csv")
    assert (workload.request_count, workload.left_out) == (1, {FAILED: 1})


def test_the_azure_traces_of_2024(tmp_path: Path) -> None:
    (tmp_path / "azure.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01.017335+00:00,2399,6\n"
    )
    assert [request.arrival_s for request in read(tmp_path / "azure.csv")] == pytest.approx([0, 1.007405])


def mooncake(number: int, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": 1_000 * number,
        "input_length": 1_536,
        "output_length": 600,
        "hash_ids": [1, 2, number + 9],
        **more,
    }


def test_sessions_of_mooncakes_shape_are_used(tmp_path: Path) -> None:
    rows = [mooncake(at, session_id=f"s{at % 6}") for at in range(24)]
    assert measure(read_trace(write(tmp_path / "m.jsonl", rows))).sessions == 6


def test_deltas_are_joined(tmp_path: Path) -> None:
    """A row has what is new in its session: the next prompt is the one before, its answer and that."""
    rows = [mooncake(at, session_id=f"s{at % 2}", message_mode="delta") for at in range(6)]
    workload = read_trace(write(tmp_path / "m.jsonl", rows))
    requests = list(workload.requests())
    assert [request.prompt_tokens for request in requests] == [1_536, 1_536, 3_672, 3_672, 5_808, 5_808]
    assert [len(request.prompt) for request in requests] == [3, 3, 7, 7, 11, 11]
    for earlier, later in zip(requests, requests[2:], strict=False):
        assert (later.prompt.array[: len(earlier.prompt)] == earlier.prompt.array).all()
    assert len({int(request.prompt.array[-1]) for request in requests}) == 6
    assert DELTAS in workload.notes


def test_ids_that_name_blocks_alone_match_equal_prefixes_only(tmp_path: Path) -> None:
    rows = [{**mooncake(at), "hash_ids": [(at + place * 7) % 5 for place in range(3)]} for at in range(40)]
    workload = read_trace(write(tmp_path / "m.jsonl", rows))
    assert UNCHAINED in workload.notes
    assert floor(workload) == pytest.approx(5 / 40)
    shuffled = [{**mooncake(at), "hash_ids": [at, 1, 2]} for at in range(20)]
    assert floor(read_trace(write(tmp_path / "s.jsonl", shuffled))) == 1
    assert not read_trace(write(tmp_path / "p.jsonl", [mooncake(at) for at in range(20)])).notes[:-1]


def test_delays_are_times_and_rows_without_ids_are_read_by_length(tmp_path: Path) -> None:
    rows = [mooncake(2, session_id="s"), {**mooncake(0, session_id="s"), "timestamp": None, "delay": 500}, mooncake(3)]
    del rows[1]["timestamp"], rows[2]["hash_ids"]
    workload = read_trace(write(tmp_path / "m.jsonl", rows), Options(reorder_s=10))
    assert [request.arrival_s for request in workload.requests()] == [0, 0.5, 1.0]
    assert DELAYS in workload.notes
    assert workload.remarks == {WITHOUT_IDS: 1}
