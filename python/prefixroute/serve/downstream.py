"""The client's end of a request: its body as it comes in, and the answer as it goes out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Send

from prefixroute.serve.headers import RawHeaders
from prefixroute.serve.replies import TOO_BUSY_S, Refused
from prefixroute.serve.settings import Limits


class ClientTooSlow(Exception):  # noqa: N818  # an outcome
    """A client that does not take its answer."""


class Downstream:
    """The client's end: remembers what was sent.

    Without streaming, and to a client of HTTP/1.0, which knows no chunks, the answer goes out in one piece with its
    length.

    Attributes:
        started: whether anything was sent.
        status: what was sent; 0 = nothing.
        bytes: of the body.
        first_at: when the first byte went out, on the monotonic clock.
    """

    def __init__(self, send: Send, *, whole: bool, timeout_s: float, openai: bool) -> None:
        """Send nothing yet.

        Args:
            send: of ASGI.
            whole: keep everything until the end.
            timeout_s: seconds for the client to take a part.
            openai: refusals have OpenAI's form.
        """
        self._send, self._whole, self._timeout_s, self._openai = send, whole, timeout_s, openai
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
        await self._out(
            {"type": "http.response.start", "status": status, "headers": [*headers, length]},
            {"type": "http.response.body", "body": body, "more_body": False},
        )

    async def refuse(self, refused: Refused) -> None:
        """Send what a refusal says."""
        await self.reply(refused.status, refused.headers, refused.body(openai=self._openai))

    async def _out(self, *messages: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                for message in messages:
                    await self._send(message)
        except TimeoutError:
            raise ClientTooSlow(f"took nothing for {self._timeout_s:g} s") from None


class Room:
    """Room for the bodies that a worker holds at once: what many clients send in parts must not fill the memory.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most, self.taken = most, 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], bool]]:
        """Yield what takes room for one body, bytes by bytes, and says whether there was; leaving gives it back."""
        taken = 0

        def take(size: int) -> bool:
            nonlocal taken
            taken += size
            self.taken += size
            return self.taken <= self._most

        try:
            yield take
        finally:
            self.taken -= taken


async def read_body(request: Request, limits: Limits, take: Callable[[int], bool]) -> bytes:
    """Return a request's body.

    Args:
        request: of the client.
        limits: of size and time.
        take: of :meth:`Room.share`.

    Raises:
        Refused: it is too large or too slow, or there is no room for it; the connection is closed then, of which a part
            is unread.
        ClientDisconnect: the client has left.
    """
    if sum(len(name) + len(value) for name, value in request.headers.raw) > limits.max_header_bytes:
        said = f"the headers must have at most {limits.max_header_bytes} bytes"
        raise Refused(431, "headers too large", said, close=True)
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > limits.max_body_bytes:
        raise _too_large(limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            async for part in request.stream():
                if len(body) + len(part) > limits.max_body_bytes:
                    raise _too_large(limits)
                if not take(len(part)):
                    said = f"the bodies of all requests must have at most {limits.max_held_bytes} bytes"
                    raise Refused(429, "no room", said, retry_s=TOO_BUSY_S, close=True)
                body += part
    except TimeoutError as error:
        said = f"the body must arrive within {limits.body_timeout_s:g} s"
        raise Refused(408, "body too slow", said, close=True) from error
    return bytes(body)


def _too_large(limits: Limits) -> Refused:
    return Refused(413, "body too large", f"the body must have at most {limits.max_body_bytes} bytes", close=True)


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
