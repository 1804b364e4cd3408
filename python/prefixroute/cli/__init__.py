"""The ``prefixroute`` command. Needs the extra ``cli``; importing this module does not.

Results go to stdout, progress and notes to stderr. Exit 0 = answered, 1 = ``lint`` found something, 2 = the user's
mistake (one line says which), 130 = interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from prefixroute.errors import PrefixRouteError
from prefixroute.extras import installing

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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line with ``arguments`` (default ``sys.argv[1:]``) and exit."""
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
    except PrefixRouteError as error:
        code = _complain(str(error))
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        extra = EXTRAS.get(package)
        if extra is None:
            raise
        code = _complain(f"this needs the package {package}: {installing(extra)}")
    except BrokenPipeError:
        # The reader (`head`, a pager) has gone; the interpreter must not fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:
        code = _complain(str(error))
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    sys.exit(code)


def _run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code. What typer refuses becomes one line."""
    from typer import TyperException

    from prefixroute.cli.app import app

    try:
        code = app(list(arguments), prog_name="prefixroute", standalone_mode=False)
    except TyperException as error:
        message = getattr(error, "format_message", error.__str__)()
        # Without a command the help is on the screen already, and the message is empty.
        return _complain(message) if message else 2
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _complain(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2
