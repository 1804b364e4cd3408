"""Presets beside the routers that they reproduce, where these run without an engine."""

from __future__ import annotations

from collections.abc import Iterator

from accuracy import mock_engine
from accuracy.comparison import Comparison
from accuracy.hits import TRACES
from accuracy.mocker import BLOCK, REPLICAS, ROUND_ROBIN, TRACE, both, run, spread, trace
from prefixroute.sim import Events, Scenario

FRESH = (1_000_000, 2.0)
"""Tokens of a replica, and speed, that the preset was not made on."""


def compare() -> Iterator[Comparison]:
    """Yield Dynamo's KV router over its mock engines beside the preset ``dynamo``."""
    path = TRACES / TRACE
    for capacity, speed in (*ROUND_ROBIN, FRESH):
        theirs = mock_engine.replay(
            spread(path), replicas=REPLICAS, capacity_tokens=capacity, block_size=BLOCK, router="kv_router", speed=speed
        )
        scenario = Scenario(policy="dynamo", replicas=REPLICAS, capacity_tokens=capacity, observe=Events())
        what = f"preset dynamo, Mooncake conversation, {capacity:,} tokens, x{speed:g}"
        yield from both("routers", what, theirs, run(trace(path, speed), scenario))
