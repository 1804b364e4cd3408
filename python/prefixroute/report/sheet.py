"""A result as people read it: one form, which terminal, page and picture draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefixroute.costmodel import Assumption
from prefixroute.report.table import Table

if TYPE_CHECKING:
    from prefixroute.report.drawing import Chart


@dataclass(frozen=True, slots=True)
class Sheet:
    """Tables under one title, what they say and what they rest on.

    Attributes:
        title: the answer in a line.
        tables: what was found.
        assumptions: figures behind the tables.
        notes: what a reader should know before believing them.
        verdict: the answer in sentences; empty = the title says it, or there is none.
        following: the command to type next; empty = none.
        policies: those that the charts tell apart by colour and mark.
        charts: makes the charts by title, the one that decides first; it needs the extra ``report``. None = the bars of
            the tables.
        background: makes charts that only the page has; None = none.
    """

    title: str
    tables: tuple[Table, ...]
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: tuple[str, ...] = ()
    following: str = ""
    policies: tuple[str, ...] = ()
    charts: Callable[[], Mapping[str, Chart]] | None = None
    background: Callable[[], Mapping[str, Chart]] | None = None


def lasting(seconds: float) -> str:
    """Return a time as people say it: ``5 min``, ``1 h``, ``90 s``."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.4g} s"
