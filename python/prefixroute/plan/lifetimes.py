"""Which lifetime to write an entry for, from the rate of its uses or from the gaps between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from prefixroute.errors import ConfigError
from prefixroute.plan.burst import MOST_TOKENS
from prefixroute.providers.catalog import STANDARD, Model
from prefixroute.validation import check_float, check_int

NO_CACHE = "no cache"
KEPT_ALIVE = "kept alive"
MOST_PER_HOUR = 1e12
MOST_GAP_S = 1e12


@dataclass(frozen=True, slots=True)
class LifetimeChoice:
    """One way of keeping an entry.

    Attributes:
        name: the lifetime, ``no cache``, or a lifetime ``kept alive`` by reads that nobody else needs.
        hit_ratio: share of uses that find the entry.
        usd_per_thousand: US dollars of the prefix for a thousand uses.
    """

    name: str
    hit_ratio: float
    usd_per_thousand: float


@dataclass(frozen=True, slots=True)
class LifetimePlan:
    """Choices for one prefix, the cheapest first."""

    model: str
    shared_tokens: int
    source: str
    choices: tuple[LifetimeChoice, ...]

    @property
    def best(self) -> LifetimeChoice:
        """The cheapest."""
        return self.choices[0]

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        return asdict(self)


def lifetimes_by_rate(
    model: Model, shared_tokens: int, uses_per_hour: float, *, mode: str | None = None, tier: str = STANDARD
) -> LifetimePlan:
    """Price every lifetime for uses that come at a rate, independently of one another (Poisson).

    A gap is at most T with probability 1 - q, q = exp(-rate T): a use costs (1 - q) read + q write. Kept alive, an
    entry is read once in each lifetime of a gap, q / (1 - q) times on average, and never written again: read (1 + q /
    (1 - q)).

    Args:
        model: prices and rules.
        shared_tokens: of the prefix.
        uses_per_hour: rate, above 0.
        mode: way of caching; the model's default unless given.
        tier: service tier.

    Returns:
        The dollars with each lifetime, the cheapest first.
    """
    check_float("uses_per_hour", uses_per_hour, 0, MOST_PER_HOUR, above=True)
    missed = {one.name: math.exp(-uses_per_hour / 3600 * one.seconds) for one in model.mode(mode).lifetimes}
    uses = {name: (q, q / (1 - q) if q < 1 else math.inf) for name, q in missed.items()}
    return _plan(
        model,
        shared_tokens,
        f"{float(f'{uses_per_hour:.4g}'):,g} uses an hour",
        uses,
        mode=mode,
        tier=tier,
    )


def lifetimes_by_gaps(
    model: Model, shared_tokens: int, gaps_s: Sequence[float], *, mode: str | None = None, tier: str = STANDARD
) -> LifetimePlan:
    """Price every lifetime for uses with these gaps, in seconds: a gap up to the lifetime is a hit, which renews it.

    Args:
        model: prices and rules.
        shared_tokens: of the prefix.
        gaps_s: seconds between a use and the one before.
        mode: way of caching; the model's default unless given.
        tier: service tier.

    Returns:
        The dollars with each lifetime, the cheapest first.

    Raises:
        ConfigError: no gap, or one that is negative or no number.
    """
    try:
        gaps = np.asarray(gaps_s, dtype=float)
    except (TypeError, ValueError, OverflowError):
        gaps = np.empty(0)
    if gaps.ndim != 1 or not gaps.size or not ((gaps >= 0) & (gaps <= MOST_GAP_S)).all():
        raise ConfigError(f"gaps must be seconds from 0 to {MOST_GAP_S:g}, at least one of them, got {gaps_s!r:.80}")
    uses = {
        one.name: (float((gaps > one.seconds).mean()), float(np.floor(gaps / one.seconds).mean()))
        for one in model.mode(mode).lifetimes
    }
    return _plan(model, shared_tokens, f"{gaps.size} gaps", uses, mode=mode, tier=tier)


def _plan(
    model: Model,
    shared_tokens: int,
    source: str,
    uses: Mapping[str, tuple[float, float]],
    *,
    mode: str | None,
    tier: str,
) -> LifetimePlan:
    """Price each lifetime from the share of uses that miss it and the renewals that each use takes to keep it alive."""
    check_int("shared_tokens", shared_tokens, 1, MOST_TOKENS)
    used, price = model.mode(mode), model.price(shared_tokens, tier)
    plain = price.usd(1000 * shared_tokens, "input")
    choices = [LifetimeChoice(NO_CACHE, 0.0, plain)]
    if model.is_cacheable(shared_tokens):
        read = price.usd(1000 * shared_tokens, "read")
        for name, (share, renewals) in uses.items():
            write = price.usd(1000 * shared_tokens, "write", name)
            choices.append(LifetimeChoice(name, 1 - share, (1 - share) * read + share * write))
            if used.refresh_on_read and math.isfinite(renewals):
                choices.append(LifetimeChoice(f"{name} {KEPT_ALIVE}", 1.0, read * (1 + renewals)))
    choices.sort(key=lambda choice: choice.usd_per_thousand)
    return LifetimePlan(model.id, shared_tokens, source, tuple(choices))
