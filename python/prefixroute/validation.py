"""Bounds of what users give: one wording whatever the argument, and an error of ours whatever the type."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from math import inf
from numbers import Integral, Real
from typing import Any

from prefixroute.errors import ConfigError

MOST_SHOWN = 200
"""Letters of a value that a message shows."""


def shown(value: Any, *, most: int = MOST_SHOWN) -> str:
    """Return a value as messages show it: its repr, cut where it is long or deep; a description where it has none.

    An int of more than 4,300 digits has none, and a class of the user's may raise anything in its own: an error about a
    value must not raise another.

    Args:
        value: what was given, or a list or dict that has it somewhere.
        most: letters that are shown.
    """
    try:
        text = _SHORT.repr(value)
    except Exception:  # noqa: BLE001  # a foreign class with the name of a container
        text = _described(value)
    return text if len(text) <= most else f"{text[:most]}..."


class _Short(reprlib.Repr):
    """Shows containers to a bounded depth and length, and describes what has no repr where it stands in them."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = 2 * MOST_SHOWN
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = (
            self.maxarray
        ) = 32

    def repr_int(self, value: int, level: int) -> str:
        return self.repr_instance(value, level)

    def repr_bytes(self, value: bytes, level: int) -> str:  # noqa: ARG002
        return repr(value[: self.maxstring])

    def repr_instance(self, value: Any, level: int) -> str:  # noqa: ARG002
        try:
            return repr(value)
        except Exception:  # noqa: BLE001  # whatever a foreign __repr__ raises
            return _described(value)


_SHORT = _Short()


def _described(value: Any) -> str:
    size = f" of {value.bit_length():,} bits" if isinstance(value, int) else " that cannot be shown"
    return f"{type(value).__name__}{size}"


def check_int(name: str, value: Any, low: float = -inf, high: float = inf) -> None:
    """Raise ConfigError unless ``value`` is an integer, of any class but ``bool``, within the bounds.

    Args:
        name: what the error calls the value.
        value: to check.
        low: least that is allowed.
        high: most that is allowed.
    """
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


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise ConfigError unless ``value`` is one of a few words.

    Args:
        name: what the error calls the value.
        value: to check; of any class.
        choices: all that are allowed.
    """
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        allowed = f"one of {', '.join(choices)}, got {shown(value)}{did_you_mean(value, choices)}"
        raise ConfigError(f"{name} must be {allowed}")


def check_texts(name: str, value: Any, kind: str = "names") -> tuple[str, ...]:
    """Return a collection of texts as a tuple. A text is no collection of texts.

    Args:
        name: what the error calls the collection.
        value: what was given.
        kind: what the error calls the texts.

    Raises:
        ConfigError: it is no collection, or holds something else than texts.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"{name} must be a collection of {kind}, got {shown(value)}")
    texts = tuple(value)
    for each in texts:
        if not isinstance(each, str):
            raise ConfigError(f"{name} must be a collection of {kind}, got one that holds {shown(each)}")
    return texts


def check_names(
    owner: str, kind: str, given: Iterable[Any], known: Iterable[str], error: type[Exception] = ConfigError
) -> None:
    """Raise an error if a name was given that is not known.

    Args:
        owner: what the error calls that which has the names, e.g. a policy.
        kind: what they are, in the singular, e.g. ``parameter``.
        given: the names.
        known: all that are allowed.
        error: to raise.
    """
    known = tuple(known)
    for name in given:
        if name not in known:
            listed = f"{kind}s: {', '.join(known) or 'none'}"
            raise error(f"{owner} has no {kind} {shown(name)}; {listed}{did_you_mean(name, known)}")


def did_you_mean(value: Any, known: Iterable[str]) -> str:
    """Return the end of an error about a name: the nearest names there are, whatever their case; empty if none is near.

    Args:
        value: the name that was given.
        known: all that are allowed.
    """
    folded = {name.casefold(): name for name in known}
    near = get_close_matches(value.casefold(), folded) if isinstance(value, str) else []
    return f"; did you mean {' or '.join(shown(folded[name]) for name in near)}?" if near else ""


def check_callable(name: str, value: Any) -> None:
    """Raise ConfigError unless ``value`` can be called.

    Args:
        name: what the error calls the value.
        value: to check.
    """
    if not callable(value):
        raise ConfigError(f"{name} must be a function, got {shown(value)}")


def check_instance(name: str, value: Any, kind: type) -> None:
    """Raise ConfigError unless ``value`` is of a class.

    Args:
        name: what the error calls the value.
        value: to check.
        kind: the class.
    """
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be a {kind.__name__}, got {shown(value)}")


def check_fields(record: object, check: Callable[..., None], *names: str, called: str = "{}", **bounds: Any) -> None:
    """Check fields of an object that have the same bounds.

    Args:
        record: the object.
        check: :func:`check_int`, :func:`check_float` or another function of this module.
        names: of the fields.
        called: what errors call a field, with ``{}`` for its name.
        bounds: further arguments of ``check``.

    Raises:
        ConfigError: a field is outside of its bounds.
    """
    for name in names:
        check(called.format(name), getattr(record, name), **bounds)


def check_given(record: object, check: Callable[..., None], *names: str, **bounds: Any) -> None:
    """Check fields as :func:`check_fields` does, but for those that are ``None``: they were not given.

    Args:
        record: with the fields.
        check: of this module, e.g. :func:`check_float`.
        names: of the fields.
        bounds: keywords of the check.
    """
    check_fields(record, check, *(name for name in names if getattr(record, name) is not None), **bounds)


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
