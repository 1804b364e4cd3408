"""What advice is sought for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from prefixroute.advise import sensitivity
from prefixroute.advise.choice import IN_USE, OBJECTIVES
from prefixroute.advise.size import Headroom
from prefixroute.advise.slo import Slo
from prefixroute.costmodel import Link, find_link
from prefixroute.errors import ConfigError
from prefixroute.sim import Scenario
from prefixroute.sim.grid import seeds_of
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.validation import check_choice, check_float

OTHERS = ("sglang-balanced", "smg-2026-10", "dynamo")
"""Other routers, by their presets, that are compared in every advice, and by ``compare`` where no policy is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What advice is sought for.

    Args:
        scenario: the fleet and all that is simulated of it; its policy is not used. An engine makes it timed.
        timed: simulate with a clock; None = where the workload spans time. Untimed runs have a choice of their own,
            which is then tried in timed runs.
        current: the policy in use: savings are against it, and the backtest assumes it; ``None`` = :data:`IN_USE`,
            assumed.
        policies: further policies and presets to compare, beside :data:`OTHERS`; an empty sequence = not even these.
        objective: what decides, one of :data:`~prefixroute.advise.choice.OBJECTIVES`.
        slos: promises that the fleet has to keep; none = today's answer times.
        headroom: what the fleet has to carry beyond the traffic.
        lifetimes: seconds that an API keeps a prefix after its last use; given where the model is behind one: nothing
            is routed.
        apart: what keys and values move over where some replicas only prefill and the others only decode: the advised
            policy is then tried on such splits of the same fleet, timed. None = no split is tried.
        vary: figures to change, to see whether the advice stands: ``capacity``, ``price``, ``replicas``.
        seeds: runs of each policy, counted from 1, or the seeds themselves.

    Raises:
        ConfigError: no seed, an unknown objective, a lifetime of 0, something to vary that cannot be, an unknown link,
            or splits of a fleet that cannot be split: one replica, or behind an API.
    """

    scenario: Scenario = Scenario()  # noqa: RUF009 - frozen
    timed: bool | None = None
    current: AnyPolicy | None = None
    policies: Sequence[AnyPolicy] | None = None
    objective: str = "balanced"
    slos: tuple[Slo, ...] = ()
    headroom: Headroom = Headroom()  # noqa: RUF009 - frozen
    lifetimes: tuple[float, ...] = ()
    apart: str | Link | None = None
    vary: Sequence[str] = ()
    seeds: int | Sequence[int] = 3

    def __post_init__(self) -> None:
        """Check what is varied and weighed, and the seeds."""
        sensitivity.check(self.vary)
        seeds_of(self.seeds)
        check_choice("objective", self.objective, OBJECTIVES)
        if self.apart is not None:
            find_link(self.apart)
            if self.scenario.replicas == 1 or self.lifetimes:
                raise ConfigError("prefill and decode apart need two replicas or more, of one's own")
        for seconds in self.lifetimes:
            check_float("a lifetime", seconds, 0, above=True)

    @property
    def runs(self) -> int:
        """How many runs each policy gets."""
        return len(seeds_of(self.seeds))

    @property
    def variants(self) -> int:
        """How many fleets the figures to vary make."""
        return sum(1 for setting in self.vary for _ in sensitivity.variants(setting, self.scenario))

    @property
    def named(self) -> str | None:
        """Name of the policy in use, as rows have it; None where nobody said."""
        return None if self.current is None else replace(self.scenario, policy=self.current, label="").policy_name

    @property
    def in_use(self) -> str:
        """Name of the policy in use, or of what is taken to be."""
        return self.named or IN_USE

    @property
    def further(self) -> list[AnyPolicy]:
        """Policies to compare beside the advisor's own."""
        others = () if self.policies is not None and not self.policies else OTHERS
        return [*([] if self.current is None else [self.current]), *others, *(self.policies or ())]
