"""Many threads on one index: what each wrote stands at the end, and no reader ever sees what was never there."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from index_twin import BLOCK, Path, Twin, tokens

from prefixroute.hashing import hash_blocks
from prefixroute.index import PrefixIndex
from prefixroute.limits import FIXED_HASH_KEY

STEPS = 600


def random_path(rng: random.Random) -> Path:
    return tuple(rng.choice((1, 1, 1, 2, 3)) for _ in range(rng.randrange(12)))


def history(index: PrefixIndex, name: str, seed: int) -> Twin:
    """One replica's life, written by one thread; others write other replicas on the same chains."""
    rng = random.Random(seed)  # noqa: S311 (a history, no secret)
    twin = Twin(20, None)
    index.add_replica(name)
    twin.add(name, 20)
    for _ in range(STEPS):
        path = random_path(rng)
        match rng.randrange(10):
            case 0:
                index.remove_replica(name)
                index.add_replica(name)
                twin.clear(name)
            case 1:
                assert index.touch(name, tokens(path)) == twin.touch(name, path, 0.0)
            case 2:
                insertion = index.insert(name, tokens(path))
                done = twin.insert(name, path, 0.0)
                kept = index.retract(name, hash_blocks(tokens(path), BLOCK), insertion)
                assert kept == twin.retract(name, path, done[0], twin.stamp)
            case _:
                done = index.insert(name, tokens(path))
                assert (done.held_before, done.stored, done.dropped, done.evicted) == twin.insert(name, path, 0.0)
        own = int(index.match(tokens(path))[index.replicas.index(name)])
        assert own == twin.match(path)[0]
    return twin


def test_each_thread_finds_its_own_replica_as_it_left_it() -> None:
    index = PrefixIndex(block_size=BLOCK, capacity_tokens=20 * BLOCK, hash_key=FIXED_HASH_KEY)
    with ThreadPoolExecutor(4) as pool:
        twins = list(pool.map(lambda n: history(index, f"r{n}", n), range(4)))
    rng = random.Random(99)  # noqa: S311 (a history, no secret)
    for _ in range(200):
        path = random_path(rng)
        lengths = index.match(tokens(path))
        for number, twin in enumerate(twins):
            assert lengths[index.replicas.index(f"r{number}")] == twin.match(path)[0]
    blocks = {block for twin in twins for replica in twin.replicas.values() for block in replica.belief}
    assert len(index) == len(blocks)


def run_beside(writer: Callable[[], None], reader: Callable[[], None], readers: int = 2) -> None:
    """Let readers look until the writer is done; raise what either raises."""
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            reader()

    with ThreadPoolExecutor(readers + 1) as pool:
        looks = [pool.submit(look) for _ in range(readers)]
        try:
            pool.submit(writer).result()
        finally:
            done.set()
        for each in looks:
            each.result()


LONG = np.arange(90_000, dtype=np.uint32)
"""Long enough that hashing it lets go of the interpreter."""


@pytest.mark.parametrize("prompt", [np.arange(320, dtype=np.uint32), LONG], ids=["short", "long"])
def test_readers_beside_a_writer_see_only_what_was_there(prompt: np.ndarray) -> None:
    index = PrefixIndex()
    for name in ("steady", "busy"):
        index.add_replica(name)
    full = len(prompt) // 16 * 16
    index.insert("steady", prompt)
    batch, offsets = np.concatenate([prompt, prompt]), [0, len(prompt), 2 * len(prompt)]
    seen: set[int] = set()

    def write() -> None:
        rng = random.Random(1)  # noqa: S311 (a history, no secret)
        for _ in range(100):
            index.insert("busy", prompt[: rng.choice((64, 160, full))])
            index.insert("busy", np.concatenate([prompt[:160], [rng.randrange(9)] * 32]))
            index.clear("busy")

    def read() -> None:
        for steady, busy in (index.match(prompt), *index.match_many(batch, offsets)):
            assert steady == full
            seen.add(int(busy))

    run_beside(write, read)
    assert seen <= {0, 64, 160, full}


def test_a_fleet_that_changes_under_its_readers() -> None:
    index = PrefixIndex()
    index.add_replica("steady")
    prompt = np.arange(320, dtype=np.uint32)
    index.insert("steady", prompt)

    def write() -> None:
        for round_number in range(60):
            for number in range(10):
                index.add_replica(f"{round_number}-{number}")
                index.insert(f"{round_number}-{number}", prompt[:160])
            for number in range(10):
                index.remove_replica(f"{round_number}-{number}")

    def read() -> None:
        lengths = index.match(prompt)
        assert lengths[0] == 320
        assert set(lengths[1:].tolist()) <= {0, 160}
        assert len(lengths) <= 11

    run_beside(write, read)
    assert index.replicas == ("steady", *[None] * 10)
    assert len(index) == 20


def test_a_prompt_may_be_dropped_while_it_is_hashed() -> None:
    expected = hash_blocks(LONG)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: hash_blocks(np.arange(90_000, dtype=np.uint32)), range(40)))
    assert all(result == expected for result in results)


UNKNOWN_NAMES = """
import sys, threading
from prefixroute import PrefixIndex, UnknownReplicaError, hash_blocks

sys.setswitchinterval(1e-5)
index, hashes = PrefixIndex(), hash_blocks(list(range(64)))
index.add_replica("a")

def refused(call):
    try:
        call("missing")
    except UnknownReplicaError:
        pass

calls = [
    lambda: refused(index.remove_replica),
    lambda: refused(index.clear),
    lambda: index.pin("a", hashes),
    lambda: index.unpin("a", hashes),
]
threads = [threading.Thread(target=lambda call=call: [call() for _ in range(20_000)]) for call in calls]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_a_refusal_waits_for_no_one_who_waits_for_it() -> None:
    subprocess.run([sys.executable, "-c", UNKNOWN_NAMES], timeout=120, check=True)
