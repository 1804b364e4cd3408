"""The server as ASGI apps: one for clients, one for operators, over one Router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import Any

import aiohttp
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from prefixroute.bodies import Api, SessionKeys
from prefixroute.errors import UnknownReplicaError
from prefixroute.live import KvFeed
from prefixroute.peers.transports import RedisPeers
from prefixroute.router import Router
from prefixroute.serve.discovery import FleetWatch, sources_of
from prefixroute.serve.fleet import ServedFleet
from prefixroute.serve.headers import retry_after
from prefixroute.serve.metrics import TEXT_FORMAT, Metrics
from prefixroute.serve.reader import Hashing, Reader
from prefixroute.serve.relay import Relay, Shared
from prefixroute.serve.replies import TOO_BUSY_S, error_body
from prefixroute.serve.settings import Settings
from prefixroute.serve.upstream import new_client
from prefixroute.types import Caps

MODELS = "/v1/models"


class Service:
    """One worker: its Router, its engines, and the apps that serve them.

    Attributes:
        router: decides.
        fleet: who may be asked.
        metrics: counts.
        reader: reads bodies.
        app: for clients. It has ``/healthz``, and without an admin port ``/metrics``.
        admin: for operators.
        draining: it was told to end; ``/healthz`` says 503.

    Args:
        settings: of the server.
        feeds: where engines publish KV events, by URL: the Router then knows what they hold. These name token ids, so
            it has to make the engines' own.
        render: the engines' chat template, for feeds. It and the tokenizer are pickled, see :class:`Reader`.
        tokenizer: the engines' tokenizer, for feeds.
        siblings: a name that the workers of one server have in common, so that their Routers route as one.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        feeds: Mapping[str, KvFeed] | None = None,
        render: Callable[[Any], str] | None = None,
        tokenizer: Any = None,
        siblings: str | None = None,
    ) -> None:
        discovery, routing = settings.discovery, settings.routing
        sources = sources_of(discovery)
        self.settings, self._feeds = settings, feeds or {}
        self.router = Router(
            discovery.replicas,
            policy=routing.policy,
            block_size=routing.block_size,
            capacity_tokens=routing.capacity_tokens,
            caps=Caps(in_flight=routing.max_in_flight),
            prompt_kind="messages",
            render=render,
            tokenizer=tokenizer,
            hash_key=routing.hash_key,
            cost=settings.prices.cost,
            peers=siblings if routing.peers is None else RedisPeers(routing.peers),
            peer_secret=routing.peer_secret,
            volatile_sample=routing.volatile_sample,
        )
        self.metrics, self.draining = Metrics(), False
        self.fleet = ServedFleet(self.router, settings, self.metrics)
        self._discovery = FleetWatch(sources, self.fleet, self.metrics, discovery)
        self._moves = len(sources) > 1 or not discovery.replicas
        self._client: aiohttp.ClientSession | None = None
        keys = SessionKeys.of(settings.sessions.headers, settings.sessions.fields)
        self.reader = Reader(Hashing(routing.block_size, self.router.hash_key, keys, render, tokenizer))
        self.app, self.admin = self._apps()

    def _apps(self) -> tuple[Starlette, Starlette]:
        """Return the apps for clients and for operators."""
        listen = self.settings.listen
        shared = Shared(self.router, self._the_client, self.fleet, self.metrics, self.settings, self.reader)
        pages = [Route("/healthz", self._healthz)]
        looks = [*pages, Route("/metrics", self._metrics)]
        relays = {api.value: Relay(api, shared) for api in Api}
        own = looks if listen.admin_port is None and listen.workers == 1 else pages
        changes = [
            Route("/replicas", self._replicas),
            Route("/replicas/drain", self._hold, methods=["POST"]),
            Route("/replicas/resume", self._hold, methods=["POST"]),
        ]
        handlers = {HTTPException: _no_such_page}
        clients = [
            *(Route(path, relay, methods=["POST"]) for path, relay in relays.items()),
            Route(MODELS, self._models),
        ]
        apps = (
            _Clients(relays, routes=[*clients, *own], lifespan=self._lifespan, exception_handlers=handlers),
            Starlette(routes=[*looks, *changes], exception_handlers=handlers),
        )
        for app in apps:
            app.router.redirect_slashes = False
        return apps

    def _the_client(self) -> aiohttp.ClientSession:
        if self._client is None:
            raise RuntimeError("the app is not started: its lifespan has to run")
        return self._client

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self._client = await stack.enter_async_context(new_client(self.settings))
            if self._moves:
                await self._discovery.look()
            stack.callback(self.router.close)
            stack.callback(self.reader.close)
            self.fleet.start(self._client)
            stack.push_async_callback(self.fleet.stop)
            follows = self.router.follow(self._feeds, start=False) if self._feeds else nullcontext()
            await stack.enter_async_context(follows)
            if self._moves:
                stack.push_async_callback(_ended, asyncio.create_task(self._discovery.run()))
            yield

    def drain(self) -> None:
        """Say from now on that this worker will end."""
        self.draining = True
        self.metrics.draining.set(1)

    # -- pages -------------------------------------------------------------------------------------------------------

    async def _healthz(self, _: Request) -> Response:
        states = {name: replica["state"] for name, replica in self.router.stats()["replicas"].items()}
        status = "draining" if self.draining else "ok" if "active" in states.values() else "no replica"
        return JSONResponse({"status": status, "replicas": states}, 200 if status == "ok" else 503)

    async def _metrics(self, _: Request) -> Response:
        text = self.router.metrics_text() + self.metrics.text()
        return PlainTextResponse(text, media_type=TEXT_FORMAT)

    async def _models(self, _: Request) -> Response:
        models = await self.fleet.list_models()
        if models is None:
            body, (name, value) = error_body(503, "no engine lists its models"), retry_after(TOO_BUSY_S)
            return Response(body, 503, {name.decode(): value.decode()}, media_type="application/json")
        return JSONResponse({"object": "list", "data": models})

    async def _replicas(self, _: Request) -> Response:
        stats = self.router.stats()["replicas"]
        shown = {
            name: {
                "state": stats[name]["state"],
                "breaker": engine.breaker.state.value,
                "failures_in_a_row": engine.breaker.failed,
                "held": engine.held,
                "listed": engine.left_at is None,
                "in_flight": stats[name]["in_flight"],
                "models": None if engine.models is None else sorted(engine.models),
            }
            for name, engine in self.fleet.engines.items()
            if name in stats
        }
        worker = {"replicas": shown}
        return JSONResponse(worker if self.settings.listen.workers > 1 else {"workers": {"0": worker}})

    async def _hold(self, request: Request) -> Response:
        name = request.query_params.get("replica", "")
        try:
            self.fleet.hold(name, held=request.url.path.endswith("/drain"))
        except UnknownReplicaError as error:
            return Response(error_body(404, str(error)), 404, media_type="application/json")
        return await self._replicas(request)


class _Clients(Starlette):
    """The app for clients, which goes straight to a relay.

    Layers that do nothing for it cost a fiftieth of a request.
    """

    def __init__(self, relays: Mapping[str, Relay], **options: Any) -> None:
        super().__init__(**options)
        self._relays = relays

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        relay = self._relays.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        await (super().__call__ if relay is None else relay)(scope, receive, send)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _no_such_page(request: Request, error: Exception) -> Response:
    """Answer 404 and 405 in the form of the API that was asked."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    paths = ", ".join([*(api.value for api in Api), MODELS])
    said = {404: f"no such path; there are {paths}", 405: f"this path takes no {request.method}"}
    body = error_body(status, said.get(status, "error"), openai=request.scope["path"] != Api.MESSAGES.value)
    return Response(body, status, headers, media_type="application/json")


def create_app(settings: Settings, **options: Any) -> Starlette:
    """Return the app for clients, e.g. to mount it in a server of your own.

    ``app.state.service`` is its :class:`Service`.

    Args:
        settings: of the server.
        options: keywords of :class:`Service`.
    """
    service = Service(settings, **options)
    service.app.state.service = service
    return service.app
