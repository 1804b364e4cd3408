"""The engines' end: connections to them, and answers that have begun."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from prefixroute.bodies import MAX_READ_BYTES, AnswerReader, EventCutter, answer_reader
from prefixroute.serve.calls import Call
from prefixroute.serve.headers import RawHeaders, header_text
from prefixroute.serve.settings import Settings, Upstream

FAILURES = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
"""What asking an engine may raise: no connection, a broken answer, silence, bytes that are not HTTP."""
KEEP_ALIVE_S = 2.0
"""A pooled connection is let go after this: engines (uvicorn) close theirs after 5 s of silence."""
MAX_HEAD_BYTES = 64 * 1024
"""A line, and a header, of an engine's answer."""
_IN_ONE_WRITE = 1 << 20


def new_client(settings: Settings) -> aiohttp.ClientSession:
    """Return a client for engines: no cookies, no redirects, no proxies of the environment, no limit of connections.

    A limit would make requests wait where the router does not see them.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.upstream.connect_timeout_s),
        auto_decompress=False,
        trust_env=False,
        skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
        max_line_size=MAX_HEAD_BYTES,
        max_field_size=MAX_HEAD_BYTES,
    )


@dataclass(slots=True)
class Opened:
    """An engine's answer, from its first byte on.

    Attributes:
        response: of the engine.
        first: the first part of the body; without streaming the whole of it, if it is not above
            :data:`~prefixroute.bodies.MAX_READ_BYTES`.
        answer: what is learned from it.
        parts: what follows; ``None`` = nothing.
    """

    response: aiohttp.ClientResponse
    first: bytes
    answer: AnswerReader
    parts: Parts | None

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.response.status

    @property
    def is_success(self) -> bool:
        """Return whether the engine answers the request."""
        return 200 <= self.response.status < 300  # noqa: PLR2004  # RFC 9110

    @property
    def raw_headers(self) -> RawHeaders:
        """The headers as they came."""
        return list(self.response.raw_headers)

    def close(self) -> None:
        """Let the connection go; one in the middle of an answer is closed, so that the engine stops."""
        self.response.close()


class Parts:
    """An answer in parts, byte for byte but for a usage chunk that the client did not ask for.

    Args:
        content: of the engine's answer.
        idle_timeout_s: longest silence.
        answer: learns from a stream of events; ``None`` = it passes unread.
        hide_usage: the client did not ask for the usage chunk.
    """

    def __init__(
        self,
        content: aiohttp.StreamReader,
        idle_timeout_s: float,
        answer: AnswerReader | None = None,
        *,
        hide_usage: bool = False,
    ) -> None:
        self._content, self._idle_timeout_s = content, idle_timeout_s
        self._answer, self._hide_usage, self._cutter = answer, hide_usage, EventCutter()

    async def next(self) -> bytes:
        """Return the next whole events; nothing at the end. Raises one of :data:`FAILURES` if the engine breaks off."""
        answer = self._answer
        while True:
            async with asyncio.timeout(self._idle_timeout_s):
                data = await self._content.readany()
            if answer is None:
                return data
            if not data:
                return self._cutter.rest()
            events = self._cutter.cut(data)
            part = b"".join(event for event in events if not (answer.read_event(event) and self._hide_usage))
            if part:
                return part


async def ask(
    client: aiohttp.ClientSession, base: str, call: Call, limits: Upstream, more: Mapping[str, str]
) -> Opened:
    """Send a call to an engine and return its answer from the first byte on.

    Args:
        client: of :func:`new_client`.
        base: the engine's URL.
        call: what to ask.
        limits: times.
        more: headers of ours, e.g. a data-parallel rank.

    Raises:
        FAILURES: there is no answer.
    """
    headers = CIMultiDict((header_text(name), header_text(value)) for name, value in call.headers)
    headers.update(more)
    body: Any = call.content if len(call.content) < _IN_ONE_WRITE else io.BytesIO(call.content)
    async with asyncio.timeout(limits.first_byte_timeout_s):
        response = await client.post(
            URL(base + call.target, encoded=True), data=body, headers=headers, allow_redirects=False
        )
        try:
            return await _opened(response, call, limits.idle_timeout_s)
        except BaseException:
            response.close()
            raise


async def _opened(response: aiohttp.ClientResponse, call: Call, idle_timeout_s: float) -> Opened:
    if not 200 <= response.status < 600:  # noqa: PLR2004  # no client asked for an upgrade
        raise ValueError(f"an answer has a status of 200 to 599, got {response.status}")
    answer = answer_reader(call.api)
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        parts = Parts(response.content, idle_timeout_s, answer, hide_usage=call.reading.hide_usage)
        return Opened(response, await parts.next(), answer, parts)
    pieces, size = [], 0
    while data := await response.content.readany():
        pieces.append(data)
        size += len(data)
        if size > MAX_READ_BYTES:
            return Opened(response, b"".join(pieces), answer, Parts(response.content, idle_timeout_s))
    body = b"".join(pieces)
    answer.read(body)
    return Opened(response, body, answer, None)
