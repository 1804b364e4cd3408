"""LiteLLM's Router really running: where calls go, and that nothing is left of those that end badly."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import bad_requests
import http_engine
import pytest
from http_engine import in_flight, settled

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices
litellm = pytest.importorskip("litellm", reason="needs litellm, see `make hosts`")

from prefixroute.errors import ConfigError  # noqa: E402
from prefixroute.hosts.litellm import PrefixRoute  # noqa: E402
from prefixroute.router import Router  # noqa: E402

NAMES = ["d0", "d1", "d2", "d3"]
LOOP = asyncio.new_event_loop()  # one for all: LiteLLM's worker of log events belongs to the first
run = LOOP.run_until_complete


def deployments() -> list[dict[str, Any]]:
    params = {"model": "openai/x", "api_key": "k", "mock_response": "yes"}
    return [{"model_name": "m", "litellm_params": dict(params), "model_info": {"id": name}} for name in NAMES]


@pytest.fixture
def adapter() -> Iterator[PrefixRoute]:
    adapter = PrefixRoute(Router(policy="cache-aware", prompt_kind="messages", seed=3))
    litellm.callbacks = [adapter]
    yield adapter
    litellm.logging_callback_manager._reset_all_callbacks()  # those of log events are copies of its list


@pytest.fixture
def host(adapter: PrefixRoute) -> Any:
    return litellm.Router(model_list=deployments(), num_retries=2, retry_after=0, disable_cooldowns=True)


def chat(session: int, turn: int = 0) -> dict[str, Any]:
    return http_engine.chat(session, turn, metadata={"session_id": f"s{session}"})


def where(answer: Any) -> str:
    return str(answer._hidden_params["model_id"])


async def settle(router: Router) -> dict[str, int]:
    """Wait until LiteLLM has told of all ends, and what nobody holds is collected; return the counts."""
    for _ in range(100):
        gc.collect()
        if not in_flight(router):
            break
        await asyncio.sleep(0.05)
    return settled(router)


def test_conversations_stay_where_their_prefix_is(adapter: PrefixRoute, host: Any) -> None:
    async def talk() -> None:
        for session in range(20):
            seen = {where(await host.acompletion(**chat(session, turn))) for turn in range(5)}
            assert len(seen) == 1
        counts = await settle(adapter.router)
        assert (counts["committed"], counts["finished"]) == (100, 100)

    run(talk())
    assert set(adapter.router.replicas) == set(NAMES)
    stats = adapter.router.stats()
    assert stats["replicas"]["d0"]["hit_tokens"] > 0


def test_an_answer_is_the_beginning_of_the_next_prompt(adapter: PrefixRoute, host: Any) -> None:
    async def talk() -> None:
        answer = "a long answer " * 100
        await host.acompletion(**chat(1), mock_response=answer)
        messages = [*chat(1)["messages"], {"role": "assistant", "content": answer}, {"role": "user", "content": "more"}]
        decision = adapter.router.choose(messages)
        assert decision.hit_tokens > len(answer) // 4
        await settle(adapter.router)

    run(talk())


def test_tools_count_and_every_api_is_routed(adapter: PrefixRoute, host: Any) -> None:
    tools = [
        {"type": "function", "function": {"name": f"f{i}", "description": "d" * 200, "parameters": {}}}
        for i in range(9)
    ]

    async def talk() -> None:
        await host.acompletion(**chat(1), tools=tools)
        assert adapter.router.choose({"messages": chat(2)["messages"], "tools": tools}).best_hit_tokens > 400
        await host.aresponses(model="m", input="hello " * 100)
        await host.atext_completion(model="m", prompt="hello " * 100)
        await host.aanthropic_messages(model="m", max_tokens=9, messages=chat(3)["messages"])
        assert (await settle(adapter.router))["committed"] == 4

    run(talk())


def test_a_failed_attempt_goes_elsewhere(adapter: PrefixRoute) -> None:
    models = deployments()
    models[0]["litellm_params"] |= {"mock_response": "litellm.InternalServerError"}
    host = litellm.Router(model_list=models, num_retries=3, retry_after=0, allowed_fails=0, cooldown_time=60)

    async def talk() -> None:
        answers = await asyncio.gather(*[host.acompletion(**chat(session)) for session in range(40)])
        assert "d0" not in {where(answer) for answer in answers}
        counts = await settle(adapter.router)
        assert counts["finished"] == 40
        assert counts["aborted"] >= 1

    run(talk())


def test_nothing_is_left_of_a_thousand_calls_that_end_badly(adapter: PrefixRoute, host: Any) -> None:
    rng = random.Random(7)  # noqa: S311

    async def failed(call: int) -> None:
        with pytest.raises(litellm.InternalServerError):
            await host.acompletion(**chat(call % 50), mock_response=Exception("no"))

    async def cancelled(call: int) -> None:
        task = asyncio.create_task(host.acompletion(**chat(call % 50), mock_delay=0.02))
        await asyncio.sleep(rng.random() / 50)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def dropped(call: int) -> None:
        async for _ in await host.acompletion(**chat(call % 50), stream=True, mock_response="word " * 50):
            break

    async def streamed(call: int) -> None:
        async for _ in await host.acompletion(**chat(call % 50), stream=True):
            pass

    async def answered(call: int) -> None:
        await host.acompletion(**chat(call % 50))

    kinds: list[Callable[[int], Awaitable[None]]] = [failed, cancelled, dropped, streamed, answered]

    async def everything() -> None:
        await bad_requests.make(kinds, at_once=64)
        counts = await settle(adapter.router)
        assert counts["finished"] >= 400
        assert counts["aborted"] >= 600  # three attempts of each that failed
        assert counts["dropped"] >= 200

    run(everything())


def test_the_fleet_is_that_of_the_host(adapter: PrefixRoute, host: Any) -> None:
    adapter.router.add_replica("gone")
    adapter.sync(host)
    assert set(adapter.router.replicas) == set(NAMES)


def test_a_synchronous_call_is_routed_and_leaves_nothing(adapter: PrefixRoute, host: Any) -> None:
    assert host.completion(**chat(1)).choices
    assert not in_flight(adapter.router)


def test_a_call_without_a_prompt_is_left_to_the_host(adapter: PrefixRoute) -> None:
    healthy = deployments()
    assert run(adapter.async_filter_deployments("m", healthy, None, {"metadata": {}})) is healthy


def test_a_router_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'messages'.*'tokens'"):
        PrefixRoute(Router())


def test_the_routers_of_two_workers_route_as_one(host: Any) -> None:
    name = f"test-{secrets.token_hex(6)}"
    workers = [PrefixRoute(Router(prompt_kind="messages", peers=name, seed=seed)) for seed in range(2)]
    for worker in workers:
        worker.sync(host)

    async def talk() -> None:
        homes: list[set[str]] = [set() for _ in range(12)]
        for turn in range(4):
            litellm.callbacks = [workers[turn % 2]]
            for session, home in enumerate(homes):
                call = {**chat(session, turn), "metadata": {}}
                home.add(where(await host.acompletion(**call)))
            await asyncio.sleep(0.1)  # what peers need to hear of it
        assert all(len(home) == 1 for home in homes)
        for worker in workers:
            assert (await settle(worker.router))["committed"] == 24

    run(talk())
    for worker in workers:
        worker.router.close()
