"""SkyPilot's load balancer really proxying, with the policy in it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import bad_requests
import http_engine
import pytest

pytest.importorskip("prefixroute.hosts.skypilot", reason="needs skypilot, see `make hosts`", exc_type=ImportError)
balancing = pytest.importorskip(
    "sky.serve.load_balancer", reason="needs skypilot, see `make hosts`", exc_type=ImportError
)

import httpx  # noqa: E402
from starlette.requests import Request  # noqa: E402

from prefixroute.hosts.skypilot import PrefixRoutePolicy  # noqa: E402

URLS = [f"http://replica-{number}" for number in range(4)]


class Patched(balancing.SkyServeLoadBalancer):  # type: ignore[misc]
    """With the line that reads the body first."""

    async def _proxy_with_retries(self, request: Any) -> Any:
        request.state.body = await request.body()
        return await super()._proxy_with_retries(request)


class Broken(httpx.AsyncByteStream):
    """An answer that ends in the middle, if it is told so."""

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.sleep(0)
        if self.broken:
            raise httpx.ReadError("gone")
        yield b"b"


def engine(request: httpx.Request) -> httpx.Response:
    if "dead" in request.headers.get("x-test", "") and request.url.host.endswith("0"):
        raise httpx.ConnectError("down")
    status = 500 if "fail" in request.headers.get("x-test", "") else 200
    broken = "broken" in request.headers.get("x-test", "")
    return httpx.Response(status, headers={"x-replica": request.url.host}, stream=Broken(broken=broken))


@pytest.fixture(params=[balancing.SkyServeLoadBalancer, Patched])
def balancer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(balancing.common_utils.Backoff, "current_backoff", lambda _: 0.0)
    balancer = request.param("http://controller", 0, "prefixroute")
    policy = balancer._load_balancing_policy
    assert isinstance(policy, PrefixRoutePolicy)
    policy.set_ready_replicas(list(URLS))
    transport = httpx.MockTransport(engine)
    balancer._client_pool = {url: httpx.AsyncClient(base_url=url, transport=transport) for url in URLS}
    return balancer


async def call(
    balancer: Any, body: bytes, headers: dict[str, str], sent: list[Any] | None = None, stop: int = 99
) -> None:
    """Call the balancer as a server would; after ``stop`` messages the client is gone."""
    messages: list[Any] = [] if sent is None else sent
    scope = {
        "type": "http", "method": "POST", "path": "/v1/chat/completions", "raw_path": b"/v1/chat/completions", "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "server": ("x", 80), "scheme": "http",
        "http_version": "1.1", "client": ("c", 1), "root_path": "", "state": {},
    }  # fmt: skip
    gone = asyncio.Event()
    asked = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        for message in asked:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        messages.append(message)
        if len(messages) >= stop:
            gone.set()
            raise OSError("the client has gone")

    answer = await balancer._proxy_with_retries(Request(scope, receive, send))
    await answer(scope, receive, send)


def replica(sent: list[Any]) -> str:
    return dict(sent[0]["headers"])[b"x-replica"].decode()


def chat(session: int, turn: int = 0) -> bytes:
    return json.dumps(http_engine.chat(session, turn)).encode()


def settled(balancer: Any) -> dict[str, int]:
    counts = http_engine.settled(balancer._load_balancing_policy.router)
    assert counts["committed"] == counts["finished"]
    return counts


@pytest.mark.parametrize("named", [True, False])
def test_sessions_stay_by_their_header_and_prompts_where_the_body_is_known(balancer: Any, named: bool) -> None:
    async def homes(session: int) -> set[str]:
        where = set()
        for turn in range(4):
            sent: list[Any] = []
            headers = {"x-session-id": f"s{session}"} if named else {}
            await call(balancer, chat(session, turn), headers, sent)
            where.add(replica(sent))
        return where

    stayed = sum(len(asyncio.run(homes(session))) == 1 for session in range(12))
    assert stayed == 12 if named or isinstance(balancer, Patched) else stayed < 12
    assert settled(balancer)["finished"] == 48


def test_nothing_is_left_of_a_thousand_requests_that_end_badly(balancer: Any) -> None:
    rng = random.Random(5)  # noqa: S311

    async def answered(number: int) -> None:
        await call(balancer, chat(number % 50), {})

    async def failed(number: int) -> None:
        await call(balancer, chat(number % 50), {"x-test": "fail"})

    async def retried(number: int) -> None:
        sent: list[Any] = []
        await call(balancer, chat(number % 50), {"x-test": "dead"}, sent)
        assert not replica(sent).endswith("0")

    async def broken(number: int) -> None:
        with pytest.raises(httpx.ReadError):
            await call(balancer, chat(number % 50), {"x-test": "broken"})

    async def dropped(number: int) -> None:
        await asyncio.gather(call(balancer, chat(number % 50), {}, stop=1 + number % 2), return_exceptions=True)

    async def cancelled(number: int) -> None:
        await bad_requests.cancel(call(balancer, chat(number % 50), {}), after=rng.randrange(12))

    kinds: list[Callable[[int], Awaitable[None]]] = [answered, failed, retried, broken, dropped, cancelled]
    asyncio.run(bad_requests.make(kinds))
    settled(balancer)


def test_no_replica_is_no_answer(balancer: Any) -> None:
    policy = balancer._load_balancing_policy
    policy.set_ready_replicas([])
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"", "server": ("x", 80), "state": {}})  # fmt: skip
    assert policy.select_replica(request) is None
    policy.begin_request(URLS[0], request)()
