"""Fleets of which some replicas only prefill and the others only decode."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from prefixroute.costmodel import DEFAULT_LINK, Link, find_link
from prefixroute.errors import ConfigError
from prefixroute.types import DECODE, MIXED, PREFILL
from prefixroute.validation import check_int

if TYPE_CHECKING:
    from prefixroute.sim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Split:
    """How a fleet is shared out, and what keys and values move over.

    Args:
        prefill: replicas that compute prompts, 1 or more.
        decode: replicas that decode answers, 1 or more.
        link: a name (``rdma``), GB/s of a replica (``25``), or a :class:`~prefixroute.costmodel.Link`.

    Raises:
        ConfigError: a count below one, or an unknown link.
    """

    prefill: int
    decode: int
    link: str | Link = DEFAULT_LINK

    def __post_init__(self) -> None:
        """Check the counts and the link."""
        check_int("prefill replicas", self.prefill, 1)
        check_int("decode replicas", self.decode, 1)
        find_link(self.link)

    @property
    def replicas(self) -> int:
        """Replicas of both kinds."""
        return self.prefill + self.decode

    @property
    def names(self) -> list[str]:
        """Names of the replicas that a run starts with: those that prefill first."""
        return [f"{role}-{n}" for role, count in ((PREFILL, self.prefill), (DECODE, self.decode)) for n in range(count)]

    def of(self, scenario: Scenario) -> Scenario:
        """Return a scenario with this fleet in place of its own, and the split behind the policy's name.

        Args:
            scenario: whose policy and other settings stay.
        """
        label = f"{scenario.policy_name}, {self}"
        return replace(scenario, replicas=self.replicas, split=self, label=label)

    def __str__(self) -> str:
        """Return ``prefill+decode``."""
        return f"{self.prefill}+{self.decode}"


def role_of(name: str, split: Split | None) -> str:
    """Return the role of a simulated replica, which its name says if the fleet is split.

    Raises:
        ConfigError: it does not.
    """
    if split is None:
        return MIXED
    role = name.partition("-")[0]
    if role not in (PREFILL, DECODE):
        raise ConfigError(f"a replica of a split fleet is called {PREFILL}-N or {DECODE}-N, got {name!r}")
    return role
