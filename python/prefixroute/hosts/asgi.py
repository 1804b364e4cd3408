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
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from prefixroute.bodies import Api, prompt_of, session_of
from prefixroute.errors import ConfigError, NoReplicaError, OverloadedError, TokensError
from prefixroute.hosts.answering import Answering, json_of
from prefixroute.router import Router, Ticket

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class PrefixRouteMiddleware:
    """Books a ticket for each request that has a prompt, and ends it as the application answers.

    An answer of status 200 to 299 finishes it, with the usage and the text that it holds; another one, an exception, or a client
    that goes aborts it. To try another replica the application puts ``request.state.ticket = ticket.retry()`` in its place.
    Requests that are no POST of a known API pass through.

    Args:
        app: the application.
        router: of kind ``messages``.

    Raises:
        ConfigError: the router takes prompts of another kind.
    """

    def __init__(self, app: Application, router: Router) -> None:
        if router.config.prompt_kind != "messages":
            raise ConfigError(f"a router for HTTP takes prompts of kind 'messages', got {router.config.prompt_kind!r}")
        self.app, self._router = app, router

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or Api.of(scope["path"]) is None:
            await self.app(scope, receive, send)
            return
        messages, content = await _read(receive)
        try:
            ticket = self._route(scope, content)
        except (NoReplicaError, OverloadedError) as error:
            await _refuse(send, error)
            return
        state = scope.setdefault("state", {})
        state["ticket"] = ticket
        following = _Following(scope["path"], state, send)
        try:
            await self.app(scope, _replayed(messages, receive), following.send)
        finally:
            following.close()

    def _route(self, scope: Mapping[str, Any], content: bytes) -> Ticket:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        body = json_of(content)
        session = session_of(headers, body)
        try:
            prompt, kind = prompt_of(body, scope["path"])
            return self._router.route(prompt, prompt_kind=kind, session=session)
        except TokensError:  # the application says what is wrong with it
            return self._router.route([], prompt_kind="tokens", session=session)


class _Following:
    """What the application sends, followed for whichever ticket it holds by then."""

    def __init__(self, path: str, state: Mapping[str, Any], send: Send) -> None:
        self._path, self._state, self._send = path, state, send
        self._answering: Answering | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message.get("headers", ())}
            is_plain = headers.get(b"content-encoding", b"identity") == b"identity"
            kind = headers.get(b"content-type", b"").decode("latin-1") if is_plain else ""
            path = self._path if is_plain else ""
            self._answering = Answering(self._state["ticket"], path, message["status"], kind)
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


async def _read(receive: Receive) -> tuple[list[Message], bytes]:
    """Return the messages of a request's body, and the body."""
    messages, parts = [], []
    while True:
        message = await receive()
        messages.append(message)
        parts.append(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return messages, b"".join(parts)


def _replayed(messages: list[Message], receive: Receive) -> Receive:
    """Return a function that gives messages again, and then what comes."""
    left = iter(messages)

    async def replay() -> Message:
        for message in left:
            return message
        return await receive()

    return replay


async def _refuse(send: Send, error: NoReplicaError | OverloadedError) -> None:
    overloaded = isinstance(error, OverloadedError)
    headers = [(b"content-type", b"application/json")]
    if isinstance(error, OverloadedError):
        headers.append((b"retry-after", str(max(1, round(error.retry_after_s))).encode()))
    await send({"type": "http.response.start", "status": 429 if overloaded else 503, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": {"message": str(error)}}).encode()})
