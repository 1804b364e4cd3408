"""What the shapes of all generators have in common: their sizes are checked, and listed as assumptions."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from prefixroute.costmodel.assumption import Assumption
from prefixroute.errors import ConfigError


class Shape(Protocol):
    """A frozen dataclass of sizes, each with a default."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def check_sizes(kind: str, shape: Shape, *, may_be_zero: Collection[str] = ()) -> None:
    """Check that whole numbers are 1 or more (0 where that means "none of it") and other numbers 0 or more.

    Raises:
        ConfigError: naming the size, what it is and what it may be.
    """
    for size in fields(shape):
        value = getattr(shape, size.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        least = 1 if isinstance(size.default, int) and size.name not in may_be_zero else 0
        if isinstance(size.default, int) and not isinstance(value, int):
            raise ConfigError(f"{kind} {size.name} must be a whole number, got {value}")
        if not least <= value < math.inf:
            raise ConfigError(f"{kind} {size.name} must be {least} or more, got {value}")


def assumptions_of(
    kind: str, shape: Shape, source: str, *, other: str = "", of_other: Collection[str] = ()
) -> tuple[Assumption, ...]:
    """Return each size as an assumption, assumed where it is the default.

    Args:
        kind: the generator's name, put before each size's.
        shape: the sizes.
        source: where the defaults are from.
        other: where the defaults of the sizes in ``of_other`` are from.
        of_other: names of sizes.
    """
    rows = []
    for size in fields(shape):
        value = getattr(shape, size.name)
        unit = "tokens" if size.name.endswith("tokens") else ""
        shown = value if isinstance(value, int | float | str) else str(value)
        origin = other if size.name in of_other else source
        rows.append(Assumption(f"{kind}_{size.name}", shown, unit, origin, value == size.default))
    return tuple(rows)


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
