"""Figures as people read them: shares, dollars, and differences with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any, NamedTuple

from prefixroute.advise import Interval
from prefixroute.report.times import duration


def percent(share: float, digits: int = 1) -> str:
    """Return a share as text: ``12.3 %``."""
    return f"{100 * share:.{digits}f} %"


def hundredths(share: float) -> str:
    """Return a share in percent, without the sign: ``12.34``."""
    return f"{100 * share:.2f}"


def tenths(share: float) -> str:
    """Return a share in percent, without the sign: ``12.3``."""
    return f"{100 * share:,.1f}"


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds, without the unit: ``1,234.5``; ``-`` if it is not known."""
    return "-" if math.isnan(seconds) else f"{1e3 * seconds:,.1f}"


def replicas(count: int) -> str:
    """Return a number of replicas with its noun: ``8 replicas``."""
    return f"{count} replica{'s' * (count != 1)}"


def kinds(prefill: int, decode: int) -> str:
    """Return a fleet that prefills and decodes apart: ``2 prefill and 6 decode replicas``."""
    return f"{prefill} prefill and {decode} decode replicas"


class Money(NamedTuple):
    """How dollars are written: with so many decimals."""

    decimals: int

    def figure(self, amount: float) -> str:
        """Return an amount without the sign: ``9.63``, ``127.40``, ``3,540``."""
        return f"{amount:,.{self.decimals}f}"

    def dollars(self, amount: float) -> str:
        """Return an amount with the sign: ``$0.068``, ``$9.63``, ``$3,540``."""
        return f"${self.figure(amount)}"


CENTS = 2
WHOLE_FROM = 1_000
SHOWS_WHOLE = 10


def money_of(amounts: Iterable[float | None]) -> Money:
    """Return how the dollars of one table, or one sentence, are written: all of them with the same decimals.

    Cents. Whole dollars where one amount is :data:`WHOLE_FROM` or more and none that is not 0 is below
    :data:`SHOWS_WHOLE`. Where all are below a dollar, three digits of the largest.
    """
    sizes = [abs(amount) for amount in amounts if amount]
    largest, smallest = max(sizes, default=0.0), min(sizes, default=0.0)
    if largest >= WHOLE_FROM and smallest >= SHOWS_WHOLE:
        return Money(0)
    return Money(CENTS if largest >= 1 or not largest else CENTS - math.floor(math.log10(largest)))


def usd(amount: float) -> str:
    """Return dollars as they stand alone, without the sign: ``9.63``, ``127.40``, ``3,540``."""
    return money_of([amount]).figure(amount)


def dollars(amount: float) -> str:
    """Return dollars as they stand alone: ``$0.0068``, ``$0.40``, ``$9.63``, ``$127.40``, ``$3,540``."""
    whole, point, digits = usd(amount).partition(".")
    return f"${whole}{point}{digits[:CENTS]}{digits[CENTS:].rstrip('0')}"


def gap(interval: Interval, factor: float = 1.0) -> str:
    """Return ``+1.23 [+1.10, +1.36]`` in a unit ``factor`` times as small; empty where there is no difference.

    Three digits matter: large numbers have no decimals.
    """
    if interval.value == interval.low == interval.high == 0:
        return ""
    value, low, high = (factor * end for end in (interval.value, interval.low, interval.high))
    known = math.isfinite(low) and math.isfinite(high)
    largest = max(abs(value), abs(low), abs(high)) if known else abs(value)
    digits = 0 if largest >= 100 else 1 if largest >= 10 else 2  # noqa: PLR2004
    ends = f"[{low:+,.{digits}f}, {high:+,.{digits}f}]" if known else "(interval not known)"
    return f"{value:+,.{digits}f} {ends}"


SHOWN: Mapping[str, Callable[[Any], str]] = {
    "share": percent,
    "whole": lambda share: percent(share, 0),
    "time": duration,
    "count": "{:,}".format,
    "ratio": "{:.2f}".format,
}
"""How figures in sentences read, by what stands behind their names: ``{floor:share}``."""


class _Sentence(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return SHOWN[format_spec](value) if format_spec in SHOWN else format(value, format_spec)


def filled(sentence: str, evidence: Mapping[str, Any]) -> str:
    """Return a sentence with its figures, as :data:`SHOWN` writes them."""
    return _Sentence().vformat(sentence, (), evidence)
