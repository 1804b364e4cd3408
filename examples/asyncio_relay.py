"""Embed the Router in an asyncio service: stream from the chosen replica, give the load back whatever happens.

Run it: python examples/asyncio_relay.py. It needs no network: three fake engines answer, one of which breaks off.
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


async def open_stream(replica: str, *, broken: bool) -> AsyncIterator[str]:
    """Stand in for an HTTP client: a few chunks, then perhaps a broken connection."""
    for number in range(3):
        await asyncio.sleep(0.001)
        if broken and number == 1:
            raise EngineError(f"{replica} went away")
        yield f"{replica}:{number} "


async def relay(tokens: np.ndarray, session: str, *, broken: bool = False) -> AsyncIterator[str]:
    """Route, reserve and stream one request."""
    ticket = router.route(tokens, session=session)
    async for chunk in ticket.stream(open_stream(ticket.replica, broken=broken)):
        yield chunk


async def conversation(number: int, rng: random.Random) -> int:
    """Talk for three turns, each a longer prompt; return how many answers broke off."""
    lost, tokens = 0, np.arange(2_000, dtype=np.uint32)
    for turn in range(3):
        more = np.full(600, 1_000_000 + 10 * number + turn, dtype=np.uint32)
        tokens = np.concatenate([tokens, more])
        try:
            async for _ in relay(tokens, session=f"chat-{number}", broken=rng.random() < 0.2):
                pass
        except EngineError:
            lost += 1
    return lost


async def main() -> None:
    """Hold thirty conversations at once, then show what the router knows."""
    rng = random.Random(1)
    lost = await asyncio.gather(*(conversation(number, rng) for number in range(30)))
    in_flight = router.stats()["in_flight"]
    print(f"90 requests over {len(ENGINES)} engines, {sum(lost)} broke off, {in_flight} left in flight")
    assert in_flight == 0, "every ticket gives its load back"


if __name__ == "__main__":
    asyncio.run(main())
