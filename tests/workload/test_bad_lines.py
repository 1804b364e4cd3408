"""Bad lines: they end the reading, or are left out, counted and named, up to as many as were allowed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from logs import figures, refused

from prefixroute.errors import ConfigError
from prefixroute.workload import Options, Workload, chat, convert, read_trace

SKIP = Options(skip_bad=11)


def mooncake(number: int) -> dict[str, Any]:
    return {"timestamp": 10 * number, "input_length": 1024, "output_length": 5, "hash_ids": [0, number + 1]}


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def good(count: int = 60) -> list[str]:
    return [json.dumps(mooncake(number)) for number in range(count)]


def arrivals(workload: Workload) -> list[float]:
    return [request.arrival_s for request in workload.requests()]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ('{"timestamp": 70, "input', "JSON: .*column 25"),
        ("[1, 2]", r"JSON .*\[1, 2\]"),
        (json.dumps({**mooncake(7), "input_length": -1}), "input_length .*-1"),
        (json.dumps({**mooncake(7), "timestamp": 0}), r"time .*0\.060 to 0\.000 s"),
        ("caf\udce9", "UTF-8"),
    ],
)
def test_a_bad_line_is_left_out_counted_and_named(tmp_path: Path, bad: str, why: str) -> None:
    lines = good()
    path = tmp_path / "day.jsonl"
    text = "".join(f"{line}\n" for line in [*lines[:7], bad, *lines[7:]])
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(path, match=r"day\.jsonl:8: ")
    workload = read_trace(path, SKIP)
    assert workload.skipped is not None
    assert (workload.skipped.bad, workload.skipped.lines, workload.skipped.first_lines) == (1, 61, (8,))
    assert re.search(rf"day\.jsonl:8: .*{why}", workload.skipped.first[0])
    assert (workload.request_count, figures(workload.notes[-1:])) == (60, [[1, 61, 8]])
    assert {item.name: item.value for item in workload.assumptions} == {"skipped_lines": 1}
    assert arrivals(workload) == arrivals(read_trace(write(tmp_path / "clean.jsonl", lines)))


def test_a_trace_without_bad_lines_is_the_same_either_way(tmp_path: Path) -> None:
    path = write(tmp_path / "day.jsonl", good())
    with_skip, without = read_trace(path, SKIP), read_trace(path)
    assert with_skip.skipped is None
    assert (with_skip, arrivals(with_skip)) == (without, arrivals(without))


def test_only_the_first_are_named_and_more_than_were_allowed_are_refused(tmp_path: Path) -> None:
    lines = good(100)
    skipped = read_trace(write(tmp_path / "day.jsonl", [*lines, *["{"] * 11]), SKIP).skipped
    assert skipped is not None
    assert (skipped.bad, len(skipped.first), figures([str(skipped)])[0][-1]) == (11, 3, 8)
    path = write(tmp_path / "day.jsonl", [*lines, *["{"] * 12])
    refused(path, SKIP, match=r"\b11\b.*\b12\b.*\b112\b.*day\.jsonl:101")
    assert read_trace(path, Options(skip_bad=12)).request_count == 100
    with pytest.raises(ConfigError, match=r"skip_bad .* 0.*-1"):
        read_trace(path, Options(skip_bad=-1))


def test_a_log_that_begins_in_the_middle_of_a_line_is_recognised(tmp_path: Path) -> None:
    path = write(tmp_path / "day.jsonl", ['h": 1024, "hash_ids": [4]}', *good()])
    workload = read_trace(path, SKIP)
    assert (workload.block_size, workload.request_count) == (512, 60)
    refused(write(tmp_path / "day.jsonl", ["nothing here"] * 300), SKIP, match=r"day\.jsonl:1: .*'nothing here'")


def test_a_large_trace_is_counted_before_it_is_used(tmp_path: Path) -> None:
    path = write(tmp_path / "day.jsonl", [*good(), "{"])
    workload = read_trace(path, SKIP, check=False)
    assert workload.skipped is not None
    assert workload.request_count == 60


def test_damaged_packing_is_no_bad_line(tmp_path: Path) -> None:
    """What comes behind it is lost, and nobody knows how much that is."""
    path = tmp_path / "day.private.jsonl.gz"
    convert(chat(1, requests=400), path, bytes(16))
    path.write_bytes(path.read_bytes()[:-500])
    refused(path, SKIP, match=r"gz:\d+: .*gzip")


def test_a_private_trace_counts_back_over_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "day.private.jsonl"
    convert(chat(1, requests=400), path, bytes(16))
    whole = list(read_trace(path).requests())
    lines = path.read_text().splitlines()
    for broken in ("{", json.dumps({**json.loads(lines[200]), "in": 0})):
        damaged = read_trace(write(tmp_path / "damaged.jsonl", [*lines[:200], broken, *lines[201:]]), SKIP)
        left = list(damaged.requests())
        assert damaged.skipped is not None
        assert damaged.skipped.bad >= 1
        lost = {request.arrival_s for request in whole} - {request.arrival_s for request in left}
        assert len(lost) == damaged.skipped.bad
        kept = [request for request in whole if request.arrival_s not in lost]
        assert [request.prompt for request in left] == [request.prompt for request in kept]


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "day.jsonl", good(2_000))
    told: list[float] = []
    workload = read_trace(path, progress=told.append)
    assert told == sorted(told)
    assert 100 < len(told) <= 201
    assert told[-1] > 0.98
    arrivals(workload)
    assert told[-1] <= 1.0


def test_token_ids_that_are_none_are_an_error_of_their_line(tmp_path: Path) -> None:
    rows = [{"timestamp": at, "prompt_token_ids": [1, 2, {"x": []} if at == 3 else 3] * 8} for at in range(12)]
    path = write(tmp_path / "ids.jsonl", [json.dumps(row) for row in rows])
    refused(path, match=r"ids\.jsonl:4: ")
    assert read_trace(path, SKIP).request_count == 11
