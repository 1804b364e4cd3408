"""What an option of the server is: a default, what it means, and what it may be.

Files, flags and docs read it from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from math import inf
from typing import Any, ClassVar

from prefixroute.errors import ConfigError
from prefixroute.validation import check_choice, check_float, check_instance, check_int

Check = Callable[[str, Any], Any]
"""Takes an option's name and a value, and returns the value as it is kept; raises ConfigError for what is not
allowed."""
_KEY = "prefixroute"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    Attributes:
        allowed: what it may be, in words.
        check: returns the value as it is kept.
    """

    allowed: str
    check: Check


@dataclass(frozen=True, slots=True)
class Option:
    """One option, as documentation shows it.

    Attributes:
        name: section and key, e.g. ``upstream.retries``.
        default: its value where none is given.
        about: what it does.
        kind: what it may be.
    """

    name: str
    default: Any
    about: str
    kind: Kind

    @property
    def key(self) -> str:
        """Its name within its section."""
        return self.name.rpartition(".")[2]


def option(default: Any, about: str, kind: Kind) -> Any:
    """Return the field of a section for one option."""
    return field(default=default, metadata={_KEY: (about, kind)})


def options_of(section: str, cls: Any) -> list[Option]:
    """Return the options of a section, in order."""
    listed = []
    for one in fields(cls):
        about, kind = one.metadata[_KEY]
        default = None if one.default is MISSING else one.default
        listed.append(Option(f"{section}.{one.name}", default, about, kind))
    return listed


class Section:
    """A section of the settings: a frozen dataclass whose fields are options, each checked by its kind."""

    NAME: ClassVar[str]

    def __post_init__(self) -> None:
        """Check every option."""
        for one in options_of(self.NAME, type(self)):
            object.__setattr__(self, one.key, one.kind.check(one.name, getattr(self, one.key)))


def count(low: int = 0, high: int | None = None) -> Kind:
    """Return the kind of an integer within bounds."""
    top = inf if high is None else high

    def check(name: str, value: Any) -> Any:
        check_int(name, value, low, top)
        return int(value)

    return Kind(f"an integer, at least {low:,}" if high is None else f"an integer, {low:,} to {high:,}", check)


def _number(allowed: str, low: float, high: float = inf, *, above: bool = False) -> Kind:
    def check(name: str, value: Any) -> Any:
        check_float(name, value, low, high, above=above)
        return float(value)

    return Kind(allowed, check)


def seconds(low: float = 0, *, above: bool = True) -> Kind:
    """Return the kind of a time in seconds.

    Args:
        low: the bound.
        above: whether the bound itself is not allowed.
    """
    return _number(f"seconds, {'above' if above else 'at least'} {low:g}", low, above=above)


def dollars() -> Kind:
    """Return the kind of a price."""
    return _number("dollars, at least 0", 0)


def fraction() -> Kind:
    """Return the kind of a share."""
    return _number("a share, 0 to 1", 0, 1)


def word(*choices: str) -> Kind:
    """Return the kind of one of a few words."""

    def check(name: str, value: Any) -> Any:
        check_choice(name, value, choices)
        return value

    return Kind(f"one of {', '.join(choices)}", check)


def text(allowed: str = "a text", *, empty: bool = False) -> Kind:
    """Return the kind of a text."""

    def check(name: str, value: Any) -> Any:
        check_instance(name, value, str)
        if not value and not empty:
            raise ConfigError(f"{name} must be {allowed}, got an empty one")
        return value

    return Kind(allowed, check)


def flag() -> Kind:
    """Return the kind of a switch."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, got {value!r}")
        return value

    return Kind("true or false", check)


def many(one: Kind) -> Kind:
    """Return the kind of a list of values of one kind; kept as a tuple."""

    def check(name: str, value: Any) -> Any:
        if isinstance(value, str | Mapping) or not hasattr(value, "__iter__"):
            raise ConfigError(f"{name} must be a list, got {value!r}")
        return tuple(one.check(f"{name}[{at}]", item) for at, item in enumerate(value))

    return Kind(f"a list, each {one.allowed}", check)


def maybe(kind: Kind, none: str) -> Kind:
    """Return a kind that may also be absent, which means ``none``."""

    def check(name: str, value: Any) -> Any:
        return None if value is None else kind.check(name, value)

    return Kind(f"{kind.allowed}; not given = {none}", check)
