"""One completion of a fake engine in progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from prefixroute.errors import ConfigError
from prefixroute.testing.answers import FORMS
from prefixroute.testing.core import EngineJob, EngineRequest
from prefixroute.testing.tokens import render, tokenize
from prefixroute.types import Namespace

if TYPE_CHECKING:
    from prefixroute.testing.app import FakeApp

MAX_OUTPUT_TOKENS = 1 << 20
_PAUSE_S = 0.002
"""Least pause between two writes of a stream; what is due in between is written together."""
_VOCABULARY = 1 << 17


class Serving:
    """One completion in progress.

    The body may hold ``output_token_ids``: what to answer, so that a trace's next turn finds the answer in the cache.
    """

    def __init__(self, app: FakeApp, body: Any, path: str) -> None:
        """Read the request; raise ConfigError if it is none."""
        self._app = app
        prompt = _prompt(body, path)
        text = isinstance(prompt, str)
        tokens = tokenize(prompt) if text else list(prompt)
        forced = list(body.get("output_token_ids") or ())
        count = len(forced) or max(
            1, min(int(body.get("max_tokens") or body.get("max_output_tokens") or 16), MAX_OUTPUT_TOKENS)
        )
        words = [f" w{number}" for number in range(count)]
        if not tokens or any(not isinstance(token, int) for token in (tokens[0], *forced)):
            raise ConfigError("a prompt is a text or a list of token ids, and not empty")
        ids = forced or [(tokens[-1] * 31 + number * 7919 + len(tokens)) % _VOCABULARY for number in range(count)]
        context = tokens + ids
        if text and not forced:
            context = _extended(tokens, tokenize(prompt + "".join(words)), count, app.settings.block_size)
        settings, asked = app.settings, str(body.get("model") or app.settings.model)
        lora = asked if asked in settings.adapters else ""
        namespace = Namespace(lora=lora, salt=str(body.get("cache_salt") or ""))
        self._first, self._done = asyncio.Event(), asyncio.Event()
        self._asked = EngineRequest(tokens, context, count, namespace, self._first.set, self._done.set)
        self._words, self._ids = words, ids
        options = body.get("stream_options") or {}
        self.stream, self._usage = bool(body.get("stream")), bool(options.get("include_usage"))
        self._answer = FORMS[path](app.core.requests + 1, asked, len(tokens), bool(body.get("return_token_ids")))

    async def whole(self) -> AsyncIterator[bytes]:
        """Serve the request, and give the answer as one object."""
        async for count, job in self._progress():
            if count == len(self._words):
                yield self._answer.whole(self._words, self._ids, job.hit)

    async def events(self) -> AsyncIterator[bytes]:
        """Serve the request, and give the answer token by token."""
        told = 0
        async for count, job in self._progress():
            parts = [] if told else [self._answer.begin(job.hit)]
            parts += [self._answer.word(self._words[at], self._ids[at]) for at in range(told, count)]
            told = count
            if count == len(self._words):
                parts.append(self._answer.end(self._words, job.hit, usage=self._usage))
            yield b"".join(parts)

    async def _progress(self) -> AsyncIterator[tuple[int, EngineJob]]:
        """Yield how many tokens are out.

        The first and the last when the engine says, those between at its present pace.
        """
        app, total = self._app, len(self._words)
        job = app.submit(self._asked)
        told = 0
        try:
            await self._first.wait()
            while told < total:
                limit = total if self._done.is_set() else min(told + 1, total - 1) or 1
                for count in range(told, limit):
                    app.check_death(count)
                if limit > told:
                    told = limit
                    yield told, job
                if told < total:
                    pause = max(_PAUSE_S, app.core.step_s / app.settings.speed)
                    await self._wait_until_done(None if told == total - 1 else pause)
            app.check_death(total)
        finally:
            if not job.ended:
                app.leave(job)

    async def _wait_until_done(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._done.wait()
        except TimeoutError:
            pass


def _prompt(body: Any, path: str) -> Any:
    """Return the text, or the token ids, that a request's body asks to go on from."""
    field = {"/v1/completions": "prompt", "/v1/responses": "input"}.get(path, "messages")
    if not isinstance(body, Mapping) or field not in body:
        raise ConfigError(f"no {field}")
    if field == "prompt":
        return body["prompt"]
    return render(body)


def _extended(prompt: list[int], text: list[int], count: int, block_size: int) -> list[int]:
    """Return prompt and answer as the engine holds them: nearly the tokens that the next turn will have.

    The prompt's full blocks stay as they were computed, though the answer goes on within their last token. Short words
    are fewer tokens of text than the engine counts.
    """
    full = len(prompt) // block_size * block_size
    missing = max(0, len(prompt) + count - len(text))
    return [*prompt[:full], *text[full:], *range(missing)]
