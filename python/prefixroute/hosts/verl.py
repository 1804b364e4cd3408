"""verl: a load balancer for rollouts, which sees token ids and is one actor for all workers.

Name it in a YAML file, and that file as the router's configuration of the rollout::

    router_class: prefixroute.hosts.verl.PrefixLoadBalancer
    policy: cache-aware
    capacity_tokens: 400000
    seed: 7
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prefixroute.errors import NoReplicaError
from prefixroute.hosts.versions import require
from prefixroute.router import Router, Ticket
from prefixroute.types import Timing

require("verl")

TICKET_S = 6 * 3600.0
"""Seconds after which a request that was never released is given up: verl tells of no progress, and an agent's turn is
long."""
_EMPTY = "No available servers in load balancer"
"""What verl looks for in the error of an empty pool, which it waits for instead of failing."""


class PrefixLoadBalancer:
    """Routes each generation by its token ids, its trajectory and load, with any policy of prefixroute.

    The turns of a trajectory have one request id, which is the session. Not an actor itself: verl makes one of it.

    Args:
        servers: handles of the rollout servers by id.
        config: the YAML file: ``router_class``; ``ticket_s``, see :data:`TICKET_S`; else the fields of
            :class:`~prefixroute.router.RouterConfig`. verl does not forward ``full_determinism``: give ``seed``.

    Attributes:
        router: the Router.
    """

    def __init__(self, servers: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        options = {name: value for name, value in config.items() if name not in ("router_class", "ticket_s")}
        timing = Timing(ticket_s=config.get("ticket_s", TICKET_S))
        self.router = Router(list(servers), on_expired=self._expired, **{"timing": timing, **options})
        self._servers = dict(servers)
        self._open: dict[tuple[str, str | None], dict[int, Ticket]] = {}

    def require_acquire_fields(self) -> list[str]:
        """Return what verl sends along when it asks for a server."""
        return ["prompt_ids"]

    def require_release_fields(self) -> list[str]:
        """Return what verl sends along when a server has answered."""
        return ["request_id"]

    def acquire_server(self, request_id: str, prompt_ids: Any = (), **extra: Any) -> tuple[str, Any]:
        """Return the server for a request, and its handle.

        Args:
            request_id: the trajectory.
            prompt_ids: its token ids so far.
            extra: what else verl may send.

        Raises:
            RuntimeError: the pool is empty.
        """
        del extra
        try:
            ticket = self.router.route(prompt_ids, session=request_id)
        except NoReplicaError as error:
            raise RuntimeError(_EMPTY) from error
        self._open.setdefault((ticket.replica, request_id), {})[ticket.decision.decision_id] = ticket
        return ticket.replica, self._servers[ticket.replica]

    def release_server(self, server_id: str, request_id: str | None = None) -> None:
        """End the oldest request of a trajectory at a server. verl tells neither success nor output."""
        tickets = self._open.get((server_id, request_id))
        if tickets:
            self._taken((server_id, request_id), next(iter(tickets))).finish()

    def _taken(self, key: tuple[str, str | None], decision_id: int) -> Ticket:
        tickets = self._open[key]
        ticket = tickets.pop(decision_id)
        if not tickets:
            del self._open[key]
        return ticket

    def _expired(self, ticket: Any) -> None:
        """Forget a request that is given up: a later release is of a later request."""
        self._taken((ticket.replica, ticket.decision.request.session), ticket.decision.decision_id)

    def add_servers(self, servers: Mapping[str, Any]) -> None:
        """Add servers; one whose id is known has come back empty."""
        self.remove_servers([name for name in servers if name in self.router])
        for name, handle in servers.items():
            self._servers[name] = handle
            self.router.add_replica(name)

    def remove_servers(self, server_ids: Iterable[str]) -> None:
        """Forget servers, and what is open there; unknown ones are ignored."""
        gone = {name for name in server_ids if name in self.router}
        for name in gone:
            self.router.remove_replica(name)
            del self._servers[name]
        for key in [key for key in self._open if key[0] in gone]:
            del self._open[key]

    def get_all_servers(self) -> list[str]:
        """Return the ids of the servers."""
        return list(self.router.replicas)

    def get_inflight_count(self, server_id: str) -> int:
        """Return the requests in flight at a server."""
        return self._loads().get(server_id, 0)

    def get_total_inflight(self) -> int:
        """Return the requests in flight at all servers."""
        return sum(self._loads().values())

    def get_status(self) -> dict[str, Any]:
        """Return the requests in flight, as verl's own balancer does."""
        loads = self._loads()
        return {
            "servers": loads,
            "total_inflight": sum(loads.values()),
            "active_servers": len(loads),
            "registered_handles": list(self._servers),
        }

    def clear_sticky_cache(self) -> dict[str, Any]:
        """Forget trajectories and predicted blocks.

        verl calls it as rollout and training take turns, so weights change.
        """
        cleared = self.router.forget_sessions()
        self.router.new_epoch()
        return {"cleared_entries": cleared, "server_loads": self._loads()}

    def _loads(self) -> dict[str, int]:
        return {name: replica["in_flight"] for name, replica in self.router.stats()["replicas"].items()}
