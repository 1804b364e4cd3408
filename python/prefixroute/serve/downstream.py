"""The client's end of a request: its body as it comes in, and the answer as it goes out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Send

from prefixroute.serve.headers import RawHeaders
from prefixroute.serve.replies import Refused, refusal
from prefixroute.serve.settings import Limits


class ClientTooSlow(Exception):  # noqa: N818  # an outcome
    """A client that does not take its answer."""


class Downstream:
    """The client's end: remembers what was sent.

    Without streaming, and to a client of HTTP/1.0, which knows no chunks, the answer goes out in one piece with its length.

    Attributes:
        started: whether anything was sent.
        status: what was sent; 0 = nothing.
        bytes: of the body.
        first_at: when the first byte went out, on the monotonic clock.
    """

    def __init__(self, send: Send, *, whole: bool, timeout_s: float) -> None:
        """Send nothing yet. ``whole``: keep everything until the end."""
        self._send, self._whole, self._timeout_s = send, whole, timeout_s
        self._head: RawHeaders = []
        self._kept: list[bytes] = []
        self.started, self.status, self.bytes, self.first_at = False, 0, 0, 0.0

    async def start(self, status: int, headers: RawHeaders) -> None:
        """Say what comes."""
        self.status, self._head = status, headers
        if not self._whole:
            self.started, self.first_at = True, monotonic()
            await self._out({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, part: bytes) -> None:
        """Send a part of the body."""
        self.bytes += len(part)
        if self._whole:
            self._kept.append(part)
        elif part:
            await self._out({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self) -> None:
        """Say that the body is complete."""
        if self._whole:
            await self.reply(self.status, self._head, b"".join(self._kept))
        else:
            await self._out({"type": "http.response.body", "body": b"", "more_body": False})

    async def reply(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Send a whole answer."""
        self.status, self.bytes, self.started, self.first_at = status, len(body), True, monotonic()
        length = (b"content-length", str(len(body)).encode())
        await self._out({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await self._out({"type": "http.response.body", "body": body, "more_body": False})

    async def refuse(self, refused: Refused) -> None:
        """Send what a refusal says."""
        await self.reply(refused.status, refused.headers, refused.body)

    async def _out(self, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(message)
        except TimeoutError:
            raise ClientTooSlow(f"took nothing for {self._timeout_s:g} s") from None


async def read_body(request: Request, limits: Limits, *, openai: bool) -> bytes:
    """Return a request's body.

    Raises:
        Refused: it is too large or too slow; the connection is closed then, of which a part is unread.
        ClientDisconnect: the client has left.
    """
    if sum(len(name) + len(value) for name, value in request.headers.raw) > limits.max_header_bytes:
        said = f"the headers must have at most {limits.max_header_bytes} bytes"
        raise refusal(431, said, "headers too large", close=True, openai=openai)
    said = f"the body must have at most {limits.max_body_bytes} bytes"
    too_large = refusal(413, said, "body too large", close=True, openai=openai)
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > limits.max_body_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            async for part in request.stream():
                body += part
                if len(body) > limits.max_body_bytes:
                    raise too_large
    except TimeoutError as error:
        said = f"the body must arrive within {limits.body_timeout_s:g} s"
        raise refusal(408, said, "body too slow", close=True, openai=openai) from error
    return bytes(body)


async def while_connected(receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
    """Do work, and cancel it when the client leaves: the body has been read, so the next message says just that.

    Raises:
        ClientDisconnect: it has left, and the work is cancelled.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("needs a task to cancel")
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        task.cancel()

    watching = asyncio.create_task(watch())
    try:
        await work()
    except asyncio.CancelledError:
        if gone and not task.uncancel():
            raise ClientDisconnect from None
        raise
    finally:
        watching.cancel()
