"""A local server of Claude's Messages API and OpenAI's chat completions and Responses, with caches as documented.

    python -m examples.providers.fake_api --port 8010
    ANTHROPIC_BASE_URL=http://127.0.0.1:8010 OPENAI_BASE_URL=http://127.0.0.1:8010/v1 python your_program.py

What it answers means nothing; its usage fields and its time to first token are what a program can be tried with.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from examples.providers.caches import BreakpointCache, ClaudeCache, OpenAICache, Turn

WORDS = ("All", " is", " well", ".")


class FakeAPI:
    """Both APIs over one clock. ``ttft_s``: seconds before each response begins."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, ttft_s: float = 0.01) -> None:
        """Start with empty caches."""
        self.claude, self.openai, self.breakpoints = ClaudeCache(clock), OpenAICache(clock), BreakpointCache(clock)
        self.ttft_s = ttft_s
        self.failing = 0
        self.requests = 0
        self.app = Starlette(
            routes=[
                Route("/v1/messages", self.messages, methods=["POST"]),
                Route("/v1/chat/completions", self.completions, methods=["POST"]),
                Route("/v1/responses", self.responses, methods=["POST"]),
            ]
        )

    def refused(self) -> bool:
        """Count a request; return whether it is one of those that are to fail."""
        self.requests += 1
        self.failing -= 1
        return self.failing >= 0

    async def messages(self, request: Request) -> Response:
        """Answer a request of the Messages API. The key is the workspace."""
        body = await request.json()
        if self.refused():
            return JSONResponse({"type": "error", "error": {"type": "overloaded_error", "message": "told to"}}, 529)
        try:
            key = request.headers.get("x-api-key") or request.headers.get("authorization", "")
            turn = self.claude.meet(key, body)
        except ValueError as error:
            told = {"type": "invalid_request_error", "message": str(error)}
            return JSONResponse({"type": "error", "error": told}, 400)
        words = WORDS if body["max_tokens"] else ()
        message = _message(self.requests, body, turn, words)
        await asyncio.sleep(self.ttft_s)
        turn.begin()
        if body.get("stream"):
            return StreamingResponse(_claude_events(message, words), media_type="text/event-stream")
        return JSONResponse(message)

    async def responses(self, request: Request) -> Response:
        """Answer a request of the Responses API, by the rules of GPT-5.6 and later; a prewarming one without output."""
        body = await request.json()
        if self.refused():
            return JSONResponse({"error": {"message": "told to", "type": "server_error"}}, 500)
        turn = self.breakpoints.meet(body)
        words = () if (body.get("prompt_cache_options") or {}).get("prewarm") else WORDS
        answer = _response(self.requests, body, turn, words)
        await asyncio.sleep(self.ttft_s)
        turn.begin()
        return JSONResponse(answer)

    async def completions(self, request: Request) -> Response:
        """Answer a request for a chat completion."""
        body = await request.json()
        if self.refused():
            return JSONResponse({"error": {"message": "told to", "type": "server_error"}}, 500)
        text = json.dumps([body.get("tools"), body["messages"]])
        turn = self.openai.meet(body.get("prompt_cache_key") or "", text)
        await asyncio.sleep(self.ttft_s)
        turn.begin()
        usage = {
            "prompt_tokens": turn.input + turn.read,
            "completion_tokens": len(WORDS),
            "total_tokens": turn.input + turn.read + len(WORDS),
            "prompt_tokens_details": {"cached_tokens": turn.read},
        }
        head = {"id": f"chatcmpl-{self.requests}", "created": 0, "model": body["model"]}
        if body.get("stream"):
            return StreamingResponse(_openai_events(head, usage), media_type="text/event-stream")
        choice = {"index": 0, "message": {"role": "assistant", "content": "".join(WORDS)}, "finish_reason": "stop"}
        return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage})


def _response(number: int, body: dict[str, Any], turn: Turn, words: tuple[str, ...]) -> dict[str, Any]:
    total = turn.input + turn.read + sum(turn.write.values())
    details = {
        "cached_tokens": turn.read,
        "cache_write_tokens": sum(turn.write.values()),
        "cache_write_tokens_details": {f"ttl_{name}_tokens": turn.write.get(name, 0) for name in ("30m", "12h")},
    }
    text = {"type": "output_text", "text": "".join(words), "annotations": []}
    output = {"type": "message", "id": f"out_{number}", "role": "assistant", "status": "completed", "content": [text]}
    usage = {
        "input_tokens": total,
        "input_tokens_details": details,
        "output_tokens": len(words),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": total + len(words),
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "model": body["model"],
        "status": "completed",
        "output": [output] if words else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def _message(number: int, body: dict[str, Any], turn: Turn, words: tuple[str, ...]) -> dict[str, Any]:
    usage = {
        "input_tokens": turn.input,
        "cache_read_input_tokens": turn.read,
        "cache_creation_input_tokens": sum(turn.write.values()),
        "cache_creation": {f"ephemeral_{name}_input_tokens": turn.write.get(name, 0) for name in ("5m", "1h")},
        "output_tokens": len(words),
        "service_tier": "standard",
    }
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": "".join(words)}] if words else [],
        "stop_reason": "end_turn" if words else "max_tokens",
        "stop_sequence": None,
        "usage": usage,
    }


async def _claude_events(message: dict[str, Any], words: tuple[str, ...]) -> AsyncIterator[str]:
    def event(kind: str, **fields: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

    yield event("message_start", message={**message, "content": [], "stop_reason": None})
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for word in words:
        await asyncio.sleep(0)
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
    yield event("content_block_stop", index=0)
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=ended, usage={"output_tokens": len(words)})
    yield event("message_stop")


async def _openai_events(head: dict[str, Any], usage: dict[str, Any]) -> AsyncIterator[str]:
    def chunk(choices: list[dict[str, Any]], **more: Any) -> str:
        return f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', 'choices': choices, **more})}\n\n"

    for word in WORDS:
        await asyncio.sleep(0)
        yield chunk([{"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": None}])
    yield chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    yield chunk([], usage=usage)
    yield "data: [DONE]\n\n"


@contextmanager
def serving(api: FakeAPI) -> Iterator[str]:
    """Serve on a free port of the loopback from a thread; give its URL."""
    server = uvicorn.Server(uvicorn.Config(api.app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the server did not start")
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8010)
    parser.add_argument("--ttft-s", type=float, default=0.3, help="seconds before each response begins")
    chosen = parser.parse_args()
    uvicorn.run(FakeAPI(ttft_s=chosen.ttft_s).app, host="127.0.0.1", port=chosen.port)


if __name__ == "__main__":
    main()
