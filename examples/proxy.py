"""The server inside of a program of one's own: two engines without a GPU, their KV events, the app, and one client.

Needs ``serve,testing,events``.

For a server alone there is the command: ``prefixroute serve URL URL``. This shows what is behind it: a Service is a
Router and two ASGI apps, so that it can be mounted beside other routes, given a policy of one's own, or looked at.
"""

from __future__ import annotations

import asyncio

import aiohttp

from prefixroute.serve import Service, Settings
from prefixroute.serve.server import Worker, address_of, bind
from prefixroute.testing import Behaviour, FakeEngine, render, tokenize

TURNS = 4


async def chat(base: str) -> list[str]:
    """Hold a conversation, and return who has answered each turn."""
    messages = [{"role": "system", "content": "You are the one of this example. " * 200}]
    replicas = []
    async with aiohttp.ClientSession(base) as client:
        for turn in range(TURNS):
            messages.append({"role": "user", "content": f"Question {turn}"})
            async with client.post("/v1/chat/completions", json={"model": "fake", "messages": messages}) as answer:
                body = await answer.json()
                replicas.append(answer.headers["x-replica"])
            messages.append(body["choices"][0]["message"])
            cached = body["usage"]["prompt_tokens_details"]["cached_tokens"]
            print(f"turn {turn}: {cached} of {body['usage']['prompt_tokens']} prompt tokens were cached")
    return replicas


async def main() -> None:
    """Serve, ask, and end."""
    with FakeEngine(behaviour=Behaviour(0, 0)) as one, FakeEngine(behaviour=Behaviour(0, 0)) as other:
        service = Service(
            Settings.of({"discovery.replicas": [one.url, other.url]}),
            feeds={engine.url: engine.feed for engine in (one, other)},
            render=render,
            tokenizer=tokenize,
        )
        listener = bind("127.0.0.1", 0)
        worker = Worker(service, [listener])
        running = asyncio.create_task(worker.run())
        await worker.serving.wait()
        for _ in range(500):  # until the feeds are heard, what engines hold is unknown, and a conversation may move
            if all(replica["feed"]["connected"] for replica in service.router.stats()["replicas"].values()):
                break
            await asyncio.sleep(0.01)
        replicas = await chat(address_of(listener))
        stats = service.router.stats()
        feeds = [replica["feed"] for replica in stats["replicas"].values()]
        print(f"KV events of {sum(feed['connected'] for feed in feeds)} engines are followed")
        print(f"{len(set(replicas))} engine for {TURNS} turns, {stats['in_flight']} left in flight")
        worker.end()
        await running


if __name__ == "__main__":
    asyncio.run(main())
