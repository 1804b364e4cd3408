"""What making, reading, converting and measuring requests costs.

    pytest benches/bench_workload.py --benchmark-enable

Each bench handles ``extra_info["requests"]`` requests; the log of messages is ``extra_info["megabytes"]`` long, with
bodies as strings inside its rows. A log is read once, so megabytes a second is what a large one takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixroute.workload import GENERATORS, Workload, chat, convert, measure, read_trace

Benchmark = Callable[..., Any]
REQUESTS = 20_000
LOG_ROWS = 3_000


def drain(workload: Workload) -> int:
    return sum(1 for _ in workload.requests())


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log of conversations behind a system prompt of about 8 kB, 20 kB a row on average."""
    rng = np.random.default_rng(1)
    words = np.array([f"w{number}" for number in range(5_000)])

    def text(count: int) -> str:
        return " ".join(rng.choice(words, count))

    def rows() -> Iterator[str]:
        system = {"role": "system", "content": text(1_500)}
        messages = [[system] for _ in range(50)]
        for number in range(LOG_ROWS):
            place = int(rng.integers(50))
            chat_so_far = messages[place] = [system] if len(messages[place]) > 20 else messages[place]
            chat_so_far.append({"role": "user", "content": text(100)})
            answer = {"role": "assistant", "content": text(200)}
            body = json.dumps({"model": "m", "messages": chat_so_far})
            yield json.dumps({"ts": number, "request_body": body, "response": {"choices": [{"message": answer}]}})
            chat_so_far.append(answer)

    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_text("\n".join(rows()))
    return path


@pytest.mark.parametrize("name", GENERATORS)
def test_generate(benchmark: Benchmark, name: str) -> None:
    benchmark.extra_info["requests"] = REQUESTS  # type: ignore[attr-defined]
    assert benchmark(drain, GENERATORS[name](1, requests=REQUESTS)) == REQUESTS


def test_read_messages(benchmark: Benchmark, log: Path) -> None:
    benchmark.extra_info["megabytes"] = log.stat().st_size / 1e6  # type: ignore[attr-defined]
    assert benchmark(drain, read_trace(log, check=False)) == LOG_ROWS


def test_convert_messages(benchmark: Benchmark, log: Path, tmp_path: Path) -> None:
    benchmark.extra_info["megabytes"] = log.stat().st_size / 1e6  # type: ignore[attr-defined]
    assert benchmark(convert, read_trace(log, check=False), tmp_path / "p.jsonl.gz", bytes(16)).requests == LOG_ROWS


def test_read_private(benchmark: Benchmark, tmp_path: Path) -> None:
    benchmark.extra_info["requests"] = REQUESTS  # type: ignore[attr-defined]
    convert(chat(1, requests=REQUESTS), tmp_path / "p.jsonl.gz", bytes(16))
    assert benchmark(drain, read_trace(tmp_path / "p.jsonl.gz", check=False)) == REQUESTS


def test_measure(benchmark: Benchmark) -> None:
    benchmark.extra_info["requests"] = REQUESTS  # type: ignore[attr-defined]
    assert benchmark(measure, chat(1, requests=REQUESTS)).requests == REQUESTS
