"""Embed the Router in an asyncio service.

Stream from the chosen replica, retry, report, give the load back whatever happens.

Run it: python examples/asyncio_relay.py. It needs no network: three fake engines answer, and break now and then, before
the first chunk or behind it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import numpy as np

import prefixroute as pr

ENGINES = ["engine-a", "engine-b", "engine-c"]
router = pr.Router(ENGINES, policy="cache-aware")


class EngineError(Exception):
    """What a client library raises when the connection breaks."""


async def open_stream(replica: str, rng: random.Random) -> AsyncIterator[int]:
    """Stand in for an HTTP client: a few tokens of an answer, and now and then a broken connection."""
    breaks_at = rng.randrange(3) if rng.random() < 0.2 else None
    for number in range(3):
        await asyncio.sleep(0.001)
        if number == breaks_at:
            raise EngineError(f"{replica} went away")
        yield 2_000_000 + number


async def relay(tokens: np.ndarray, session: str, rng: random.Random) -> AsyncIterator[int]:
    """Route, reserve and stream one request; ask another engine as long as the client has nothing yet."""
    ticket, answer = router.route(tokens, session=session), list[int]()
    while True:
        try:
            async for token in ticket.stream(open_stream(ticket.replica, rng)):
                answer.append(token)
                yield token
                if len(answer) == 3:  # the last: an engine's usage would come with it
                    ticket.finish(output=answer, reported_hit_tokens=ticket.decision.hit_tokens)
        except EngineError:
            if ticket.started:
                raise
            ticket = ticket.retry()
        else:
            return


async def conversation(number: int, rng: random.Random) -> int:
    """Talk for three turns, each a longer prompt; return how many answers broke off in their middle."""
    lost, tokens = 0, np.arange(2_000, dtype=np.uint32)
    for turn in range(3):
        more = np.full(600, 1_000_000 + 10 * number + turn, dtype=np.uint32)
        tokens = np.concatenate([tokens, more])
        try:
            async for _ in relay(tokens, f"chat-{number}", rng):
                pass
        except (EngineError, pr.NoReplicaError):
            lost += 1
    return lost


async def main() -> None:
    """Hold thirty conversations at once, then show what the router knows."""
    rng = random.Random(1)
    lost = await asyncio.gather(*(conversation(number, rng) for number in range(30)))
    stats = router.stats()
    retried = stats["counts"]["aborted"] - sum(lost)
    print(
        f"90 requests over {len(ENGINES)} engines, {retried} retries that nobody noticed, {sum(lost)} broke off, "
        f"{stats['in_flight']} left in flight"
    )
    assert stats["in_flight"] == 0, "every ticket gives its load back"
    assert stats["unreported_requests"] == 0, "every answer is reported"


if __name__ == "__main__":
    asyncio.run(main())
