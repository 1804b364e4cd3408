"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable

from prefixroute.errors import ConfigError
from prefixroute.policies.base import Answer, FunctionPolicy, Policy
from prefixroute.policies.keyed import Bounded, Document, PrefixHash, Rendezvous, Session
from prefixroute.policies.match import CacheAware
from prefixroute.policies.spread import LeastLoaded, PowerOfTwo, Random, RoundRobin
from prefixroute.policies.view import View

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        RoundRobin,
        Random,
        LeastLoaded,
        PowerOfTwo,
        Session,
        Rendezvous,
        Bounded,
        PrefixHash,
        Document,
        CacheAware,
    )
}
"""Every policy by its name. Calling one makes it with its default parameters."""


def as_policy(policy: str | Policy | Callable[[View], Answer]) -> Policy:
    """Return a policy from its name, itself, or a function of a view; raise :class:`ConfigError` for anything else."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str):
        if policy in POLICIES:
            return POLICIES[policy]()
        msg = f"no policy {policy!r}; known: {', '.join(POLICIES)}"
        raise ConfigError(msg)
    if callable(policy) and not isinstance(policy, type):
        return FunctionPolicy(policy, getattr(policy, "__name__", "custom"))
    msg = f"a policy is a name, a Policy object or a function of a view, got {policy!r}"
    raise ConfigError(msg)
