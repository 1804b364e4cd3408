"""The one-pass statistics against reference models on random histories, and against what is published of public traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.errors import TraceError
from prefixroute.hashing import BlockHashes
from prefixroute.workload import ChatShape, Request, TraceStatistics, Workload, chat, floor, measure, read_trace
from prefixroute.workload.order import in_order, placed
from prefixroute.workload.readers import mooncake
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.source import log_files
from prefixroute.workload.tree import PrefixTree, TouchCounts

BLOCK = 4

# A path is a word over three letters; its prefix is its identity, as a chained hash has it.
paths = st.lists(st.integers(0, 2), max_size=9).map(tuple)
histories = st.lists(st.tuples(paths, paths, st.sampled_from([0.0, 1.0, 30.0])), min_size=1, max_size=40)


def chained(path: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    numbers = []
    value = 1
    for letter in path:
        value = value * 3 + letter
        numbers.append(value)
    return np.array(numbers, np.uint64)


def random_requests(history: list[tuple[tuple[int, ...], tuple[int, ...], float]]) -> list[Request]:
    requests = []
    now = 0.0
    for prompt, answer, gap in history:
        now += gap
        tokens, answered = len(prompt) * BLOCK + 1, len(answer) * BLOCK
        requests.append(
            Request(
                now,
                BlockHashes(chained(prompt), token_count=tokens, block_size=BLOCK),
                BlockHashes(chained(prompt + answer), token_count=tokens + answered, block_size=BLOCK),
                tokens,
                answered,
            )
        )
    return requests


class DullCache:
    """Blocks in order of use, the oldest first; a prompt's tail is older than its head."""

    def __init__(self, capacity: float = float("inf"), kept_s: float = float("inf")) -> None:
        self.capacity, self.kept_s = capacity, kept_s
        self.touched: dict[int, float] = {}

    def serve(self, request: Request) -> int:
        prompt = request.prompt.array.tolist()
        hit = 0
        for block in prompt:
            if block not in self.touched or request.arrival_s - self.touched[block] > self.kept_s:
                break
            hit += 1
        for block in reversed(request.context.array.tolist()):
            self.touched.pop(block, None)
            self.touched[block] = request.arrival_s
        while len(self.touched) > self.capacity:
            del self.touched[next(iter(self.touched))]
        return hit


@given(histories, st.integers(1, 4))
def test_the_tree_knows_what_a_set_knows(
    history: list[tuple[tuple[int, ...], tuple[int, ...], float]], long_walk: int
) -> None:
    tree, dull = PrefixTree(long_walk), DullCache()
    last: dict[int, int] = {}
    for number, request in enumerate(random_requests(history)):
        context = request.context.array.tolist()
        known = tree.touch(number, request.prompt.array, request.context.array)
        assert min(known[-1].last if known else 0, len(request.prompt)) == dull.serve(request)
        expected = [last[block] for block in context if block in last]
        assert [stretch.toucher for stretch in known for _ in range(stretch.first, stretch.last)] == expected
        assert all(later.toucher < earlier.toucher for earlier, later in zip(known, known[1:], strict=False))  # noqa: RUF007
        last.update(dict.fromkeys(context, number))
        assert len(tree) == len(last)
        assert tree.used() <= len(tree)


@given(histories, st.integers(1, 30))
def test_the_curve_is_what_an_lru_cache_of_that_size_does(
    history: list[tuple[tuple[int, ...], tuple[int, ...], float]], capacity: int
) -> None:
    requests = random_requests(history)
    statistics = TraceStatistics("random", BLOCK)
    for request in requests:
        statistics.add(request)
    dull = DullCache(capacity)
    hits = sum(dull.serve(request) for request in requests) * BLOCK
    total = sum(request.prompt_tokens for request in requests)
    curve = statistics.hit_ratios_of_cache(np.array([capacity * BLOCK, 10**9]))
    assert curve[0] == pytest.approx(hits / total)
    assert curve[1] == pytest.approx(statistics.ideal_hit_ratio) == pytest.approx(1 - statistics.floor)


@given(histories, st.sampled_from([0.0, 1.0, 29.0, 31.0, 1e9]))
def test_reuse_by_time_kept(history: list[tuple[tuple[int, ...], tuple[int, ...], float]], kept_s: float) -> None:
    requests = random_requests(history)
    statistics = TraceStatistics("random", BLOCK)
    dull = DullCache(kept_s=kept_s)
    hits = total = 0
    for request in requests:
        statistics.add(request)
        hits += dull.serve(request) * BLOCK
        total += request.prompt_tokens
    assert statistics.hit_ratio_if_kept(kept_s) == pytest.approx(hits / total)


@given(histories)
def test_blocks_and_groups(history: list[tuple[tuple[int, ...], tuple[int, ...], float]]) -> None:
    requests = random_requests(history)
    statistics = TraceStatistics("random", BLOCK)
    for request in requests:
        statistics.add(request)
    uses: dict[int, int] = {}
    for request in requests:
        for block in request.prompt.array.tolist():
            uses[block] = uses.get(block, 0) + 1
    assert statistics.blocks == sum(uses.values())
    assert statistics.unique_blocks == len(uses)
    assert statistics.blocks_used_once * max(1, len(uses)) == pytest.approx(sum(n == 1 for n in uses.values()))
    firsts = [request.prompt.array[0] for request in requests if len(request.prompt)]
    assert statistics.groups[0].count == len(set(firsts))
    assert statistics.groups[0].largest == max((firsts.count(block) for block in firsts), default=0)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(-5, 20)), max_size=60))
def test_touch_counts_are_sums(updates: list[tuple[int, int]]) -> None:
    counts, dull = TouchCounts(), [0] * 64
    for number, blocks in updates:
        counts.add(number, blocks)
        dull[number] += blocks
        last = max(at for at, _ in updates)
        assert counts.total == sum(dull)
        assert counts.after(number) == sum(dull[number + 1 :]) or number > last


def test_forgetting_drops_what_was_not_touched_since() -> None:
    tree = PrefixTree()
    tree.touch(0, chained((0, 1, 2)))
    tree.touch(1, chained((0, 2)))
    tree.forget(1)
    assert len(tree) == 2
    assert [tuple(stretch) for stretch in tree.touch(2, chained((0, 1, 2)))] == [(1, 0, 1)]


def test_floor_agrees_with_the_statistics_and_an_empty_workload_has_none() -> None:
    workload = chat(3, requests=3_000)
    assert floor(workload) == pytest.approx(measure(workload).floor, abs=1e-15)
    for look in (floor, measure):
        with pytest.raises(TraceError, match=r"^chat: "):
            look(workload.head(0))


def test_sessions_and_gaps_of_chat() -> None:
    statistics = measure(chat(1, requests=4_000, shape=ChatShape(slots=20)))
    assert statistics.turns.max == 12
    assert statistics.sessions == pytest.approx(4_000 / 12, rel=0.05)
    assert statistics.rewritten == 0
    assert statistics.gaps_over(0) == 1
    assert statistics.previous_turn_hit_ratio == pytest.approx((66_000 - 8_800) / 66_000, abs=0.01)
    assert json.loads(json.dumps(statistics.to_dict()))["floor"] == statistics.floor


PUBLISHED = {
    "conversation": {
        "requests": 12_031, "span_s": 3_537, "input": (12_035, 6_909, 27_367, 126_195), "output": (343, 350),
        "blocks": (288_500, 182_790), "once": 75.9, "ideal": 37.36, "full blocks": 37.34, "by request": 40.94,
        "last half": 39.81, "kept": {60: 10.5, 600: 35.0}, "cache": {1_000: 4.5, 30_000: 33.2},
        "groups": {1: (1, 12_031), 2: (7_373, 43)}, "instants": (1_180, 28), "round robin": {4: 19.6, 8: 13.9},
    },
    "synthetic": {
        "requests": 3_993, "span_s": 1_022, "input": (15_325, 11_587, 38_615, 191_378), "output": (149, 69),
        "blocks": (121_877, 43_924), "once": 58.5, "ideal": 65.12, "full blocks": 65.04, "by request": 43.15,
        "last half": 86.27, "kept": {60: 32.8, 600: 64.6}, "cache": {1_000: 8.6, 30_000: 63.6},
        "groups": {1: (2_211, 24)}, "instants": (3_982, 2), "round robin": {4: 37.2, 8: 23.1},
    },
}  # fmt: skip


def with_partial_blocks(path: Path) -> Iterator[Request]:
    (file,) = log_files(path)
    return placed(in_order([(file, mooncake.read(file, keep_partial=True))], 0, LogPass()), None)


@pytest.mark.parametrize("name", PUBLISHED)
def test_statistics_of_mooncake_traces(name: str, traces_dir: Path) -> None:
    expected = PUBLISHED[name]
    path = traces_dir / f"mooncake_{name}.jsonl.gz"
    statistics = TraceStatistics(name, mooncake.BLOCK_SIZE)
    for request in with_partial_blocks(path):
        statistics.add(request)
    inputs, outputs = statistics.prompt_lengths, statistics.output_lengths
    assert statistics.requests == expected["requests"]
    assert statistics.span_s == pytest.approx(expected["span_s"], abs=0.5)
    assert (inputs.mean, inputs.p50, inputs.p90, inputs.max) == pytest.approx(expected["input"], abs=4.0)
    assert (outputs.mean, outputs.p50) == pytest.approx(expected["output"], abs=0.5)
    assert (statistics.blocks, statistics.unique_blocks) == expected["blocks"]
    percent = pytest.approx(expected["once"], abs=0.06)
    assert statistics.blocks_used_once * 100 == percent
    assert statistics.ideal_hit_ratio * 100 == pytest.approx(expected["ideal"], abs=0.005)
    assert statistics.ideal_hit_ratio_by_request * 100 == pytest.approx(expected["by request"], abs=0.005)
    assert statistics.ideal_hit_ratio_of_last_half * 100 == pytest.approx(expected["last half"], abs=0.01)
    for seconds, ratio in expected["kept"].items():  # type: ignore[attr-defined]
        assert statistics.hit_ratio_if_kept(seconds) * 100 == pytest.approx(ratio, abs=0.06)
    for blocks, ratio in expected["cache"].items():  # type: ignore[attr-defined]
        assert statistics.hit_ratios_of_cache(np.array([blocks * 512]))[0] * 100 == pytest.approx(ratio, abs=0.06)
    groups = {group.depth: (group.count, group.largest) for group in statistics.groups}
    assert expected["groups"].items() <= groups.items()  # type: ignore[attr-defined]
    assert statistics.instants == expected["instants"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_full_blocks_of_mooncake_traces(name: str, traces_dir: Path) -> None:
    expected = PUBLISHED[name]
    workload = read_trace(traces_dir / f"mooncake_{name}.jsonl.gz")
    assert (1 - floor(workload)) * 100 == pytest.approx(expected["full blocks"], abs=0.005)


@pytest.mark.parametrize("name", PUBLISHED)
def test_round_robin_over_unlimited_caches(name: str, traces_dir: Path) -> None:
    requests = list(with_partial_blocks(traces_dir / f"mooncake_{name}.jsonl.gz"))
    for replicas, ratio in PUBLISHED[name]["round robin"].items():  # type: ignore[attr-defined]
        parts = [Workload(name, 512, lambda at=at, n=replicas: iter(requests[at::n])) for at in range(replicas)]  # type: ignore[misc]
        tokens = [sum(request.prompt_tokens for request in part.requests()) for part in parts]
        hits = sum((1 - floor(part)) * total for part, total in zip(parts, tokens, strict=True))
        assert hits / sum(tokens) * 100 == pytest.approx(ratio, abs=0.06)


def test_statistics_of_the_coding_agent_trace(traces_dir: Path) -> None:
    statistics = measure(read_trace(traces_dir / "claude_code_weka.jsonl.gz", check=False))
    inputs, outputs, turns = statistics.prompt_lengths, statistics.output_lengths, statistics.turns
    assert (statistics.requests, statistics.sessions) == (46_218, 692)
    assert (inputs.mean, inputs.p50, inputs.p90, inputs.max) == pytest.approx(
        (118_296, 100_446, 209_039, 894_371), abs=3
    )
    assert (outputs.mean, outputs.p50) == pytest.approx((440, 218), abs=0.5)
    assert (turns.mean, turns.p50, turns.p90, turns.max) == pytest.approx((66.8, 44, 150, 561), abs=0.05)
    assert statistics.session_lengths_s.p50 / 60 == pytest.approx(59, abs=0.5)
    assert statistics.session_lengths_s.p90 / 3600 == pytest.approx(5.0, abs=0.05)
    assert statistics.blocks / 1e6 == pytest.approx(85.4, abs=0.05)
    assert statistics.unique_blocks / 1e6 == pytest.approx(3.20, abs=0.005)
    assert statistics.ideal_hit_ratio * 100 == pytest.approx(96.23, abs=0.005)
    assert statistics.previous_turn_hit_ratio * 100 == pytest.approx(96.17, abs=0.006)
    assert statistics.hit_ratio_if_kept(300) * 100 == pytest.approx(91.6, abs=0.06)
    assert statistics.rewritten_ratio * 100 == pytest.approx(1.67, abs=0.006)
    gaps = statistics.gaps_s
    assert (gaps.p50, gaps.p90, gaps.p99) == pytest.approx((17, 129, 1_900), abs=1.0)
    assert statistics.gaps_over(300) * 100 == pytest.approx(4.9, abs=0.06)
    assert statistics.gaps_over(3_600) * 100 == pytest.approx(0.35, abs=0.006)


def test_statistics_of_the_agent_traces(traces_dir: Path) -> None:
    workload = read_trace(traces_dir / "lmcache_agents.jsonl.gz")
    for kind, sessions, requests in (("magagent", 25, 693), ("miniswe", 20, 402)):
        statistics = TraceStatistics(kind, workload.block_size)
        for request in workload.requests():
            if (request.session or "").startswith(kind):
                statistics.add(request)
        assert (statistics.sessions, statistics.requests) == (sessions, requests)
        # The published figures of this trace are weighted by blocks; its token counts are estimates.
        by_blocks = statistics.prompt_tokens / (statistics.blocks * statistics.block_size)
        if kind == "magagent":
            assert statistics.ideal_hit_ratio * by_blocks * 100 == pytest.approx(84.1, abs=0.05)
        else:
            assert statistics.previous_turn_hit_ratio * by_blocks * 100 == pytest.approx(93.6, abs=0.05)
