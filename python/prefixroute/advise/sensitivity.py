"""Would the advice stand under other figures? The same comparison with one of them changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from prefixroute.sim import ResultRow, Scenario
from prefixroute.validation import check_choice

SETTINGS = ("capacity", "price", "replicas")
"""What can be varied: each is halved and doubled; capacity is made unlimited, too."""
FACTORS = (0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Flip:
    """A changed figure, and what would be advised under it. ``value`` is None where it is unlimited."""

    setting: str
    value: float | None
    policy: str
    recompute_ratio: float
    usd_per_million_requests_busiest: float
    flips: bool


Decide = Callable[[Scenario], tuple[str, ResultRow]]
"""The advised policy, and its row, for a fleet."""


def check(settings: Sequence[str]) -> None:
    """Raise ConfigError for a setting that cannot be varied."""
    for setting in settings:
        check_choice("sensitivity", setting, SETTINGS)


def vary(settings: Sequence[str], base: Scenario, usd_per_gpu_hour: float, decide: Decide) -> Iterator[Flip]:
    """Yield what would be advised under each changed figure, and whether that is something else.

    The price multiplies the dollars of every policy alike, so it changes what the advice is worth and never the advice.
    """
    if not settings:
        return
    advised, usual = decide(base)
    for setting in settings:
        if setting == "price":
            for factor in FACTORS:
                dollars = usual.usd_per_million_requests_busiest * factor
                yield Flip(setting, usd_per_gpu_hour * factor, advised, usual.recompute_ratio, dollars, flips=False)
            continue
        for value, scenario in variants(setting, base):
            policy, row = decide(scenario)
            dollars = row.usd_per_million_requests_busiest
            yield Flip(setting, value, policy, row.recompute_ratio, dollars, flips=policy != advised)


def variants(setting: str, base: Scenario) -> Iterator[tuple[float | None, Scenario]]:
    """Yield each fleet that a setting makes, with its value; a price makes none."""
    if setting == "replicas":
        for count in sorted({max(1, round(base.replicas * factor)) for factor in FACTORS} - {base.replicas}):
            yield count, replace(base, replicas=count)
    elif setting == "capacity" and base.capacity_tokens is not None:
        for factor in FACTORS:
            capacity = max(1, round(base.capacity_tokens * factor))
            yield capacity, replace(base, capacity_tokens=capacity)
        yield None, replace(base, capacity_tokens=None)
