"""60 users, 120 requests a minute, each user's own file in the prompt: one prompt_cache_key at OpenAI, then eight.

Above about 15 requests a minute for one head and key, further ones go to other machines, which hold another user's
file. With a key for each shard of users, a user's requests stay at one machine.

Run it: python -m examples.providers.openai_keys. Without OPENAI_API_KEY it talks to a local server that behaves as the
API documents for models before GPT-5.6, with a clock of its own; with a key it talks to the API, takes minutes and
costs money.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import nullcontext

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

import prefixroute as pr
from examples.providers.fake_api import FakeAPI, serving
from prefixroute.providers import Account, find_model, shards_for

MODEL = "gpt-5"
PER_MINUTE, LIMIT, MINUTES = 120, 15, 2
USERS = [f"user-{number}" for number in range(PER_MINUTE // 2)]
SYSTEM = "Answer politely. " * 300


class Pace:
    """Seconds between requests: real ones, or those of a clock that the local server reads."""

    def __init__(self, *, real: bool) -> None:
        """Start at zero."""
        self.real, self.now = real, 0.0

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        await asyncio.sleep(seconds if self.real else 0)


async def ask(client: AsyncOpenAI, name: str, user: str, key: str) -> ChatCompletion:
    """Ask about a user's file, with a routing key."""
    file = f"File of {user}. " + f"{user} bought something. " * 250
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": name + SYSTEM},
        {"role": "user", "content": file + "What is next?"},
    ]
    return await client.chat.completions.create(model=MODEL, messages=messages, prompt_cache_key=key)


async def traffic(client: AsyncOpenAI, name: str, shards: int, pace: Pace) -> str:
    """Send some minutes of requests, each user twice a minute in a drawn order; say what they cost."""
    rng, account, keys = random.Random(1), Account(find_model(MODEL)), set()
    for _ in range(2 * MINUTES):
        for user in rng.sample(USERS, len(USERS)):
            key = pr.cache_key(user, shards, prefix=name)
            keys.add(key)
            account.add(await ask(client, name, user, key), key=key)
            await pace.wait(60 / PER_MINUTE)
    return f"{len(keys)} keys: {account.hit_ratio:5.1%} of the prompt read from the cache, ${account.usd:.3f}"


async def main(url: str | None, pace: Pace) -> None:
    """Send the same traffic with one key and with eight."""
    base = None if url is None else f"{url}/v1"
    async with AsyncOpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none"), base_url=base, max_retries=0) as client:
        for name, shards in (("one", 1), ("many", shards_for(PER_MINUTE, LIMIT))):
            print(await traffic(client, name, shards, pace))


if __name__ == "__main__":
    pace = Pace(real="OPENAI_API_KEY" in os.environ)
    with nullcontext() if pace.real else serving(FakeAPI(lambda: pace.now, ttft_s=0.0)) as local:
        asyncio.run(main(local, pace))
