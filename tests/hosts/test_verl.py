"""verl's own loader making the balancer an actor. Rollouts themselves need GPUs and are not run."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import bad_requests
import pytest

ray = pytest.importorskip("ray", reason="needs ray, see `make hosts`")
pytest.importorskip("omegaconf", reason="needs omegaconf, see `make hosts`")
pytest.importorskip("prefixroute.hosts.verl", reason="needs verl, see `make hosts`", exc_type=ImportError)

from bare import make_bare  # noqa: E402

make_bare("verl", "verl.workers", "verl.workers.rollout", "verl.utils")

from verl.workers.rollout.router import GlobalRequestLoadBalancer, RequestLoadBalancer, get_router_handle  # noqa: E402

from prefixroute.hosts.verl import PrefixLoadBalancer  # noqa: E402
from prefixroute.router import Router  # noqa: E402

SERVERS = {"s0": "h0", "s1": "h1", "s2": "h2"}


@pytest.fixture
def balancer() -> PrefixLoadBalancer:
    return PrefixLoadBalancer(SERVERS, {"router_class": "x", "policy": "cache-aware", "seed": 7})


@pytest.fixture(scope="module")
def actor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path: Path = tmp_path_factory.mktemp("verl") / "router.yaml"
    path.write_text("router_class: prefixroute.hosts.verl.PrefixLoadBalancer\npolicy: cache-aware\nseed: 7\n")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield get_router_handle(SERVERS, str(path))
    ray.shutdown()


def test_nothing_is_left_of_a_thousand_generations_that_end_badly(actor: Any) -> None:
    rng = random.Random(3)  # noqa: S311
    assert ray.get(actor.require_acquire_fields.remote()) == ["prompt_ids"]
    assert ray.get(actor.require_release_fields.remote()) == ["request_id"]

    async def generate(turn: int, *, tries: int, fails: bool) -> None:
        """As verl's client does: it releases in the end, whatever that is, and does not wait for it."""
        prompt = list(range(turn % 40 * 1_000, turn % 40 * 1_000 + 600 + turn))
        for left in reversed(range(tries)):
            server, handle = await actor.acquire_server.remote(f"t{turn % 40}", prompt_ids=prompt)
            try:
                assert handle == SERVERS[server]
                await asyncio.sleep(rng.random() / 50)
                if not fails and not left:
                    return
            finally:
                actor.release_server.remote(server, f"t{turn % 40}")

    async def cancelled(turn: int) -> None:
        server, _ = await actor.acquire_server.remote(f"t{turn % 40}", prompt_ids=[1, 2, 3])
        try:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
        finally:
            actor.release_server.remote(server, f"t{turn % 40}")

    kinds: list[Callable[[int], Awaitable[None]]] = [
        lambda turn: generate(turn, tries=1, fails=False),
        lambda turn: generate(turn, tries=1, fails=True),
        lambda turn: generate(turn, tries=3, fails=False),
        cancelled,
    ]
    asyncio.run(bad_requests.make(kinds, at_once=50))
    assert ray.get(actor.get_total_inflight.remote()) == 0
    assert ray.get(actor.get_status.remote())["servers"] == dict.fromkeys(SERVERS, 0)


def test_what_a_dead_worker_has_not_released_is_given_up_and_not_taken_for_what_comes_later() -> None:
    balancer = PrefixLoadBalancer(SERVERS, {"seed": 7, "ticket_s": 0.05})
    for number in range(1_000):
        balancer.acquire_server(f"t{number % 10}", prompt_ids=[1, 2, 3])
    time.sleep(0.06)
    assert balancer.get_total_inflight() == 0
    assert balancer.router.stats()["counts"]["expired"] == 1_000
    balancer.router = Router(list(SERVERS))  # no time passes for what comes later
    server, _ = balancer.acquire_server("t0", prompt_ids=[1, 2, 3])
    balancer.release_server(server, "t0")
    assert balancer.get_total_inflight() == 0


def test_it_has_every_method_of_the_protocol() -> None:
    wanted = {name for name in vars(RequestLoadBalancer) if not name.startswith("_")}
    wanted |= {name for name in vars(GlobalRequestLoadBalancer) if not name.startswith("_")}
    assert wanted <= set(dir(PrefixLoadBalancer))


def test_a_trajectory_stays_and_samples_of_one_prompt_share_it(balancer: PrefixLoadBalancer) -> None:
    prompt = list(range(4_000))
    first, _ = balancer.acquire_server("a", prompt_ids=prompt)
    balancer.release_server(first, "a")
    assert balancer.acquire_server("a", prompt_ids=[*prompt, 1, 2])[0] == first
    assert balancer.router.choose(prompt).hit_tokens > 3_900


def test_a_request_may_be_open_twice(balancer: PrefixLoadBalancer) -> None:
    servers = [balancer.acquire_server("a", prompt_ids=[1, 2, 3])[0] for _ in range(2)]
    for server in servers:
        balancer.release_server(server, "a")
        balancer.release_server(server, "b")
    assert balancer.get_total_inflight() == 0
    assert balancer.router.stats()["counts"]["finished"] == 2


def test_an_empty_pool_raises_what_verl_waits_for(balancer: PrefixLoadBalancer) -> None:
    balancer.remove_servers([*SERVERS, "unknown"])
    theirs = GlobalRequestLoadBalancer({})
    messages = []
    for pool in (balancer, theirs):
        with pytest.raises(RuntimeError) as raised:
            pool.acquire_server("a")
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_servers_come_and_go(balancer: PrefixLoadBalancer) -> None:
    server, _ = balancer.acquire_server("a", prompt_ids=list(range(4_000)))
    balancer.add_servers({server: "new", "s9": "h9"})
    assert balancer.get_total_inflight() == 0
    balancer.release_server(server, "a")  # of the process before
    assert balancer.router.choose(list(range(4_000))).best_hit_tokens == 0
    assert sorted(balancer.get_all_servers()) == ["s0", "s1", "s2", "s9"]


def test_new_weights_void_what_was_believed(balancer: PrefixLoadBalancer) -> None:
    server, _ = balancer.acquire_server("a", prompt_ids=list(range(4_000)))
    assert balancer.clear_sticky_cache() == {
        "cleared_entries": 1,
        "server_loads": {n: int(n == server) for n in SERVERS},
    }
    balancer.release_server(server, "a")
    assert balancer.router.choose(list(range(4_000))).best_hit_tokens == 0
