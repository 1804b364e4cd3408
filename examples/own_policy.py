"""A policy of your own in ten lines, against the built-in ones, on the chat workload.

Run it: python examples/own_policy.py [requests]
"""

from __future__ import annotations

import sys

from prefixroute.policies import View
from prefixroute.sim import Scenario, simulate
from prefixroute.workload import chat


def holders_within_reason(view: View) -> list[float]:
    """Score a replica by its cached tokens; forget the cache where the load is twice the lightest."""
    lightest = min(view.loads[slot] for slot in view.slots)
    return [
        view.hits[slot] if view.loads[slot] <= 2 * lightest + 10 else -view.loads[slot]
        for slot in view.slots
    ]  # fmt: skip


def main() -> None:
    """Print what each policy computes again."""
    workload = chat(seed=1, requests=int(sys.argv[1]) if len(sys.argv) > 1 else 40_000)
    for policy in ("round-robin", "session", "cache-aware", holders_within_reason):
        outcome = simulate(workload, Scenario(policy=policy, replicas=8, seed=1)).outcome
        print(f"{outcome.policy:24} recomputes {outcome.recompute_ratio:6.2%}, skew {outcome.skew:.3f}")


if __name__ == "__main__":
    main()
