"""HTTPX: a transport that sends each request to the replica whose cache holds its prompt.

An existing client routes by one argument, such as the SDKs of OpenAI and Anthropic::

    client = AsyncOpenAI(base_url="http://fleet/v1",
    http_client=httpx.AsyncClient(transport=AsyncRoutingTransport(router)))

Replicas are named by their base URLs, or have them as ``Replica(address=)``; host and scheme of a request are replaced
by theirs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from prefixroute.bodies import RETRIED_STATUSES, session_of
from prefixroute.errors import NoReplicaError, OverloadedError
from prefixroute.hosts.answering import Answering
from prefixroute.hosts.asking import by_body, check_kind, json_of
from prefixroute.hosts.versions import require
from prefixroute.router import Router, Ticket

require("httpx")

import httpx  # noqa: E402  # behind the check of its version


class _Exchange:
    """One request with its tries: where it goes next, and what follows its answer.

    Attributes:
        request: what to send now.
    """

    def __init__(self, router: Router, retries: int, request: httpx.Request, content: bytes) -> None:
        self._router, self._left, self._asked, self._content = router, retries, request, content
        body = json_of(content)
        self._aim(by_body(router.route, body, request.url.path, session=session_of(request.headers, body)))

    def _aim(self, ticket: Ticket) -> None:
        """Write the request for a ticket's replica: scheme, host, port, and the path that its base URL begins with."""
        asked, base = self._asked, httpx.URL(self._router.replica(ticket.replica).address or ticket.replica)
        path = base.raw_path.rstrip(b"/") + asked.url.raw_path
        url = asked.url.copy_with(scheme=base.scheme, host=base.host, port=base.port, raw_path=path)
        headers = httpx.Headers([(name, value) for name, value in asked.headers.raw if name.lower() != b"host"])
        headers.update(ticket.headers())
        self._ticket = ticket
        self.request = httpx.Request(
            asked.method, url, headers=headers, content=self._content, extensions=asked.extensions
        )

    def _goes_on(self) -> bool:
        """Aim at another replica; return whether there is one."""
        if not self._left:
            return False
        self._left -= 1
        try:
            self._aim(self._ticket.retry())
        except (NoReplicaError, OverloadedError):
            return False
        return True

    def failed(self, error: BaseException) -> bool:
        """Note that there is no answer; return whether another replica is asked. Else the request has ended."""
        if isinstance(error, httpx.TransportError) and self._goes_on():
            return True
        if self._ticket.open:
            self._ticket.abort()
        return False

    def accepted(self, response: httpx.Response) -> bool:
        """Follow an answer; return whether it is one, and not that of a replica in whose place another is asked."""
        if response.status_code in RETRIED_STATUSES and self._goes_on():
            return False
        answering = Answering(self._ticket, self._asked.url.path, response.status_code, response.headers)
        if response.is_closed:  # it came as a whole
            with answering:
                answering.heard(response.content)
        else:
            response.stream = _Body(response.stream, answering)
        return True


class _Body(httpx.AsyncByteStream, httpx.SyncByteStream):
    """A response's body that ends its ticket. Closed before its end, it gives the request up."""

    def __init__(self, body: Any, answering: Answering) -> None:
        self._body, self._answering = body, answering

    def __iter__(self) -> Iterator[bytes]:
        """Pass the body on."""
        with self._answering as answering:
            for part in self._body:
                answering.heard(part)
                yield part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pass the body on."""
        with self._answering as answering:
            async for part in self._body:
                answering.heard(part)
                yield part

    def close(self) -> None:
        """Close the body."""
        self._answering.leave()
        self._body.close()

    async def aclose(self) -> None:
        """Close the body."""
        self._answering.leave()
        await self._body.aclose()


class _Routing:
    """What both transports have."""

    def __init__(self, router: Router, transport: Any, retries: int) -> None:
        check_kind(router, "HTTP")
        self._router, self._transport, self._retries = router, transport, retries

    def _exchange(self, request: httpx.Request, content: bytes) -> _Exchange:
        return _Exchange(self._router, self._retries, request, content)


class AsyncRoutingTransport(_Routing, httpx.AsyncBaseTransport):
    """Routes the requests of an ``httpx.AsyncClient``.

    A replica that gives no answer, or says that it is full, is retried elsewhere before the client sees anything. The
    Router and its transports may be shared by several clients.

    Args:
        router: of kind ``messages``.
        transport: what sends; ``None`` = a new ``httpx.AsyncHTTPTransport``.
        retries: further replicas that are tried at most.

    Raises:
        ConfigError: the router takes prompts of another kind.
    """

    def __init__(self, router: Router, transport: httpx.AsyncBaseTransport | None = None, *, retries: int = 2) -> None:
        super().__init__(router, transport or httpx.AsyncHTTPTransport(), retries)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to the replica that it is routed to; see :class:`httpx.AsyncBaseTransport`."""
        exchange = self._exchange(request, await request.aread())
        while True:
            try:
                response: httpx.Response = await self._transport.handle_async_request(exchange.request)
            except BaseException as error:
                if not exchange.failed(error):
                    raise
                continue
            if exchange.accepted(response):
                return response
            await response.aclose()

    async def aclose(self) -> None:
        """Close what sends."""
        await self._transport.aclose()


class RoutingTransport(_Routing, httpx.BaseTransport):
    """Routes the requests of an ``httpx.Client``, as :class:`AsyncRoutingTransport` does.

    Args:
        router: of kind ``messages``.
        transport: what sends; ``None`` = a new ``httpx.HTTPTransport``.
        retries: further replicas that are tried at most.

    Raises:
        ConfigError: the router takes prompts of another kind.
    """

    def __init__(self, router: Router, transport: httpx.BaseTransport | None = None, *, retries: int = 2) -> None:
        super().__init__(router, transport or httpx.HTTPTransport(), retries)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to the replica that it is routed to; see :class:`httpx.BaseTransport`."""
        exchange = self._exchange(request, request.read())
        while True:
            try:
                response: httpx.Response = self._transport.handle_request(exchange.request)
            except BaseException as error:
                if not exchange.failed(error):
                    raise
                continue
            if exchange.accepted(response):
                return response
            response.close()

    def close(self) -> None:
        """Close what sends."""
        self._transport.close()
