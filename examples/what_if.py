"""What the simulator says of several routers, failures, late events and a CPU tier: four small tables.

Run it: python examples/what_if.py [requests]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from prefixroute.costmodel import CostModel
from prefixroute.policies import Policy, View
from prefixroute.policies.keyed import text_hash
from prefixroute.sim import EngineModel, Events, FleetChange, History, Perfect, Run, Scenario, Tier, simulate
from prefixroute.workload import Poisson, Workload, chat

PCIE_BYTES_PER_S = 25e9
"""From the host's memory to a GPU over PCIe 4.0 x16, as measured by most (ASSUMED)."""


class FirstSeen(Policy):
    """Sticky as many routers are: a session stays where this router first sent it, the least loaded replica then."""

    name: ClassVar[str] = "first-seen"
    signals: ClassVar[frozenset[str]] = frozenset()

    def decide(self, view: View) -> tuple[int, str]:
        """Return the bound slot, else the least loaded."""
        if view.binding is not None and view.binding in view.slots:
            return view.binding, "bound"
        return min(view.slots, key=lambda slot: (view.loads[slot], view.draw(slot))), "first"


class Modulo(Policy):
    """The hashing that moves nearly every session when the number of replicas changes."""

    name: ClassVar[str] = "modulo"
    signals: ClassVar[frozenset[str]] = frozenset()

    def decide(self, view: View) -> tuple[int, str]:
        """Return the session's hash modulo the candidates."""
        return view.slots[text_hash(view.request.session or "") % len(view.slots)], "hashed"


def routers(workload: Workload) -> Iterable[str]:
    """Several routers that share nothing, behind a round-robin front."""
    yield "recomputed with N routers behind a round-robin front      1       2       4   4, sticky front"
    for policy in ("session", FirstSeen(), "cache-aware"):
        base = Scenario(policy=policy, capacity_tokens=None)
        scenarios = [replace(base, routers=count) for count in (1, 2, 4)]
        scenarios.append(replace(base, routers=4, front="sticky"))
        ratios = [simulate(workload, one).outcome.recompute_ratio for one in scenarios]
        yield f"{base.policy_name:50}" + "".join(f"{ratio:8.1%}" for ratio in ratios)


def changes(workload: Workload) -> Iterable[str]:
    """A replica dies and returns; a ninth one is added. Recomputed tokens of the thousand requests after."""
    count = workload.request_count or 0
    half, later = count // 2, count // 2 + 1_000
    events = {
        "nothing": (),
        "one of 8 dies": (FleetChange(half, "die", "replica-3"),),
        "it returns": (FleetChange(half - 2_000, "die", "replica-3"), FleetChange(half, "return", "replica-3")),
        "8 become 9": (FleetChange(half, "add", "replica-8"),),
    }
    yield "recomputed in the 1,000 requests after" + "".join(f"{name:>16}" for name in events)
    for policy in (Modulo(), "rendezvous", "session", "cache-aware"):
        shares = []
        for planned in events.values():
            log = simulate(workload, Scenario(policy=policy, changes=planned)).log
            prompt, hit = (log.column(name)[half:later].sum() for name in ("prompt", "hit"))
            shares.append(1 - hit / prompt)
        name = policy if isinstance(policy, str) else policy.name
        yield f"{name:38}" + "".join(f"{share:16.1%}" for share in shares)


def ttft(run: Run) -> str:
    """Return recompute and TTFT of a run in time."""
    outcome = run.outcome
    return f"{outcome.recompute_ratio:11.1%}{1e3 * outcome.ttft.p50:10.0f} ms{1e3 * outcome.ttft.p99:10.0f} ms"


def events(workload: Workload) -> Iterable[str]:
    """What the router knows of the caches, in time."""
    base = Scenario(policy="cache-aware", replicas=4, engine=EngineModel(CostModel()), capacity_tokens=100_000)
    yield "cache-aware, belief from        recomputed     TTFT p50     TTFT p99"
    observed = (Perfect(), Events(), Events(delay_s=1.0), Events(delay_s=30.0), Events(loss=0.1), History())
    for observe in observed:
        yield f"{observe!r:31}{ttft(simulate(workload, replace(base, observe=observe)))}"


def tiers(workload: Workload) -> Iterable[str]:
    """A CPU tier below small GPU caches: what it saves, and why a GPU hit is better."""
    cost = CostModel()
    tier = Tier("CPU", 1_000_000, cost.model.kv_bytes_per_token / PCIE_BYTES_PER_S)
    yield "100k tokens of GPU cache        recomputed     TTFT p50     TTFT p99"
    for policy in ("round-robin", "session"):
        base = Scenario(policy=policy, replicas=4, engine=EngineModel(cost), capacity_tokens=100_000)
        for name, below in (("", ()), (" + CPU tier", (tier,))):
            yield f"{policy + name:31}{ttft(simulate(workload, replace(base, tiers=below)))}"


def main() -> None:
    """Print the four tables."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    ordered = chat(seed=1, requests=requests)
    in_time = chat(seed=1, requests=requests // 4, arrivals=Poisson(6.0))
    for table in (routers(ordered), changes(ordered), events(in_time), tiers(in_time)):
        print(*table, "", sep="\n")


if __name__ == "__main__":
    main()
