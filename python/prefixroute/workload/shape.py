"""What the shapes of all generators have in common: their sizes are checked, and listed as assumptions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel.assumption import Assumption
from prefixroute.draws import LONGEST
from prefixroute.errors import ConfigError
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.validation import check_int
from prefixroute.workload.arrivals import REQUESTS_PER_DAY, Arrivals, Even

RATE = Assumption(
    "requests_per_day", REQUESTS_PER_DAY, "requests per day", "evenly over the day, the article, 2026-11", assumed=True
)
"""How often requests arrive where nobody says."""
MOST_THINGS = 5_000_000
"""Turns, documents, tenants and so on, at most."""
MOST_TOKENS = LONGEST * MAX_BLOCK_SIZE
"""Tokens of any part of a prompt, at most: what the longest prompt can have."""
MOST_KEPT = 1 << 29
"""Blocks that a generator may keep at a time: 4 GiB of hashes."""


@dataclass(frozen=True, slots=True)
class Shape(ABC):
    """Sizes of a generator, each with a default. Whole numbers are 1 or more, and other numbers 0 or more.

    Tokens are at most 2**32, counts 5 million. Together they are bounded by :meth:`check`.

    Raises:
        ConfigError: naming the size, what it is and what it may be.
    """

    KIND: ClassVar[str]
    """The generator's name, as assumptions and errors have it."""
    SOURCE: ClassVar[str] = "planning figure, 2026-11"
    """Where the defaults are from."""
    OTHER_SOURCES: ClassVar[Mapping[str, str]] = {}
    """Where those are from that are from elsewhere, by the size's name."""
    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset()
    """Whole numbers that may be 0, where that means "none of it"."""
    MOST: ClassVar[Mapping[str, int]] = {}
    """Bounds of whole numbers that are lower than those of other counts, by name."""

    def __post_init__(self) -> None:
        """Check that every size can be used."""
        for size in fields(self):
            value = getattr(self, size.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            counts = isinstance(size.default, int)
            least = 1 if counts and size.name not in self.MAY_BE_ZERO else 0
            if counts and not isinstance(value, int):
                raise ConfigError(f"{self.KIND} {size.name} must be a whole number, got {value}")
            if not least <= value < math.inf:
                raise ConfigError(f"{self.KIND} {size.name} must be {least} or more, got {value}")
            most = self.MOST.get(size.name, MOST_TOKENS if size.name.endswith("tokens") else MOST_THINGS)
            if counts and value > most:
                raise ConfigError(f"{self.KIND} {size.name} must be {least} to {most}, got {value}")

    @classmethod
    def name(cls) -> str:
        """Return the generator's name as people write it."""
        return cls.KIND.replace("_", "-")

    @property
    def usual_arrivals(self) -> Arrivals:
        """When requests arrive where nobody says."""
        return Even()

    @property
    @abstractmethod
    def longest_tokens(self) -> int:
        """Tokens of the longest prompt with its answer."""

    @abstractmethod
    def kept_tokens(self, requests: int) -> float:
        """Return about how many tokens the texts have that are held at a time, in a workload of so many requests."""

    def check(self, block_size: int, requests: int) -> None:
        """Refuse what no index takes, and what would not fit in memory, before anything is made.

        Raises:
            ConfigError: naming what is too large, and the bound.
        """
        check_int("requests", requests, 0)
        check_int("block_size", block_size, 1, MAX_BLOCK_SIZE)
        longest = self.longest_tokens // block_size
        if longest > LONGEST:
            raise ConfigError(f"{self.KIND}: a prompt and its answer must have {LONGEST} blocks at most, got {longest}")
        kept = self.kept_tokens(requests) / block_size
        if kept > MOST_KEPT:
            raise ConfigError(f"{self.KIND}: texts kept at a time must have {MOST_KEPT} blocks at most, got {kept:.4g}")

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The sizes, for the assumptions of a result: assumed where they are the default."""
        rows = []
        for size in fields(self):
            value = getattr(self, size.name)
            unit = "tokens" if size.name.endswith("tokens") else ""
            shown = value if isinstance(value, int | float | str) else str(value)
            source = self.OTHER_SOURCES.get(size.name, self.SOURCE)
            rows.append(Assumption.of(f"{self.KIND}_{size.name}", shown, unit, source, given=value != size.default))
        return tuple(rows)

    def behind(self, arrivals: Arrivals | None) -> tuple[Assumption, ...]:
        """Return the sizes, and the rate of requests where nobody gave their arrivals: all that a workload rests on."""
        return self.assumptions if arrivals is not None else (*self.assumptions, RATE)


def zipf_shares(count: int, exponent: float) -> NDArray[np.float64]:
    """Return the shares of ``count`` things whose popularity falls as rank to the power ``-exponent``; sum 1."""
    weights: NDArray[np.float64] = np.arange(1, count + 1, dtype=float) ** -exponent
    weights /= weights.sum()
    return weights


class Popularity:
    """Draws numbers of things by their shares, in batches of one generator."""

    def __init__(self, rng: np.random.Generator, shares: NDArray[np.float64]) -> None:
        """Take the generator and the shares, which sum to 1."""
        self._rng = rng
        self._upper = np.cumsum(shares)
        self._batch: list[int] = []

    def draw(self) -> int:
        """Return the next number, 0 up to the number of shares, exclusive."""
        if not self._batch:
            draws = np.searchsorted(self._upper, self._rng.random(1024), side="right")
            self._batch = np.minimum(draws, len(self._upper) - 1).tolist()[::-1]
        return self._batch.pop()
