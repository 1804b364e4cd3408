"""The relay: one request, from its head to the last byte of its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from prefixroute.bodies import RETRIED_STATUSES, AnswerReader, Api
from prefixroute.errors import NoReplicaError, OverloadedError
from prefixroute.router import Router, Ticket
from prefixroute.serve.calls import Call
from prefixroute.serve.downstream import ClientTooSlow, Downstream, Room, read_body, while_connected
from prefixroute.serve.fleet import ServedFleet
from prefixroute.serve.headers import REQUEST_ID, end_to_end, retry_after_s
from prefixroute.serve.metrics import Metrics
from prefixroute.serve.reader import MALFORMED, Reader, ReaderDied
from prefixroute.serve.replies import TOO_BUSY_S, Refused, RefusedByEngine, ending
from prefixroute.serve.settings import Settings
from prefixroute.serve.trail import Trail
from prefixroute.serve.upstream import FAILURES, Opened, ask
from prefixroute.validation import shown

_LOG = logging.getLogger("prefixroute.serve")
NOT_FOUND = 404
SERVER_ERROR = 500


class Relay:
    """ASGI app of one API: route, ask, relay, give back.

    Every ticket of a request is closed when it ends, whatever ends it: the end, a dead engine, a client that leaves at
    any moment, a fault of ours. Nothing is sent to the client before the engine's first byte, so that until then
    another engine can be asked; from then on a dead engine breaks the client's stream off.
    """

    def __init__(self, api: Api, shared: Shared) -> None:
        """Serve one API with what all of them share."""
        self._api, self._shared = api, shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. The path is the scope's: that of a URL depends on the Host header."""
        shared, request = self._shared, Request(scope, receive)
        client = Downstream(
            send,
            whole=scope["http_version"] == "1.0",
            timeout_s=shared.settings.limits.write_timeout_s,
            openai=self._api.is_openai,
        )
        trail = Trail.of(self._api.value, request.headers.get("x-request-id"))
        shared.metrics.open.inc()
        try:
            await self._guarded(request, receive, client, trail)
        except ClientDisconnect:
            trail.outcome = "client left"
        except ClientTooSlow:
            trail.outcome = "client too slow"
        except asyncio.CancelledError:  # the time to drain is over
            trail.outcome = "cut off at the server's end"
            if not client.started:
                with suppress(ClientTooSlow):
                    await client.refuse(ending())
            raise
        except Refused as refused:
            trail.outcome = refused.why
            with suppress(ClientTooSlow):
                await client.refuse(refused)
        except Exception:  # noqa: BLE001  # whatever it is, the client hears of it and the log has it
            trail.outcome = "fault"
            _LOG.exception("a fault of the proxy, in request %s", trail.request_id)
            if not client.started:
                await client.refuse(Refused(500, "fault", "a fault of the proxy"))
        finally:
            shared.metrics.open.dec()
            shared.metrics.ended(trail, client)
            trail.log(client)

    async def _guarded(self, request: Request, receive: Receive, client: Downstream, trail: Trail) -> None:
        """Serve a request; what it raises says how it ended otherwise."""
        shared = self._shared
        shared.admit()
        shared.running += 1
        try:
            async with asyncio.timeout(shared.settings.upstream.request_timeout_s):
                with shared.room.share() as take:
                    content = await read_body(request, shared.settings.limits, take)
                    await while_connected(receive, lambda: self._serve(request, content, client, trail))
        except TimeoutError as error:
            trail.outcome = "timed out"
            if not client.started:
                raise Refused(504, "timed out", "the request took too long") from error
        finally:
            shared.running -= 1

    async def _serve(self, request: Request, content: bytes, client: Downstream, trail: Trail) -> None:
        """Serve a request that has come in."""
        shared, keys = self._shared, self._shared.reader.session_keys
        try:
            reading = await shared.reader.read(self._api, content, shared.router.cache_names)
        except MALFORMED as error:
            raise Refused(400, "no request", str(error)) from error
        except ReaderDied as error:
            _LOG.error("%s, in request %s", error, trail.request_id)
            raise Refused(500, "reader died", str(error)) from error
        call = Call.of(self._api, request, content, reading, keys)
        call.headers.append((REQUEST_ID, trail.request_id.encode()))
        await Attempts(shared, call, trail).serve(client)


@dataclass(slots=True)
class Shared:
    """What all requests of a worker share.

    Attributes:
        router: decides.
        new_client: returns what asks engines, once the loop runs.
        fleet: who may be asked.
        metrics: counts.
        settings: of the server.
        reader: reads bodies.
        running: requests now.
        room: for the bodies that are held.
        replica_header: names the engine to the client.
    """

    router: Router
    new_client: Callable[[], aiohttp.ClientSession]
    fleet: ServedFleet
    metrics: Metrics
    settings: Settings
    reader: Reader
    running: int = 0
    room: Room = field(init=False)
    replica_header: bytes = field(init=False)

    def __post_init__(self) -> None:
        """Derive what follows from the settings."""
        self.room = Room(self.settings.limits.max_held_bytes)
        self.replica_header = self.settings.upstream.replica_header.lower().encode()

    @property
    def client(self) -> aiohttp.ClientSession:
        """The client that asks engines."""
        return self.new_client()

    def admit(self) -> None:
        """Refuse a request that is one too many."""
        most = self.settings.limits.max_requests
        if most is not None and self.running >= most:
            said = f"the proxy serves at most {most} requests at once"
            raise Refused(429, "too many requests", said, retry_s=TOO_BUSY_S, close=True)


class Attempts:
    """The attempts at one request: the first engine, those after it, and the hedge beside them."""

    def __init__(self, shared: Shared, call: Call, trail: Trail) -> None:
        """Ask nobody yet."""
        self._shared, self._call, self._trail = shared, call, trail
        self._router, self._upstream = shared.router, shared.settings.upstream
        self._tickets: list[Ticket] = []
        self._seeks: str | None = None
        """A response that some engine may have: one that answers 404 has it not, and another one is asked."""

    async def serve(self, client: Downstream) -> None:
        """Ask one engine after another until one answers, and relay its answer."""
        try:
            ticket = self._route()
            self._trail.routed(ticket)
            if self._upstream.hedge_after_s is None:
                ticket, opened = await self._first_answer(ticket)
            else:
                ticket, opened = await self._race(ticket, self._upstream.hedge_after_s)
            try:
                await self._relay(ticket, opened, client)
            finally:
                opened.close()
        finally:
            for ticket in self._tickets:
                if ticket.open:
                    ticket.abort()
            if self._seeks is not None:
                self._router.forget(self._seeks)  # who was asked has it not, as far as is known

    def _route(self) -> Ticket:
        router, reading = self._router, self._call.reading
        session, affinity = self._call.session, "soft"
        if reading.previous is not None:  # its engine alone has the response
            session, affinity = reading.previous, "hard"
            if not router.is_bound(session):
                self._seeks, affinity = session, "soft"
        try:
            ticket = router.route(
                reading.prompt,
                prompt_kind=reading.prompt_kind,
                session=session,
                namespace=reading.namespace,
                affinity=affinity,
                candidates=self._shared.fleet.serving(reading.namespace.model),
                unknown_candidates="ignore",
            )
        except MALFORMED as error:
            raise Refused(400, "no request", str(error)) from error
        except OverloadedError as error:
            raise Refused(429, "overloaded", str(error), retry_s=error.retry_after_s) from error
        except NoReplicaError as error:
            raise Refused(503, "no replica", str(error), retry_s=TOO_BUSY_S) from error
        self._tickets.append(ticket)
        return ticket

    async def _first_answer(self, ticket: Ticket) -> tuple[Ticket, Opened]:
        """Return the first answer of the ticket's engine or of those after it."""
        left = self._upstream.retries
        while True:
            try:
                return ticket, await self._ask(ticket)
            except Refused as refused:
                if not left:
                    raise
                left -= 1
                try:
                    ticket = ticket.retry()
                except (NoReplicaError, OverloadedError):
                    raise refused from None
                self._tickets.append(ticket)
                self._trail.retried(ticket)
                self._shared.metrics.retries.labels(refused.why).inc()

    async def _race(self, ticket: Ticket, after_s: float) -> tuple[Ticket, Opened]:
        """Return the first answer of two engines, of which the second is asked if the first takes its time."""
        first = asyncio.create_task(self._first_answer(ticket))
        racing = {first}
        won: tuple[Ticket, Opened] | None = None
        try:
            done, _ = await asyncio.wait(racing, timeout=after_s)
            if not done:
                with suppress(NoReplicaError, OverloadedError):
                    hedge = self._tickets[-1].hedge()
                    self._tickets.append(hedge)
                    self._trail.hedged = True
                    racing.add(asyncio.create_task(self._first_answer(hedge)))
            won = await _first_of(racing)
            if self._trail.hedged:
                is_first = first.done() and first.exception() is None and first.result() is won
                self._shared.metrics.hedges.labels("first" if is_first else "second").inc()
            return won
        finally:
            for task in racing:
                task.cancel()
            for ended in await asyncio.gather(*racing, return_exceptions=True):
                if ended is not won and not isinstance(ended, BaseException):
                    ended[1].close()

    async def _ask(self, ticket: Ticket) -> Opened:
        """Ask a ticket's engine; raise :class:`Refused` while another may still be asked."""
        shared, name = self._shared, ticket.replica
        try:
            opened = await ask(shared.client, name, self._call, self._upstream, ticket.headers())
        except FAILURES as error:
            shared.fleet.failed(name, error)
            raise _no_answer(name, error) from error
        if opened.status in RETRIED_STATUSES or (opened.status == NOT_FOUND and self._seeks is not None):
            opened.close()
            self._heard(name, opened)
            headers = end_to_end(opened.raw_headers, b"x-replica", shared.replica_header)
            raise RefusedByEngine(opened.status, headers, opened.first)
        return opened

    def _heard(self, name: str, opened: Opened) -> None:
        """Note what a status says of its engine: any 5xx is a failure, 4xx and 429 are signs of life."""
        fleet = self._shared.fleet
        if opened.status < SERVER_ERROR:
            fleet.served(name)
            return
        fleet.failed(name, f"status {opened.status}")
        rest_s = retry_after_s(opened.response.headers.get("retry-after"))
        if opened.status == 503 and rest_s:  # noqa: PLR2004  # Service Unavailable
            fleet.rest(name, rest_s)

    async def _relay(self, ticket: Ticket, opened: Opened, client: Downstream) -> None:
        """Pass an answer on from its first byte; a broken one ends without an end, which breaks the client's off."""
        shared, name = self._shared, ticket.replica
        if opened.is_success:
            ticket.first_token()
            self._seeks = None
        self._trail.answered(ticket)
        headers = end_to_end(opened.raw_headers, b"x-replica", REQUEST_ID, shared.replica_header)
        if shared.replica_header:
            headers.append((shared.replica_header, name.encode()))
        headers.append((REQUEST_ID, self._trail.request_id.encode()))
        if opened.parts is None:
            self._end(ticket, opened)
            await client.reply(opened.status, headers, opened.first)
            return
        await client.start(opened.status, headers)
        part = opened.first
        while part:
            await client.write(part)
            try:
                part = await opened.parts.next()
            except FAILURES as error:
                shared.fleet.failed(name, error)
                self._trail.outcome = "engine broke off"
                _LOG.warning("%s: %s", name, shown(error))
                ticket.abort()
                if not client.started:  # nothing has gone out yet to a client of HTTP/1.0
                    raise Refused(502, "engine broke off", f"{name} broke off: {shown(error)}") from error
                return
            if opened.is_success:
                ticket.first_token()
        self._end(ticket, opened)
        await client.end()

    def _end(self, ticket: Ticket, opened: Opened) -> None:
        """Give back a request whose answer is complete."""
        self._heard(ticket.replica, opened)
        if opened.is_success:
            _finish(ticket, self._call, opened.answer)
        else:
            ticket.abort()


def _no_answer(name: str, error: BaseException) -> Refused:
    slow = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
    _LOG.warning("%s: %s", name, shown(error))
    status = 504 if isinstance(error, TimeoutError) else 502
    return Refused(status, "engine too slow" if slow else "no answer", f"{name} gave no answer: {shown(error)}")


def _finish(ticket: Ticket, call: Call, answer: AnswerReader) -> None:
    """Finish, with what the answer was as far as it can be read. The client has its answer either way."""
    if answer.response_id is not None:
        ticket.alias(answer.response_id)
    # What raises is not learned from: nested so deep that the prompt could be read, but not with an answer behind it;
    # or a usage of no known form.
    with suppress(*MALFORMED):
        ticket.finish(output=None if call.is_hashed else answer.output(), usage=answer.usage)


async def _first_of(racing: set[asyncio.Task[tuple[Ticket, Opened]]]) -> tuple[Ticket, Opened]:
    """Return what the first task returns that does not fail; if all fail, raise what the last one raises."""
    left = set(racing)
    while True:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task.exception() is None:
                return task.result()
        if not left:
            return done.pop().result()
