"""When requests arrive: evenly, by chance, in bursts, or as a file recorded them.

An arrival process is a callable that takes a random generator and returns an endless iterator of times in seconds that
never go back. Generators of workloads ask it for one time a request.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from prefixroute.errors import ConfigError
from prefixroute.validation import check_float

_BATCH = 4096
REQUESTS_PER_DAY = 1_000_000
"""Requests of the article's example."""
ARTICLE_RATE_PER_S = REQUESTS_PER_DAY / 86_400


class Arrivals(Protocol):
    """A process of arrival times."""

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield arrival times in seconds from the start, without end, never going back.

        Args:
            rng: what it draws from.
        """
        ...


_RATES = 1e-9, 1e9
"""Requests a second, least and most: within them no time is infinite, and gaps do not vanish."""
_SPREADS = 1e-3, 1e3


@dataclass(frozen=True, slots=True)
class Even:
    """One request every ``1 / rate_per_s`` seconds: for runs where order is the only time."""

    rate_per_s: float = ARTICLE_RATE_PER_S

    def __post_init__(self) -> None:
        """Check the rate."""
        check_float("rate_per_s", self.rate_per_s, *_RATES)

    def times(self, rng: np.random.Generator) -> Iterator[float]:  # noqa: ARG002 - nothing here is left to chance
        """Yield 0, 1/rate, 2/rate and so on.

        Args:
            rng: what it draws from.
        """
        return (at / self.rate_per_s for at in itertools.count())


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent requests at a mean of ``rate_per_s``: exponential gaps."""

    rate_per_s: float = ARTICLE_RATE_PER_S

    def __post_init__(self) -> None:
        """Check the rate."""
        check_float("rate_per_s", self.rate_per_s, *_RATES)

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield the running sum of exponential gaps.

        Args:
            rng: what it draws from.
        """
        return _gamma_times(rng, 1.0, 1.0 / self.rate_per_s)


@dataclass(frozen=True, slots=True)
class Bursty:
    """Gamma-distributed gaps with coefficient of variation ``cv``; 1 is Poisson, production clients reach 2 to 20."""

    rate_per_s: float = ARTICLE_RATE_PER_S
    cv: float = 4.0

    def __post_init__(self) -> None:
        """Check rate and spread."""
        check_float("rate_per_s", self.rate_per_s, *_RATES)
        check_float("cv", self.cv, *_SPREADS)

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield the running sum of gamma gaps of shape ``1 / cv**2``, whose mean is ``1 / rate_per_s``.

        Args:
            rng: what it draws from.
        """
        shape = 1.0 / self.cv**2
        return _gamma_times(rng, shape, 1.0 / (self.rate_per_s * shape))


def _gamma_times(rng: np.random.Generator, shape: float, scale: float) -> Iterator[float]:
    now = 0.0
    while True:
        times = now + np.cumsum(rng.gamma(shape, scale, _BATCH))
        yield from times.tolist()
        now = float(times[-1])


@dataclass(frozen=True, slots=True)
class Recorded:
    """Times taken from a recording; when it ends it starts again, one mean gap after its last time."""

    recorded_s: Sequence[float]

    def __post_init__(self) -> None:
        """Check that there are two times or more, in order, that span some time."""
        times = np.asarray(self.recorded_s, dtype=float)
        if len(times) < 2 or not np.isfinite(times).all():  # noqa: PLR2004 - a gap needs two ends
            raise ConfigError(f"a recording of arrivals needs 2 finite times or more, got {len(times)}")
        if (np.diff(times) < 0).any() or times[0] == times[-1]:
            raise ConfigError(
                f"recorded arrivals must not go back and must span some time, got {times[0]} to {times[-1]}"
            )

    def times(self, rng: np.random.Generator) -> Iterator[float]:  # noqa: ARG002 - nothing here is left to chance
        """Yield the recording, moved to start at 0, over and over.

        Args:
            rng: what it draws from.
        """
        first, last = float(self.recorded_s[0]), float(self.recorded_s[-1])
        period = (last - first) * (1 + 1 / (len(self.recorded_s) - 1))
        for turn in itertools.count():
            for time in self.recorded_s:
                yield float(time) - first + turn * period
