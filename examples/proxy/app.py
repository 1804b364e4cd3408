"""The proxy: a Starlette app around one Router. Read :class:`Relay`, the rest is plumbing."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import anyio
import httpx
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import prefixroute as pr
from examples.proxy.health import Health, Unhealthy
from examples.proxy.wire import EVENT_END, Answer, Call, RawHeaders, end_to_end
from prefixroute.live import KvFeed

log = logging.getLogger("proxy")
ELSEWHERE = frozenset({429, 502, 503, 504})
"""What an engine answers when it will not serve a request that another may. Not 500: a request that breaks one engine
would be sent round to break them all."""

MALFORMED = (ValueError, RecursionError)
"""What a body raises that is no request: bad JSON or Unicode, ``TokensError``, arrays in arrays in arrays."""


@dataclass(frozen=True)
class Settings:
    """Everything that the command line can set."""

    replicas: tuple[str, ...]
    policy: str = "cache-aware"
    block_size: int = 16
    capacity_tokens: int = 300_000
    max_in_flight: int | None = None
    retries: int = 2
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 600.0
    breaker_failures: int = 3
    breaker_reset_s: float = 10.0
    health_interval_s: float = 2.0
    health_timeout_s: float = 5.0
    replica_header: str | None = "x-replica"  # names the engine to the client; None = do not tell
    max_body_bytes: int = 32 * 1024 * 1024
    max_header_bytes: int = 32 * 1024
    body_timeout_s: float = 30.0  # for the whole body to arrive


class Refused(Exception):  # noqa: N818  # an outcome: nothing has reached the client yet
    """A replica has not answered. ``response`` is for the client, should no other replica answer either."""

    def __init__(self, response: Response) -> None:
        """Keep the response."""
        super().__init__(response.status_code)
        self.response = response


class Relay:
    """ASGI app for the completion endpoints: route, relay, give back.

    A ticket lives in a ``with`` block, so whatever ends the request gives its load back: the end, a dead engine, a client
    that leaves at any moment, a fault of ours. Nothing is sent to the client before the engine's first byte, so that until
    then another replica can be asked; from then on a dead engine breaks the client's stream off.
    """

    def __init__(self, router: pr.Router, client: httpx.AsyncClient, health: Health, settings: Settings) -> None:
        """Serve with what the app owns."""
        self.router, self.client, self.health, self.settings = router, client, health, settings
        self._replica_header = (settings.replica_header or "").lower().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. The path is the scope's: that of ``request.url`` depends on the Host header."""
        request = Request(scope, receive)
        try:
            call = Call.read(scope["path"], request.headers, await _body(request, self.settings))
        except ClientDisconnect:
            return
        except Refused as refused:
            await refused.response(scope, receive, send)
            return
        except MALFORMED as error:
            await _error(400, str(error))(scope, receive, send)
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
            try:
                await self._serve(call, Downstream(send))
            except Refused as refused:
                await refused.response(scope, receive, send)
            tasks.cancel_scope.cancel()

    async def _serve(self, call: Call, client: Downstream) -> None:
        """Ask one replica after another until one answers."""
        try:
            prompt: Any = call.prompt
            if call.is_large:
                prompt = await self.router.hash(prompt, namespace=call.namespace)
            ticket = self.router.route(prompt, session=call.session, namespace=call.namespace)
        except MALFORMED as error:
            raise Refused(_error(400, str(error))) from error
        except pr.OverloadedError as error:
            raise Refused(_error(429, str(error), error.retry_after_s)) from error
        except pr.NoReplicaError as error:
            raise Refused(_error(503, str(error), 1.0)) from error
        for left in reversed(range(self.settings.retries + 1)):
            with ticket:
                try:
                    await self._ask(call, ticket, client)
                except Refused as refused:
                    if not left:
                        raise
                    try:
                        again = ticket.retry()
                    except (pr.NoReplicaError, pr.OverloadedError):
                        raise refused from None
                else:
                    return
            ticket = again

    async def _ask(self, call: Call, ticket: pr.Ticket, client: Downstream) -> None:
        """Ask the ticket's replica and relay its answer; raise :class:`Refused` while another may still be asked."""
        name = ticket.replica
        try:
            async with self.client.stream(
                "POST", name + call.path, content=call.content, headers=call.headers
            ) as upstream:
                headers = end_to_end(upstream.headers.raw, b"x-replica", self._replica_header)
                if self._replica_header:
                    headers.append((self._replica_header, name.encode()))
                if upstream.status_code in ELSEWHERE:
                    self.health.record(name, _verdict(upstream))
                    response = Response(await _whole(upstream), upstream.status_code)
                    response.raw_headers += headers
                    raise Refused(response)
                answer = Answer()
                async for part in _parts(upstream, call, answer):
                    if upstream.is_success:
                        ticket.first_token()
                    await client.write(upstream.status_code, headers, part)
                self.health.record(name, _verdict(upstream))
                if upstream.is_success:
                    _finish(ticket, call, answer)
                else:
                    ticket.abort()
                await client.end()
        except httpx.RequestError as error:
            self.health.record(name, error)
            log.warning("%s: %r", name, error)
            if not client.started:
                status = 504 if isinstance(error, httpx.TimeoutException) else 502
                raise Refused(_error(status, f"{name} gave no answer: {error!r}")) from error
            ticket.abort()  # and return without an end, upon which the server breaks the client's connection


def _finish(ticket: pr.Ticket, call: Call, answer: Answer) -> None:
    """Finish, with what the answer was; without it where it cannot be read. The client has its answer either way."""
    told = {"reported_hit_tokens": answer.cached_tokens, "reported_prompt_tokens": answer.prompt_tokens}
    try:  # a large prompt was given as hashes, behind which no text can be put
        ticket.finish(output=None if call.is_large else answer.output(call), **told)
    except MALFORMED:  # nested so deep that the prompt could be read, but not with an answer behind it
        ticket.finish(**told)


class Downstream:
    """The client's end of a relay: remembers whether anything was sent."""

    def __init__(self, send: Send) -> None:
        """Send nothing yet."""
        self._send, self.started = send, False

    async def write(self, status: int, headers: RawHeaders, part: bytes) -> None:
        """Send a part of the body; before the first one, status and headers."""
        if not self.started:
            self.started = True
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self) -> None:
        """Say that the body is complete."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _body(request: Request, settings: Settings) -> bytes:
    """Return a request's body; raise :class:`Refused` for one that is too large or too slow."""
    if sum(len(name) + len(value) for name, value in request.headers.raw) > settings.max_header_bytes:
        raise Refused(_error(431, f"the headers must have at most {settings.max_header_bytes} bytes"))
    too_large = Refused(_error(413, f"the body must have at most {settings.max_body_bytes} bytes"))
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > settings.max_body_bytes:
        raise too_large
    body = bytearray()
    try:
        with anyio.fail_after(settings.body_timeout_s):
            async for part in request.stream():
                body += part
                if len(body) > settings.max_body_bytes:
                    raise too_large
    except TimeoutError as error:
        raise Refused(_error(408, f"the body must arrive within {settings.body_timeout_s:g} s")) from error
    return bytes(body)


async def _parts(upstream: httpx.Response, call: Call, answer: Answer) -> AsyncIterator[bytes]:
    """Yield the body, byte for byte but for a usage chunk that the client did not ask for: events, or all at once."""
    if not upstream.headers.get("content-type", "").startswith("text/event-stream"):
        body = await _whole(upstream)
        answer.read(body)
        yield body
        return
    rest = b""
    async for data in upstream.aiter_raw():
        *events, rest = EVENT_END.split(rest + data)
        if part := b"".join(event for event in events if not (answer.read_event(event) and call.hide_usage)):
            yield part
    yield rest


async def _whole(upstream: httpx.Response) -> bytes:
    return b"".join([data async for data in upstream.aiter_raw()])


def _verdict(upstream: httpx.Response) -> Exception | None:
    """Return what an answer says about its engine: any 5xx is a failure, 4xx and 429 are signs of life."""
    return Unhealthy(f"status {upstream.status_code}") if upstream.is_server_error else None


def _error(status: int, message: str, retry_after_s: float | None = None) -> Response:
    """Return an error in OpenAI's form."""
    headers = None if retry_after_s is None else {"retry-after": str(math.ceil(retry_after_s))}
    return JSONResponse({"error": {"message": message, "type": "proxy_error", "code": status}}, status, headers)


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel a request when its client leaves. The body has been read, so the next message says just that."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _models(router: pr.Router, client: httpx.AsyncClient) -> Response:
    """Return the models that the active engines list, each once; 503 where none answers."""
    found: dict[str, Any] = {}
    answered = False
    for name, replica in router.stats()["replicas"].items():
        if replica["state"] != "active":
            continue
        try:
            listed = (await client.get(f"{name}/v1/models", timeout=5.0)).raise_for_status().json()
            found |= {model["id"]: model for model in listed["data"] if model["id"] not in found}
            answered = True
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            log.warning("%s lists no models: %r", name, error)
    if not answered:
        return _error(503, "no engine lists its models", 1.0)
    return JSONResponse({"object": "list", "data": list(found.values())})


def _new_client(settings: Settings) -> httpx.AsyncClient:
    """Return a client with a pool for each replica (a pool searches all of its connections for each request)."""
    # A full pool would make requests wait where the router does not see them; and engines (uvicorn) close a connection
    # after 5 s of silence, so let it go before they do.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
    tls = httpx.create_ssl_context()
    client = httpx.AsyncClient(
        mounts={name: httpx.AsyncHTTPTransport(verify=tls, limits=limits) for name in settings.replicas},
        verify=tls,
        timeout=httpx.Timeout(settings.read_timeout_s, connect=settings.connect_timeout_s, pool=None),
        trust_env=False,
    )
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # one client's cookies are not another's
    return client


def create_app(
    settings: Settings,
    *,
    feeds: Mapping[str, KvFeed] | None = None,
    render: Callable[[Any], str] | None = None,
    tokenizer: Any = None,
) -> Starlette:
    """Return the proxy as an ASGI app. ``app.state.router`` is its Router.

    With ``feeds`` the Router knows what the engines hold by their KV events; these name token ids, so it has to make the
    engines' own: ``render`` is their chat template, ``tokenizer`` their tokenizer.
    """
    router = pr.Router(
        settings.replicas,
        policy=settings.policy,
        block_size=settings.block_size,
        capacity_tokens=settings.capacity_tokens,
        prompt_kind="messages",
        render=render,
        tokenizer=tokenizer,
        caps=pr.Caps(in_flight=settings.max_in_flight),
    )
    client = _new_client(settings)
    health = Health(router, client, settings.breaker_failures, settings.breaker_reset_s)
    relay = Relay(router, client, health, settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        follows = router.follow(feeds, start=False) if feeds else nullcontext()
        async with client, follows, anyio.create_task_group() as tasks:
            for name in settings.replicas:
                tasks.start_soon(health.watch, name, settings.health_interval_s, settings.health_timeout_s)
            yield
            tasks.cancel_scope.cancel()

    async def healthz(_: Request) -> Response:
        states = {name: replica["state"] for name, replica in router.stats()["replicas"].items()}
        return JSONResponse({"replicas": states}, 200 if "active" in states.values() else 503)

    async def models(_: Request) -> Response:
        return await _models(router, client)

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(router.metrics_text())

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", relay, methods=["POST"]),
            Route("/v1/completions", relay, methods=["POST"]),
            Route("/v1/models", models),
            Route("/healthz", healthz),
            Route("/metrics", metrics),
        ],
        lifespan=lifespan,
    )
    app.state.router = router
    return app
