"""Where output goes: results to stdout, notes and progress to stderr; a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Report = Callable[[float, str], None]
"""Told the share of the work that is done, 0 to 1, and what is being done."""

WIDE = 200
"""Columns for output that is not a terminal: a table in a file or a pipe must not wrap at 80."""
EVERY_S = 10.0
"""Seconds between two lines of progress where there is no terminal to draw a bar on."""


def stdout() -> Console:
    """Return a console for results."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else WIDE)


def say(text: str, out: Console) -> None:
    """Print plain text. It wraps on a terminal only: elsewhere a line stays a line."""
    out.print(text, markup=False, soft_wrap=not out.is_terminal)


def note(text: str) -> None:
    """Print a note to stderr."""
    Console(file=sys.stderr, highlight=False, soft_wrap=True).print(text, markup=False)


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Report | None]:
    """Give a function that shows on stderr how far the work is, and about how long it still takes; None if ``quiet``."""
    console = Console(file=sys.stderr)
    if quiet:
        yield None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=1.0)
            yield lambda share, what: bar.update(task, completed=share, description=what)
    else:
        yield Lines(note)


class Lines:
    """Progress as lines of text, one each ten seconds at most: for logs, and for whoever waits without a terminal."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = monotonic) -> None:
        """Write with ``write``, by a clock of seconds."""
        self._write, self._clock = write, clock
        self._begun = self._last = clock()

    def __call__(self, share: float, what: str) -> None:
        """Write a line, if ten seconds have gone by since the last."""
        now = self._clock()
        if now - self._last < EVERY_S:
            return
        self._last = now
        gone = now - self._begun
        left = f", about {_lasting(gone * (1 - share) / share)} left" if share > 0 else ""
        self._write(f"{100 * share:.0f} % after {_lasting(gone)}{left}: {what}")


def _lasting(seconds: float) -> str:
    """Return a time as people say it: ``40 s``, ``3 min 20 s``, ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
