"""Who may be asked: breakers, checks of health and lists of models, joined to the Router's fleet."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from errno import ECONNREFUSED
from time import monotonic
from typing import Any

import aiohttp

from prefixroute.errors import UnknownReplicaError
from prefixroute.router import Router
from prefixroute.serve.breaker import Breaker, State
from prefixroute.serve.metrics import Metrics
from prefixroute.serve.settings import Settings
from prefixroute.serve.upstream import FAILURES
from prefixroute.types import Replica

_LOG = logging.getLogger("prefixroute.serve")
MAX_MODELS_BYTES = 4 << 20
"""A list of models above this is not read."""


class Unhealthy(Exception):  # noqa: N818  # a finding, not a fault of ours
    """A replica that answers, but not as a healthy one does."""


@dataclass(slots=True)
class Engine:
    """What is known of one engine.

    Attributes:
        breaker: of its failures.
        models: what its ``/v1/models`` lists, by id; ``None`` = not known.
        left_at: when discovery dropped it, on the monotonic clock; ``None`` = it is listed.
        suspended_at: when it was seen that a peer has suspended it, on the monotonic clock.
        held: an operator has taken it out.
        state: what the Router was told: ``active``, ``suspended`` or ``draining``.
        watch: checks it.
        doubted: set when it has to be checked at once.
    """

    breaker: Breaker
    models: dict[str, Any] | None = None
    models_at: float = field(default=-float("inf"))
    left_at: float | None = None
    suspended_at: float | None = None
    held: bool = False
    state: str = "active"
    watch: asyncio.Task[None] | None = None
    doubted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def wanted(self) -> str:
        """The state that follows from all of it."""
        if self.left_at is not None or self.held:
            return "draining"
        return "suspended" if self.breaker.state is State.OPEN else "active"


class ServedFleet:
    """The engines of a Router: a breaker for each, fed by requests and by checks.

    Checks never touch the Router's load: only tickets do, so a passing check cannot make a busy engine look idle.

    Args:
        router: has the same replicas.
        settings: of the server.
        metrics: counts failures.
        clock: tells the time in seconds.
    """

    def __init__(
        self, router: Router, settings: Settings, metrics: Metrics, clock: Callable[[], float] = monotonic
    ) -> None:
        self._router, self._settings, self._metrics, self._clock = router, settings, metrics, clock
        self._client: aiohttp.ClientSession | None = None
        self._by_model: dict[str, tuple[str, ...]] = {}
        self.engines: dict[str, Engine] = {name: self._new() for name in router.replicas}

    def _new(self) -> Engine:
        health = self._settings.health
        return Engine(Breaker(health.failures, health.reset_s, health.max_reset_s))

    # -- what requests say -------------------------------------------------------------------------------------------

    def served(self, name: str) -> None:
        """Note that an engine has answered a request."""
        engine = self.engines.get(name)
        if engine is not None and (engine.breaker.failed or engine.breaker.state is State.HALF_OPEN):
            self._follow(name, engine, engine.breaker.served)

    def failed(self, name: str, why: BaseException | str) -> None:
        """Note that an engine has failed a request or a check."""
        engine = self.engines.get(name)
        if engine is None:
            return
        self._metrics.failures.labels(_kind(why)).inc()
        gone = isinstance(why, aiohttp.ClientConnectorError) and why.os_error.errno == ECONNREFUSED
        if gone:
            self._router.clear(name)  # nobody listens: the process is gone, and its cache with it
        self._follow(name, engine, lambda: engine.breaker.fails(self._clock(), gone=gone))

    def rest(self, name: str, seconds: float) -> None:
        """Leave an engine alone for as long as it asks, within bounds."""
        seconds = min(seconds, self._settings.health.max_retry_after_s)
        if seconds > 0 and name in self.engines and self.engines[name].wanted == "active":
            self._router.suspend(name, for_s=seconds)

    def serving(self, model: str) -> tuple[str, ...] | None:
        """Return the engines that list a model, and those whose list is not known.

        ``None`` = it makes no difference.
        """
        return self._by_model.get(model)

    def _follow(self, name: str, engine: Engine, happens: Callable[[], State]) -> None:
        """Let something happen to a breaker, and tell of it if that has changed its state."""
        before, after = engine.breaker.state, happens()
        if before is after:
            return
        _LOG.warning("breaker of %s: %s after %d failures", name, after.value, engine.breaker.failed)
        self._metrics.breakers.labels(after.value).inc()
        if after is State.OPEN:
            engine.doubted.set()  # a process that has died is not seen to be gone once another has its port
        self._tell(name, engine)

    def _tell(self, name: str, engine: Engine) -> None:
        """Tell the Router an engine's state, if it has changed."""
        if engine.wanted == engine.state:
            return
        engine.state = engine.wanted
        change = {"active": self._router.resume, "suspended": self._router.suspend, "draining": self._router.drain}
        change[engine.state](name)

    # -- who is in it ------------------------------------------------------------------------------------------------

    def update(self, found: Mapping[str, Replica]) -> None:
        """Make the fleet what discovery has found.

        One that is no longer listed gets nothing new, and is forgotten after a while, once its requests have ended. One
        that comes back before that goes on with what it holds, unless its incarnation is another.
        """
        now, keep_s = self._clock(), self._settings.discovery.leave_after_s
        for name, engine in self.engines.items():
            if name in found:
                engine.left_at = None
            elif engine.left_at is None:
                engine.left_at = now
                _LOG.warning("%s is no longer listed: it gets nothing new", name)
        left = [name for name, engine in self.engines.items() if engine.left_at is not None]
        over = [name for name in left if now - (self.engines[name].left_at or 0) >= keep_s]
        gone = self._idle(over) if over else set()
        self._router.sync({name: found.get(name) for name in (*self.engines, *found) if name not in gone})
        for name in gone:
            self._forget(name)
        for name in found.keys() - self.engines.keys():
            _LOG.info("%s joins", name)
            self.engines[name] = self._new()
            self._watch(name)
        for name, engine in self.engines.items():
            self._tell(name, engine)
        self._index_models()

    def hold(self, name: str, *, held: bool) -> None:
        """Take an engine out (it gets nothing new), or let it in again.

        Raise UnknownReplicaError if it is not known.
        """
        engine = self.engines.get(name)
        if engine is None:
            raise UnknownReplicaError(f"no replica {name!r}; replicas: {', '.join(self.engines) or 'none'}")
        engine.held = held
        self._tell(name, engine)

    def _idle(self, names: list[str]) -> set[str]:
        replicas = self._router.stats()["replicas"]
        return {name for name in names if not replicas[name]["in_flight"]}

    def _forget(self, name: str) -> None:
        _LOG.info("%s is forgotten", name)
        engine = self.engines.pop(name)
        if engine.watch is not None:
            engine.watch.cancel()

    # -- checks ------------------------------------------------------------------------------------------------------

    def start(self, client: aiohttp.ClientSession) -> None:
        """Begin to check, in the running loop."""
        self._client = client
        for name in self.engines:
            self._watch(name)

    async def stop(self) -> None:
        """Check no more."""
        self._client = None
        tasks = [engine.watch for engine in self.engines.values() if engine.watch is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _watch(self, name: str) -> None:
        if self._client is not None:
            self.engines[name].watch = asyncio.create_task(self._check_for_ever(name, self._client))

    async def _check_for_ever(self, name: str, client: aiohttp.ClientSession) -> None:
        health = self._settings.health
        engine = self.engines[name]
        while True:
            engine.doubted.clear()
            if health.path:
                await self._check(name, client)
            if self._clock() - engine.models_at >= health.models_interval_s:
                await self._read_models(name, engine, client)
            with suppress(TimeoutError):
                async with asyncio.timeout(health.interval_s):
                    await engine.doubted.wait()

    async def _check(self, name: str, client: aiohttp.ClientSession) -> None:
        health = self._settings.health
        error: BaseException | None = None
        try:
            async with asyncio.timeout(health.timeout_s), client.get(name + health.path) as response:
                await response.content.read(MAX_MODELS_BYTES)
                if not response.ok:
                    error = Unhealthy(f"{health.path} says {response.status}")
        except FAILURES as failed:
            error = failed
        engine = self.engines.get(name)
        if error is not None:
            self.failed(name, error)
        elif engine is not None:
            self._follow(name, engine, lambda: engine.breaker.passes(self._clock()))
            self._overrule(name, engine)

    def _overrule(self, name: str, engine: Engine) -> None:
        """Let an engine take requests again that a peer has suspended and not let in for a time: it may have died."""
        if engine.state != "active" or self._router.stats()["replicas"][name]["state"] != "suspended":
            engine.suspended_at = None
        elif engine.suspended_at is None:
            engine.suspended_at = self._clock()
        elif self._clock() - engine.suspended_at >= self._settings.health.max_reset_s:
            engine.suspended_at = None
            self._router.resume(name)

    async def _read_models(self, name: str, engine: Engine, client: aiohttp.ClientSession) -> None:
        """Read which models an engine lists; one that cannot tell keeps what was known."""
        engine.models_at = self._clock()
        try:
            async with asyncio.timeout(self._settings.health.timeout_s), client.get(f"{name}/v1/models") as response:
                response.raise_for_status()
                body = await response.content.read(MAX_MODELS_BYTES)
                listed = _listed(body)
        except (*FAILURES, LookupError, TypeError) as error:
            _LOG.info("%s lists no models: %r", name, error)
            return
        if listed != engine.models:
            engine.models = listed
            self._index_models()

    def _index_models(self) -> None:
        """Note which engines serve each model that not all of them do."""
        engines = self.engines.items()
        found = {model for _, engine in engines for model in engine.models or ()}
        by_model = {}
        for model in found:
            names = tuple(name for name, engine in engines if engine.models is None or model in engine.models)
            if len(names) < len(self.engines):
                by_model[model] = names
        self._by_model = by_model

    async def list_models(self) -> list[Any] | None:
        """Return :meth:`models`, after asking those engines that have not told yet."""
        client = self._client
        if client is not None:
            silent = [(name, one) for name, one in self.engines.items() if one.models is None and one.state == "active"]
            await asyncio.gather(*(self._read_models(name, engine, client) for name, engine in silent))
        return self.models()

    def models(self) -> list[Any] | None:
        """Return the models that the active engines list, each once; ``None`` where none has told."""
        found: dict[str, Any] = {}
        told = False
        for engine in self.engines.values():
            if engine.state == "active" and engine.models is not None:
                told = True
                for name, model in engine.models.items():
                    found.setdefault(name, model)
        return list(found.values()) if told else None


def _listed(body: bytes) -> dict[str, Any]:
    return {model["id"]: model for model in json.loads(body)["data"] if isinstance(model["id"], str)}


def _kind(why: BaseException | str) -> str:
    if isinstance(why, str):
        return "status"
    if isinstance(why, Unhealthy):
        return "unhealthy"
    if isinstance(why, TimeoutError):
        return "timeout"
    return "connect" if isinstance(why, aiohttp.ClientConnectorError) else "broken"
