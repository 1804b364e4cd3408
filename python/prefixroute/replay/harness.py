"""Send a workload to real endpoints through the Router, under one policy after another, and time every request.

The loop is open: a request is sent when it is due, whether or not earlier ones have been answered, and its times count
from when it was due. So an endpoint that stalls cannot hide its stall by slowing the sender down (coordinated
omission).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from prefixroute.errors import ConfigError, NoReplicaError, OverloadedError
from prefixroute.replay.bodies import Bodies, Prepared
from prefixroute.replay.client import Client, Exchange
from prefixroute.replay.prompts import PromptMaker
from prefixroute.replay.rows import Difference, Figures, ReplayRow, RequestSlo, differences
from prefixroute.router import Router, Ticket
from prefixroute.sim.scenario import ARTICLE_CAPACITY_TOKENS
from prefixroute.validation import check_float, check_int, shown
from prefixroute.workload import Workload

Progress = Callable[[float, str], None]
MakeRouter = Callable[[str], Router]
LEAD_S = 0.05
"""Seconds between the start of a part and its first request."""
TELL_S = 0.1
"""Least seconds between two reports of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """What is replayed where, and how.

    Attributes:
        endpoints: base URLs of OpenAI-compatible engines, without ``/v1``. Also the replicas' names.
        policies: names of policies or presets; the first is what the others are compared with.
        speed: how many times as fast as recorded requests are sent.
        parts: the trace is cut into so many; each is sent under every policy before the next, in turning order, so that
            what changes over hours changes for all policies alike.
        warmup: requests at the start of each part that are sent and in no figure.
        block_size: tokens in a block of the engines.
        capacity_tokens: tokens that an engine's KV cache holds, as routers and predictions take it.
        dictate: tell the engine what to answer, so that the next turn finds it cached: fake engines only. A real engine
            answers what it will, and the blocks of a trace's answers are never hit.
        reset: empty the engines' caches before each part and policy.
        model: the model's name; ``None`` = the first that the first endpoint lists.
        timeout_s: for a whole answer.
        slo: what counts as good.
        seed: of the routers' draws and of the intervals.
        api_key: sent as a bearer token.
    """

    endpoints: tuple[str, ...]
    policies: tuple[str, ...] = ("cache-aware",)
    speed: float = 1.0
    parts: int = 1
    warmup: int = 0
    block_size: int = 16
    capacity_tokens: int = ARTICLE_CAPACITY_TOKENS
    dictate: bool = False
    reset: bool = True
    model: str | None = None
    timeout_s: float = 600.0
    slo: RequestSlo = RequestSlo()  # noqa: RUF009  # frozen
    seed: int = 0
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse settings that cannot be replayed."""
        for name in ("endpoints", "policies"):
            values = getattr(self, name)
            if not values or isinstance(values, str) or len(set(values)) != len(values):
                raise ConfigError(f"{name} must be names or URLs, one or more and each once, got {shown(values)}")
        object.__setattr__(self, "endpoints", tuple(url.rstrip("/") for url in self.endpoints))
        check_float("speed", self.speed, 0, above=True)
        check_float("timeout_s", self.timeout_s, 0, above=True)
        for name, least in (("parts", 1), ("warmup", 0), ("block_size", 1), ("capacity_tokens", 1)):
            check_int(name, getattr(self, name), least)

    def router(self, policy: str) -> Router:
        """Return a fresh router for a policy.

        Args:
            policy: its name.
        """
        return Router(
            self.endpoints,
            policy=policy,
            block_size=self.block_size,
            capacity_tokens=self.capacity_tokens,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a replay is to send, known before it begins.

    Attributes:
        requests: of the trace; each is sent once under every policy.
        sends: requests that are sent, under all policies together.
        seconds: that sending takes, from the first request of each part to its last. The last answers come on top.
    """

    requests: int
    sends: int
    seconds: float

    @classmethod
    def of(cls, workload: Workload, settings: ReplaySettings) -> Schedule:
        """Return the schedule of a replay.

        Args:
            workload: what is sent.
            settings: how.

        Raises:
            ConfigError: there are fewer requests than parts, or a part has no request beyond the warmup.
        """
        arrivals = [request.arrival_s for request in workload.requests()]
        policies = len(settings.policies)
        spans = (arrivals[part[-1]] - arrivals[part[0]] for part in _parts_to_send(arrivals, settings))
        return cls(len(arrivals), policies * len(arrivals), policies * sum(spans) / settings.speed)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay gave.

    Attributes:
        settings: what was asked for.
        rows: every request that was sent, in order of sending.
        figures: by policy, in the order asked for.
        differences: of each policy from the first.
        reset: whether every cache was emptied before each part.
        parts: how many parts were begun. The others were left out: there was no time for them, or it was interrupted.
        interrupted: it was stopped before its end.
    """

    settings: ReplaySettings
    rows: tuple[ReplayRow, ...] = field(repr=False)
    figures: tuple[Figures, ...]
    differences: tuple[Difference, ...]
    reset: bool
    parts: int
    interrupted: bool = False


async def replay(
    workload: Workload,
    settings: ReplaySettings,
    *,
    make_router: MakeRouter | None = None,
    progress: Progress | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
) -> Replayed:
    """Send a workload under every policy. Cancelling it gives what was measured until then.

    Args:
        workload: what to send; prompts are made up from its block hashes.
        settings: where and how.
        make_router: returns the router of a policy; by default :meth:`ReplaySettings.router`.
        progress: told the share that is done and what is under way.
        time_is_up: asked before each part but the first. Once it says yes, the parts that are left are left out under
            every policy, so that all are measured on the same requests.

    Returns:
        Every request that was sent, the figures of each policy, and their differences.

    Raises:
        ConfigError: an endpoint does not answer, or the workload is empty.
    """
    run = _Run(workload, settings, make_router or settings.router, progress)
    return await run.measure(time_is_up)


def parts_of(requests: Sequence[object], parts: int) -> list[range]:
    """Return the numbers of the requests of each part, as equal as can be."""
    if len(requests) < parts:
        raise ConfigError(f"{len(requests)} requests cannot be cut into {parts} parts")
    edges = np.linspace(0, len(requests), parts + 1).astype(int).tolist()
    return [range(first, last) for first, last in pairwise(edges)]


def _parts_to_send(requests: Sequence[object], settings: ReplaySettings) -> list[range]:
    """Return the parts, each of which must have a request beyond the warmup."""
    parts = parts_of(requests, settings.parts)
    shortest = min(map(len, parts))
    if settings.warmup >= shortest:
        raise ConfigError(
            f"warmup must be below the {shortest:,} requests of a part, at most {shortest - 1:,}, got {settings.warmup:,}"
        )
    return parts


class _Run:
    """One replay under way."""

    def __init__(
        self, workload: Workload, settings: ReplaySettings, make_router: MakeRouter, progress: Progress | None
    ) -> None:
        self._settings, self._make_router, self._progress = settings, make_router, progress
        self._requests = list(workload.requests())
        if not self._requests:
            raise ConfigError(f"workload {workload.name} has no requests")
        self._parts = _parts_to_send(self._requests, settings)
        self._maker = PromptMaker(workload.block_size)
        self._rows: list[ReplayRow] = []
        self._begun = 0
        self._sent, self._total = 0, len(self._requests) * len(settings.policies)
        self._told_at = 0.0
        self._reset = settings.reset

    async def measure(self, time_is_up: Callable[[], bool]) -> Replayed:
        settings = self._settings
        interrupted = False
        client = Client(time.perf_counter, settings.timeout_s, settings.api_key)
        try:
            names = [await client.model(url) for url in settings.endpoints]
            bodies = Bodies(
                self._requests,
                self._maker,
                dictate=settings.dictate,
                model=settings.model,
                default_model=names[0],
            )
            await self._measure_parts(client, bodies, time_is_up)
        except asyncio.CancelledError:
            interrupted = True
        finally:
            await client.close()
        figures = [
            Figures.of(
                policy, [row for row in self._rows if row.policy == policy], len(settings.endpoints), settings.slo
            )
            for policy in settings.policies
        ]
        found = differences(self._rows, settings.policies, settings.seed)
        return Replayed(
            settings, tuple(self._rows), tuple(figures), tuple(found), self._reset, self._begun, interrupted
        )

    async def _measure_parts(self, client: Client, bodies: Bodies, time_is_up: Callable[[], bool]) -> None:
        policies = self._settings.policies
        for part in range(len(self._parts)):
            if part and time_is_up():
                return
            self._begun += 1
            turn = part % len(policies)
            for policy in (*policies[turn:], *policies[:turn]):
                await self._measure_part(client, bodies, policy, part)

    async def _measure_part(self, client: Client, bodies: Bodies, policy: str, part: int) -> None:
        settings, numbers = self._settings, self._parts[part]
        if settings.reset:
            done = await asyncio.gather(*(client.reset(url) for url in settings.endpoints))
            self._reset = self._reset and all(done)
        bodies.prepare(numbers)
        sender = _Sender(client, self._make_router(policy), settings, policy, part)
        first = self._requests[numbers[0]].arrival_s
        start = time.perf_counter() + LEAD_S
        tasks: list[asyncio.Task[ReplayRow]] = []
        try:
            for number in numbers:
                made = bodies[number]
                due = (made.request.arrival_s - first) / settings.speed
                await asyncio.sleep(max(0.0, start + due - time.perf_counter()))
                warm = number - numbers[0] < settings.warmup
                tasks.append(asyncio.create_task(sender.send(made, _Slot(number, start, due, warm))))
                self._tell(policy, part)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            self._rows += [row for row in ended if isinstance(row, ReplayRow)]

    def _tell(self, policy: str, part: int) -> None:
        """Tell what is done, now and then: drawing a bar for each request would make the sender late."""
        self._sent += 1
        now = time.perf_counter()
        if self._progress is not None and (now - self._told_at >= TELL_S or self._sent == self._total):
            self._told_at = now
            self._progress(self._sent / self._total, f"{policy}, part {part + 1} of {len(self._parts)}")


@dataclass(frozen=True, slots=True)
class _Slot:
    """When a request is sent: its number, the start of its part on the clock, and seconds from there."""

    number: int
    start: float
    due: float
    warm: bool


@dataclass(frozen=True, slots=True)
class _Sender:
    """Sends the requests of one part under one policy."""

    client: Client
    router: Router
    settings: ReplaySettings
    policy: str
    part: int
    busy: Counter[str] = field(default_factory=Counter)

    async def send(self, made: Prepared, slot: _Slot) -> ReplayRow:
        """Route a request, send it, and return its row."""
        sent = time.perf_counter() - slot.start
        request = made.request
        try:
            ticket = self.router.route(made.prompt.tokens, session=request.session, max_tokens=request.output_tokens)
        except (NoReplicaError, OverloadedError) as error:
            return self._row(made, slot, sent, Exchange(error=type(error).__name__))
        others = self.busy[ticket.replica]
        self.busy[ticket.replica] += 1
        exchange = Exchange(error="cancelled")
        try:
            exchange = await self.client.complete(ticket.replica, made.body, ticket.headers(), ticket.first_token)
        finally:
            self.busy[ticket.replica] -= 1
            self._end(ticket, made, exchange)
        return self._row(made, slot, sent, exchange, ticket=ticket, others=others)

    def _end(self, ticket: Ticket, made: Prepared, exchange: Exchange) -> None:
        if exchange.error:
            ticket.abort()
            return
        output = made.prompt.output if self.settings.dictate and len(made.prompt.output) else None
        ticket.finish(output=output, reported_hit_tokens=exchange.cached_tokens)

    def _row(
        self,
        made: Prepared,
        slot: _Slot,
        sent: float,
        exchange: Exchange,
        *,
        ticket: Ticket | None = None,
        others: int = 0,
    ) -> ReplayRow:
        """Return the row of a request; without a ticket it went nowhere."""
        return ReplayRow(
            policy=self.policy,
            part=self.part,
            number=slot.number,
            session=made.request.session,
            replica="" if ticket is None else ticket.replica,
            due_s=slot.due,
            sent_s=sent,
            first_s=None if exchange.first is None else exchange.first - slot.start,
            done_s=None if exchange.last is None else exchange.last - slot.start,
            prompt_tokens=made.request.prompt_tokens,
            output_tokens=exchange.output_tokens,
            cached_tokens=exchange.cached_tokens,
            predicted_tokens=0 if ticket is None else ticket.hit_tokens,
            in_flight=others,
            warm=slot.warm,
            error=exchange.error,
        )
