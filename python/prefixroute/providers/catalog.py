"""Providers of LLM APIs as data with a date: what their models cost, and by which rules their caches work.

The figures are in ``data/*.toml``, one file for each provider. Nothing about a provider is written into logic: one
vocabulary of rules covers all of them (:class:`Mode`). A user's own file has the same form and comes first.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from prefixroute.costmodel.assumption import GIVEN
from prefixroute.errors import ConfigError
from prefixroute.validation import check_choice, check_fields, check_float, check_given, check_int, did_you_mean, shown

KINDS = ("marks", "automatic", "keyed", "stored")
"""How a prompt gets into a cache: by marks in it, by itself, helped by a routing key, or as an object one makes."""
MATCHES = ("prefix", "breakpoint", "units")
"""What a later prompt can hit: any prefix, exact breakpoints only, or units that end where requests ended."""
READABLE = ("first-token", "end")
"""From when on an entry can be read: the first token of the response that writes it, or its end."""
STANDARD, BATCH = "standard", "batch"
MOST_USD = 1e6
"""US dollars for a million tokens; far above any price."""
MOST_TOKENS = 1_000_000_000
MOST_SECONDS = 366 * 86_400.0
MAX_AGE_DAYS = 92
"""Days after which a table of prices warns: a quarter, in which most providers have changed a price (ASSUMED)."""
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long an entry is kept, counted from the start of the request that wrote or last read it.

    Attributes:
        name: what the provider calls it (``5m``, ``1h``).
        seconds: its length.
    """

    name: str
    seconds: float

    def __post_init__(self) -> None:
        """Check the length."""
        check_float(f"the lifetime {self.name!r}", self.seconds, 0, MOST_SECONDS, above=True)


@dataclass(frozen=True, slots=True)
class Mode:
    """One way in which a provider caches.

    Attributes:
        name: what it is called here.
        kind: one of :data:`KINDS`.
        match: one of :data:`MATCHES`.
        lifetimes: what a caller can choose, the default first.
        source: where the rules were read, with a date.
        refresh_on_read: a hit starts the lifetime again.
        promised: a live entry is hit, by the provider's word; otherwise hits are best effort.
        readable: one of :data:`READABLE`.
        max_marks: breakpoints of one request.
        lookback_blocks: content blocks before a mark in which an earlier entry is looked for; None where there is no
            limit.
        rolling_blocks: distance at which rolling breakpoints should be placed.
        match_latest: breakpoints of a prompt that are compared, from its end.
        increment_tokens: hits are multiples of this, above the minimum.
        key: the parameter that routes requests to one cache.
        key_head_tokens: tokens of a prompt's head that are hashed together with the key.
        key_requests_per_minute: requests for one head and key above which some go to other machines.
        prewarm: how to write an entry without an answer; empty where there is no way.
        scope: within what entries are shared.
        assumed: names of the rules above that no source states.
        note: what else there is to know.
    """

    name: str
    kind: str
    match: str
    lifetimes: tuple[Lifetime, ...]
    source: str
    refresh_on_read: bool = True
    promised: bool = False
    readable: str = "end"
    max_marks: int | None = None
    lookback_blocks: int | None = None
    rolling_blocks: int | None = None
    match_latest: int | None = None
    increment_tokens: int | None = None
    key: str = ""
    key_head_tokens: int | None = None
    key_requests_per_minute: float | None = None
    prewarm: str = ""
    scope: str = ""
    assumed: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        """Check words and figures."""
        for name, allowed in (("kind", KINDS), ("match", MATCHES), ("readable", READABLE)):
            check_choice(f"{name} of mode {shown(self.name)}", getattr(self, name), allowed)
        if not self.lifetimes:
            raise ConfigError(f"mode {shown(self.name)} must have a lifetime")
        counts = (
            "max_marks",
            "lookback_blocks",
            "rolling_blocks",
            "match_latest",
            "increment_tokens",
            "key_head_tokens",
        )
        check_given(self, check_int, *counts, low=1, high=MOST_TOKENS)
        check_given(self, check_float, "key_requests_per_minute", low=0, above=True)

    def lifetime(self, name: str | None = None) -> Lifetime:
        """Return a lifetime by its name; the default one for None.

        Args:
            name: e.g. ``1h``.

        Raises:
            ConfigError: the mode has no such lifetime.
        """
        if name is None:
            return self.lifetimes[0]
        for one in self.lifetimes:
            if one.name == name:
                return one
        raise ConfigError(
            f"{self.name} has the lifetimes {', '.join(one.name for one in self.lifetimes)}, got {shown(name)}"
        )


@dataclass(frozen=True, slots=True)
class Price:
    """What tokens cost from one context length on, in one service tier. US dollars for a million tokens.

    Attributes:
        input: prompt tokens that are neither read from a cache nor written to one.
        output: answer tokens.
        read: prompt tokens read from a cache.
        write: prompt tokens written to a cache, by the name of the lifetime. A lifetime that is not in it is written at
            the input price: there is no fee.
        tier: ``standard``, ``batch``, or another service tier.
        above_tokens: prompts of more tokens than this cost this, whole.
        storage_per_hour: a million tokens kept for an hour in a stored object.
    """

    input: float
    output: float
    read: float
    write: Mapping[str, float] = field(default_factory=dict)
    tier: str = STANDARD
    above_tokens: int = 0
    storage_per_hour: float = 0.0

    def __post_init__(self) -> None:
        """Check every figure."""
        rates = ("input", "output", "read", "storage_per_hour")
        check_fields(self, check_float, *rates, called="the {} price", low=0, high=MOST_USD)
        for lifetime, price in self.write.items():
            check_float(f"the write price of {lifetime}", price, 0, MOST_USD)
        check_int("above_tokens", self.above_tokens, 0, MOST_TOKENS)
        object.__setattr__(self, "write", MappingProxyType(dict(self.write)))

    def writing(self, lifetime: str) -> float:
        """Return what a million tokens cost that are written for a lifetime: the input price where there is no fee.

        Args:
            lifetime: its name.
        """
        return self.write.get(lifetime, self.input)

    def usd(self, tokens: float, price: str, lifetime: str = "") -> float:
        """Return the dollars of some tokens at the ``input``, ``output``, ``read`` or ``write`` price.

        Args:
            tokens: how many.
            price: which one, or ``write``.
            lifetime: for which tokens are written.
        """
        rate = self.writing(lifetime) if price == "write" else getattr(self, price)
        return float(tokens * rate / _MILLION)

    def __reduce__(self) -> tuple[type[Price], tuple[object, ...]]:
        """Pickle as its fields: a mapping proxy cannot be."""
        figures = (self.input, self.output, self.read, dict(self.write), self.tier, self.above_tokens)
        return Price, (*figures, self.storage_per_hour)


@dataclass(frozen=True, slots=True)
class Model:
    """One model of a provider: prices, and the ways in which its prompts are cached.

    Attributes:
        id: the name in requests.
        provider: the provider's name.
        minimum_tokens: shorter prefixes are not cached, silently.
        modes: ways of caching, the default first.
        prices: by tier and context length.
        date: when the figures were collected.
        source: where.
        aliases: other names of it.
        assumed: names of the figures that no source states.
        note: what else there is to know.
    """

    id: str
    provider: str
    minimum_tokens: int
    modes: tuple[Mode, ...]
    prices: tuple[Price, ...]
    date: dt.date
    source: str
    aliases: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        """Check the minimum and that there is a standard price for any length."""
        check_int("minimum_tokens", self.minimum_tokens, 0, MOST_TOKENS)
        if not self.modes:
            raise ConfigError(f"model {shown(self.id)} must have a mode")
        if not any(price.tier == STANDARD and price.above_tokens == 0 for price in self.prices):
            raise ConfigError(
                f"model {shown(self.id)} must have a price with tier = {shown(STANDARD)} and above_tokens = 0"
            )

    def mode(self, name: str | None = None) -> Mode:
        """Return a mode by its name, or the first mode.

        Args:
            name: e.g. ``explicit``.

        Raises:
            ConfigError: the model has no such mode.
        """
        for mode in self.modes:
            if name in (None, mode.name, mode.kind):
                return mode
        raise ConfigError(f"{self.id} caches by {' or '.join(mode.name for mode in self.modes)}, got {shown(name)}")

    def price(self, prompt_tokens: int = 0, tier: str = STANDARD) -> Price:
        """Return what a prompt of this length costs in a tier: the highest step that it exceeds.

        Args:
            prompt_tokens: cached ones included.
            tier: e.g. ``standard`` or ``batch``.

        Raises:
            ConfigError: the model has no such tier.
        """
        steps = [price for price in self.prices if price.tier == tier and price.above_tokens < max(1, prompt_tokens)]
        if not steps:
            tiers = dict.fromkeys(price.tier for price in self.prices)
            raise ConfigError(f"{self.id} has the tiers {', '.join(tiers)}, got {shown(tier)}")
        return max(steps, key=lambda price: price.above_tokens)

    def is_cacheable(self, tokens: int) -> bool:
        """Return whether a prefix of this many tokens can be cached at all.

        Args:
            tokens: of the prefix.
        """
        return tokens >= self.minimum_tokens

    def with_figures(
        self,
        *,
        input: float | None = None,  # noqa: A002 - the word of every price list
        output: float | None = None,
        read: float | None = None,
        write: float | None = None,
        minimum_tokens: int | None = None,
        source: str = GIVEN,
    ) -> Model:
        """Return the model with prices of one's own, in US dollars for a million tokens, for every length and tier.

        Args:
            input: of prompt tokens; ``None`` = the model's.
            output: of answer tokens; ``None`` = the model's.
            read: of prompt tokens that are read from the cache; ``None`` = the model's.
            write: of prompt tokens that are written to the cache; ``None`` = the model's.
            minimum_tokens: shortest prefix that is cached; ``None`` = the model's.
            source: where the figures are from.
        """
        given = {"input": input, "output": output, "read": read}
        base = self.price()
        prices: tuple[Price, ...] = self.prices
        if write is not None or any(value is not None for value in given.values()):
            names = [lifetime.name for mode in self.modes for lifetime in mode.lifetimes]
            writes = dict(base.write) if write is None else dict.fromkeys(names, write)
            chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            prices = (replace(base, write=writes, above_tokens=0, **chosen),)
        least = self.minimum_tokens if minimum_tokens is None else minimum_tokens
        if prices is self.prices and least == self.minimum_tokens:
            return self
        known = tuple(name for name in self.assumed if name != "minimum_tokens" or minimum_tokens is None)
        return replace(self, prices=prices, minimum_tokens=least, source=source, assumed=known)


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider, with its models.

    Attributes:
        name: short name (``anthropic``).
        title: what tables call it.
        date: when the figures were collected.
        source: where.
        default_model: the model of a plan that names none.
        usage: which form its usage objects have, see :mod:`prefixroute.providers.usage`.
        models: by ``id``, in the order of the file.
        note: what else there is to know.
    """

    name: str
    title: str
    date: dt.date
    source: str
    default_model: str
    usage: str
    models: tuple[Model, ...]
    note: str = ""

    def model(self, name: str | None = None) -> Model:
        """Return a model by its name or an alias; the default one for None.

        Args:
            name: its id or an alias.

        Raises:
            ConfigError: there is none of this name; the message lists the nearest.
        """
        return nearest_model(self.default_model if name is None else name, [self])

    def stale_note(self, today: dt.date, max_age_days: int = MAX_AGE_DAYS) -> str | None:
        """Return a warning if the figures are older than ``max_age_days`` on ``today``, else None.

        Args:
            today: the date.
            max_age_days: days after which figures are old.
        """
        check_int("max_age_days", max_age_days, 0)
        age = (today - self.date).days
        if age <= max_age_days:
            return None
        told = f"prices of {self.title} are {age} days old ({self.date.isoformat()})"
        return f"{told}: check them, or give a file of your own"


def nearest_model(name: str, among: Iterable[Provider]) -> Model:
    """Return the model of this id or alias; of two, the one of the provider that comes first.

    Raises:
        ConfigError: there is none of this name; the message lists the nearest.
    """
    known: dict[str, Model] = {}
    for provider in among:
        for model in provider.models:
            for label in (model.id, *model.aliases):
                known.setdefault(label, model)
    if isinstance(name, str) and name in known:
        return known[name]
    others = did_you_mean(name, known) or f"; known are {', '.join(known)}"
    raise ConfigError(f"no prices for the model {shown(name)}; a file of your own can name it{others}")
