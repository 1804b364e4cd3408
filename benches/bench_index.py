"""The index from Python, beside Dynamo's wheel and a dict with xxhash: goals 1-3, 5-11, 14 and 15 of the index.

Every replica holds conversations that share the first quarter of their prompt; the prompt asked for is held in full by
one replica and in its shared quarter by all. One prompt is asked for again and again, so it is hot in the cache.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray

from baselines import DictBaseline, DynamoRadixTree, engine_hashes
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.index import PrefixIndex
from prefixroute.workload import read_trace

OURS, DICT, DYNAMO = "prefixroute", DictBaseline.name, DynamoRadixTree.name
Tokens = NDArray[np.uint32]
HASH_KEY = 1
"""Prompts are hashed outside of an index, too."""

pytestmark = pytest.mark.benchmark(min_rounds=50, max_time=0.25, warmup=True, warmup_iterations=100)
by_processor_time = pytest.mark.benchmark(timer=time.process_time)
"""For work of milliseconds, so that what else the machine does then does not count."""
every_contender = pytest.mark.parametrize("who", [OURS, DICT, DYNAMO])


@dataclass(frozen=True)
class Fleet:
    """What replicas hold: `prompts[replica]`, each of the same length."""

    replicas: int
    prompt_tokens: int
    prompts_each: int

    def prompts(self) -> list[list[Tokens]]:
        rng = np.random.default_rng(7)
        head = rng.integers(0, 150_000, self.prompt_tokens // 4, dtype=np.uint32)
        rest = self.prompt_tokens - len(head)
        draw = lambda: np.concatenate([head, rng.integers(0, 150_000, rest, dtype=np.uint32)])  # noqa: E731
        return [[draw() for _ in range(self.prompts_each)] for _ in range(self.replicas)]


# 18,750 blocks (300,000 tokens) a replica; with many replicas a quarter of it, for the rivals' memory.
W1 = Fleet(replicas=8, prompt_tokens=8_800, prompts_each=45)
W2 = Fleet(replicas=8, prompt_tokens=1_024, prompts_each=390)
W3 = Fleet(replicas=8, prompt_tokens=128_000, prompts_each=3)
W4_64 = Fleet(replicas=64, prompt_tokens=8_800, prompts_each=11)
W4_256 = Fleet(replicas=256, prompt_tokens=8_800, prompts_each=11)


def require(who: str) -> None:
    if who == DYNAMO:
        pytest.importorskip("dynamo.llm", reason="ai-dynamo-runtime is not installed: pip install --group bench")


@cache
def filled(who: str, fleet: Fleet) -> tuple[Any, Tokens]:
    """A contender that holds the fleet's prompts, and the prompt to ask for."""
    prompts = fleet.prompts()
    if who == OURS:
        index: Any = PrefixIndex(hash_key=HASH_KEY)
        for replica, held in enumerate(prompts):
            index.add_replica(str(replica))
            for prompt in held:
                index.insert(str(replica), prompt)
    elif who == DICT:
        index = DictBaseline(fleet.replicas)
        for replica, held in enumerate(prompts):
            for prompt in held:
                index.store(replica, index.hash(prompt))
    else:
        index = DynamoRadixTree(fleet.replicas)
        for replica, held in enumerate(prompts):
            for prompt in held:
                index.apply(replica, index.stored_event(index.hash(prompt)))
    return index, prompts[fleet.replicas // 2][0]


def measure(
    benchmark: Any,
    who: str,
    what: str,
    call: Callable[..., Any],
    *args: Any,
    goal: str,
    unit: str = "us",
    per: float = 1,
) -> None:
    """Time a call that may be repeated at will. `per` divides the time: blocks of a batch, say."""
    benchmark.group = what
    benchmark.extra_info.update(who=who, goal=goal, unit=unit, per=per)
    benchmark._min_rounds, benchmark._max_time, benchmark._warmup = 50, 0.25, 100  # one call each, no decorator soup
    benchmark(call, *args)


def measure_rounds(
    benchmark: Any, who: str, what: str, setup: Callable[[], Any], work: Callable[..., Any], *, goal: str, per: float
) -> None:
    """Time work that uses up what `setup` made."""
    benchmark.group = what
    benchmark.extra_info.update(who=who, goal=goal, unit="ns", per=per)
    benchmark.pedantic(work, setup=lambda: ((setup(),), {}), rounds=7)


@every_contender
@pytest.mark.parametrize(
    ("fleet", "name", "goals"),
    [
        (W1, "W1: 8 replicas, 8,800 tokens", ("1: <= 3.0 us (p99 6)", "2: <= 25 us (10 reading ints)")),
        (W2, "W2: 8 replicas, 1,024 tokens", ("5: <= 0.9 us", "5: <= 4 us")),
        (W3, "W3: 8 replicas, 128,000 tokens", ("6: <= 36 us", "6: <= 350 us")),
        (W4_64, "W4: 64 replicas, 8,800 tokens", ("7: <= 3.5 us", "")),
        (W4_256, "W4: 256 replicas, 8,800 tokens", ("7: <= 4 us", "")),
    ],
    ids=["W1", "W2", "W3", "W4-64", "W4-256"],
)
@pytest.mark.parametrize("kind", ["numpy", "list"])
def test_match(  # noqa: PLR0917 (what pytest passes, by name)
    benchmark: Any, kind: str, fleet: Fleet, name: str, goals: tuple[str, str], who: str
) -> None:
    if kind == "list" and fleet.replicas > 8:
        pytest.skip("a list costs the same whatever the number of replicas")
    require(who)
    index, prompt = filled(who, fleet)
    asked = prompt.tolist() if kind == "list" else prompt
    assert max(index.match(asked)) == fleet.prompt_tokens
    measure(benchmark, who, f"{name}, {kind}", index.match, asked, goal=goals[kind == "list"])


@every_contender
def test_match_hashes(benchmark: Any, who: str) -> None:
    require(who)
    index, prompt = filled(who, W1)
    hashes = hash_blocks(prompt, hash_key=HASH_KEY).array if who == OURS else index.hash(prompt)
    assert max(index.match_hashes(hashes)) == W1.prompt_tokens
    measure(benchmark, who, "W1: 550 hashes", index.match_hashes, hashes, goal="3: <= 0.8 us")


@every_contender
@pytest.mark.parametrize("depth", [0, 64], ids=["miss", "diverges"])
def test_match_that_ends_early(benchmark: Any, depth: int, who: str) -> None:
    require(who)
    index, prompt = filled(who, W1)
    asked = prompt.copy()
    asked[depth * 16 :] += np.uint32(1)
    assert max(index.match(asked)) == depth * 16
    name = f"W1: 8,800 tokens, {depth} blocks hit, numpy"
    measure(benchmark, who, name, index.match, asked, goal="")


def test_hash_and_match_for_a_router(benchmark: Any) -> None:
    index, prompt = filled(OURS, W1)
    out = np.zeros(W1.replicas, dtype=np.uint32)
    measure(benchmark, OURS, "W1: hash all and match, out=", index.hash_and_match, prompt, out, goal="")


class Ours:
    """How the index is written to; what is passed to it is made before the clock runs."""

    def __init__(self, replicas: int, block_size: int = 16) -> None:
        self.names = [str(replica) for replica in range(replicas)]
        self.block_size = block_size

    def new(self) -> PrefixIndex:
        index = PrefixIndex(block_size=self.block_size, hash_key=HASH_KEY)
        for name in self.names:
            index.add_replica(name)
        return index

    def hashed(self, prompt: Tokens) -> BlockHashes:
        return hash_blocks(prompt, self.block_size, hash_key=HASH_KEY)

    def chain(self, hashes: NDArray[np.uint64]) -> BlockHashes:
        return BlockHashes(hashes, token_count=len(hashes) * self.block_size, block_size=self.block_size)

    def store(self, index: PrefixIndex, replica: int, hashes: BlockHashes) -> None:
        index.insert(self.names[replica], hashes)

    def event(self, prompt: Tokens, first: int) -> tuple[NDArray[np.uint64], int | None, Tokens]:
        """What an engine says of the blocks from `first` on; its names have nothing to do with ours."""
        names = np.array(engine_hashes(hash_blocks(prompt).array.tolist()), dtype=np.uint64)
        return names[first:], int(names[first - 1]) if first else None, prompt[16 * first :]

    def apply(self, index: PrefixIndex, replica: int, event: tuple[NDArray[np.uint64], int | None, Tokens]) -> None:
        index.apply_stored(self.names[replica], event[0], parent=event[1], token_ids=event[2])

    def remove(self, index: PrefixIndex, replica: int, event: tuple[NDArray[np.uint64], int | None, Tokens]) -> None:
        index.apply_removed(self.names[replica], event[0])


class Dict:
    def __init__(self, replicas: int, block_size: int = 16) -> None:
        self.new = lambda: DictBaseline(replicas, block_size)
        self.hashed = DictBaseline(replicas, block_size).hash

    def chain(self, hashes: NDArray[np.uint64]) -> list[int]:
        return hashes.tolist()

    def store(self, index: DictBaseline, replica: int, hashes: list[int]) -> None:
        index.store(replica, hashes)

    def event(self, prompt: Tokens, first: int) -> list[int]:
        return self.hashed(prompt)[first:]

    apply = store

    def remove(self, index: DictBaseline, replica: int, hashes: list[int]) -> None:
        index.remove(replica, hashes)


class Dynamo:
    def __init__(self, replicas: int, block_size: int = 16) -> None:
        self.new = lambda: DynamoRadixTree(replicas, block_size)
        self.tree = self.new()

    def hashed(self, prompt: Tokens) -> bytes:
        return self.tree.stored_event(self.tree.hash(prompt))

    def store(self, index: DynamoRadixTree, replica: int, event: bytes) -> None:
        index.apply(replica, event)

    def event(self, prompt: Tokens, first: int) -> tuple[bytes, bytes]:
        hashes = self.tree.hash(prompt)
        return self.tree.stored_event(hashes, first), self.tree.removed_event(hashes, first)

    def apply(self, index: DynamoRadixTree, replica: int, event: tuple[bytes, bytes]) -> None:
        index.apply(replica, event[0])

    def remove(self, index: DynamoRadixTree, replica: int, event: tuple[bytes, bytes]) -> None:
        index.apply(replica, event[1])


WRITERS: dict[str, Callable[..., Any]] = {OURS: Ours, DICT: Dict, DYNAMO: Dynamo}
# Fewer prompts each where there are many replicas: enough blocks to time, and the rivals' memory.
WRITTEN = [
    (W1, "8 replicas", "8: <= 55 ns", "10: <= 70 ns"),
    (Fleet(replicas=256, prompt_tokens=8_800, prompts_each=4), "256 replicas", "8: <= 45 ns", "10: <= 50 ns"),
]


@by_processor_time
@every_contender
@pytest.mark.parametrize(("fleet", "name", "goal"), [case[:3] for case in WRITTEN], ids=["W1", "W4-256"])
def test_insert(benchmark: Any, fleet: Fleet, name: str, goal: str, who: str) -> None:
    """Prompts hashed before, one call each, into an empty index."""
    require(who)
    writer = WRITERS[who](fleet.replicas)
    calls = [(replica, writer.hashed(prompt)) for replica, held in enumerate(fleet.prompts()) for prompt in held]

    def work(index: Any) -> None:
        for replica, hashed in calls:
            writer.store(index, replica, hashed)

    blocks = len(calls) * fleet.prompt_tokens // 16
    measure_rounds(benchmark, who, f"insert a block, {name}", writer.new, work, goal=goal, per=blocks)


@by_processor_time
@every_contender
@pytest.mark.parametrize(("fleet", "name", "goal"), [(*case[:2], case[3]) for case in WRITTEN], ids=["W1", "W4-256"])
def test_remove(benchmark: Any, fleet: Fleet, name: str, goal: str, who: str) -> None:
    """Everything that engines announced, one call a prompt, the blocks shared by all last."""
    require(who)
    writer = WRITERS[who](fleet.replicas)
    head = fleet.prompt_tokens // 4 // 16
    calls = [
        (replica, writer.event(prompt, head if position else 0))
        for replica, held in enumerate(fleet.prompts())
        for position, prompt in enumerate(held)
    ]

    def filled_by_events() -> Any:
        index = writer.new()
        for replica, event in calls:
            writer.apply(index, replica, event)
        return index

    def work(index: Any) -> None:
        for replica, event in reversed(calls):
            writer.remove(index, replica, event)

    blocks = fleet.prompt_tokens // 16
    removed = fleet.replicas * (blocks + (fleet.prompts_each - 1) * (blocks - head))
    measure_rounds(benchmark, who, f"remove a block, {name}", filled_by_events, work, goal=goal, per=removed)


STEP = 128
"""Blocks of one event: 2,048 tokens, what vLLM computes of a prompt in a step by default."""


def batches(prompt: Tokens, first: int) -> list[bytes]:
    """Return the event batches of a prompt's blocks from `first` on as vLLM publishes them, token ids included."""
    names, tokens = engine_hashes(hash_blocks(prompt).array.tolist()), prompt.tolist()
    starts = range(first, len(names), STEP)
    events = [
        [
            "BlockStored",
            names[at : at + STEP],
            names[at - 1] if at else None,
            tokens[16 * at :][: 16 * STEP],
            16,
            None,
            "GPU",
        ]
        for at in starts
    ]
    return [msgpack.packb([1.0, [event], 0]) for event in events]


@by_processor_time
@pytest.mark.parametrize(("fleet", "name"), [case[:2] for case in WRITTEN], ids=["W1", "W4-256"])
def test_bytes_to_index(benchmark: Any, fleet: Fleet, name: str) -> None:
    """Every prompt's events from the bytes of their batches into an empty index: decoded, hashed and stored."""
    head = fleet.prompt_tokens // 4 // 16
    calls = [
        (str(replica), batch)
        for replica, held in enumerate(fleet.prompts())
        for position, prompt in enumerate(held)
        for batch in batches(prompt, head if position else 0)
    ]

    def work(index: PrefixIndex) -> None:
        for replica, batch in calls:
            index.apply(replica, batch)

    stored = fleet.replicas * (head + fleet.prompts_each * (fleet.prompt_tokens // 16 - head))
    index = Ours(fleet.replicas).new()
    work(index)
    assert index.stats().memberships == stored
    what, goal = f"a block from msgpack bytes, {name}", "11: <= 150 ns"
    measure_rounds(benchmark, OURS, what, Ours(fleet.replicas).new, work, goal=goal, per=stored)


@every_contender
def test_one_block_at_a_time(benchmark: Any, who: str) -> None:
    """One block stored at the end of a conversation and removed again, each as a call of its own."""
    require(who)
    writer, prompt = WRITERS[who](1), W1.prompts()[0][0]
    index, block = writer.new(), np.arange(16, dtype=np.uint32)
    writer.apply(index, 0, writer.event(prompt, 0))
    event = writer.event(np.concatenate([prompt, block]), len(prompt) // 16)
    if who == OURS:
        # One name and 16 ids, as a host that decodes events has them.
        names, parent, ids = event[0].tolist(), event[1], block.tolist()
        stored, removed = index.apply_stored, index.apply_removed

        def work() -> None:
            stored("0", names, parent=parent, token_ids=ids)
            removed("0", names)
    else:
        store, remove = writer.apply, writer.remove

        def work() -> None:
            store(index, 0, event)
            remove(index, 0, event)

    measure(benchmark, who, "one block stored or removed, a call", work, goal="9: <= 350 ns", unit="ns", per=2)


TRACES = Path(os.environ.get("PREFIXROUTE_TRACES", Path(__file__).parents[2] / "shared" / "traces"))


@cache
def trace_chains(traces: Path, expand: int) -> list[NDArray[np.uint64]]:
    """Hash chains of the Mooncake conversation trace; `expand` cuts each of its 512-token blocks into that many.

    Cut, it is the first 3,000 requests, again for the rivals' memory.
    """
    chains = [request.prompt.array for request in read_trace(traces / "mooncake_conversation.jsonl.gz").requests()]
    if expand == 1:
        return chains
    inside = np.arange(512, dtype=np.uint64)
    cut = [(chain[:, None] + inside[None, :]).astype(np.uint32).reshape(-1) for chain in chains[:3000]]
    return [hash_blocks(tokens, 512 // expand).array for tokens in cut]


@by_processor_time
@every_contender
@pytest.mark.parametrize(("expand", "goal"), [(1, "14: <= 100 ns (10 M/s)"), (32, "14: <= 33 ns (30 M/s)")])
def test_mooncake_replay(benchmark: Any, expand: int, goal: str, who: str) -> None:
    """Each request is looked up, then stored at the replica whose turn it is; time by block looked up or stored."""
    require(who)
    if not TRACES.is_dir():
        pytest.skip(f"no traces in {TRACES}: set PREFIXROUTE_TRACES")
    chains = trace_chains(TRACES, expand)
    writer = WRITERS[who](8, 512 // expand)
    if who == DYNAMO:
        calls = [(chain.tolist(), writer.tree.stored_event(chain.tolist())) for chain in chains]
    else:
        calls = [(hashes, hashes) for hashes in map(writer.chain, chains)]

    def work(index: Any) -> None:
        for turn, (asked, stored) in enumerate(calls):
            index.match_hashes(asked)
            writer.store(index, turn & 7, stored)

    blocks = 2 * sum(map(len, chains))
    measure_rounds(benchmark, who, f"Mooncake conversation x{expand}, a block", writer.new, work, goal=goal, per=blocks)


def in_threads(count: int, work: Callable[[], None]) -> None:
    """Do the work in so many threads at once; starting them costs little beside it."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["match_many of 64 prompts", "one prompt of 128,000 tokens"])
def test_threads(benchmark: Any, kind: str, threads: int) -> None:
    """The same work in each of one or two threads; two that do not hinder each other take as long as one.

    On a busy machine look at the best rounds: those in which nothing else wanted the second core.
    """
    if kind.startswith("match_many"):
        index, prompt = filled(OURS, W1)
        flat, offsets = np.tile(prompt, 64), np.arange(65) * len(prompt)
        repeat, call = 50, lambda: index.match_many(flat, offsets)
    else:
        index, prompt = filled(OURS, W3)
        repeat, call = 250, lambda: index.match(prompt)

    def work() -> None:
        for _ in range(repeat):
            call()

    benchmark.group = f"{threads} thread(s): {kind}"
    goal = "15: both threads in <= 1.08x of one's time (1.85x the work)" if threads == 2 else ""
    benchmark.extra_info.update(who=OURS, goal=goal, unit="us", per=repeat)
    benchmark.pedantic(in_threads, args=(threads, work), rounds=60)
