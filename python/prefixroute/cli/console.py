"""Where output goes: results to stdout, progress and notes to stderr, progress on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

WIDE = 200
"""Columns for output that is not a terminal: a table in a file or a pipe must not wrap at 80."""


def stdout() -> Console:
    """Return a console for results."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else WIDE)


def note(text: str) -> None:
    """Print a note to stderr."""
    Console(file=sys.stderr, highlight=False, soft_wrap=True).print(text, markup=False)


@contextmanager
def progress() -> Iterator[Callable[[float, str], None] | None]:
    """Give a function of the share done and what is running, which draws a bar; None where stderr is no terminal."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share, what: bar.update(task, completed=share, description=what)
