"""ASGI: a middleware that routes each request of a gateway's own application, and follows the answer to its end.

The application asks ``request.state.ticket`` where to send what it got::

    app.add_middleware(PrefixRouteMiddleware, router=router)


    @app.post("/v1/chat/completions")
    async def chat(request: Request):
        ticket = request.state.ticket
        return await forward(ticket.replica, await request.body(), ticket.headers())
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from prefixroute.bodies import Api, session_of
from prefixroute.errors import NoReplicaError, OverloadedError
from prefixroute.hosts.answering import Answering
from prefixroute.hosts.asking import by_body, check_kind, json_of
from prefixroute.router import Router, Ticket

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
MAX_BODY_BYTES = 32 * 1024 * 1024
"""Size of a body that is read to route it, unless the middleware is given another."""
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class PrefixRouteMiddleware:
    """Books a ticket for each request of a known API, and ends it as the application answers.

    A body that is no JSON, or has no prompt in it, is routed by session and load: the application asks for its ticket
    as for any other, and says itself what is wrong with it.

    An answer of status 200 to 299 finishes it, with the usage and the text that it holds; another one, an exception, or
    a client that goes aborts it. To try another replica the application puts ``request.state.ticket = ticket.retry()``
    in its place. Requests that are no POST of a known API pass through.

    Args:
        app: the application.
        router: of kind ``messages``.
        max_body_bytes: size of a body, which is kept until the application has read it; above it: 413.

    Raises:
        ConfigError: the router takes prompts of another kind.
    """

    def __init__(self, app: Application, router: Router, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        check_kind(router, "HTTP")
        self.app, self._router, self._most = app, router, max_body_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or Api.of(scope["path"]) is None:
            await self.app(scope, receive, send)
            return
        messages, content = await _read(receive, self._most)
        if len(content) > self._most:
            await _refuse(send, 413, f"the body must have at most {self._most} bytes")
            return
        try:
            ticket = self._route(scope, content)
        except NoReplicaError as error:
            await _refuse(send, 503, str(error))
            return
        except OverloadedError as error:
            await _refuse(send, 429, str(error), (b"retry-after", str(max(1, round(error.retry_after_s))).encode()))
            return
        state = scope.setdefault("state", {})
        state["ticket"] = ticket
        following = _Following(scope["path"], state, send)
        try:
            await self.app(scope, _replayed(messages, receive), following.send)
        finally:
            following.close()

    def _route(self, scope: Mapping[str, Any], content: bytes) -> Ticket:
        body = json_of(content)
        session = session_of(_texts(scope["headers"]), body)
        return by_body(self._router.route, body, scope["path"], session=session)


class _Following:
    """What the application sends, followed for whichever ticket it holds by then."""

    def __init__(self, path: str, state: Mapping[str, Any], send: Send) -> None:
        self._path, self._state, self._send = path, state, send
        self._answering: Answering | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            headers = _texts(message.get("headers", ()))
            self._answering = Answering(self._state["ticket"], self._path, message["status"], headers)
        await self._send(message)
        if message["type"] == "http.response.body" and self._answering is not None:
            self._answering.heard(message.get("body", b""))
            if not message.get("more_body", False):
                self._answering.end()

    def close(self) -> None:
        """Give up what has not ended."""
        ticket: Ticket = self._state["ticket"]
        if ticket.open:
            ticket.abort()


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers as text, by their names in lower case."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}


async def _read(receive: Receive, most: int) -> tuple[list[Message], bytes]:
    """Return the messages of a request's body, and the body; of one above ``most`` bytes the beginning."""
    messages: list[Message] = []
    content = bytearray()
    while True:
        message = await receive()
        messages.append(message)
        content += message.get("body", b"")
        if message["type"] != "http.request" or not message.get("more_body", False) or len(content) > most:
            return messages, bytes(content)


def _replayed(messages: list[Message], receive: Receive) -> Receive:
    """Return a function that gives messages again, and then what comes."""
    left = iter(messages)

    async def replay() -> Message:
        for message in left:
            return message
        return await receive()

    return replay


async def _refuse(send: Send, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
