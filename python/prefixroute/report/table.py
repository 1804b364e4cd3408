"""What a table is: columns, and the figures that each rests on. Terminal, text and page draw the same table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from prefixroute.costmodel.assumption import Assumption, on_defaults


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: its head.
        value: the name of a row's field (``fleet.replicas`` of a field's field), or what makes the value of a row.
        shown: how a value reads.
        rests_on: names of the assumptions that its figures rest on: it is marked where one of them is a default.
        text: words, to the left.
        marked: it is marked in any case.
        missing: what a cell without a value, which is None, reads.
        meaning: what the column counts, told below the table where it has the column; empty = its title says it.
    """

    title: str
    value: str | Callable[[Any], Any]
    shown: Callable[[Any], str] = str
    rests_on: frozenset[str] = frozenset()
    text: bool = False
    marked: bool = False
    missing: str = ""
    meaning: str = ""

    def of(self, row: Any) -> Any:
        """Return the value of a row."""
        return attrgetter(self.value)(row) if isinstance(self.value, str) else self.value(row)

    def cell(self, row: Any) -> str:
        """Return how the value of a row reads."""
        value = self.of(row)
        return self.missing if value is None else self.shown(value)


class ColumnHead(NamedTuple):
    """The head of a column; ``assumed`` where it is marked."""

    title: str
    text: bool
    assumed: bool
    meaning: str = ""


class Bars(NamedTuple):
    """A chart of a table: bars by their labels, and what their lengths are."""

    title: str
    values: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table as text.

    Attributes:
        title: a line above it.
        heads: of the columns.
        rows: cells, as many in each as there are heads.
        sections: rows that begin a section, counted from 0.
        assumed: every figure rests on a default: one line above the table says so, and no column is marked.
        lines: sentences below the rows, of the table as a whole; see :attr:`captions`.
        wraps: cells are sentences, which may take several lines.
        bars: its chart; None = no chart.
    """

    title: str
    heads: tuple[ColumnHead, ...]
    rows: tuple[tuple[str, ...], ...]
    sections: frozenset[int] = frozenset()
    assumed: bool = False
    lines: tuple[str, ...] = ()
    wraps: bool = False
    bars: Bars | None = None

    @classmethod
    def of(
        cls,
        title: str,
        columns: Sequence[Column],
        rows: Iterable[Any],
        assumptions: Sequence[Assumption] = (),
        **more: Any,
    ) -> Table:
        """Fill the columns with rows.

        Columns are marked ASSUMED only where some of those that rest on figures are not.

        Args:
            title: a line above the table.
            columns: what it shows of each row.
            rows: any objects that the columns read.
            assumptions: what the figures rest on.
            more: further attributes of the table.
        """
        marks = [bool(column.rests_on) and on_defaults(column.rests_on, assumptions) for column in columns]
        resting = [mark for column, mark in zip(columns, marks, strict=True) if column.rests_on]
        alike = bool(resting) and all(resting)
        heads = tuple(
            ColumnHead(column.title, column.text, column.marked or (mark and not alike), column.meaning)
            for column, mark in zip(columns, marks, strict=True)
        )
        cells = tuple(tuple(column.cell(row) for column in columns) for row in rows)
        return cls(title, heads, cells, assumed=alike, **more)

    @property
    def captions(self) -> tuple[str, ...]:
        """What stands below the rows: what its columns mean, and its sentences."""
        meanings = "; ".join(head.meaning for head in self.heads if head.meaning)
        return (*[meanings] * bool(meanings), *self.lines)

    def without(self, titles: Iterable[str]) -> Table:
        """Return the table without the columns of these titles."""
        gone = set(titles)
        kept = [at for at, head in enumerate(self.heads) if head.title not in gone]
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return replace(self, heads=tuple(self.heads[at] for at in kept), rows=rows)


def on_any_default(figures: Iterable[Assumption]) -> bool:
    """Whether one of the figures behind a column is a default."""
    return any(figure.assumed for figure in figures)


def section_starts(values: Sequence[Any]) -> frozenset[int]:
    """Return the rows that begin a section: those whose value is another than that of the row above."""
    return frozenset(at for at in range(1, len(values)) if values[at] != values[at - 1])


def pairs(title: str, heads: tuple[str, str], rows: Iterable[tuple[str, str]], **more: Any) -> Table:
    """Return a table of names with one figure each; without a head if the heads are empty."""
    name, value = heads
    return Table.of(
        title, (Column(name, lambda row: row[0], text=True), Column(value, lambda row: row[1])), rows, **more
    )
