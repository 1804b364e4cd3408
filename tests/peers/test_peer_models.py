"""Requests that name a model, shared among routers in a fleet some of whose engines report KV events."""

from __future__ import annotations

import msgpack
import pytest
from mesh import meshed

from prefixroute import Namespace

TOKENS = list(range(2000))
ADAPTER = {"type": "BlockStored", "block_hashes": [9], "token_ids": [5] * 16, "block_size": 16, "lora_name": "x"}


@pytest.mark.parametrize("model", ["base", "x", "base:x"])
def test_a_booking_of_a_peer_is_of_the_same_blocks(model: str) -> None:
    mesh, one, other = meshed(2)
    for router in mesh.routers:
        router.apply("r0", msgpack.packb([1.5, [ADAPTER]]))  # r1 reports nothing: peers tell what it was sent
    one.route(TOKENS, namespace=Namespace(model=model), candidates=["r1"])
    mesh.deliver()
    hits = [
        other.choose(TOKENS, namespace=space).hit_tokens
        for space in (Namespace(model=model), Namespace(model="base"), Namespace(lora="x"))
    ]
    assert hits == [1984, 1984 * ("x" not in model), 1984 * ("x" in model)]


def test_a_request_that_is_given_up_by_key_is_given_up_for_peers() -> None:
    mesh, one, other = meshed(2)
    one.route(TOKENS, key="k").hedge()
    mesh.deliver()
    assert sum(values["in_flight"] for values in other.stats()["replicas"].values()) == 2
    one.abort("k")
    mesh.deliver()
    assert sum(values["in_flight"] for values in other.stats()["replicas"].values()) == 0
