"""Ray Serve's ``PrefixCacheAffinityRouter`` as released, in this process, before replicas that are nothing but a queue length.

The router, its base classes and the actor with its prefix tree are Ray's own. A replica tells the length of its queue
when it is asked and never serves anything: what is in flight is known, and so are the replicas that the router would
take.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import metadata
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from accuracy.original import Held

if TYPE_CHECKING:
    from ray.serve._private.common import ReplicaID

ASKED = 12
"""How often a router that may draw is asked: two answers that differ tell that it draws."""
ROOM = 1_000_000
"""Requests that a replica takes at once: none is ever full."""


@dataclass(frozen=True)
class RayOriginal:
    """Ray's router with its own defaults, but for the threshold above which loads count as unequal.

    Attributes:
        imbalanced_threshold: largest difference of queue lengths at which matches are followed; Ray's default is
            infinite.
        version: of Ray, which has to be the installed one to run.
    """

    imbalanced_threshold: float = inf
    version: str = "2.60.0"

    def __str__(self) -> str:
        """Return name and version."""
        threshold = "" if self.imbalanced_threshold == inf else f", imbalanced_threshold={self.imbalanced_threshold:g}"
        return f"Ray {self.version} PrefixCacheAffinityRouter{threshold}"

    @asynccontextmanager
    async def running(self, workers: int) -> AsyncIterator[RayFleet]:
        """Run the router and its tree before so many replicas."""
        if metadata.version("ray") != self.version:
            raise ImportError(f"needs ray {self.version}, found {metadata.version('ray')}")
        import ray  # noqa: PLC0415 - heavy
        from ray.llm._internal.serve.routing_policies.prefix_aware import prefix_aware_router as module  # noqa: PLC0415
        from ray.serve._private.common import DeploymentHandleSource, DeploymentID, ReplicaID  # noqa: PLC0415

        ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        try:
            deployment = DeploymentID(name="engines")
            router = module.PrefixCacheAffinityRouter(
                deployment_id=deployment,
                handle_source=DeploymentHandleSource.REPLICA,
                use_replica_queue_len_cache=False,
            )
            router.initialize_state(
                imbalanced_threshold=self.imbalanced_threshold, tree_actor=module.PrefixTreeActor.remote()
            )
            replicas = [Replica(ReplicaID(str(number), deployment)) for number in range(workers)]
            router.update_replicas(replicas)
            yield RayFleet(router, replicas, asked=2 if self.imbalanced_threshold == inf else ASKED)
        finally:
            ray.shutdown()


@dataclass
class Replica:
    """What the router knows of a replica, and the requests that it holds.

    Attributes:
        replica_id: Ray's name of it.
        queued: requests that it holds.
    """

    replica_id: ReplicaID
    queued: int = 0
    max_ongoing_requests: int = ROOM
    node_id: str = ""
    availability_zone: str | None = None
    multiplexed_model_ids: set[str] = field(default_factory=set)

    async def get_queue_len(self, *, deadline_s: float) -> int:
        """Return how many requests it holds, at once: no deadline passes."""
        del deadline_s
        return self.queued


class RayFleet:
    """A running router and its replicas."""

    def __init__(self, router: Any, replicas: list[Replica], *, asked: int) -> None:
        self._router, self._replicas, self._asked = router, replicas, asked
        self._number = {replica.replica_id: number for number, replica in enumerate(replicas)}
        self._sent = 0

    async def send(self, text: str) -> Held:
        """Send a prompt; return where it went, and where it could have gone."""
        drawn = {await self._candidates(text) for _ in range(self._asked)}
        request = self._request(text)
        chosen = await self._router._choose_replica_for_request(request)
        self._router.on_request_routed(request, chosen.replica_id, None)
        chosen.queued += 1
        return Held(self._number[chosen.replica_id], drawn.pop() if len(drawn) == 1 else None)

    async def end(self, held: Held) -> None:
        """Take a request off its replica's queue."""
        self._replicas[held.worker].queued -= 1

    async def _candidates(self, text: str) -> frozenset[int]:
        """Return the workers that Serve may take by the router's answer.

        Those with the shortest queue of the first group.
        """
        first, *_ = await self._router.choose_replicas(self._replicas, self._request(text))
        least = min(replica.queued for replica in first)
        return frozenset(self._number[replica.replica_id] for replica in first if replica.queued == least)

    def _request(self, text: str) -> Any:
        from ray.serve._private.common import RequestMetadata  # noqa: PLC0415 - heavy
        from ray.serve._private.request_router.common import PendingRequest  # noqa: PLC0415

        self._sent += 1
        names = RequestMetadata(request_id=str(self._sent), internal_request_id=str(self._sent))
        return PendingRequest([SimpleNamespace(prompt=text)], {}, names, time.time(), asyncio.Future())
