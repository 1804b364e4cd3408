"""Figures as people read them: shares, dollars, and differences with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from prefixroute.advise import Interval

T = TypeVar("T")


def known(value: T | None, text: Callable[[T], str], otherwise: str = "") -> str:
    """Return a figure as text; ``otherwise`` where there is none."""
    return otherwise if value is None else text(value)


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
    """Return a time in milliseconds, without the unit: ``1,234.5``."""
    return f"{1e3 * seconds:,.1f}"


def replicas(count: int) -> str:
    """Return a number of replicas with its noun: ``8 replicas``."""
    return f"{count} replica{'s' * (count != 1)}"


def usd(amount: float) -> str:
    """Return dollars with the digits that matter: ``9.63``, ``127.4``, ``3,540``."""
    return f"{amount:,.0f}" if amount >= 1_000 else f"{amount:.1f}" if amount >= 100 else f"{amount:.2f}"  # noqa: PLR2004


def dollars(amount: float) -> str:
    """Return dollars with the digits that matter: ``$0.0068``, ``$0.40``, ``$9.63``, ``$127.4``, ``$3,540``."""
    size = abs(amount)
    if size >= 1_000:  # noqa: PLR2004
        return f"${amount:,.0f}"
    if size >= 1:
        return f"${amount:.1f}" if size >= 100 else f"${amount:.2f}"  # noqa: PLR2004
    if 0 < size < 0.001:  # noqa: PLR2004 - below a tenth of a cent
        return f"${amount:.3g}"
    whole, digits = f"{amount:.4f}".rstrip("0").split(".")
    return f"${whole}.{digits:0<2}"


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
