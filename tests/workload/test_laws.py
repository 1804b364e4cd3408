"""What holds for every workload, whatever cache serves it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from prefixroute.sim.replica import ReplicaCache
from prefixroute.workload import GENERATORS, Workload, floor, measure

CAPACITIES = (1_000, 20_000, 100_000, 1_000_000)
every_generator = pytest.mark.parametrize("generator", GENERATORS.values(), ids=list(GENERATORS))


@every_generator
def test_no_cache_recomputes_less_than_the_floor_and_more_room_never_hurts(generator: Callable[..., Workload]) -> None:
    workload = generator(5, requests=600)
    curve = measure(workload).hit_ratios_of_cache(np.array(CAPACITIES))
    assert (np.diff(curve) >= 0).all()
    assert curve[-1] <= 1 - floor(workload) + 1e-12
    for capacity, most in zip(CAPACITIES, curve, strict=True):
        cache = ReplicaCache(capacity_tokens=capacity, block_size=workload.block_size)
        hits = sum(cache.serve(request.prompt, request.context) for request in workload.requests())
        tokens = sum(request.prompt_tokens for request in workload.requests())
        assert 1 - hits / tokens >= floor(workload) - 1e-12
        # The engine's last-token rule and the room that the request itself takes cost a little of the curve.
        assert most - 0.06 <= hits / tokens <= most + 1e-12 or capacity < 50_000


@every_generator
def test_sessions_stay_whole_and_times_in_order_through_every_change(generator: Callable[..., Workload]) -> None:
    workload = generator(5, requests=800)
    whole: dict[str | None, int] = {}
    for request in workload.requests():
        whole[request.session] = whole.get(request.session, 0) + 1
    last, kept = 0.0, dict.fromkeys(whole, 0)
    for request in workload.sampled(0.5, seed=3).scaled(3).requests():
        assert request.arrival_s >= last
        last = request.arrival_s
        kept[request.session] += 1
    for session, count in kept.items():
        assert session is None or count in {0, whole[session]}
