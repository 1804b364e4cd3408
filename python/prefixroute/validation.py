"""Bounds of what users give: one wording whatever the argument, and an error of ours whatever the type."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real
from typing import Any

from prefixroute.errors import ConfigError

MOST_SHOWN = 200
"""Letters of a value that a message shows."""


def shown(value: Any) -> str:
    """Return a value as messages show it: its repr, cut where it is long; a description where it has none.

    An int of more than 4,300 digits has none, and a class of the user's may raise anything in its own: an error about a value must not
    raise another.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # whatever a foreign __repr__ raises
        size = f" of {value.bit_length():,} bits" if isinstance(value, int) else " that cannot be shown"
        return f"{type(value).__name__}{size}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def check_int(name: str, value: Any, low: float = -inf, high: float = inf) -> None:
    """Raise ConfigError unless ``value`` is an integer, of any class but ``bool``, within the bounds."""
    integer = isinstance(value, Integral)
    if not integer or isinstance(value, bool):
        raise ConfigError(f"{name} must be an int, got {shown(value)}")
    if not low <= value <= high:
        raise ConfigError(f"{name} must be {_range(low, high)}, got {shown(value)}")


def check_float(
    name: str, value: Any, low: float, high: float = inf, *, above: bool = False, endless: bool = False
) -> None:
    """Raise ConfigError unless ``value`` is a number within the bounds.

    Args:
        name: what the error calls it.
        value: what was given.
        low: the least.
        high: the most.
        above: ``low`` itself is too little.
        endless: infinity will do.
    """
    real = isinstance(value, Real) and not _overflows(value)
    if not real or isinstance(value, bool) or (value == inf and not endless):
        raise ConfigError(f"{name} must be a {'' if endless else 'finite '}number, got {shown(value)}")
    if not low <= value <= high or (above and value == low):
        raise ConfigError(f"{name} must be {_range(low, high, above=above)}, got {shown(value)}")


def check_callable(name: str, value: Any) -> None:
    """Raise ConfigError unless ``value`` can be called."""
    if not callable(value):
        raise ConfigError(f"{name} must be a function, got {shown(value)}")


def check_instance(name: str, value: Any, kind: type) -> None:
    """Raise ConfigError unless ``value`` is of a class."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be a {kind.__name__}, got {shown(value)}")


def _overflows(value: Real) -> bool:
    """Return whether a number is finite and still too large to calculate with: an int of more than 1,024 bits."""
    try:
        float(value)
    except OverflowError:
        return True
    return False


def _range(low: float, high: float, *, above: bool = False) -> str:
    least = f"above {low:g}" if above else f"at least {low:g}"
    return least if high == inf else f"{least} and at most {high:g}"
