"""Ray Serve really running.

What it routes, and that nothing is left of calls that fail, are cancelled or are dropped.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import bad_requests
import pytest
from http_engine import chat, settled

from waiting import until

ray = pytest.importorskip("ray", reason="needs ray[serve], see `make hosts`")
serve = pytest.importorskip("ray.serve", reason="needs ray[serve], see `make hosts`")

from ray.serve.config import RequestRouterConfig  # noqa: E402

from prefixroute.hosts.ray import PrefixRouter, body_in  # noqa: E402
from prefixroute.router import Router  # noqa: E402

ROUTER = "prefixroute.hosts.ray:PrefixRouter"


class Engine:
    """Answers with its own name after a while, or fails, as it is told."""

    def __init__(self) -> None:
        self.name = serve.get_replica_context().replica_id.unique_id

    async def __call__(self, body: dict[str, Any]) -> str:
        await asyncio.sleep(body.get("sleep", 0.0))
        if body.get("fail"):
            raise ValueError("as it was told")
        return str(self.name)

    async def stream(self, body: dict[str, Any]) -> Any:
        for _ in range(body.get("chunks", 3)):
            await asyncio.sleep(body.get("sleep", 0.0))
            yield self.name

    def record_routing_stats(self) -> dict[str, Any]:
        return {"waiting": 0, "running": 1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # replicas cannot import a test
    ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    serve.shutdown()
    ray.shutdown()


def deployment(name: str, *, max_ongoing: int = 100, replicas: int = 4, **options: Any) -> tuple[Any, Router]:
    """Deploy engines, and return their handle and the Router of this process."""
    config = RequestRouterConfig(request_router_class=ROUTER, request_router_kwargs={"seed": 1, **options})
    engines = serve.deployment(
        num_replicas=replicas,
        max_ongoing_requests=max_ongoing,
        ray_actor_options={"num_cpus": 0.1},
        request_router_config=config,
    )(Engine)
    handle = serve.run(engines.bind(), name=name, route_prefix=None)
    handle.remote({"messages": [{"role": "user", "content": "warm"}]}).result()
    host = handle._router._asyncio_router.request_router
    assert isinstance(host, PrefixRouter)
    settled(host.router)
    return handle, host.router


@pytest.fixture
def deploy(cluster: None) -> Iterator[Callable[..., tuple[Any, Router]]]:
    """Return :func:`deployment` under a name of its own, gone after the test."""
    names: list[str] = []

    def run(**options: Any) -> tuple[Any, Router]:
        names.append(f"app-{len(names)}-{random.randrange(10**9)}")  # noqa: S311
        return deployment(names[-1], **options)

    yield run
    for name in names:
        serve.delete(name)


@pytest.fixture(scope="module")
def deployed(cluster: None) -> Iterator[tuple[Any, Router]]:
    """Yield a handle of four engines, and the Router of this process."""
    yield deployment("app", max_ongoing=8)
    serve.delete("app")


def committed(router: Router) -> int:
    return int(router.stats()["counts"]["committed"])


def test_conversations_stay_where_their_prefix_is(deployed: Any) -> None:
    handle, router = deployed
    before = committed(router)

    async def everybody() -> list[set[str]]:
        where: list[set[str]] = []
        for session in range(20):
            mine = handle.options(session_id=f"s{session}")
            where.append({await mine.remote(chat(session, turn)) for turn in range(5)})
        return where

    where = asyncio.run(everybody())
    settled(router)
    assert sum(len(replicas) == 1 for replicas in where) >= 19
    assert set().union(*where) == set(router.replicas)
    assert committed(router) - before == 100


def test_back_off_books_each_call_once(deploy: Any) -> None:
    handle, router = deploy(max_ongoing=1, replicas=2)

    async def crowd() -> None:
        await asyncio.gather(*[handle.remote(chat(call % 7, sleep=0.01)) for call in range(60)])

    asyncio.run(crowd())
    settled(router)
    assert router.stats()["counts"]["committed"] == 61


def test_nothing_is_left_of_a_thousand_calls_that_end_badly(deployed: Any) -> None:
    handle, router = deployed
    before = router.stats()["counts"]
    rng = random.Random(7)  # noqa: S311

    async def failed(call: int) -> None:
        with pytest.raises(ray.exceptions.RayTaskError):
            await handle.remote(chat(call % 50, fail=True, sleep=rng.random() / 50))

    async def cancelled(call: int) -> None:
        response = handle.remote(chat(call % 50, sleep=0.05))
        await asyncio.sleep(rng.random() / 20)
        response.cancel()
        with suppress(asyncio.CancelledError, serve.exceptions.RequestCancelledError):
            await response  # or it was quicker

    async def dropped(call: int) -> None:
        stream = handle.options(stream=True).stream.remote(chat(call % 50, chunks=50, sleep=0.002))
        async for _ in stream:
            break
        stream.cancel()

    async def streamed(call: int) -> None:
        async for _ in handle.options(stream=True).stream.remote(chat(call % 50)):
            pass

    async def answered(call: int) -> None:
        await handle.remote(chat(call % 50))

    kinds: list[Callable[[int], Awaitable[None]]] = [failed, cancelled, dropped, streamed, answered]
    asyncio.run(bad_requests.make(kinds, at_once=64))
    settled(router)
    counts = router.stats()["counts"]
    assert counts["finished"] - before["finished"] >= 400
    assert counts["committed"] - before["committed"] <= 1_000


def test_a_choice_alone_as_the_ingress_of_llms_asks_for_leaves_nothing(deployed: Any) -> None:
    handle, router = deployed
    before = committed(router)
    payload = SimpleNamespace(**chat(1))  # what it passes of a parsed body

    async def choose(*, reserve: bool) -> str:
        async with handle.options(session_id="a").choose_replica(payload, _reserve=reserve) as selection:
            return str(selection.replica_id)

    for reserve in (False, True):
        assert asyncio.run(choose(reserve=reserve)) in router
    assert committed(router) == before
    settled(router)


def test_a_dead_replica_is_forgotten(deploy: Any) -> None:
    handle, router = deploy(replicas=3)
    first = handle.options(session_id="a").remote(chat(0)).result()
    settled(router)
    victim = next(replica for replica in _replicas(handle) if replica.replica_id.unique_id == first)
    ray.kill(victim._actor_handle)

    def moved() -> bool:  # it may answer once more while it is being killed
        with suppress(ray.exceptions.RayActorError):
            return first not in router and handle.options(session_id="a").remote(chat(0, 1)).result() != first
        return False

    until(moved)
    settled(router)


@pytest.mark.parametrize("options", [{"peers": "NAME"}, {"ray_peers": "NAME", "hash_key": 7}])
def test_the_routers_of_two_processes_route_as_one(deploy: Any, options: dict[str, Any]) -> None:
    name = f"test-{secrets.token_hex(6)}"
    handle, router = deploy(**{key: name if value == "NAME" else value for key, value in options.items()})

    class Ingress:
        """Calls the engines by a handle, and so by a router, of its own."""

        async def __call__(self, body: dict[str, Any]) -> str:
            return str(await handle.remote(body))

    ingress = serve.deployment(ray_actor_options={"num_cpus": 0.1})(Ingress)
    front = serve.run(ingress.bind(), name=f"{name}-front", route_prefix=None)
    try:
        assert front.remote(chat(99)).result() in router
        until(lambda: router.stats()["peers"]["living"])
        homes: list[set[str]] = [set() for _ in range(12)]
        for turn in range(4):
            for session, home in enumerate(homes):
                home.add((handle, front)[turn % 2].remote(chat(session, turn)).result())
            time.sleep(0.1)  # what peers need to hear of it
        assert sum(len(home) == 1 for home in homes) >= 11
    finally:
        serve.delete(f"{name}-front")


def test_what_replicas_report_arrives(deployed: Any) -> None:
    _, router = deployed
    until(lambda: router.stats()["replicas"][router.replicas[0]]["report_age_s"] is not None)


def _replicas(handle: Any) -> list[Any]:
    return list(handle._router._asyncio_router.request_router.curr_replicas.values())


MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("args", "kwargs", "field"),
    [
        ([{"messages": MESSAGES}], {}, "messages"),
        ([SimpleNamespace(messages=MESSAGES, prompt=None)], {}, "messages"),
        ([SimpleNamespace(prompt="hi")], {}, "prompt"),
        ([MESSAGES], {}, "messages"),
        (["hi"], {}, "prompt"),
        ([], {"messages": MESSAGES}, "messages"),
        ([7, None], {"request": {"input": "hi"}}, "input"),
        ([[1, 2, 3]], {}, "prompt"),
    ],
)
def test_the_request_is_found_among_the_arguments(args: list[Any], kwargs: dict[str, Any], field: str) -> None:
    assert body_in(args, kwargs)[field]


def test_a_call_without_a_prompt_has_none() -> None:
    assert body_in([7, object(), {"a": 1}], {"b": 2.0}) == {}
