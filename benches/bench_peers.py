"""What sharing costs: the sender of a request's messages, who applies them, and who looks at the peers' loads.

    python benches/bench_peers.py

Conversations of 4,000 to 7,600 tokens over 8 replicas, turns of 400 tokens. The sender's cost is the difference of a
whole request (route, first token, finish) with and without peers, in processor time, the least of alternating rounds.
Goals: 1 us a request to tell, 5 us a message to apply, 1 us to look at loads, about 250 bytes a turn.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np

from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.router import Router

NAMES = [f"r{number}" for number in range(8)]
KEY, CONVERSATIONS, TURNS, PASSES, ROUNDS = 7, 50, 10, 4, 6
Turn = tuple[BlockHashes, BlockHashes, str]


def turns(first: int = 0) -> list[Turn]:
    """Return prompts and what replicas hold behind them, with sessions, of conversations from a number on."""
    found = list[Turn]()
    for turn in range(TURNS):
        for number in range(first, first + CONVERSATIONS):
            tokens = np.arange(20_000, dtype=np.uint32) + 1_000_003 * number
            ends = 4_000 + 400 * turn, 4_200 + 400 * turn
            prompt, context = (hash_blocks(tokens[:end], hash_key=KEY) for end in ends)
            found.append((prompt, context, f"s{number}"))
    return found


def play(router: Router, requests: list[Turn]) -> float:
    """Return seconds of the processor a request."""
    began = time.process_time()
    for prompt, context, session in requests:
        ticket = router.route(prompt, session=session)
        ticket.first_token()
        ticket.finish(output=context)
    return (time.process_time() - began) / len(requests)


class Nowhere:
    """A transport that takes no frames: what is left is the sender's own part."""

    def open(self, *_: Any) -> None:
        """Begin nothing."""

    def publish(self, frame: bytes) -> None:
        """Send nothing."""

    def status(self) -> dict[str, Any]:
        """Return what a transport must."""
        return {"kind": "nowhere", "connected": True, "lost": 0, "refused": 0}

    def close(self) -> None:
        """End nothing."""


def told(requests: list[Turn]) -> tuple[float, dict[str, float]]:
    """Return bytes of a turn after the first, and microseconds that each kind of message takes to apply."""
    here, there, frames = Router(NAMES, hash_key=KEY), Router(NAMES, hash_key=KEY), list[bytes]()
    there.peer_feed(lambda _: None)
    here.peer_feed(frames.append)
    play(here, requests[:CONVERSATIONS])
    for frame in frames:
        there.apply_peer(frame)
    frames.clear()
    play(here, requests[CONVERSATIONS:])
    spent = defaultdict[int, list[float]](list)
    for frame in frames:
        began = time.perf_counter()
        there.apply_peer(frame)
        spent[frame[29]].append(1e6 * (time.perf_counter() - began))
    medians = {name: float(np.median(spent[kind])) for kind, name in ((1, "booked"), (2, "started"), (3, "ended"))}
    messages = len(requests) - CONVERSATIONS
    return sum(len(frame) - 29 for frame in frames) / messages, medians


def looked() -> float:
    """Return microseconds that looking at the peers' loads adds to a decision, while one peer goes on booking."""
    name = f"bench-{uuid4().hex[:8]}"
    one, other = Router(NAMES, peers=name), Router(NAMES, peers=name)
    while not one.stats()["peers"]["transport"]["rings"]:
        time.sleep(0.01)
    tokens, spent = np.arange(160, dtype=np.uint32), list[float]()
    for _ in range(2_000):
        other.route(tokens).finish()
        began = time.perf_counter()
        one._state.listener.refresh()  # type: ignore[union-attr]  # the part that is measured
        spent.append(1e6 * (time.perf_counter() - began))
    one.close()
    other.close()
    return float(np.median(spent))


def main() -> None:
    """Print all of it."""
    requests, *further = (turns(CONVERSATIONS * number) for number in range(PASSES))
    makes: dict[str, Callable[[], Router]] = {
        "alone": lambda: Router(NAMES, hash_key=KEY),
        "gathering": lambda: Router(NAMES, hash_key=KEY, peers=Nowhere()),
        "ring": lambda: Router(NAMES, hash_key=KEY, peers=f"bench-{uuid4().hex[:8]}"),
    }
    best = dict.fromkeys(makes, float("inf"))
    for _ in range(ROUNDS):
        for name, make in makes.items():
            router = make()
            play(router, requests)  # tables grow
            best[name] = min(best[name], *(play(router, each) for each in further))
            router.close()
    for name, seconds in best.items():
        print(f"{name}: {1e6 * seconds:.2f} us a request, {1e6 * (seconds - best['alone']):+.2f}")
    size, medians = told(requests)
    print(f"bytes of a turn: {size:.0f}, without headers of frames")
    print("to apply:", ", ".join(f"{name} {median:.1f} us" for name, median in medians.items()))
    print(f"to look at loads that have changed: {looked():.2f} us")


if __name__ == "__main__":
    main()
