"""What stands before a simulated fleet: what its routers know of each other when they decide."""

from __future__ import annotations

from typing import Any

from prefixroute.costmodel import CostModel
from prefixroute.sim import EngineModel, Scenario
from prefixroute.sim.front import Front
from prefixroute.workload.spec import Spec


def test_a_router_that_routes_again_knows_what_the_others_have_said() -> None:
    scenario = Scenario(policy="least-loaded", engine=EngineModel(CostModel()), routers=2, peer_delay_s=0.0, seed=1)
    stores: dict[str, Any] = dict.fromkeys(["a", "b", "c"])
    front = Front(scenario, 16, stores, lambda: 0.0, lambda *_: None)
    first, second = list(Spec.parse("chat,requests=2,slots=2")(1).requests())
    ticket = front.route(first, 0.0)
    of_another = front.route(second, 0.0)
    front.remove(ticket.replica)
    again = front.retry(first, ticket, ticket.replica, 0.0)
    assert sorted([ticket.replica, of_another.replica, again.replicas[-1]]) == ["a", "b", "c"]
    seen = [router.stats()["replicas"][of_another.replica]["in_flight"] for router in front.routers]
    assert seen == [1, 1]
