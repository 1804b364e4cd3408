"""Ray Serve: a request router that sends each call to the replica whose cache holds its prompt.

Name it in a deployment's configuration, as an import path, so that its state lives as long as Serve's router does::

    @serve.deployment(
        request_router_config=RequestRouterConfig(
            request_router_class="prefixroute.hosts.ray:PrefixRouter",
            request_router_kwargs={"policy": "cache-aware", "capacity_tokens": 400_000},
        )
    )

Serve asks for a choice as often as it likes, and says in ``on_request_routed`` which replica has accepted the call:
that, and nothing before, is booked. The ticket is held by the call's result alone, so that it ends with it, however it
ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from prefixroute.bodies import session_of
from prefixroute.errors import NoReplicaError, OverloadedError, UnknownReplicaError
from prefixroute.hosts.asking import by_body
from prefixroute.hosts.versions import require
from prefixroute.peers.transports import RayPeers
from prefixroute.router import Decision, Router, Ticket
from prefixroute.types import LoadReport, Namespace

require("ray")

from ray.serve.request_router import (  # noqa: E402  # behind the check of its version
    MultiplexMixin,
    PendingRequest,
    ReplicaID,
    RequestRouter,
    RunningReplica,
)

RANKS = 3
"""Replicas offered to Serve at once, best first: it goes to the next one if one is full."""
_FIELDS = (
    "messages",
    "prompt",
    "input",
    "tools",
    "functions",
    "system",
    "instructions",
    "prompt_cache_key",
    "metadata",
)
"""Fields of a request object that prompt and session are read from."""
_REPORTS = tuple(field for field in LoadReport.__dataclass_fields__ if field != "at")
_DECIDED = "_prefixroute_decision"


class PrefixRouter(MultiplexMixin, RequestRouter):  # type: ignore[misc]  # its classes are not seen by the type checker
    """Routes calls of a deployment by prefix, session and load, with any policy of prefixroute.

    What is routed by: the first argument of the call that has a prompt in it. That is a request's body, as a mapping or
    an object with its fields (``ray.serve.llm`` passes those); a list of messages; a text; or token ids. The session is
    that of ``handle.options(session_id=...)``, else the one named in the body. A call without a prompt goes by load
    alone.

    Attributes:
        router: the Router. Its replicas are named by their ``unique_id``, which is new at each start.
    """

    router: Router

    def initialize_state(self, *, ranks: int = RANKS, ray_peers: str | None = None, **options: Any) -> None:
        """Build the Router. Called by Serve with ``request_router_kwargs``.

        Args:
            ranks: replicas offered to Serve at once.
            ray_peers: a name that the routers of all nodes have in common, to share what they book by a Ray actor;
                needs ``hash_key``. On one node ``peers`` does without an actor.
            options: those of :class:`~prefixroute.router.Router`; ``prompt_kind`` is ``messages`` by default.
        """
        if ray_peers is not None:
            options["peers"] = RayPeers(ray_peers)
        self.router = Router(**{"prompt_kind": "messages", **options})
        self._ranks = ranks

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Make the fleet equal to Serve's, and keep what replicas report of themselves."""
        super().update_replicas(replicas)
        self.router.sync(replicas, name_of=_name)
        for replica in replicas:
            stats = replica.routing_stats or {}
            loads = {field: stats[field] for field in _REPORTS if stats.get(field) is not None}
            if loads:
                self.router.update_load(_name(replica), **loads)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Forget a replica that has died, before Serve's controller has noticed."""
        super().on_replica_actor_died(replica_id)
        if replica_id.unique_id in self.router:
            self.router.remove_replica(replica_id.unique_id)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the best replicas, each as a rank of its own: among equals Serve would take the shortest queue.

        Changes nothing. Serve calls it again whenever all that were offered are full.
        """
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # else Serve asks again without a pause
        candidates = {_name(replica): replica for replica in self._candidates(candidate_replicas, pending_request)}
        try:
            decision = self._choose(pending_request, None if len(candidates) == len(self.router) else candidates)
        except OverloadedError:
            return []  # Serve waits and asks again
        except NoReplicaError:  # these have joined, and Serve has not told yet
            return [[replica] for replica in list(candidates.values())[: self._ranks]]
        if pending_request is not None:
            setattr(pending_request, _DECIDED, decision)
        return [[candidates[name]] for name in decision.ranked_top(self._ranks) if name in candidates]

    def _candidates(self, replicas: list[RunningReplica], pending: PendingRequest | None) -> list[RunningReplica]:
        """Return the replicas that may take a call: for a multiplexed model those that Serve would choose from."""
        if pending is None or not pending.metadata.multiplexed_model_id:
            return replicas
        allowed = self.apply_multiplex_routing(pending_request=pending)
        return [replica for replica in replicas if replica.replica_id in allowed] or replicas

    def _choose(self, pending: PendingRequest | None, candidates: Mapping[str, Any] | None) -> Decision:
        choose = partial(self.router.choose, candidates=candidates, unknown_candidates="ignore")
        if pending is None:
            return choose([], prompt_kind="tokens")
        model: str = pending.metadata.multiplexed_model_id
        choose = partial(choose, namespace=Namespace(lora=model) if model else None)  # an adapter, in ray.serve.llm
        earlier: Decision | None = getattr(pending, _DECIDED, None)
        if earlier is not None:
            return choose(earlier.blocks, prompt_kind=earlier.query.kind, session=earlier.request.session)
        body = body_in(pending.args, pending.kwargs)
        session = pending.metadata.session_id or session_of(None, body)
        return by_body(choose, body, session=session or None)

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """Book a call where it has been accepted. It ends with its result: finished, failed, cancelled or dropped."""
        decision: Decision | None = getattr(pending_request, _DECIDED, None)
        if decision is None:  # routed by a choice for another call
            decision = self._choose(pending_request, None)
        try:
            ticket = self.router.commit(decision, replica_id.unique_id)
        except UnknownReplicaError:  # it has left in between
            return
        result.add_done_callback(partial(_end, ticket))


def _end(ticket: Ticket, outcome: Any) -> None:
    """End a ticket with its call's result. Called from a thread of Ray's."""
    if isinstance(outcome, BaseException):
        ticket.abort()
    else:
        ticket.finish()


def _name(replica: RunningReplica) -> str:
    return str(replica.replica_id.unique_id)


def body_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the request in a call's arguments as a body; an empty one if there is none.

    Args:
        args: positional arguments of the call.
        kwargs: keyword arguments; those named as the fields of a body are one.
    """
    for value in (*args, kwargs, *kwargs.values()):
        body = _body(value)
        if any(body.get(field) is not None for field in ("messages", "prompt", "input")):
            return body
    return {}


def _body(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str):
        return {"prompt": value}
    if isinstance(value, list):
        return {"messages" if value and isinstance(value[0], Mapping) else "prompt": value}
    found = {field: getattr(value, field, None) for field in _FIELDS}
    return {field: inner for field, inner in found.items() if inner is not None}
