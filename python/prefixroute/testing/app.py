"""A fake engine as an ASGI app: OpenAI's completions, metrics, health, and whatever should go wrong."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.sim.engine import EngineModel
from prefixroute.testing.answers import FORMS
from prefixroute.testing.core import EngineCore, EngineJob, EngineRequest, PlainCost
from prefixroute.testing.kv_events import EventEncoder
from prefixroute.testing.publisher import EventPublisher
from prefixroute.testing.serving import Serving
from prefixroute.testing.settings import Behaviour, EngineSettings

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_LOAD_PERIOD_S = 1.0


class FakeApp:
    """One fake engine: its core, its clock, its faults. :attr:`asgi` serves it; one event loop runs it.

    Args:
        settings: what it is.
        behaviour: how it behaves at first.
        die: ends it at once, as a crash does; by default the whole process.
    """

    def __init__(
        self,
        settings: EngineSettings = EngineSettings(),  # noqa: B008  # frozen
        behaviour: Behaviour = Behaviour(),  # noqa: B008  # frozen
        *,
        die: Callable[[], None] = lambda: os._exit(1),
    ) -> None:
        self.settings, self.behaviour = settings, behaviour
        self._die = die
        self._cost = PlainCost()
        self._events = self._load = None
        if settings.events is not None:
            self._events = EventPublisher(settings.events, replay=settings.replay, buffer_steps=settings.buffer_steps)
        if settings.load is not None:
            self._load = EventPublisher(settings.load, replay=None, topic="load")
        self._batches = 0
        self._apply_speed()
        publishes = self._events is not None
        self.core = EngineCore(
            EngineModel(settings.cost or self._cost, settings.chunk_tokens, settings.max_running),
            capacity_tokens=settings.capacity_tokens,
            block_size=settings.block_size,
            publish=self._publish if publishes else None,
            encoder=EventEncoder(settings.block_size, settings.format, settings.rank) if publishes else None,
        )
        self._changed = asyncio.Event()
        self._started: float | None = None
        self.asgi = self._routes()

    def close(self) -> None:
        """Stop publishing."""
        for publisher in (self._events, self._load):
            if publisher is not None:
                publisher.close()

    @property
    def endpoints(self) -> dict[str, str | None]:
        """Where KV events, replays and load are published, free ports resolved."""
        return {
            "endpoint": None if self._events is None else self._events.endpoint,
            "replay": None if self._events is None else self._events.replay,
            "load": None if self._load is None else self._load.endpoint,
        }

    # -- time --------------------------------------------------------------------------------------------------------

    def _time(self) -> float:
        """Return the engine's time: seconds since it was started, scaled."""
        now = asyncio.get_running_loop().time()
        if self._started is None:
            self._started = now
        return (now - self._started) * self.settings.speed

    async def _run(self) -> None:
        """Let the engine's time follow the clock's."""
        while True:
            self.core.advance(self._time())
            self._changed.clear()
            due = self.core.next_at
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - self._time()) / self.settings.speed):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _report(self) -> None:
        """Publish the load at least every second."""
        pack = extra_module("msgpack", "testing").packb
        while self._load is not None:
            core, capacity = self.core, self.settings.capacity_tokens
            pinned = round(core.kv_use * capacity)
            rank = self.settings.rank or 0
            self._load.publish(pack(["LoadStat", core.running, core.waiting, pinned, capacity, rank, 0, pinned]))
            await asyncio.sleep(_LOAD_PERIOD_S / self.settings.speed)

    def _publish(self, batch: bytes) -> None:
        self._batches += 1
        every = self.behaviour.drop_events
        if self._events is not None:
            self._events.publish(batch, "drop" if every > 0 and self._batches % every == 0 else None)

    def _apply_speed(self) -> None:
        self._cost.prefill_s_per_1k, self._cost.decode_s = self.behaviour.prefill_s_per_1k, self.behaviour.decode_s

    # -- completions -------------------------------------------------------------------------------------------------

    async def complete(self, request: Request) -> Response:
        """Serve the paths of :data:`~prefixroute.testing.answers.FORMS`.

        Args:
            request: of the client.

        Returns:
            The answer, whole or as a stream.
        """
        responses = extra_module("starlette.responses", "testing")
        if self.behaviour.status >= 0:
            return self._error(self.behaviour.status, "told to answer so")
        try:
            serving = Serving(self, await request.json(), request.url.path)
        except (ConfigError, ValueError, TypeError, AttributeError, OverflowError) as error:
            return self._error(400, str(error) or "not a request")
        # Both as streams: only so does Starlette cancel the work when the client leaves.
        parts, kind = serving.whole(), "application/json"
        if serving.stream:
            parts, kind = serving.events(), "text/event-stream"
        response: Response = responses.StreamingResponse(parts, media_type=kind)
        return response

    def submit(self, asked: EngineRequest) -> EngineJob:
        """Give a request to the engine, now.

        Args:
            asked: the request.

        Returns:
            The request as the engine has it.
        """
        self.core.advance(self._time())
        job = self.core.submit(asked)
        self._changed.set()
        return job

    def leave(self, job: EngineJob) -> None:
        """Note that a request's client has gone.

        Args:
            job: of the request.
        """
        self.core.advance(self._time())
        self.core.leave(job)
        self._changed.set()

    def check_death(self, tokens: int) -> None:
        """Die if the behaviour says so after so many tokens.

        Args:
            tokens: that were sent.
        """
        if tokens == self.behaviour.die_after:
            self._die()

    def _error(self, status: int, message: str) -> Response:
        responses = extra_module("starlette.responses", "testing")
        headers = {"retry-after": "1"} if status in {429, 503} else None
        body = {"error": {"message": message, "type": "fake_engine", "code": status}}
        response: Response = responses.JSONResponse(body, status, headers)
        return response

    # -- the rest ----------------------------------------------------------------------------------------------------

    async def control(self, request: Request) -> Response:
        """Change fields of the behaviour, by a JSON object.

        Args:
            request: of the client.

        Returns:
            The behaviour as it is now.
        """
        responses = extra_module("starlette.responses", "testing")
        try:
            self.behaviour = self.behaviour.changed(await request.json())
        except (ConfigError, ValueError) as error:
            return self._error(400, str(error))
        self._apply_speed()
        response: Response = responses.JSONResponse(asdict(self.behaviour))
        return response

    async def reset(self, request: Request) -> Response:
        """Empty the cache, unless requests are running.

        Args:
            request: of the client.

        Returns:
            Whether the cache was emptied.
        """
        del request
        if not self.core.reset():
            return self._error(409, "requests are running")
        response: Response = extra_module("starlette.responses", "testing").Response()
        return response

    async def page(self, request: Request) -> Response:
        """Serve the small pages: health, models, statistics, metrics, server information.

        Args:
            request: of the client.

        Returns:
            The page, or 404.
        """
        responses = extra_module("starlette.responses", "testing")
        path, core = request.url.path, self.core
        response: Response
        if path == "/health":
            response = responses.Response(status_code=200 if self.behaviour.healthy > 0 else 503)
        elif path == "/metrics":
            response = responses.PlainTextResponse(self._metrics())
        elif path == "/server_info":
            response = responses.JSONResponse(self._server_info())
        elif path == "/v1/models":
            names = (self.settings.model, *self.settings.adapters)
            data = [{"id": name, "object": "model"} for name in names]
            response = responses.JSONResponse({"object": "list", "data": data})
        else:
            held = {"requests": core.requests, "running": core.running, "cached_tokens": core.held_tokens}
            response = responses.JSONResponse(held)
        return response

    def _metrics(self) -> str:
        core, sglang = self.core, self.settings.format == "sglang"
        values = [core.running, core.waiting, core.kv_use, core.hit_tokens, core.prompt_tokens]
        names = _SGLANG_METRICS if sglang else _VLLM_METRICS
        return "".join(f"{name} {value}\n" for name, value in zip(names, values, strict=True))

    def _server_info(self) -> dict[str, Any]:
        """Return what SGLang tells about its feeds."""

        def port(address: str | None) -> int | None:
            return None if address is None else int(address.rpartition(":")[2])

        places = self.endpoints
        block = {
            "publisher": "zmq",
            "endpoint_host": "*",
            "endpoint_port_base": port(places["endpoint"]),
            "topic": "",
            "block_size": self.settings.block_size,
            "dp_size": 1,
            "replay_endpoint_port_base": port(places["replay"]),
            "load_endpoint_port_base": port(places["load"]),
            "load_topic": "load",
        }
        events = block if places["endpoint"] is not None else None
        return {"max_total_num_tokens": self.settings.capacity_tokens, "kv_events": events}

    def _routes(self) -> Starlette:
        routing = extra_module("starlette.routing", "testing")

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._report())]
            yield
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        pages = ("/health", "/metrics", "/server_info", "/v1/models", "/stats")
        routes = [
            *(routing.Route(path, self.complete, methods=["POST"]) for path in FORMS),
            routing.Route("/control", self.control, methods=["POST"]),
            routing.Route("/reset_prefix_cache", self.reset, methods=["POST"]),
            routing.Route("/flush_cache", self.reset, methods=["GET", "POST"]),
            *(routing.Route(path, self.page) for path in pages),
        ]
        app: Starlette = extra_module("starlette.applications", "testing").Starlette(routes=routes, lifespan=lifespan)
        return app


_VLLM_METRICS = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_queries_total",
)
_SGLANG_METRICS = (
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:token_usage",
    "sglang:cached_tokens_total",
    "sglang:prompt_tokens_total",
)
