"""Public traces by files of our own making: what is read, inferred and said, and what is refused and where."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logs import BAILIAN, Rows, read, refused, write

from prefixroute.errors import ConfigError
from prefixroute.workload import Options, floor, read_arrivals, read_trace
from prefixroute.workload.readers.lengths import UNSHARED
from prefixroute.workload.readers.recorded import SHARED_SYSTEM, UNSHARED_SESSIONS
from prefixroute.workload.readers.row import ZONELESS


def test_bailian_turns_share_the_session_of_their_root(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path / "qwen_traceA_blksz_16.jsonl", BAILIAN))
    requests = list(workload.requests())
    assert workload.block_size == 16
    assert [request.session for request in requests] == ["7", "8", "7", "7"]
    assert [request.arrival_s for request in requests] == [0, 0, 8.5, 28.5]
    assert [len(request.prompt) for request in requests] == [2, 2, 4, 4]
    assert requests[1].attrs == {"type": "search"}
    assert requests[3].prompt == requests[2].prompt
    assert workload.notes == ()


def test_block_size_follows_the_ids(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 1000, "output_length": 1, "hash_ids": list(range(16))}]
    assert read_trace(write(tmp_path / "t.jsonl", rows)).block_size == 64
    rows[0]["hash_ids"] = list(range(17))
    refused(write(tmp_path / "t.jsonl", rows), match=r"t\.jsonl:1: 17 hash_ids.*1000.*block_size")
    assert read_trace(tmp_path / "t.jsonl", Options(block_size=60)).block_size == 60


WEKA: Rows = [
    {"session": "a", "tool_tokens": 100, "system_tokens": 60, "requests": [
        {"t": 0, "m": 0, "in": 200, "out": 5, "keep": 0, "add": [[1, 3]]},
        {"t": 5000, "m": 0, "in": 400, "out": 5, "keep": 2, "add": [[9, 2], [30, 2]]},
        {"t": 2000, "m": 1, "in": 130, "out": 5, "keep": 0, "add": [[50, 2]], "agent": 1},
        {"t": 3000, "m": 1, "in": 260, "out": 5, "keep": 2, "add": [[52, 2]], "agent": 1}]},
    {"session": "b", "tool_tokens": 100, "system_tokens": 60, "requests": [
        {"t": 0, "m": 0, "in": 200, "out": 5, "keep": 0, "add": [[1, 3]]}]},
]  # fmt: skip


def test_recorded_sessions_expand_by_agent_and_merge_in_time(tmp_path: Path) -> None:
    path = write(tmp_path / "weka.jsonl", WEKA)
    workload = read_trace(path, Options(sessions_per_hour=1e-3))
    first, sub, sub_next, second, other = workload.requests()
    assert workload.block_size == 64
    assert [len(request.prompt) for request in (first, sub, sub_next, second, other)] == [3, 2, 4, 6, 3]
    assert (second.prompt.array[:2] == first.prompt.array[:2]).all()
    assert (sub_next.prompt.array[:2] == sub.prompt.array).all()
    assert [first.attrs, sub.attrs] == [{}, {"agent": "1"}]
    assert [sub.model, first.model] == ["haiku-4-5", "opus-4-5"]
    assert [sub.arrival_s - first.arrival_s, second.arrival_s - first.arrival_s] == pytest.approx([2, 5])
    assert first.session == sub.session == "a"
    assert not set(first.prompt.array.tolist()) & set(other.prompt.array.tolist())
    assert UNSHARED_SESSIONS in workload.notes
    assert [item.assumed for item in workload.assumptions] == [False]


def test_sharing_of_system_prompts_is_an_assumption_and_said(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path / "weka.jsonl", WEKA), Options(share_system=True, sessions_per_hour=1e-3))
    requests = list(workload.requests())
    assert (requests[0].prompt.array[:2] == requests[-1].prompt.array[:2]).all()
    assert requests[0].prompt.array[2] != requests[-1].prompt.array[2]
    assert SHARED_SYSTEM in workload.notes


def test_starts_of_sessions_are_drawn_by_seed(tmp_path: Path) -> None:
    path = write(tmp_path / "weka.jsonl", [{**WEKA[1], "session": str(at)} for at in range(200)])
    times = {seed: [request.arrival_s for request in read(path, Options(seed=seed))] for seed in (1, 2)}
    assert times[1] == [request.arrival_s for request in read(path, Options(seed=1))]
    assert times[1] != times[2]
    assert times[1][-1] == pytest.approx(200 * 60, rel=0.25)


def test_lmcache_ids_are_global(tmp_path: Path) -> None:
    session = {"agent_kind": "x", "requests": [{"t": 0, "in": 40, "out": 1, "keep": 0, "add": [[4, 2]]}]}
    first, second = read(write(tmp_path / "l.jsonl", [{"session": "a", **session}, {"session": "b", **session}]))
    assert first.prompt == second.prompt
    assert first.prompt.block_size == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keep": 9}, r"requests\[0\] .*9 .*0 "),
        ({"add": [[1]]}, r"requests\[0\]\.add .*\[first id, count\].*\[1\]"),
        ({"add": [[-1, 2]]}, r"\[-1, 2\]"),
        ({"add": [[1, 10**12]]}, r"\[1, 1000000000000\]"),
        ({"add": [[1, 9]]}, "9 blocks.* 2$"),
        ({"in": 2**53, "add": [[1, 2**52]]}, f"{2**52} blocks.* {2**22}$"),
        ({"in": 2**30, "add": [[1, 2**21]] * 3}, f"{3 * 2**21} blocks"),
        ({"in": 0}, "in .* 1 .*0"),
        ({"t": "now"}, r"t .*-2\*\*63 to 2\*\*63.*'now'"),
    ],
)
def test_bad_sessions_name_their_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = {"t": 0, "in": 40, "out": 1, "keep": 0, "add": [[4, 2]]}
    rows = [{"session": "a", "requests": [good]}, {"session": "b", "requests": [{**good, **change}]}]
    refused(write(tmp_path / "s.jsonl", rows), match=rf"s\.jsonl:2: .*{message}")


def test_lengths_only(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    )
    workload = read_trace(path)
    first, second = workload.requests()
    assert (first.prompt_tokens, first.output_tokens, len(first.prompt)) == (4808, 10, 300)
    assert second.arrival_s == pytest.approx(0.052, abs=1e-6)
    assert floor(workload) == 1
    assert first.session is None
    assert workload.notes == (UNSHARED, ZONELESS)
    assert [request.prompt for request in workload.requests()] == [first.prompt, second.prompt]
    assert read_arrivals(path).recorded_s == pytest.approx([0, 0.052], abs=1e-6)


def test_burstgpt_columns(tmp_path: Path) -> None:
    header = ["Timestamp", "Session ID", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"]
    with (tmp_path / "burst.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([header, [5, 3, "ChatGPT", 472, 18, 490, "Conversation log"]])
    (request,) = read(tmp_path / "burst.csv")
    assert (request.prompt_tokens, request.output_tokens, request.model, request.session) == (472, 18, "ChatGPT", "3")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2023-11-16 18:17:04,x,8", "ContextTokens .*1 to 10000000.*'x'"),
        ("2023-11-16 18:17:04,-4,8", "ContextTokens .*1 to 10000000.*'-4'"),
        ("soon,4,8", "TIMESTAMP .*ISO 8601.*'soon'"),
        ("2023-11-16 18:17:04,4", "GeneratedTokens .*None"),
        ("2023-11-16 18:17:01,4,8", r"time .*\d s"),
    ],
)
def test_bad_cells_name_their_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,2\n{line}\n")
    refused(path, match=rf"a\.csv:3: .*{message}")


def test_options_that_do_not_fit_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "weka.jsonl", WEKA)
    refused(path, Options(block_size=16), match=r"weka\.jsonl:1: .*64 .*16")
    with pytest.raises(ConfigError, match=r"reorder_s .* 0.*-1"):
        Options(reorder_s=-1)
    refused(write(tmp_path / "w.jsonl", [{**WEKA[1], "session": ""}]), match=r"w\.jsonl:1: .*session.*name")


@pytest.mark.parametrize(
    ("block_size", "shared", "blocks"), [(1_536, 6_144, 4), (2_096, 1_900, 0), (2_096, 2_100, 1), (2_096, 4_300, 2)]
)
def test_blocks_of_engines_for_hybrid_models(tmp_path: Path, block_size: int, shared: int, blocks: int) -> None:
    prompts = [list(range(9_000)), [*range(shared), *range(20_000, 20_000 + 9_000 - shared)]]
    rows = [{"time": at, "token_ids": ids, "usage": {"prompt_tokens": 9_000}} for at, ids in enumerate(prompts)]
    workload = read_trace(write(tmp_path / "g.jsonl", rows), Options(block_size=block_size))
    first, second = (request.prompt for request in workload.requests())
    assert np.count_nonzero(first.array == second.array) == blocks
