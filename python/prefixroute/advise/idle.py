"""Replicas that a policy leaves nearly idle, and why: recomputing least is no merit where one replica does it all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prefixroute.policies import CacheAware, PrefixHash, as_policy
from prefixroute.sim import Outcome, Scenario

NEARLY = 0.1
"""Share of the mean of all replicas below which one is nearly idle."""
FEWEST_REQUESTS = 10
"""Requests a replica, on average, from which being idle means something."""


@dataclass(frozen=True, slots=True)
class Idle:
    """How many of the replicas get less than a tenth of their share, in the best of the runs, and why if it is known."""

    policy: str
    idle: int
    replicas: int
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return asdict(self)

    @property
    def remark(self) -> str:
        """It in a few words, to stand behind a verdict."""
        return f"{self.idle} of {self.replicas} replicas nearly idle"

    def text(self) -> str:
        """Return it as a sentence."""
        return f"{self.policy} leaves {self.remark}{f': {self.why}' if self.why else ''}."


def count_idle(outcomes: Sequence[Outcome]) -> int:
    """Return how many replicas are nearly idle, in the run where fewest are."""
    return min(_idle(outcome.served) for outcome in outcomes)


def _idle(served: Sequence[int]) -> int:
    mean = sum(served) / len(served)
    return 0 if mean < FEWEST_REQUESTS else sum(1 for count in served if count < NEARLY * mean)


def reason(scenario: Scenario, head_tokens: int) -> str:
    """Return why a policy sends everything to few replicas, where a common head of ``head_tokens`` is why; else nothing."""
    policy = as_policy(scenario.policy)
    least = policy.min_match_tokens if isinstance(policy, CacheAware) else None
    hashed = policy.head_tokens if isinstance(policy, PrefixHash) else None
    shared = f"the {head_tokens:,} tokens that most prompts begin with"
    if least is not None and head_tokens >= max(1, least):
        return f"its minimum match of {least:,} tokens is no more than {shared}, so that any prompt follows the first"
    if hashed is not None and head_tokens >= max(1, hashed):
        return f"it hashes {hashed:,} tokens, no more than {shared}"
    return ""
