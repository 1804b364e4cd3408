"""Replicas that a policy leaves nearly idle, and why: recomputing least is no merit where one replica does it all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefixroute.policies import CacheAware, PrefixHash, as_policy
from prefixroute.sim import Outcome, Scenario

NEARLY = 0.1
"""Share of the mean of all replicas below which one is nearly idle."""
FEWEST_REQUESTS = 10
"""Requests a replica, on average, from which being idle means something."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a policy leaves replicas idle.

    ``minimum-match``: its minimum match is within the common head. ``hashed-head``: it hashes no more than that head.

    ``tokens`` is the policy's figure, ``head_tokens`` the length of the head that most prompts begin with.
    """

    kind: str
    tokens: int
    head_tokens: int


@dataclass(frozen=True, slots=True)
class Idle:
    """How many replicas get less than a tenth of their share in the best of the runs, and why if it is known."""

    policy: str
    idle: int
    replicas: int
    why: Reason | None

    @property
    def evidence(self) -> dict[str, Any]:
        """The figures of a finding; of the reason only where it is known."""
        why = self.why
        known = {} if why is None else {"why": why.kind, "tokens": why.tokens, "head_tokens": why.head_tokens}
        return {"policy": self.policy, "idle": self.idle, "replicas": self.replicas, **known}


def count_idle(outcomes: Sequence[Outcome]) -> int:
    """Return how many replicas are nearly idle, in the run where fewest are."""
    return min(_idle(outcome.served) for outcome in outcomes)


def _idle(served: Sequence[int]) -> int:
    mean = sum(served) / len(served)
    return 0 if mean < FEWEST_REQUESTS else sum(1 for count in served if count < NEARLY * mean)


def reason(scenario: Scenario, head_tokens: int) -> Reason | None:
    """Return why a policy sends everything to few replicas, where a common head of ``head_tokens`` is why."""
    policy = as_policy(scenario.policy)
    least = policy.min_match_tokens if isinstance(policy, CacheAware) else None
    hashed = policy.head_tokens if isinstance(policy, PrefixHash) else None
    if least is not None and head_tokens >= max(1, least):
        return Reason("minimum-match", least, head_tokens)
    if hashed is not None and head_tokens >= max(1, hashed):
        return Reason("hashed-head", hashed, head_tokens)
    return None
