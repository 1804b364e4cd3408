"""Traffic made for a test: prompts by the content of their blocks, and logs of chats by their system prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from prefixroute.hashing import BlockHashes
from prefixroute.workload import Request, Workload, read_trace

SIZE = 16


def made(prompts: Iterable[tuple[str | None, list[int]]]) -> Workload:
    """Requests of (session, blocks); a number stands for a block's content, and equal beginnings are equal prefixes."""
    requests = []
    for at, (session, blocks) in enumerate(prompts):
        chain = [hash((depth, tuple(blocks[: depth + 1]))) & (2**64 - 1) for depth in range(len(blocks))]
        length = SIZE * len(blocks) + 1
        hashes = BlockHashes(np.array(chain, np.uint64), token_count=length, block_size=SIZE)
        requests.append(Request(float(at), hashes, hashes, length, 10, session=session))
    return Workload("made", SIZE, lambda: iter(requests), len(requests))


def chats(path: Path, system: Callable[[int, int], str], turns: int = 4) -> Workload:
    """Write a log of 20 chats, and read it; ``system`` of (turn, chat) stands before what was asked so far."""
    rows = []
    for turn in range(turns):
        for chat in range(20):
            asked = [{"role": "user", "content": f"chat {chat}, question {k}. " * 20} for k in range(turn + 1)]
            messages = [{"role": "system", "content": system(turn, chat)}, *asked]
            rows.append({"timestamp": len(rows), "session_id": f"c{chat}", "messages": messages})
    path.write_text("\n".join(map(json.dumps, rows)))
    return read_trace(path, check=False)
