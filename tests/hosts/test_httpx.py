"""The HTTPX transports under the SDKs, and over servers of their own."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import bad_requests
import pytest

httpx = pytest.importorskip("httpx", reason="needs httpx")

from http_engine import USAGE, answer, chat, events, question, settled  # noqa: E402

from prefixroute.errors import ConfigError  # noqa: E402
from prefixroute.hosts.httpx import AsyncRoutingTransport, RoutingTransport  # noqa: E402
from prefixroute.router import Router  # noqa: E402
from prefixroute.types import Replica  # noqa: E402

URLS = [f"http://engine-{number}:8000" for number in range(4)]
CHAT = "/v1/chat/completions"


def new_router(**options: Any) -> Router:
    return Router(URLS, policy="cache-aware", prompt_kind="messages", seed=1, **options)


class Stream(httpx.AsyncByteStream, httpx.SyncByteStream):  # type: ignore[misc, name-defined]
    """A streamed answer, that breaks off if it is told so."""

    def __init__(self, parts: list[bytes], *, breaks: bool = False) -> None:
        self._parts, self._breaks = parts, breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            await asyncio.sleep(0)
            yield part

    def __iter__(self) -> Iterator[bytes]:
        yield self._parts[0]
        if self._breaks:
            raise httpx.ReadError("gone")
        yield from self._parts[1:]


def engine(request: Any) -> Any:
    """Answer as the header says."""
    told, path = request.headers.get("x-test", ""), request.url.path
    if "dead" in told and request.url.host.endswith(("0", "1")):
        raise httpx.ConnectError("down")
    if "full" in told and request.url.host.endswith(("0", "1")):
        return httpx.Response(503)
    if "fail" in told:
        return httpx.Response(500, json={"error": "no"})
    headers = {"x-replica": request.url.host, "x-host": request.headers["host"]}
    if json.loads(request.content or b"{}").get("stream"):
        headers["content-type"] = "text/event-stream"
        return httpx.Response(200, headers=headers, stream=Stream(events(path), breaks="breaks" in told))
    return httpx.Response(200, headers=headers, json=answer(path) if path in USAGE else {"data": []})


def sync_client(router: Router, answers: Callable[[Any], Any] = engine) -> Any:
    return httpx.Client(transport=RoutingTransport(router, httpx.MockTransport(answers)), base_url="http://fleet")


def client(router: Router) -> Any:
    transport = AsyncRoutingTransport(router, httpx.MockTransport(engine))
    return httpx.AsyncClient(transport=transport, base_url="http://fleet/")


async def test_conversations_stay_and_usage_and_text_are_learned() -> None:
    router = new_router()
    async with client(router) as http:
        for session in range(10):
            seen = [(await http.post(CHAT, json=chat(session, turn))).headers for turn in range(4)]
            assert len({headers["x-replica"] for headers in seen}) == 1
            assert seen[0]["x-host"] == f"{seen[0]['x-replica']}:8000"
    assert settled(router)["finished"] == 40
    assert router.stats()["unreported_requests"] == 0


@pytest.mark.parametrize("path", USAGE)
def test_every_api_is_read(path: str) -> None:
    router = new_router()
    with sync_client(router) as http:
        assert http.post(path, json=question(path)).json() == answer(path)
        assert http.get("/v1/models").json() == {"data": []}
    assert settled(router)["finished"] == 2
    replicas = router.stats()["replicas"].values()
    assert sum(replica["reported_hit_tokens"] or 0 for replica in replicas) == 512
    assert router.alias("resp-1", "next") == (path == "/v1/responses")


async def test_a_stream_is_learned_from_wherever_it_is_cut() -> None:
    router = new_router()
    async with client(router) as http, http.stream("POST", CHAT, json=chat(1, stream=True)) as response:
        assert b"".join([part async for part in response.aiter_raw()]) == b"".join(events(CHAT))
    assert settled(router)["finished"] == 1
    assert router.stats()["unreported_requests"] == 0


@pytest.mark.parametrize("told", ["dead", "full"])
def test_another_replica_is_tried_before_the_client_sees_anything(told: str) -> None:
    router = new_router()
    with sync_client(router) as http:
        for session in range(20):
            response = http.post(CHAT, json=chat(session), headers={"x-test": told})
            assert response.status_code == 200
            assert response.headers["x-replica"].endswith(("2", "3"))
    assert settled(router)["finished"] == 20


def test_what_no_replica_answers_the_client_sees() -> None:
    router = Router(URLS[:2], prompt_kind="messages")
    with sync_client(router) as http:
        assert http.post(CHAT, json=chat(1), headers={"x-test": "full"}).status_code == 503
        assert http.post(CHAT, json=chat(1), headers={"x-test": "fail"}).status_code == 500
        with pytest.raises(httpx.ConnectError):
            http.post(CHAT, json=chat(1), headers={"x-test": "dead"})
    assert settled(router).get("finished", 0) == 0


def test_the_address_may_be_another_than_the_name_and_have_a_path() -> None:
    seen: list[Any] = []

    def kept(request: Any) -> Any:
        seen.append(request)
        return httpx.Response(200, json={})

    router = Router({"pod-1": Replica(address="https://gateway/pods/1/", rank=3)}, prompt_kind="messages")
    with sync_client(router, kept) as http:
        http.post(f"{CHAT}?a=b", json=chat(1))
    assert str(seen[0].url) == "https://gateway/pods/1/v1/chat/completions?a=b"
    assert (seen[0].headers["host"], seen[0].headers["x-data-parallel-rank"]) == ("gateway", "3")


async def test_nothing_is_left_of_a_thousand_requests_that_end_badly() -> None:
    router, rng = new_router(), random.Random(5)  # noqa: S311
    async with client(router) as http:

        async def told(number: int, what: str) -> None:
            await http.post(CHAT, json=chat(number % 50), headers={"x-test": what})

        async def breaks(number: int) -> None:
            with pytest.raises(httpx.ReadError):
                await http.post(CHAT, json=chat(number % 50, stream=True), headers={"x-test": "breaks"})

        async def dropped(number: int) -> None:
            async with http.stream("POST", CHAT, json=chat(number % 50, stream=True)) as response:
                if number % 2:
                    async for _ in response.aiter_raw():
                        break

        async def cancelled(number: int) -> None:
            await bad_requests.cancel(told(number, ""), after=rng.randrange(9))

        kinds: list[Callable[[int], Awaitable[None]]] = [
            lambda number: told(number, ""),
            lambda number: told(number, "fail"),
            lambda number: told(number, "dead"),
            lambda number: told(number, "full"),
            breaks,
            dropped,
            cancelled,
        ]
        await bad_requests.make(kinds)
    settled(router)


def test_the_sdk_of_openai_routes_by_one_argument() -> None:
    openai = pytest.importorskip("openai", reason="needs openai")
    router = new_router()
    with openai.OpenAI(base_url="http://fleet/v1", api_key="k", http_client=sync_client(router)) as sdk:
        words = sdk.chat.completions.create(**chat(1), stream=True)
        assert "".join(chunk.choices[0].delta.content for chunk in words if chunk.choices) == "yes"
    assert settled(router)["finished"] == 1


def test_a_router_of_another_kind_is_refused() -> None:
    for transport in (AsyncRoutingTransport, RoutingTransport):
        with pytest.raises(ConfigError, match=r"'messages'.*'tokens'"):
            transport(Router())
