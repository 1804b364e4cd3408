"""Checks of what stands around caches: engines that agree, routers that share, keys, workspaces, bindings."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import pairwise

from prefixroute.lint.case import Case
from prefixroute.lint.rules import LintFinding, found
from prefixroute.plan.shards import LIMIT, MINUTE_S
from prefixroute.providers import shards_for

TOLD_WRONG = 0.1
"""Share by which a capacity may differ from what is told."""
LEAST_SHARE = 0.01
"""Share of requests over the limit of their key from which on it is a finding."""


def hash_seeds(case: Case) -> Iterator[LintFinding]:
    """Yield whether engines hash blocks differently; a seed that is not set differs from one that is."""
    known = {(engine.hash_seed, engine.hash_algorithm) for engine in case.settings.engines}
    if len(known) > 1:
        seeds = ", ".join(sorted(f"{seed or 'not set'} {algorithm or ''}".strip() for seed, algorithm in known))
        yield found("hash-seeds-differ", count=len(known), seeds=seeds)


def routers(case: Case) -> Iterator[LintFinding]:
    """Yield what the router is told wrongly, and whether several share nothing."""
    router = case.settings.router
    if router is None:
        return
    if router.processes > 1 and not router.sticky:
        # A session comes back to its router once in `processes` times.
        lost = case.ideal_ratio * (1 - 1 / router.processes) * case.statistics.prompt_tokens
        yield found("routers-not-sticky", usd_per_month=case.monthly(lost), processes=router.processes)
    sizes = sorted(engine.capacity_tokens for engine in case.settings.engines if engine.capacity_tokens is not None)
    if router.capacity_tokens is not None and sizes:
        real = min(sizes, key=lambda size: -abs(size - (router.capacity_tokens or 0)))
        if abs(real - router.capacity_tokens) > TOLD_WRONG * real:
            yield found("capacity-told-wrongly", told=router.capacity_tokens, real=real)
    blocks = sorted({engine.block_size for engine in case.settings.engines if engine.block_size is not None})
    if router.block_size is not None and blocks and blocks != [router.block_size]:
        yield found("block-size-differs", router=router.block_size, engines=" and ".join(map(str, blocks)))


def keys(case: Case) -> Iterator[LintFinding]:
    """Yield whether requests come while their routing key is over its rate."""
    limit = case.api.key_requests_per_minute
    if limit is None:
        limit = (case.model.mode().key_requests_per_minute if case.model is not None else None) or LIMIT
    recent: dict[str, deque[float]] = defaultdict(deque)
    over = busiest = total = 0
    line = None
    for entry in sorted((one for one in case.entries if one.time_s is not None), key=lambda one: one.time_s or 0.0):
        if entry.key is None or entry.time_s is None:
            continue
        window = recent[entry.key]
        while window and window[0] <= entry.time_s - MINUTE_S:
            window.popleft()
        total += 1
        if len(window) >= limit:
            over += 1
            line = line or entry.line
        window.append(entry.time_s)
        busiest = max(busiest, len(window))
    if total and over > LEAST_SHARE * total:
        # Requests of all keys in the busiest minute of one, were they spread evenly.
        shards = shards_for(busiest * len(recent), limit)
        yield found("key-over-rate", line=line, share=over / total, limit=limit, busiest=busiest, shards=shards)


def workspaces(case: Case) -> Iterator[LintFinding]:
    """Yield the prefix that costs most by being written in several workspaces."""
    seconds = case.lifetime.seconds if case.lifetime is not None else float("inf")
    minimum = case.model.minimum_tokens if case.model is not None else case.workload.block_size
    uses: dict[str, list[tuple[float, str, float]]] = defaultdict(list)
    for entry in case.entries:
        heads = [at for at, block in enumerate(entry.prompt.blocks) if block.where.startswith(("tools[", "system["))]
        if entry.workspace is None or not heads or entry.prompt.ends[heads[-1]] < minimum:
            continue
        time_s = entry.time_s if entry.time_s is not None else float(entry.line)
        uses[entry.prompt.chain[heads[-1]]].append((time_s, entry.workspace, entry.prompt.ends[heads[-1]]))
    worst, tokens, count = 0.0, 0.0, 0
    for times in uses.values():
        names = {name for _, name, _ in times}
        apart = sum(_writes([time for time, name, _ in times if name == one], seconds) for one in names)
        extra = (apart - _writes([time for time, _, _ in times], seconds)) * times[0][2]
        if len(names) > 1 and extra > worst:
            worst, tokens, count = extra, times[0][2], len(names)
    if count:
        scale = case.statistics.requests / len(case.entries)
        yield found("workspaces", usd_per_month=case.monthly(worst * scale), tokens=round(tokens), workspaces=count)


def _writes(times: list[float], lifetime_s: float) -> int:
    """Return how often an entry is written that is used at these times: first, and after each gap over its lifetime."""
    ordered = sorted(times)
    return 1 + sum(later - earlier > lifetime_s for earlier, later in pairwise(ordered))


def binding(case: Case) -> Iterator[LintFinding]:
    """Yield whether a binding ends before the entries that it leads to."""
    kept = case.lifetime
    seconds = case.api.binding_s
    if seconds is None and case.settings.router is not None:
        seconds = case.settings.router.binding_s
    if kept is None or seconds is None or seconds >= kept.seconds:
        return
    loss = None if case.plan is None else case.plan.binding_loss.get(kept.name)
    usd = None if loss is None else case.usd_monthly(loss)
    yield found(
        "binding-shorter-than-lifetime", usd_per_month=usd, binding=seconds, seconds=kept.seconds, lifetime=kept.name
    )
