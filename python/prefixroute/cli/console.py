"""Where output goes: results to stdout, notes and progress (a bar on a terminal, elsewhere lines) to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from prefixroute.cli import discard
from prefixroute.sim.progress import Progress

UNBOUND = 10_000
"""Columns for output that is not a terminal, without COLUMNS: a table in a file or a pipe keeps all its columns."""
WIDE = 200
"""Columns that a table of sentences takes at most: its cells wrap, and would be a line each where nothing bounds
them."""
FIRST_ESTIMATE = 0.02
"""Share of the work after which the time left is estimated."""
EVERY_S = 10.0
"""Seconds between two lines of progress where there is no terminal to draw a bar on."""


def stdout() -> Console:
    """Return a console for results."""
    told = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Console(file=sys.stdout, highlight=False, width=None if told else UNBOUND)


def say(text: str, out: Console, style: str = "") -> None:
    """Print plain text. It wraps on a terminal only: elsewhere a line stays a line."""
    out.print(text, markup=False, soft_wrap=not out.is_terminal, style=style or None)


def note(text: str) -> None:
    """Print a note to stderr."""
    _Notes(file=sys.stderr, highlight=False, soft_wrap=True).print(text, markup=False)


class _Notes(Console):
    """The console on stderr. Results do not depend on it: where its reader has gone, the work goes on."""

    def on_broken_pipe(self) -> None:
        """Let further notes go nowhere."""
        discard(sys.stderr)


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress | None]:
    """Give a function that shows on stderr how far the work is and about how long it takes; None if ``quiet``."""
    console = _Notes(file=sys.stderr)
    if quiet:
        yield None
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        with Bar(*columns, console=console, transient=True) as bar:
            task, left = bar.add_task("", total=1.0, left=""), TimeLeft(monotonic())
            yield lambda share, what: bar.update(task, completed=share, description=what, left=left(share, monotonic()))
    else:
        yield Lines(note)


class TimeLeft:
    """About how long work still takes, as text. It only falls: an estimate above the last one is not shown.

    Nothing is shown before a first part of the work is done either, because an estimate from less is worth nothing.
    """

    def __init__(self, begun: float) -> None:
        """Begin at a time in seconds."""
        self._begun, self._least = begun, float("inf")

    def __call__(self, share: float, now: float) -> str:
        """Return the time left when this share of the work is done; empty where it is not known, or would rise."""
        if share < FIRST_ESTIMATE:
            return ""
        estimate = (now - self._begun) * (1 - share) / share
        if estimate > self._least:
            return ""
        self._least = estimate
        return f"about {lasting(estimate)} left"


class Lines:
    """Progress as lines of text, one each ten seconds at most: for logs, and for whoever waits without a terminal."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = monotonic) -> None:
        """Write with ``write``, by a clock of seconds."""
        self._write, self._clock = write, clock
        self._begun = self._last = clock()
        self._left = TimeLeft(self._begun)

    def __call__(self, share: float, what: str) -> None:
        """Write a line, if ten seconds have gone by since the last."""
        now = self._clock()
        if now - self._last < EVERY_S:
            return
        self._last = now
        left = self._left(share, now)
        self._write(f"{100 * share:.0f} % after {lasting(now - self._begun)}{left and f', {left}'}: {what}")


def deadline(seconds: float | None, clock: Callable[[], float] = monotonic) -> Callable[[], bool]:
    """Return what says whether so many seconds have gone by since now; never, where there is no limit."""
    if seconds is None:
        return lambda: False
    end = clock() + seconds
    return lambda: clock() >= end


def lasting(seconds: float) -> str:
    """Return a time as people say it: ``40 s``, ``3 min 20 s``, ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
