"""Where the hits went: recomputed tokens by reason, of logs that report cached tokens and of caches without a limit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import private_of, read, write

from prefixroute.hashing import BlockHashes
from prefixroute.workload import HitLosses, LossMeter, Request, Workload, measure, read_trace
from prefixroute.workload.request import Masked

BLOCK = 16


def blocks(*names: int) -> BlockHashes:
    """Return a chain that is the same up to the first name that differs."""
    chain = np.cumsum(np.array(names, np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1), dtype=np.uint64)
    return BlockHashes(chain, token_count=BLOCK * len(names), block_size=BLOCK)


def request(*names: int, masked: tuple[int, ...] | None = None) -> Request:
    prompt = blocks(*names)
    other = None if masked is None else Masked(blocks(*masked), blocks(*masked))
    return Request(0.0, prompt, prompt, prompt.token_count, 0, masked=other)


def test_each_reason_by_hand() -> None:
    meter = LossMeter(BLOCK, volatile=True)
    first = meter.add(request(1, 2, 3, masked=(2, 3)), 0, 0, "a")
    assert first == HitLosses(prompt=48, first_sight=48)
    elsewhere = meter.add(request(1, 2, 3, 4, masked=(2, 3, 4)), 48, 0, "b")
    assert elsewhere == HitLosses(prompt=64, first_sight=16, elsewhere=48)
    evicted = meter.add(request(1, 2, 3, masked=(2, 3)), 48, 16, "a")
    assert evicted == HitLosses(prompt=48, hit=16, evicted=32)
    volatile = meter.add(request(9, 2, 3, masked=(2, 3)), 0, 0, "a")
    assert volatile == HitLosses(prompt=48, first_sight=16, volatile=32)
    undecided = meter.add(request(1, 2, masked=(2,)), 32, 0)
    assert undecided == HitLosses(prompt=32, undecided=32)
    warm = meter.add(request(7, 7, masked=(7,)), 0, 32, "c")  # cached before the log begins
    assert warm == HitLosses(prompt=32, hit=32)
    total = first
    for other in (elsewhere, evicted, volatile, undecided, warm):
        total = total.plus(other)
    assert (total.prompt, total.recomputed) == (272, 224)
    assert total.share("volatile") == pytest.approx(32 / 272)


histories = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(0, 80), st.sampled_from("ab")),
    max_size=20,
)


@given(histories)
def test_reasons_add_up_to_the_prompt_and_none_is_negative(history: list[tuple[list[int], int, str]]) -> None:
    meter = LossMeter(BLOCK)
    for names, hit, replica in history:
        figures = meter.add(request(*names), min(hit, 32), hit, replica).to_dict()
        prompt = figures.pop("prompt")
        assert sum(figures.values()) == prompt
        assert min(figures.values()) >= 0


def log(folder: Path, *, replicas: bool, dated: bool = False, hits: bool = True) -> Workload:
    rows = []
    for number in range(30):
        head, chat = f"Now {number * 7_919 % 10_007:05}. " if dated else "", f"chat {number % 3}"
        said = head + "The rules are these, and no others. " * 40 + f"{chat}: " + f"more of {chat}. " * number
        tokens = len(said) // 4
        cached = 0 if number % 2 or not hits else tokens // 4
        usage = {"prompt_tokens": tokens, "prompt_tokens_details": {"cached_tokens": cached}}
        row = {"time": number, "session": str(number % 3), "prompt": said, "usage": usage}
        rows.append(row | ({"backend": f"http://10.0.0.{number % 2}:8000"} if replicas else {}))
    return read_trace(write(folder / "log.jsonl", rows))


@pytest.mark.parametrize("replicas", [True, False])
def test_a_log_of_zeros_throughout_has_lost_nothing_from_a_cache(replicas: bool, tmp_path: Path) -> None:
    found = measure(log(tmp_path, replicas=replicas, hits=False))
    assert found.reports_no_hits
    assert not measure(log(tmp_path, replicas=replicas)).reports_no_hits
    assert found.losses.hit == found.losses.evicted == found.losses.elsewhere == 0
    assert found.losses.undecided > 0
    assert found.losses.first_sight + found.losses.undecided == found.losses.prompt


def test_a_log_that_names_replicas_tells_routing_from_capacity(tmp_path: Path) -> None:
    named = measure(log(tmp_path, replicas=True)).losses
    unnamed = measure(log(tmp_path, replicas=False)).losses
    assert named.undecided == unnamed.elsewhere == unnamed.evicted == 0
    assert named.elsewhere > 0
    assert named.evicted > 0
    assert named.elsewhere + named.evicted == unnamed.undecided
    assert (named.hit, named.first_sight) == (unnamed.hit, unnamed.first_sight)


def test_a_private_trace_tells_the_same(tmp_path: Path) -> None:
    for dated in (False, True):
        trace = log(tmp_path, replicas=True, dated=dated)
        private = private_of(trace, tmp_path)
        assert measure(private).losses == measure(trace).losses
        assert "10.0.0" not in (tmp_path / "private.jsonl").read_text()
        assert len({one.attrs["replica"] for one in read(tmp_path / "private.jsonl")}) == 2
        assert (measure(trace).losses.volatile > 0.5 * measure(trace).losses.prompt) == dated


def test_without_reports_a_cache_of_unlimited_size_is_split(tmp_path: Path) -> None:
    rows = [
        {"time": at, "prompt": f"nonce {at * 7_919 % 10_007:05}: " + "the rules are these. " * 60} for at in range(30)
    ]
    found = measure(read_trace(write(tmp_path / "log.jsonl", rows)))
    assert found.losses.recomputed == pytest.approx(found.floor * found.prompt_tokens)
    assert found.losses.volatile > 0.9 * found.losses.prompt
    assert json.loads(json.dumps(found.to_dict()))["losses"] == found.losses.to_dict()
