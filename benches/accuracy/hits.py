"""Cached tokens of each request: our untimed simulation beside vLLM's own KV-cache manager.

Both serve the same requests in the same order on the replicas that our router chose, one request at a time, with the
same memory.
"""

from __future__ import annotations

import gzip
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from accuracy.comparison import Comparison
from accuracy.vllm_manager import VERSION, Replica, load
from prefixroute.sim import Scenario, simulate
from prefixroute.workload import Workload, chat, read_trace

TRACES = Path(os.environ.get("PREFIXROUTE_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
"""Where the public traces are, as for the tests: they are data of others and not part of the repository."""
SOURCE = f"vLLM {VERSION} KVCacheManager"
ID_BYTES = 32
"""Of an id of a block, as long as vLLM's own hashes."""


@dataclass(frozen=True)
class Case:
    """Requests on a fleet.

    Attributes:
        workload: the file of a trace, or empty for chat.
        policy: what routes.
        replicas: how many there are.
        capacity_tokens: of each.
        outputs: whether the answers of earlier turns are cached and found again.
    """

    workload: str
    policy: str
    replicas: int
    capacity_tokens: int
    outputs: bool = False

    def __str__(self) -> str:
        """Return the case in words."""
        name = self.workload.partition(".")[0].replace("_", " ") or "chat of 3,000 requests, answers known"
        return f"{name}, {self.policy}, {self.replicas} x {self.capacity_tokens:,} tokens"

    @property
    def requests(self) -> Workload:
        """The requests."""
        return read_trace(TRACES / self.workload) if self.workload else chat(1, requests=3_000)


CASES = (
    Case("mooncake_conversation.jsonl.gz", "round-robin", 8, 300_000),
    Case("mooncake_conversation.jsonl.gz", "round-robin", 8, 3_000_000),
    Case("mooncake_conversation.jsonl.gz", "cache-aware", 8, 3_000_000),
    Case("mooncake_synthetic.jsonl.gz", "cache-aware", 8, 300_000),
    Case("lmcache_agents.jsonl.gz", "cache-aware", 8, 300_000),
    Case("", "round-robin", 8, 300_000, outputs=True),
    Case("", "round-robin", 2, 300_000, outputs=True),
    Case("", "round-robin", 1, 300_000, outputs=True),
)


def compare() -> Iterator[Comparison]:
    """Yield cached tokens and the number of requests that differ, of each case."""
    vllm = load()
    for case in CASES:
        workload = case.requests
        if not case.outputs:
            workload = without_outputs(workload)
        scenario = Scenario(policy=case.policy, replicas=case.replicas, capacity_tokens=case.capacity_tokens)
        log = simulate(workload, scenario).log
        ours, chosen = log.column("hit").astype(int), log.column("replica").astype(int)
        replicas = [Replica(vllm, case.capacity_tokens, workload.block_size) for _ in range(case.replicas)]
        theirs = np.array(
            [
                replicas[at].serve(str(number), prompt, blocks, output)
                for number, (at, (prompt, blocks, output)) in enumerate(
                    zip(chosen, served(case, workload), strict=True)
                )
            ]
        )
        total = sum(request.prompt_tokens for request in workload.requests())
        yield Comparison("hits", f"{case}: hits", SOURCE, 100 * theirs.sum() / total, 100 * ours.sum() / total, "%")
        yield Comparison(
            "hits",
            f"{case}: requests that differ, of {len(ours):,}",
            SOURCE,
            0,
            int((ours != theirs).sum()),
            "requests",
        )


def served(case: Case, workload: Workload) -> Iterator[tuple[int, list[bytes], int]]:
    """Yield tokens of the prompt, ids of full blocks and tokens of the output.

    Of Mooncake's files by a reading of our own here.
    """
    if case.workload.startswith("mooncake"):
        with gzip.open(TRACES / case.workload, "rt") as lines:
            for row in map(json.loads, lines):
                ids = [struct.pack("<q", each).ljust(ID_BYTES) for each in row["hash_ids"]]
                yield row["input_length"], ids[: row["input_length"] // workload.block_size], 0
        return
    for request in workload.requests():
        blocks = request.context if case.outputs else request.prompt
        ids = [struct.pack("<Q", each).ljust(ID_BYTES) for each in blocks.array.tolist()]
        yield request.prompt_tokens, ids, request.output_tokens if case.outputs else 0


def without_outputs(workload: Workload) -> Workload:
    """Return the workload with nothing cached of its answers."""

    def source() -> Iterator[object]:
        for request in workload.requests():
            yield request._replace(context=request.prompt, output_tokens=0)

    return replace(workload, source=source)  # type: ignore[arg-type]
