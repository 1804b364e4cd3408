"""Ten questions about one document at Claude: all at once, one then nine, and pre-warmed, with what each cost.

Run it: python -m examples.providers.claude_fan_out. Without ANTHROPIC_API_KEY it talks to a local server that behaves
as the API documents; with a key it talks to the API and costs real money.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import nullcontext
from functools import partial
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.types import Message, MessageParam

import prefixroute as pr
from examples.providers.fake_api import FakeAPI, serving
from prefixroute.providers import Account, find_model

MODEL = "claude-sonnet-5-5"
QUESTIONS = [f"What does paragraph {number} say?" for number in range(1, 11)]


def request(document: str) -> dict[str, Any]:
    """Return what all calls share: the document, marked, so that it is cached up to there."""
    block = {"type": "text", "text": document, "cache_control": {"type": "ephemeral"}}
    return {"model": MODEL, "system": [block]}


async def ask(
    client: AsyncAnthropic, shared: dict[str, Any], question: str, begun: asyncio.Event | None = None
) -> Message:
    """Ask one question and stream the answer; say when it has begun."""
    asked: list[MessageParam] = [{"role": "user", "content": question}]
    async with client.messages.stream(**shared, messages=asked, max_tokens=200) as stream:
        async for _ in stream:
            if begun is not None:
                begun.set()
        return await stream.get_final_message()


async def prewarm(client: AsyncAnthropic, shared: dict[str, Any]) -> Message:
    """Write the entry without an answer. The message behind the mark is no part of it."""
    message: Message = await client.messages.create(**shared, messages=[{"role": "user", "content": "-"}], max_tokens=0)
    return message


def report(name: str, messages: list[Message]) -> None:
    """Print hits and dollars."""
    account = Account(find_model(MODEL))
    for message in messages:
        account.add(message)
    hits = f"{account.hit_ratio:5.1%} of the prompt read from the cache"
    print(f"{name:14} {account.calls:2} calls, {hits}, ${account.usd:.4f}")


async def main(url: str | None) -> None:
    """Try the three orders, each on a document of its own, so that none finds what another wrote."""
    async with AsyncAnthropic(
        api_key=os.environ.get("ANTHROPIC_API_KEY", "none"), base_url=url, max_retries=0
    ) as client:
        documents = [f"{name}. " + "All the facts about it. " * 3_300 for name in ("Moss", "Fern", "Lichen")]
        at_once, one_first, warmed = (request(document) for document in documents)
        report("all at once", await asyncio.gather(*(ask(client, at_once, question) for question in QUESTIONS)))

        begun = asyncio.Event()
        calls = [partial(ask, client, one_first, question, begun) for question in QUESTIONS]
        answers = await pr.fan_out(calls[0], calls[1:], started=begun)  # an exception stands in a failed call's place
        report("one, then nine", [answer for answer in answers if isinstance(answer, Message)])

        first = await prewarm(client, warmed)
        report("pre-warmed", [first, *await asyncio.gather(*(ask(client, warmed, question) for question in QUESTIONS))])


if __name__ == "__main__":
    with nullcontext() if "ANTHROPIC_API_KEY" in os.environ else serving(FakeAPI()) as local:
        asyncio.run(main(local))
