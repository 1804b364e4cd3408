"""The floor: what one cache of unlimited size would recompute. No routing can do better."""

from __future__ import annotations

from prefixroute.errors import ConfigError
from prefixroute.sim.scenario import CacheKind
from prefixroute.sim.stores import BlockStore, EntryStore
from prefixroute.workload import Workload


def floor(workload: Workload, cache: CacheKind = "blocks", warmup: int = 0) -> float:
    """Return the recompute ratio of one unlimited cache: recomputed prompt tokens / prompt tokens.

    The first ``warmup`` requests warm the cache and are not counted.

    Args:
        workload: read once.
        cache: how the cache counts, as in :class:`~prefixroute.sim.Scenario`.
        warmup: requests at the beginning that are not counted.

    Raises:
        ConfigError: these are all requests.
    """
    recomputed, prompt = floor_tokens(workload, cache, warmup)
    return recomputed / prompt if prompt else 0.0


def floor_tokens(workload: Workload, cache: CacheKind = "blocks", warmup: int = 0) -> tuple[int, int]:
    """Return (recomputed, prompt) tokens of one unlimited cache. One pass, some bytes for each distinct block."""
    store = EntryStore(None) if cache == "entries" else BlockStore(None, workload.block_size)
    prompt, hit, number = 0, 0, -1
    for number, request in enumerate(workload.requests()):
        held = store.serve(request)
        if number >= warmup:
            prompt += request.prompt_tokens
            hit += held
    check_warmup(workload, number + 1, warmup)
    return prompt - hit, prompt


def check_warmup(workload: Workload, requests: int, warmup: int) -> None:
    """Raise ConfigError where nothing is left to count: every request of a workload only warms the caches."""
    if warmup and warmup >= requests:
        raise ConfigError(
            f"warmup must be below the {requests:,} requests of {workload.name}, at most {max(0, requests - 1):,}, got {warmup:,}"
        )
