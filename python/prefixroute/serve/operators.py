"""The operators' port in front of several workers: one answer out of theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from prefixroute.serve.metrics import TEXT_FORMAT, merged

TIMEOUT_S = 2.0
"""For a worker's answer; one that gives none is left out."""
_OK = 200


class Operators:
    """Asks every worker at its own socket.

    Args:
        paths: of the workers' sockets, by their number.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._clients: list[aiohttp.ClientSession] = []
        routes = [
            Route("/healthz", self._healthz),
            Route("/metrics", self._metrics),
            Route("/replicas", self._replicas),
            Route("/replicas/drain", self._replicas, methods=["POST"]),
            Route("/replicas/resume", self._replicas, methods=["POST"]),
        ]
        self.app = Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        self._clients = [
            aiohttp.ClientSession("http://worker", connector=aiohttp.UnixConnector(str(path)), timeout=timeout)
            for path in self._paths
        ]
        yield
        await asyncio.gather(*(client.close() for client in self._clients))

    async def _ask(self, number: int, method: str, target: str) -> tuple[int, str] | None:
        try:
            async with self._clients[number].request(method, target) as response:
                return response.status, await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    async def _all(self, request: Request) -> dict[str, tuple[int, str]]:
        query = request.scope["query_string"].decode("latin-1")
        target = f"{request.scope['path']}?{query}" if query else request.scope["path"]
        numbers = range(len(self._paths))
        answers = await asyncio.gather(*(self._ask(number, request.method, target) for number in numbers))
        return {str(number): answer for number, answer in zip(numbers, answers, strict=True) if answer is not None}

    async def _healthz(self, request: Request) -> Response:
        answers = await self._all(request)
        workers: dict[str, Any] = {name: json.loads(text) for name, (_, text) in answers.items()}
        serving = any(status == _OK for status, _ in answers.values())
        return JSONResponse({"workers": workers, "expected": len(self._paths)}, _OK if serving else 503)

    async def _metrics(self, request: Request) -> Response:
        answers = await self._all(request)
        text = merged({name: text for name, (_, text) in answers.items()})
        return PlainTextResponse(text, media_type=TEXT_FORMAT)

    async def _replicas(self, request: Request) -> Response:
        answers = await self._all(request)
        status = max((status for status, _ in answers.values()), default=503)
        said = {name: json.loads(text) for name, (_, text) in answers.items()}
        if status != _OK:
            return JSONResponse(next(iter(said.values()), {}), status)
        return JSONResponse({"workers": said}, status)
