"""The floor: what one cache of unlimited size would recompute. No routing can do better."""

from __future__ import annotations

from prefixroute.sim.scenario import CacheKind
from prefixroute.sim.stores import BlockStore, EntryStore
from prefixroute.workload import Workload


def floor(workload: Workload, cache: CacheKind = "blocks", warmup: int = 0) -> float:
    """Return the recompute ratio of one unlimited cache: recomputed prompt tokens / prompt tokens.

    The first ``warmup`` requests warm the cache and are not counted.
    """
    recomputed, prompt = floor_tokens(workload, cache, warmup)
    return recomputed / prompt if prompt else 0.0


def floor_tokens(workload: Workload, cache: CacheKind = "blocks", warmup: int = 0) -> tuple[int, int]:
    """Return (recomputed, prompt) tokens of one unlimited cache. One pass, some bytes for each distinct block."""
    store = EntryStore(None) if cache == "entries" else BlockStore(None, workload.block_size)
    prompt = hit = 0
    for number, request in enumerate(workload.requests()):
        held = store.serve(request)
        if number >= warmup:
            prompt += request.prompt_tokens
            hit += held
    return prompt - hit, prompt
