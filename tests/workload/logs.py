"""Logs of our own making that several tests write and read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from prefixroute.errors import TraceError
from prefixroute.workload import Options, Request, Workload, convert, read_trace

Rows = list[dict[str, Any]]


def write(path: Path, rows: Rows) -> Path:
    """Write rows as lines of JSON."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def read(path: Path, options: Options | None = None) -> list[Request]:
    """Return the requests of a trace."""
    return list(read_trace(path, options).requests())


def refused(path: str | Path | Sequence[Path], options: Options | None = None, *, match: str) -> str:
    """Demand that a trace is refused with an error that names what the pattern says; return the error."""
    with pytest.raises(TraceError, match=match) as raised:
        read_trace(path, options)
    return str(raised.value)


def private_of(workload: Workload, folder: Path) -> Workload:
    """Return the private trace of a workload."""
    convert(workload, folder / "private.jsonl", bytes(16))
    return read_trace(folder / "private.jsonl")


def figures(notes: Iterable[str]) -> list[list[int]]:
    """Return the whole numbers in each note."""
    return [[int(found.replace(",", "")) for found in re.findall(r"\d+(?:,\d{3})*", note)] for note in notes]


def chat_rows() -> Rows:
    """Two conversations behind one system prompt, the second turn of the first extending the first turn."""
    system = {"role": "system", "content": "You answer in one sentence. " * 40}
    hello = {"role": "user", "content": "What is a prefix cache? " * 20}
    answer = {"role": "assistant", "content": "A memory of computed keys and values. " * 10}
    more = {"role": "user", "content": "And where is it kept? " * 20}
    return [
        {"timestamp": 1_760_000_000, "model": "m", "messages": [system, hello],
         "response": {"choices": [{"message": answer}], "usage": {"prompt_tokens": 400, "completion_tokens": 90,
                                                                   "prompt_tokens_details": {"cached_tokens": 0}}}},
        {"timestamp": 1_760_000_002, "model": "m", "messages": [system, more], "response": {}},
        {"timestamp": 1_760_000_009.5, "model": "m", "messages": [system, hello, answer, more], "response": {
            "usage": {"prompt_tokens": 600, "prompt_tokens_details": {"cached_tokens": 480}}}},
    ]  # fmt: skip


BAILIAN: Rows = [
    {"chat_id": 7, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 40, "output_length": 8, "type": "text",
     "turn": 1, "hash_ids": [1, 2, 3]},
    {"chat_id": 8, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 32, "output_length": 8, "type": "search",
     "turn": 1, "hash_ids": [1, 4]},
    {"chat_id": 9, "parent_chat_id": 7, "timestamp": 70, "input_length": 64, "output_length": 8, "type": "text",
     "turn": 2, "hash_ids": [1, 2, 5, 6]},
    {"chat_id": 11, "parent_chat_id": 9, "timestamp": 90, "input_length": 64, "output_length": 8, "type": "text",
     "turn": 3, "hash_ids": [1, 2, 5, 6]},
]  # fmt: skip
