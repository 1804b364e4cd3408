"""The ASGI middleware around a gateway's own application."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import bad_requests
import pytest
from http_engine import USAGE, answer, chat, events, question, settled

from prefixroute.errors import ConfigError
from prefixroute.hosts.asgi import PrefixRouteMiddleware
from prefixroute.router import Router
from prefixroute.types import Caps

CHAT = "/v1/chat/completions"
NAMES = ["a", "b", "c", "d"]


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer as the header says, by the replica that the ticket names."""
    told = dict(scope["headers"]).get(b"x-test", b"")
    message = await receive()
    body = json.loads(message["body"] or b"{}")
    await asyncio.sleep(0)
    if told == b"raises":
        raise RuntimeError("as it was told")
    ticket = scope["state"].get("ticket")
    if told == b"retried":
        ticket = scope["state"]["ticket"] = ticket.retry()
    name = ticket.replica.encode() if ticket else b"none"
    kind = b"text/event-stream" if body.get("stream") else b"application/json"
    status = 500 if told == b"fails" else 200
    headers = [(b"x-replica", name), (b"content-type", kind)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    parts = events(scope["path"]) if body.get("stream") else [json.dumps(answer(scope["path"])).encode()]
    for at, part in enumerate(parts):
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": part, "more_body": at < len(parts) - 1})
        if told == b"breaks":
            raise RuntimeError("in the middle")


@pytest.fixture
def router() -> Router:
    return Router(NAMES, policy="cache-aware", prompt_kind="messages", seed=1)


async def call(
    app: Any, body: Any, told: bytes = b"", *, path: str = CHAT, method: str = "POST", stop: int = 99, **headers: str
) -> list[Any]:
    """Call an application as a server would, the body in two pieces; after ``stop`` messages the client is gone."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    pieces = iter([(content[:9], True), (content[9:], False)])
    sent: list[Any] = []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(b"x-test", told), *((name.encode(), value.encode()) for name, value in headers.items())],
    }

    async def receive() -> Any:
        for piece, more in pieces:
            return {"type": "http.request", "body": piece, "more_body": more}
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if len(sent) >= stop:
            raise OSError("the client has gone")
        sent.append(message)

    await app(scope, receive, send)
    return sent


def replica(sent: list[Any]) -> str:
    return dict(sent[0]["headers"])[b"x-replica"].decode()


async def joined(scope: Any, receive: Any, send: Any) -> None:
    """Read the whole body first, as frameworks do."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    left = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def once() -> Any:
        return next(left)

    await application(scope, once, send)


async def test_conversations_stay_and_usage_and_text_are_learned(router: Router) -> None:
    app = PrefixRouteMiddleware(joined, router)
    for session in range(10):
        seen = {replica(await call(app, chat(session, turn, stream=bool(turn % 2)))) for turn in range(4)}
        assert len(seen) == 1
    assert settled(router)["finished"] == 40
    assert router.stats()["unreported_requests"] == 0


@pytest.mark.parametrize("path", USAGE)
def test_every_api_is_read(path: str, router: Router) -> None:
    asyncio.run(call(PrefixRouteMiddleware(joined, router), question(path), path=path))
    settled(router)
    assert sum(replica["reported_hit_tokens"] or 0 for replica in router.stats()["replicas"].values()) == 512


def test_what_has_no_prompt_passes(router: Router) -> None:
    app = PrefixRouteMiddleware(joined, router)
    for method, path in (("GET", CHAT), ("POST", "/v1/messages/batches")):
        with pytest.raises(KeyError):  # this application has no answer for it, or no state
            asyncio.run(call(app, chat(1), method=method, path=path))
    assert not router.stats()["counts"].get("committed")
    asyncio.run(call(app, {}))
    assert settled(router)["finished"] == 1


@pytest.mark.parametrize("content", [b"", b"no JSON", b"\xff\xfe", b"[1]", b'{"messages": 7}', b"[" * 100_000])
def test_a_body_that_is_no_request_is_routed_by_load_and_left_to_the_application(
    router: Router, content: bytes
) -> None:
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] + (await receive())["body"] == content
        assert scope["state"]["ticket"].replica in router
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    assert asyncio.run(call(PrefixRouteMiddleware(refusing, router), content))[0]["status"] == 400
    assert settled(router)["aborted"] == 1


def test_a_body_above_the_bound_is_refused_before_it_is_kept(router: Router) -> None:
    app = PrefixRouteMiddleware(joined, router, max_body_bytes=1_000)
    assert asyncio.run(call(app, chat(1, 9)))[0]["status"] == 413
    assert not router.stats()["counts"].get("committed")


def test_sessions_are_those_of_clients(router: Router) -> None:
    app = PrefixRouteMiddleware(joined, router)
    seen = {replica(asyncio.run(call(app, {}, **{"x-session-id": "s"}))) for _ in range(9)}
    assert len(seen) == 1


def test_without_a_replica_it_says_so(router: Router) -> None:
    app = PrefixRouteMiddleware(joined, Router(prompt_kind="messages"))
    assert asyncio.run(call(app, chat(1)))[0]["status"] == 503
    full = Router(["a"], prompt_kind="messages", caps=Caps(in_flight=1, retry_after_s=7.0))
    held = full.route([], prompt_kind="tokens")
    start = asyncio.run(call(PrefixRouteMiddleware(joined, full), chat(1)))[0]
    assert (start["status"], dict(start["headers"])[b"retry-after"]) == (429, b"7")
    held.finish()


def test_nothing_is_left_of_a_thousand_requests_that_end_badly(router: Router) -> None:
    app, rng = PrefixRouteMiddleware(joined, router), random.Random(5)  # noqa: S311

    async def told(number: int, what: bytes) -> None:
        await call(app, chat(number % 50, stream=True), what)

    async def fails(number: int, what: bytes) -> None:
        with pytest.raises(RuntimeError):
            await told(number, what)

    async def dropped(number: int) -> None:
        with pytest.raises(OSError, match="gone"):
            await call(app, chat(number % 50, stream=True), stop=number % 4)

    async def cancelled(number: int) -> None:
        await bad_requests.cancel(told(number, b""), after=rng.randrange(9))

    kinds: list[Callable[[int], Awaitable[None]]] = [
        lambda number: told(number, b""),
        lambda number: told(number, b"fails"),
        lambda number: told(number, b"retried"),
        lambda number: fails(number, b"raises"),
        lambda number: fails(number, b"breaks"),
        dropped,
        cancelled,
    ]
    asyncio.run(bad_requests.make(kinds))
    settled(router)


def test_a_router_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'messages'.*'tokens'"):
        PrefixRouteMiddleware(application, Router())
