"""What the name of a model means for cached blocks: blocks that are routed and blocks that engines report must meet."""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack
import pytest

from prefixroute import Namespace, Replica
from prefixroute.bodies import Api, SessionKeys
from prefixroute.router import Router
from prefixroute.routing.cache_names import MAX_ADAPTERS, CacheNames
from prefixroute.serve.reader import Hashing

TOKENS = list(range(2000))
HIT = 1984
BLOCK = 16


def stored(*, lora: str | None = None, salt: str | None = None, tokens: list[int] = TOKENS, **more: Any) -> bytes:
    """Return a batch of an engine that has stored a prompt."""
    blocks = len(tokens) // BLOCK
    event = {
        "type": "BlockStored",
        "block_hashes": [hash((lora, salt, tokens[0], number)) & 0xFFFF_FFFF for number in range(blocks)],
        "parent_block_hash": None,
        "token_ids": tokens[: blocks * BLOCK],
        "block_size": BLOCK,
        "lora_name": lora,
        "cache_salt": salt,
    }
    return msgpack.packb([1.5, [event | more]])


def hits(router: Router, **namespace: Any) -> int:
    return router.choose(TOKENS, namespace=Namespace(**namespace)).hit_tokens


def learned_and_reported(router: Router, clock: Any, payload: bytes, **namespace: Any) -> tuple[int, int]:
    """Return the hit of a request after one like it was routed, and after its engine has reported it instead."""
    router.apply("a", stored(tokens=[5] * 16, lora=namespace.get("lora") or None))  # events name the adapter once
    router.route(TOKENS, namespace=Namespace(**namespace)).finish()
    learned = hits(router, **namespace)
    clock.now += 5.0  # beyond provisional_s
    router.route([1] * 16).finish()
    assert hits(router, **namespace) == 0
    router.apply("a", payload)
    return learned, hits(router, **namespace)


@pytest.mark.parametrize(
    ("payload", "namespace"),
    [
        (stored(), {}),
        (stored(), {"model": "m"}),
        (stored(salt="s"), {"model": "m", "salt": "s"}),
        (stored(lora="x"), {"lora": "x"}),
        (stored(lora="x"), {"model": "m", "lora": "x"}),
    ],
)
def test_blocks_that_are_routed_and_reported_are_the_same(
    payload: bytes, namespace: dict[str, str], clock: Any
) -> None:
    router = Router({"a": Replica(events=True)}, clock=clock)
    assert learned_and_reported(router, clock, payload, **namespace) == (HIT, HIT)


@pytest.mark.parametrize("model", ["x", "base:x"])
def test_a_request_may_name_an_adapter_as_its_model(model: str, clock: Any) -> None:
    router = Router({"a": Replica(events=True)}, clock=clock)
    router.apply("a", stored())
    assert hits(router, model="base") == HIT
    router.apply("a", stored(tokens=[5] * 16, lora="x"))
    assert hits(router, model=model) == 0  # the base model's blocks are not the adapter's
    router.apply("a", stored(lora="x"))
    assert hits(router, model=model) == hits(router, lora="x") == HIT
    router.apply("a", msgpack.packb([1.5, [{"type": "AllBlocksCleared"}]]))
    assert hits(router, model=model) == hits(router, model="base") == 0
    router.route(TOKENS, namespace=Namespace(model=model)).finish()
    assert hits(router, lora="x") == HIT
    assert hits(router, model="base") == 0


def test_models_select_replicas_whose_engines_report() -> None:
    replicas = {name: Replica(events=True, models=frozenset({model})) for name, model in (("a", "m1"), ("b", "m2"))}
    router = Router(replicas)
    router.apply("a", stored())
    assert hits(router, model="m1") == HIT
    assert hits(router, model="m2") == 0
    router.apply("b", stored())
    assert hits(router, model="m2") == HIT


def test_a_model_that_no_reporting_replica_serves_has_blocks_of_its_own() -> None:
    router = Router({"a": Replica(events=True, models=frozenset({"m"})), "b": Replica(models=frozenset({"n", "o"}))})
    router.apply("a", stored())
    assert hits(router, model="m") == HIT
    router.route(TOKENS, namespace=Namespace(model="n")).finish()
    assert hits(router, model="n") == HIT
    assert hits(router, model="o") == 0


def test_models_of_replicas_without_events_share_nothing() -> None:
    router = Router(["a"])
    router.route(TOKENS, namespace=Namespace(model="m")).finish()
    assert [hits(router, model=model) for model in ("m", "n", "")] == [HIT, 0, 0]


@pytest.mark.parametrize("begin", ["apply", "stored", "hashes"])
def test_the_first_event_makes_a_replica_one_that_reports(begin: str) -> None:
    router = Router(["a"])
    names = list(range(1, HIT // BLOCK + 2))
    if begin == "apply":
        router.apply("a", stored())
    elif begin == "stored":
        space = Namespace(model="m")
        router.apply_stored("a", names, token_ids=TOKENS, block_size=BLOCK, namespace=space)
    else:
        hashed = asyncio.run(router.hash(TOKENS))
        router.apply_stored_hashes("a", hashed.array)
    assert hits(router, model="m") == hits(router) == HIT
    hashed = asyncio.run(router.hash(TOKENS, namespace=Namespace(model="m")))
    assert router.choose(hashed).hit_tokens == HIT


def test_an_adapter_that_a_single_event_names_is_known() -> None:
    router = Router(["a"])
    names = list(range(1, HIT // BLOCK + 2))
    router.apply_stored("a", names, token_ids=TOKENS, block_size=BLOCK, namespace=Namespace(lora="x"))
    assert hits(router, model="x") == HIT
    assert hits(router, model="m") == 0


def test_adapters_are_bounded() -> None:
    router = Router(["a"])
    for number in range(0, MAX_ADAPTERS + 300, 200):
        events = [
            msgpack.unpackb(stored(tokens=[5] * 16, lora=f"x{name}"))[1][0] for name in range(number, number + 200)
        ]
        assert len(router.apply("a", msgpack.packb([1.5, events])).adapters) == 200
    assert len(router.cache_names.adapters) == MAX_ADAPTERS
    assert "x0" not in router.cache_names.adapters
    router.remove_replica("a")
    assert router.cache_names == CacheNames()


@pytest.mark.parametrize("model", ["m", "x"])
def test_a_large_body_is_hashed_as_the_router_hashes(model: str) -> None:
    hashing = Hashing(BLOCK, 7, SessionKeys.of(None, None), lambda _: "text", lambda _: TOKENS)
    router = Router({"a": Replica(events=True)}, hash_key=7)
    router.apply("a", stored(tokens=[5] * 16, lora="x"))
    router.apply("a", stored(lora="x" if model == "x" else None))
    body = b'{"model": "%s", "messages": [{"role": "user", "content": "text"}]}' % model.encode()
    reading = hashing.read(Api.CHAT, body, router.cache_names)
    assert router.choose(reading.prompt, namespace=reading.namespace).hit_tokens == HIT


@pytest.mark.parametrize("wrong", [{"model": 3}, {"model": ["m"]}, {"lora": 3}])
def test_what_is_no_name_is_refused_as_without_events(wrong: dict[str, Any]) -> None:
    for router in (Router(["a"]), Router({"a": Replica(events=True)})):
        with pytest.raises(ValueError, match=r"str.*bytes.*(int|list)"):
            router.choose(TOKENS, namespace=Namespace(**wrong))
