"""What was simulated, as what has to be deployed.

Policy, parameters, load signal and cache, and the line that makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from prefixroute.policies import as_policy
from prefixroute.sim import Scenario
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.workload import Workload


@dataclass(frozen=True, slots=True)
class Deployment:
    """The router that was simulated under the advised policy.

    Attributes:
        policy: name of the policy, with its parameters behind colons where they are not the defaults
            (``cache-aware:min_match_tokens=1078``): what ``Router(policy=...)`` and ``--policies`` take.
        parameters: those that differ from their defaults.
        load: the signal that the policy balances.
        capacity_tokens: KV cache of one replica; None = not limited.
        block_size: tokens a block.
        replicas: of the fleet.
        prompt_kind: what the prompts of the log are, ``messages`` or ``text``; None for token ids and hashes.
    """

    policy: str
    parameters: Mapping[str, Any]
    load: str
    capacity_tokens: int | None
    block_size: int
    replicas: int
    prompt_kind: str | None = None

    @classmethod
    def of(cls, scenario: Scenario, workload: Workload) -> Deployment:
        """Return the router of a scenario, for prompts as the workload has them.

        Args:
            scenario: that was simulated.
            workload: whose kind of prompts the router takes.
        """
        given = parameters_of(scenario.policy)
        name = scenario.policy if isinstance(scenario.policy, str) else as_policy(scenario.policy).name
        named = ":".join(
            [
                name,
                *(f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in given.items()),
            ]
        )
        return cls(
            named,
            given,
            scenario.load_signal,
            scenario.capacity_tokens,
            workload.block_size,
            scenario.replicas,
            workload.prompt_kind,
        )

    @property
    def python(self) -> str:
        """The line to paste: ``router = pr.Router(replicas, policy="session", load="in_flight", ...)``."""
        arguments: dict[str, str | int | None] = {
            "policy": self.policy,
            "load": self.load,
            "block_size": self.block_size,
            "capacity_tokens": self.capacity_tokens,
            **({} if self.prompt_kind is None else {"prompt_kind": self.prompt_kind}),
        }
        said = ", ".join(f"{name}={_literal(value)}" for name, value in arguments.items())
        return f"router = pr.Router(replicas, {said})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {**asdict(self), "python": self.python}


def parameters_of(policy: AnyPolicy) -> Mapping[str, Any]:
    """Return the parameters of a policy object that differ from their defaults."""
    if isinstance(policy, str) or not is_dataclass(policy):
        return {}
    named = {field.name: field.default for field in fields(policy)}
    return {name: getattr(policy, name) for name, usual in named.items() if getattr(policy, name) != usual}


def _literal(value: str | int | None) -> str:
    return f"{value:_}" if isinstance(value, int) else "None" if value is None else f'"{value}"'
