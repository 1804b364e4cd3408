"""Where the hits of a simulated policy went, request by request: see :mod:`prefixroute.workload.losses`."""

from __future__ import annotations

import numpy as np

from prefixroute.sim.run import Run
from prefixroute.workload import HitLosses, LossMeter, Workload
from prefixroute.workload.tree import PrefixTree


def hit_losses(workload: Workload, run: Run) -> HitLosses:
    """Return why a run recomputed what it did; reads the workload once.

    With :attr:`Workload.masked` known, what is volatile stands apart. A replica that has returned empty counts as one that has
    lost what it had: evicted.

    Args:
        workload: the one that was run, from its first request.
        run: of any policy.
    """
    log = run.log
    order = np.argsort(log.column("number"), kind="stable")
    numbers, replicas, hits = (log.column(name)[order].tolist() for name in ("number", "replica", "hit"))
    served = dict(zip(numbers, zip(replicas, hits, strict=True), strict=True))
    meter, tree, losses = (
        LossMeter(workload.block_size, volatile=workload.volatile is not None),
        PrefixTree(),
        HitLosses(),
    )
    for number, request in enumerate(workload.requests()):
        known = tree.touch(number, request.prompt.array, request.context.array)
        seen = min(known[-1].last, len(request.prompt)) * workload.block_size if known else 0
        if number in served:
            replica, hit = served[number]
            losses = losses.plus(meter.add(request, min(seen, request.prompt_tokens), hit, replica))
    return losses
