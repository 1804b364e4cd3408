"""One pass over the files of a trace: what becomes of its bad lines, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from prefixroute.errors import TraceError
from prefixroute.workload.readers.lines import Row

Parsed = TypeVar("Parsed")

MOST_BAD = 0.1
"""Share of bad lines above which a trace is refused: what is left of it may be of another kind than what is lost."""
SHOWN = 3
"""Bad lines that are named; the others are counted."""
_STEPS = 200  # reports of progress in one pass


@dataclass(frozen=True, slots=True)
class Skipped:
    """Bad lines that were left out of a trace.

    Attributes:
        bad: how many.
        lines: how many lines there are, bad ones included.
        first: what was wrong with the first of them, with file and line. It quotes the log.
        first_lines: their numbers, each counted in its own file.
    """

    bad: int
    lines: int
    first: tuple[str, ...]
    first_lines: tuple[int, ...]

    def __str__(self) -> str:
        """Return one sentence, for the eyes of who has the log: it quotes what was wrong."""
        return f"{self._count}: {'; '.join(self.first)}{self._more}"

    @property
    def note(self) -> str:
        """One sentence that may leave the house: counts and numbers of lines, nothing of what is in them."""
        lines = "line" if len(self.first_lines) == 1 else "lines"
        return f"{self._count}: {lines} {', '.join(map(str, self.first_lines))}{self._more}"

    @property
    def _count(self) -> str:
        return f"{self.bad:,} bad of {self.lines:,} lines left out"

    @property
    def _more(self) -> str:
        return f", and {self.bad - len(self.first):,} more" if self.bad > len(self.first) else ""


class Reading:
    """One pass. Lines are counted as they come; a bad one ends the pass, or is left out and counted.

    Args:
        skip_bad_lines: leave bad lines out.
        progress: told the share of the bytes read, 0 to 1, now and then.
        paths: the files that will be read, for the share.
    """

    def __init__(
        self,
        *,
        skip_bad_lines: bool = False,
        progress: Callable[[float], None] | None = None,
        paths: Iterable[Path] = (),
    ) -> None:
        """Begin before the first line."""
        self._skip, self._progress = skip_bad_lines, progress
        self._size = sum(path.stat().st_size for path in paths if path.is_file())
        self._before = self._told = 0
        self.lines = self.bad = 0
        self._first: list[tuple[int, str]] = []

    def at(self, position: int) -> None:
        """Count a line, which ends at this byte of its file or soon before."""
        self.lines += 1
        done = self._before + position
        if self._progress is not None and done - self._told >= max(1, self._size // _STEPS):
            self._told = done
            self._progress(min(1.0, done / max(1, self._size)))

    def end(self, size: int) -> None:
        """Leave a file of ``size`` bytes behind."""
        self._before += size

    def refuse(self, line: int, error: TraceError) -> None:
        """Raise what is wrong with a line, or leave the line out."""
        if not self._skip:
            raise error
        self.bad += 1
        if len(self._first) < SHOWN:
            self._first.append((line, str(error)))

    def skipped(self) -> Skipped | None:
        """Return what was left out so far; None if nothing was.

        Raises:
            TraceError: it is more than :data:`MOST_BAD` of the lines.
        """
        if not self.bad:
            return None
        first_lines, first = zip(*self._first, strict=True)
        found = Skipped(self.bad, self.lines, first, first_lines)
        if self.bad > MOST_BAD * self.lines:
            raise TraceError(f"more than {100 * MOST_BAD:.0f} % of the lines are bad, too many to skip: {found}")
        return found

    def parsed(self, rows: Iterable[Row], parse: Callable[[Row], Parsed]) -> Iterator[Parsed]:
        """Yield what ``parse`` makes of each row; what it raises for one is refused."""
        for row in rows:
            try:
                made = parse(row)
            except TraceError as error:
                self.refuse(row.line, error)
            else:
                yield made
