"""The ``prefixroute`` command. Needs the extra ``cli``; importing this module does not.

Results go to stdout, progress and notes to stderr. Exit 0 = answered, 1 = ``lint`` found something, 2 = the user's
mistake (one line says which), 130 = interrupted, 141 = the reader of the output has gone, as ``| head`` does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from prefixroute.errors import PrefixRouteError
from prefixroute.extras import installing
from prefixroute.validation import shown

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "altair": "report",
    "vl_convert": "report",
    "aiconfigurator_core": "aic",
    **dict.fromkeys(("aiohttp", "httptools", "prometheus_client", "starlette", "uvicorn"), "serve"),
}
"""The extra that brings each optional module."""


INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT."""
SIGNALLED = 128
"""Exit code after a request to end, less the number of the signal."""
BROKEN_PIPE = SIGNALLED + 13
"""Exit code when the reader of the output has gone: that of a program which SIGPIPE, number 13, ends."""
_ENDS = [signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if name in signal.Signals.__members__]
"""Requests to end: of a supervisor, and of a terminal that is closed, which Windows has not."""
_MUST_BE = {
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
}
"""What an option must be, by the kind of error that its parser names."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line with ``arguments`` (default ``sys.argv[1:]``) and exit."""
    _open_closed()
    try:
        with _terminable():
            code = _run(sys.argv[1:] if arguments is None else arguments)
    except PrefixRouteError as error:
        code = _complain(str(error))
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        extra = EXTRAS.get(package)
        if extra is None:
            raise
        code = _complain(f"this needs the package {package}: {installing(extra)}")
    except (BrokenPipeError, SystemExit) as error:
        # The reader (`head`, a pager) has gone. rich, which prints help and tables, exits with 1 while it handles that.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        discard(sys.stdout)
        code = BROKEN_PIPE
    except OSError as error:
        code = _complain(str(error))
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        _tell("interrupted")
    sys.exit(code)


def _run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code. What typer refuses becomes one line."""
    from typer import TyperException

    from prefixroute.cli.app import app

    try:
        code = app(list(arguments), prog_name="prefixroute", standalone_mode=False)
    except TyperException as error:
        _tell_value(error)
        message = getattr(error, "format_message", error.__str__)()
        # Without a command the help is on the screen already, and the message is empty.
        return _complain(message) if message else 2
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _open_closed() -> None:
    """Let output go nowhere where its stream is closed: nobody reads it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  # for good


@contextmanager
def _terminable() -> Iterator[None]:
    """Leave by an exception when told to end, so that no half-written file and no worker process stays behind.

    A signal that is ignored, as ``nohup`` has it, stays ignored.
    """
    before = {end: signal.getsignal(end) for end in _ENDS}
    taken = [end for end in _ENDS if before[end] != signal.SIG_IGN]
    for end in taken:
        signal.signal(end, lambda number, _: sys.exit(SIGNALLED + number))
    try:
        yield
    finally:
        for end in taken:
            signal.signal(end, before[end])


def _tell_value(error: Any) -> None:
    """Give an error of an option's parser the value, and what is allowed in our words."""
    errors = getattr(error.__cause__, "errors", None)
    if errors is None:
        return
    (first, *_) = errors()
    must_be = _MUST_BE.get(first["type"])
    if must_be is None:
        error.message = first["msg"].removeprefix("Value error, ")
    else:
        error.message = f"{must_be.format(**first.get('ctx', {}))}, got {shown(first['input'])}"


def _complain(message: str) -> int:
    _tell(f"error: {message}")
    return 2


def _tell(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Let a stream whose reader has gone go nowhere: the interpreter must not fail again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
