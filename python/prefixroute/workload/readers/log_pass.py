"""One pass over the files of a trace: what becomes of its bad lines and of rows of another kind, and how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from prefixroute.errors import TraceError
from prefixroute.workload.readers.lines import LINE_BYTES
from prefixroute.workload.readers.row import Row
from prefixroute.workload.readers.source import LogFile

Parsed = TypeVar("Parsed")

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


@dataclass(slots=True)
class Tally:
    """What the last whole pass over a trace left out and noticed.

    Attributes:
        left_out: rows that are no requests for a replica, by what they are; and requests that were not asked for.
        remarks: requests that were read although something is odd about them, by what that is.
        skipped: bad lines that were left out.
    """

    left_out: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)
    skipped: Skipped | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences: counts, and nothing of what is in the log."""
        out = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.left_out.items()))
        return (
            *([f"left out: {out}"] if out else []),
            *(f"{count:,} {what}" for what, count in sorted(self.remarks.items())),
        )


class LogPass:
    """One pass. Lines are counted as they come; a bad one ends the pass, or is left out and counted.

    Args:
        skip_bad: bad lines that are left out; one more ends the pass.
        line_bytes: bytes of the longest line that is read.
        progress: told the share of the bytes read, 0 to 1, now and then.
        files: the files that will be read, for the share.
    """

    def __init__(
        self,
        *,
        skip_bad: int = 0,
        line_bytes: int = LINE_BYTES,
        progress: Callable[[float], None] | None = None,
        files: Iterable[LogFile] = (),
    ) -> None:
        """Begin before the first line."""
        self._most_bad, self.line_bytes, self._progress = skip_bad, line_bytes, progress
        self._size = sum(file.size for file in files)
        self._before = self._told = 0
        self.lines = self.bad = 0
        self.tally = Tally()
        """What was left out and noticed so far; bad lines are in it at the end, see :meth:`skipped`."""
        self._first: list[tuple[int, str]] = []

    def at(self, position: int) -> None:
        """Count a line, which ends at this byte of its file or soon before."""
        self.lines += 1
        done = self._before + position
        if self._progress is not None and done - self._told >= max(1, self._size // _STEPS):
            self._told = done
            self._progress(min(1.0, done / max(1, self._size)))

    def end(self, file: LogFile) -> None:
        """Leave a file behind."""
        self._before += file.size

    def refuse(self, line: int, error: TraceError) -> None:
        """Raise what is wrong with a line, or leave the line out.

        Raises:
            TraceError: more lines are bad than may be.
        """
        if not self._most_bad:
            raise error
        self.bad += 1
        if len(self._first) < SHOWN:
            self._first.append((line, str(error)))
        if self.bad > self._most_bad:
            raise TraceError(f"more than {self._most_bad:,} bad lines, as many as may be skipped: {self.skipped()}")

    def skipped(self) -> Skipped | None:
        """Return what was left out as bad so far; None if nothing was."""
        if not self.bad:
            return None
        first_lines, first = zip(*self._first, strict=True)
        return Skipped(self.bad, self.lines, first, first_lines)

    def tell(self, tally: Tally) -> None:
        """Say what a pass that has ended left out and noticed."""
        tally.left_out, tally.remarks, tally.skipped = self.tally.left_out, self.tally.remarks, self.skipped()

    def parsed(self, rows: Iterable[Row], parse: Callable[[Row], Parsed | None]) -> Iterator[Parsed]:
        """Yield what ``parse`` makes of each row; nothing where it makes None of one.

        What it raises for one is refused.
        """
        for row in rows:
            try:
                made = parse(row)
            except TraceError as error:
                self.refuse(row.line, error)
            else:
                if made is not None:
                    yield made
