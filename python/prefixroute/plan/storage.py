"""Stored cache objects, which are paid for by the token-hour, against caching that happens by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prefixroute.costmodel.assumption import Assumption
from prefixroute.document import figures
from prefixroute.errors import ConfigError
from prefixroute.plan.burst import figures_assumed
from prefixroute.providers.catalog import STANDARD, Mode, Model
from prefixroute.validation import check_float, check_int


@dataclass(frozen=True, slots=True)
class StorageRow:
    """One way of caching at a rate of uses: US dollars an hour of the shared prefix, between best and worst case."""

    name: str
    usd_per_hour: float
    best_usd_per_hour: float
    worst_usd_per_hour: float


@dataclass(frozen=True, slots=True)
class StoragePlan:
    """Implicit caching against a stored object.

    Attributes:
        model: the model's id.
        shared_tokens: of the prefix.
        uses_per_hour: rate.
        is_cacheable: whether the prefix reaches the model's minimum.
        rows: no cache, implicit, explicit.
        break_even_per_hour: uses an hour from which the stored object costs less than no cache; None if it never does.
        break_even_against_implicit: the same against implicit caching with its expected misses; None if it never does.
        assumptions: figures that no source states.
    """

    model: str
    shared_tokens: int
    uses_per_hour: float
    is_cacheable: bool
    rows: tuple[StorageRow, ...]
    break_even_per_hour: float | None
    break_even_against_implicit: float | None
    assumptions: tuple[Assumption, ...]

    @property
    def best(self) -> StorageRow:
        """The least expected cost."""
        return min(self.rows, key=lambda row: row.usd_per_hour)

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        return {
            **figures(self, "model", "shared_tokens", "uses_per_hour", "is_cacheable", "rows"),
            "best": self.best.name,
            **figures(self, "break_even_per_hour", "break_even_against_implicit"),
        }


def plan_storage(
    model: Model,
    shared_tokens: int,
    uses_per_hour: float,
    *,
    hours: float = 1.0,
    miss_probability: float = 0.0,
    tier: str = STANDARD,
) -> StoragePlan:
    """Price a shared prefix with a stored object, and with implicit caching.

    With p tokens, u uses an hour and the prices i, r and s (a token kept for an hour): no cache u p i; a stored object
    u p r + p s + p i / h, written once in h hours at the input price; implicit caching hits where the gap before is
    within its lifetime T, with probability (1 - exp(-u T)) (1 - m): uses come at random (Poisson). Stored pays from
    u = (s + i / h) / (i - r) uses an hour on. Source: Gemini's price page and caching guide, 2026-11.

    Args:
        model: prices and rules; it needs a mode of kind ``stored``.
        shared_tokens: of the prefix.
        uses_per_hour: rate, above 0.
        hours: how long an object lives before it is written anew, a minute or more.
        miss_probability: that implicit caching misses a live entry.
        tier: service tier of the requests; storage costs the standard price.

    Returns:
        The dollars of no cache, of implicit caching and of the stored object.

    Raises:
        ConfigError: the model has no stored objects, or a figure is out of bounds.
    """
    check_int("shared_tokens", shared_tokens, 1, 10**9)
    check_float("uses_per_hour", uses_per_hour, 0, 1e12, above=True)
    check_float("hours", hours, 1 / 60, 1e6)
    check_float("miss_probability", miss_probability, 0, 1)
    if not any(mode.kind == "stored" for mode in model.modes):
        raise ConfigError(f"{model.id} has no stored cache objects; models of gemini and vertex do")
    implicit: Mode | None = next((mode for mode in model.modes if mode.kind != "stored"), None)
    price, rent = model.price(shared_tokens, tier), model.price(shared_tokens).storage_per_hour
    plain, read = price.usd(shared_tokens, "input"), price.usd(shared_tokens, "read")
    fixed = (shared_tokens * rent + shared_tokens * price.input / hours) / 1e6
    no_cache = uses_per_hour * plain
    rows = [StorageRow("no cache", no_cache, no_cache, no_cache)]
    cacheable = model.is_cacheable(shared_tokens)
    against = None
    if cacheable:
        stored = uses_per_hour * read + fixed
        if implicit is not None:
            live = 1 - math.exp(-uses_per_hour * implicit.lifetime().seconds / 3600)
            hits = live * (1 - miss_probability)
            expected = uses_per_hour * (hits * read + (1 - hits) * plain)
            rows.append(
                StorageRow(implicit.name, expected, uses_per_hour * (live * read + (1 - live) * plain), no_cache)
            )
            against = _crossing(plain, read, fixed, implicit.lifetime().seconds / 3600, miss_probability)
        rows.append(StorageRow("explicit, stored", stored, stored, stored))
    even = fixed / (plain - read) if cacheable and plain > read else None
    stored_mode = next(mode.name for mode in model.modes if mode.kind == "stored")
    assumptions = (*figures_assumed(model), *(figures_assumed(model, stored_mode) if implicit is None else ()))
    return StoragePlan(model.id, shared_tokens, uses_per_hour, cacheable, tuple(rows), even, against, assumptions)


def _crossing(plain: float, read: float, fixed: float, lifetime_h: float, missed: float) -> float | None:
    """Return the least rate at which the stored object's fixed cost is below what implicit misses cost, by bisection.

    Misses cost u (1 - (1 - exp(-u T)) (1 - m)) (plain - read) an hour: with m = 0 that peaks at u = 1 / T and falls
    again.
    """

    def lost(rate: float) -> float:
        return rate * (1 - (1 - math.exp(-rate * lifetime_h)) * (1 - missed)) * (plain - read)

    peak = next((rate for rate in _rates(lifetime_h) if lost(rate) >= fixed), None)
    if peak is None:
        return None
    low, high = 0.0, peak
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if lost(middle) >= fixed else (middle, high)
    return high


def _rates(lifetime_h: float) -> list[float]:
    """Return rates from a hundredth to a million uses in a lifetime, on a logarithmic scale."""
    return [10 ** (step / 20) / lifetime_h for step in range(-40, 121)]
