"""The production-stack's router, beside modules of its names and shapes.

The stack itself is on no registry and is not run.
"""

from __future__ import annotations

import abc
import asyncio
import gc
import importlib
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import http_engine
import pytest
from http_engine import chat

ENDPOINTS = [SimpleNamespace(url=f"http://engine-{number}", model_names=["m"]) for number in range(4)]


class Singletons(abc.ABCMeta):
    instances: dict[type, Any] = {}  # noqa: RUF012

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls not in cls.instances:
            cls.instances[cls] = super().__call__(*args, **kwargs)
        return cls.instances[cls]


class RoutingInterface(metaclass=Singletons):
    def extract_session_id(self, request: Any, request_json: Any) -> str | None:
        return None

    @abc.abstractmethod
    def route_request(self, *args: Any) -> Any: ...


class PrefixAwareRouter(RoutingInterface):
    async def route_request(self, *args: Any) -> str:
        return "the stack's own"


@dataclass
class EngineStats:
    num_running_requests: int = 0
    num_queuing_requests: int = 0
    gpu_cache_usage_perc: float = 0.0


class Request:
    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    found = {"value": ENDPOINTS}
    logic, request = ModuleType("routing_logic"), ModuleType("request")
    logic.PrefixAwareRouter = request.PrefixAwareRouter = PrefixAwareRouter  # type: ignore[attr-defined]
    discovery = ModuleType("service_discovery")
    discovery.get_service_discovery = lambda: SimpleNamespace(get_endpoint_info=lambda: found["value"])  # type: ignore[attr-defined]
    routers, stack = ModuleType("routers"), ModuleType("vllm_router")
    routers.routing_logic = logic  # type: ignore[attr-defined]
    modules = {
        "vllm_router": stack,
        "vllm_router.routers": routers,
        "vllm_router.routers.routing_logic": logic,
        "vllm_router.service_discovery": discovery,
        "vllm_router.services.request_service.request": request,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules.pop("prefixroute.hosts.production_stack", None)
    module = importlib.import_module("prefixroute.hosts.production_stack")
    module.install(seed=1)
    assert request.PrefixAwareRouter is module.PrefixRouter  # type: ignore[attr-defined]
    router = logic.PrefixAwareRouter()  # type: ignore[attr-defined]
    assert isinstance(router, PrefixAwareRouter)  # the stack passes the body to those alone
    yield SimpleNamespace(router=router, found=found)
    Singletons.instances.clear()
    sys.modules.pop("prefixroute.hosts.production_stack", None)


def ask(
    adapter: Any, body: dict[str, Any], headers: dict[str, str] | None = None, stats: Any = None
) -> tuple[str, Request]:
    request = Request(headers or {})
    urls = [endpoint for endpoint in adapter.found["value"] if endpoint.url != "http://engine-9"]
    return asyncio.run(adapter.router.route_request(urls, stats or {}, {}, request, body)), request


def in_flight(adapter: Any) -> int:
    gc.collect()
    return http_engine.in_flight(adapter.router.router)


def test_conversations_stay_where_their_prefix_is(adapter: Any) -> None:
    for session in range(20):
        assert len({ask(adapter, chat(session, turn))[0] for turn in range(4)}) == 1
    assert len({ask(adapter, {"model": "m"}, {"x-session-id": "a"})[0] for _ in range(9)}) == 1


def test_a_request_counts_for_as_long_as_the_stack_holds_it(adapter: Any) -> None:
    held = [ask(adapter, chat(number))[1] for number in range(1_000)]
    assert in_flight(adapter) == 1_000
    held.clear()
    assert in_flight(adapter) == 0
    assert adapter.router.router.stats()["counts"]["finished"] == 1_000


def test_nothing_is_left_of_a_thousand_requests_that_end_badly(adapter: Any) -> None:  # noqa: C901  # kinds of ends
    async def asked(number: int) -> Request:
        request = Request({})
        await adapter.router.route_request(ENDPOINTS, {}, {}, request, chat(number % 50))
        return request

    async def failed(number: int) -> None:
        await asked(number)
        raise OSError("the engine has died")

    async def retried(number: int) -> None:
        request = await asked(number)
        for _ in range(2):  # elsewhere, for the same request
            await adapter.router.route_request(ENDPOINTS[1:], {}, {}, request, chat(number % 50))

    async def stream(number: int) -> AsyncIterator[int]:
        request = await asked(number)
        for part in range(9):
            await asyncio.sleep(0)
            yield part + len(request.headers)

    async def dropped(number: int) -> None:
        async for _ in stream(number):
            break

    async def cancelled(number: int) -> None:
        parts = [part async for part in stream(number)]
        assert parts

    kinds: list[Callable[[int], Coroutine[Any, Any, None]]] = [failed, retried, dropped, cancelled]

    async def everything() -> None:
        tasks = [asyncio.create_task(kinds[number % len(kinds)](number)) for number in range(1_000)]
        for _ in range(5):
            await asyncio.sleep(0)
        for task in tasks[3::4]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(everything())
    assert in_flight(adapter) == 0
    counts = adapter.router.router.stats()["counts"]
    assert counts["committed"] == counts["finished"] == 1_500


def test_endpoints_come_and_go_and_report(adapter: Any) -> None:
    ask(adapter, chat(1), stats={"http://engine-1": EngineStats(3, 2, 0.5)})
    assert adapter.router.router.stats()["replicas"]["http://engine-1"]["report_age_s"] is not None
    adapter.found["value"] = [ENDPOINTS[0], SimpleNamespace(url="http://engine-9", model_names=["other"])]
    assert ask(adapter, chat(2))[0] == "http://engine-0"
    assert set(adapter.router.router.replicas) == {"http://engine-0", "http://engine-9"}


def test_without_the_stack_it_says_what_is_missing() -> None:
    sys.modules.pop("prefixroute.hosts.production_stack", None)
    with pytest.raises(ImportError, match="vllm_router"):
        importlib.import_module("prefixroute.hosts.production_stack")


def test_the_line_of_the_page_runs(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "hosts.md").read_text(encoding="utf-8")
    [line] = re.findall(r'^python -c "(.*?)" --routing-logic prefixaware', page, re.DOTALL | re.MULTILINE)
    started: list[bool] = []
    stack = ModuleType("vllm_router.app")
    stack.main = lambda: started.append(True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm_router.app", stack)
    exec(compile(line, "docs/hosts.md", "exec"), {})  # noqa: S102  # our own page
    assert started == [True]
