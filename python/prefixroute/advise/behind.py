"""Whether a fleet is large enough.

Each replica serves its requests as fast as they come, and memory holds what they answer.
"""

from __future__ import annotations

import numpy as np

from prefixroute.sim import RequestLog
from prefixroute.sim.metrics import LEAST_PER_REPLICA

WAITED = 1 / 20
"""Share of the span of the arrivals that requests of an overloaded replica wait, in the mean."""
SERVED = 0.95
"""Share of the rate of its arrivals that an overloaded replica serves at most."""
MOST_PREEMPTIONS = 0.05
"""Preemptions a request above which a fleet has too little memory for what it answers: each computes a prompt again."""


def replicas_behind(log: RequestLog, replicas: int) -> int:
    """Return how many of the replicas of a timed run are sent requests faster than they serve them.

    A replica is behind where its requests wait for more than :data:`WAITED` of the span in which requests come, and
    where it needs so much longer than that span to serve them that its rate is below :data:`SERVED` of theirs. One such
    replica is enough to make the answer times of its requests grow with the length of the log, however idle the others
    are.
    """
    arrival, replica = log.column("arrival"), log.column("replica").astype(np.int64)
    span = float(arrival.max() - arrival.min()) if len(log) else 0.0
    if not span:
        return 0
    served = np.bincount(replica, minlength=replicas)
    waited = np.bincount(replica, log.column("start") - arrival, replicas) / np.maximum(served, 1)
    last = np.full(replicas, arrival.min(), np.float64)
    np.maximum.at(last, replica, log.column("finish"))
    few = len(log) < LEAST_PER_REPLICA * replicas
    if few and span < float((log.column("finish") - log.column("start")).mean()):
        return 0  # as of a row that is too short
    slow = (last - arrival.min()) * SERVED > span
    return int(((waited > WAITED * span) & slow & (served > 0)).sum())
