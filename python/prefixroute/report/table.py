"""What a table is: columns, and the figures that each rests on. Terminal, text and page draw the same table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from prefixroute.costmodel.assumption import Assumption, on_defaults

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One column.

    Attributes:
        title: its head.
        cell: how a row's cell reads.
        rests_on: names of the assumptions that its figures rest on: it is marked where one of them is a default.
        text: words, to the left.
        marked: it is marked in any case.
    """

    title: str
    cell: Callable[[R], str]
    rests_on: frozenset[str] = frozenset()
    text: bool = False
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column; ``assumed`` where it is marked."""

    title: str
    text: bool
    assumed: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table as text.

    Attributes:
        title: a line above it.
        heads: of the columns.
        rows: cells, as many in each as there are heads.
        sections: rows that begin a section, counted from 0.
        assumed: every figure rests on a default: one line above the table says so, and no column is marked.
        footer: a line below the rows; empty = none.
    """

    title: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[str, ...], ...]
    sections: frozenset[int] = frozenset()
    assumed: bool = False
    footer: str = ""

    @classmethod
    def of(
        cls,
        title: str,
        columns: Sequence[Column[R]],
        rows: Sequence[R],
        assumptions: Sequence[Assumption] = (),
        *,
        sections: Iterable[int] = (),
        footer: str = "",
    ) -> Table:
        """Fill the columns with rows.

        Columns are marked ASSUMED only where some of those that rest on figures are not.
        """
        marks = [bool(column.rests_on) and on_defaults(column.rests_on, assumptions) for column in columns]
        resting = [mark for column, mark in zip(columns, marks, strict=True) if column.rests_on]
        alike = bool(resting) and all(resting)
        heads = tuple(
            Head(column.title, column.text, column.marked or (mark and not alike))
            for column, mark in zip(columns, marks, strict=True)
        )
        cells = tuple(tuple(column.cell(row) for column in columns) for row in rows)
        return cls(title, heads, cells, frozenset(sections), alike, footer)

    def without(self, titles: Iterable[str]) -> Table:
        """Return the table without the columns of these titles."""
        gone = set(titles)
        kept = [at for at, head in enumerate(self.heads) if head.title not in gone]
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return Table(self.title, tuple(self.heads[at] for at in kept), rows, self.sections, self.assumed, self.footer)


def on_any_default(figures: Iterable[Assumption]) -> bool:
    """Whether one of the figures behind a column is a default."""
    return any(figure.assumed for figure in figures)


def pairs(heads: tuple[str, str], rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names with one figure each; without a head if the heads are empty."""
    name, value = heads
    columns: list[Column[tuple[str, str]]] = [
        Column(name, lambda row: row[0], text=True),
        Column(value, lambda row: row[1]),
    ]
    return Table.of("", columns, list(rows))
