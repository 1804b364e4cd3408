"""An OpenAI-compatible engine without a GPU: real HTTP, real streams, an honest prefix cache, faults on demand.

Its cache is :class:`prefixroute.sim.replica.ReplicaCache`, vLLM's rules: full blocks only, the last token is always
computed, least recently used blocks go first, running requests are pinned. The prompt is rendered by a chat template of
its own, and 4 bytes count as a token. Prefill takes turns and costs time for each uncached token; the text it answers with
means nothing. `POST /control` changes any field of :class:`Behaviour` while it runs.

    python -m examples.proxy.fake_engine --port 8001 --prefill-s-per-1k 0.2 --decode-s 0.02
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import prefixroute as pr
from prefixroute.sim.replica import Admitted, NoRoom, ReplicaCache

BLOCK_SIZE = 16


@dataclass(frozen=True)
class Behaviour:
    """How fast the engine is, and what is wrong with it. A negative number is off."""

    prefill_s_per_1k: float = 0.1  # seconds for 1,000 uncached prompt tokens
    decode_s: float = 0.01  # seconds for an output token
    status: int = -1  # answer completions with this HTTP status
    die_after: int = -1  # exit, as a crash does, after so many output tokens; 0 = in the middle of prefill
    healthy: int = 1  # whether /health says so


class Engine:
    """One engine process: behaviour, cache, counters."""

    def __init__(self, behaviour: Behaviour, capacity_tokens: int) -> None:
        """Start with an empty cache."""
        self.behaviour = behaviour
        self.cache = ReplicaCache(capacity_tokens, BLOCK_SIZE)
        self.prefill = asyncio.Lock()
        self.requests = 0

    async def complete(self, request: Request) -> Response:
        """Serve /v1/chat/completions and /v1/completions."""
        try:
            body = await request.json()
        except ClientDisconnect:
            return Response()
        chat = request.url.path.endswith("/chat/completions")
        if self.behaviour.status >= 0:
            return _error(self.behaviour.status, "told to answer so")
        if ("messages" if chat else "prompt") not in body:
            return _error(400, "no messages" if chat else "no prompt")
        text = _render(body["messages"]) if chat else str(body["prompt"])
        prompt = pr.hash_blocks(text, BLOCK_SIZE)
        admitted = self.cache.start(prompt)
        if isinstance(admitted, NoRoom):
            return _error(429, f"no room for {admitted.needed_blocks} blocks, {admitted.available_blocks} are free")
        self.requests += 1
        words = self._generate(text, admitted, prompt.token_count, int(body.get("max_tokens") or 16))
        usage = {"prompt_tokens": prompt.token_count, "prompt_tokens_details": {"cached_tokens": admitted.hit_tokens}}
        form = _Form(f"cmpl-{self.requests}", str(body.get("model", "fake")), chat)
        # Both as streams: only so does Starlette cancel the work when the client leaves.
        if body.get("stream"):
            options = body.get("stream_options") or {}
            stream = form.stream(words, usage if options.get("include_usage") else None)
            return StreamingResponse(stream, media_type="text/event-stream")
        return StreamingResponse(form.whole(words, usage), media_type="application/json")

    async def _generate(self, text: str, admitted: Admitted, prompt_tokens: int, max_tokens: int) -> AsyncIterator[str]:
        """Prefill, then decode word by word; the blocks are kept on a normal end and on a disconnect given back."""
        output = ""
        try:
            async with self.prefill:
                uncached = prompt_tokens - admitted.hit_tokens
                await asyncio.sleep(uncached / 1000 * self.behaviour.prefill_s_per_1k)
            for number in range(max_tokens):
                if number == self.behaviour.die_after:
                    os._exit(1)
                word = f" w{number}"
                output += word
                yield word
                await asyncio.sleep(self.behaviour.decode_s)
        except BaseException:
            self.cache.abort(admitted.request)
            raise
        self.cache.finish(admitted.request, pr.hash_blocks(text + output, BLOCK_SIZE))

    async def control(self, request: Request) -> Response:
        """Change fields of the behaviour, by a JSON object."""
        self.behaviour = replace(self.behaviour, **await request.json())
        return JSONResponse(asdict(self.behaviour))

    async def health(self, _: Request) -> Response:
        """Say whether the engine is healthy."""
        return Response(status_code=200 if self.behaviour.healthy > 0 else 503)

    async def stats(self, _: Request) -> Response:
        """Count requests served, requests running and tokens cached."""
        return JSONResponse(
            {"requests": self.requests, "running": self.cache.running, "cached_tokens": self.cache.cached_tokens}
        )

    async def models(self, _: Request) -> Response:
        """List the one model."""
        return JSONResponse({"object": "list", "data": [{"id": "fake", "object": "model"}]})


@dataclass(frozen=True)
class _Form:
    """The forms in which OpenAI's API gives an answer."""

    ident: str
    model: str
    chat: bool

    async def whole(self, words: AsyncIterator[str], usage: dict[str, Any]) -> AsyncIterator[bytes]:
        output = [word async for word in words]
        text = "".join(output)
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choices = [{"index": 0, **said, "finish_reason": "length"}]
        yield json.dumps(self._body(choices, _counted(usage, len(output)), "")).encode()

    async def stream(self, words: AsyncIterator[str], usage: dict[str, Any] | None) -> AsyncIterator[bytes]:
        count = 0
        async for word in words:
            count += 1
            said = {"delta": {"content": word}} if self.chat else {"text": word}
            yield _event(self._body([{"index": 0, **said, "finish_reason": None}], None, ".chunk"))
        last: dict[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        yield _event(self._body([{"index": 0, **last, "finish_reason": "length"}], None, ".chunk"))
        if usage is not None:
            yield _event(self._body([], _counted(usage, count), ".chunk"))
        yield b"data: [DONE]\n\n"

    def _body(self, choices: list[Any], usage: dict[str, Any] | None, part: str) -> dict[str, Any]:
        kind = f"chat.completion{part}" if self.chat else "text_completion"
        body = {"id": self.ident, "object": kind, "created": 0, "model": self.model, "choices": choices}
        return body if usage is None else {**body, "usage": usage}


def _counted(usage: dict[str, Any], count: int) -> dict[str, Any]:
    return {**usage, "completion_tokens": count, "total_tokens": usage["prompt_tokens"] + count}


def _event(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def _render(messages: list[dict[str, Any]]) -> str:
    """Apply the chat template."""
    return "".join(f"[{message['role']}]\n{message['content']}\n" for message in messages) + "[assistant]\n"


def _error(status: int, message: str) -> Response:
    headers = {"retry-after": "1"} if status in {429, 503} else None
    return JSONResponse({"error": {"message": message, "type": "fake_engine", "code": status}}, status, headers)


def create_app(behaviour: Behaviour, capacity_tokens: int) -> Starlette:
    """Return the engine as an ASGI app."""
    engine = Engine(behaviour, capacity_tokens)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", engine.complete, methods=["POST"]),
            Route("/v1/completions", engine.complete, methods=["POST"]),
            Route("/v1/models", engine.models),
            Route("/control", engine.control, methods=["POST"]),
            Route("/health", engine.health),
            Route("/stats", engine.stats),
        ]
    )


def main() -> None:
    """Run an engine, as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m examples.proxy.fake_engine", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--capacity-tokens", type=int, default=300_000, help="size of the prefix cache")
    for field in fields(Behaviour):
        flag = f"--{field.name.replace('_', '-')}"
        parser.add_argument(flag, type=type(field.default), default=field.default, help="see Behaviour")
    options = vars(parser.parse_args())
    port, capacity = options.pop("port"), options.pop("capacity_tokens")
    uvicorn.run(create_app(Behaviour(**options), capacity), port=port, log_level="warning")


if __name__ == "__main__":
    main()
