"""SkyPilot: a policy of its load balancer. Import this module in the load balancer's process, and name ``prefixroute``.

SkyPilot 0.14 asks for a replica before it has read the request's body: sessions in headers are routed by, prompts are
not. A line in ``SkyServeLoadBalancer._proxy_with_retries``, before it selects a replica, makes the body known::

    request.state.body = await request.body()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from prefixroute.bodies import session_of
from prefixroute.errors import NoReplicaError, OverloadedError, UnknownReplicaError
from prefixroute.hosts.asking import by_body, json_of
from prefixroute.hosts.versions import require
from prefixroute.router import Decision, Router

require("skypilot")

from sky.serve.load_balancing_policies import LoadBalancingPolicy  # noqa: E402  # behind the check of its version


class PrefixRoutePolicy(LoadBalancingPolicy, name="prefixroute"):  # type: ignore[misc, call-arg]  # not seen by the type checker
    """Selects replicas by session, by prefix where the body is known, and by load.

    A replica is known by its URL, which SkyPilot may give to another machine later. SkyPilot makes policies without
    arguments: a subclass with a name and ``options`` of its own has other ones.

    Attributes:
        options: the fields of :class:`~prefixroute.router.RouterConfig`.
        router: the Router.
    """

    options: ClassVar[Mapping[str, Any]] = {"policy": "cache-aware", "prompt_kind": "messages"}

    def __init__(self) -> None:
        super().__init__()
        self.router = Router(**self.options)

    def set_ready_replicas(self, ready_replicas: list[str]) -> None:
        """Make the fleet equal to the replicas that are ready."""
        self.ready_replicas = list(ready_replicas)
        self.router.sync(self.ready_replicas)

    def _select_replica(self, request: Any) -> str | None:
        """Return the replica for a request, one that it has not tried; ``None`` if there is none."""
        tried = getattr(request.state, "prefixroute_tried", ())
        try:
            decision = self._choose(request, tried or None)
        except (NoReplicaError, OverloadedError):
            if not tried:
                return None
            try:
                decision = self._choose(request, None)  # all were tried: once more from the beginning
            except (NoReplicaError, OverloadedError):
                return None
        request.state.prefixroute_decision = decision
        return decision.replica

    def _choose(self, request: Any, tried: Any) -> Decision:
        body = json_of(getattr(request.state, "body", b""))
        session = session_of(request.headers, body)
        return by_body(self.router.choose, body, request.url.path, session=session, exclude=tried)

    def begin_request(self, replica_url: str, request: Any) -> Callable[[], None]:
        """Book a request that is sent to a replica; return what ends it.

        SkyPilot does not tell success from failure.
        """
        decision = getattr(request.state, "prefixroute_decision", None)
        request.state.prefixroute_tried = (*getattr(request.state, "prefixroute_tried", ()), replica_url)
        try:
            ticket = self.router.commit(decision or self._choose(request, None), replica_url)
        except (UnknownReplicaError, NoReplicaError, OverloadedError):  # it has left in between
            return lambda: None
        return ticket.finish
