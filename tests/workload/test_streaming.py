"""Reading and writing hold a window of a trace and never the trace."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from prefixroute.workload import ChatShape, Options, chat, convert, read_trace

ROWS = 1_800
PROMPT = 400  # token ids a row


def write_log(path: Path) -> None:
    with gzip.open(path, "wt", compresslevel=1) as stream:
        for number in range(ROWS):
            row = {"time": number, "token_ids": list(range(number, number + PROMPT)), "session": str(number)}
            stream.write(json.dumps(row) + "\n")


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_reading_does_not_grow_with_the_file(tmp_path: Path) -> None:
    write_log(tmp_path / "log.jsonl.gz")
    trace = read_trace(tmp_path / "log.jsonl.gz", Options(reorder_s=30), check=False)

    def read(count: int) -> int:
        return peak_bytes(lambda: sum(request.prompt_tokens for request in trace.head(count).requests()))

    assert read(ROWS) < 1.5 * read(ROWS // 6)


def test_memory_of_writing_is_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefixroute.workload.conversion.WINDOW", 100)

    def write(count: int) -> int:
        # Twenty conversations at a time: what the generator itself holds stops growing early.
        workload = chat(1, requests=count, shape=ChatShape(slots=20))
        return peak_bytes(lambda: convert(workload, tmp_path / f"{count}.jsonl.gz", bytes(16)))

    assert write(4_000) < 1.5 * write(1_000)
