"""The entry point of the ``prefixroute`` command, outside of the package: importing that takes half a second.

From here on Ctrl-C ends the command without a traceback, also while the package and its libraries are imported.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line and exit."""
    try:
        from prefixroute.cli import main as run  # noqa: PLC0415  # what takes the time, inside of the `try`

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(128 + signal.SIGINT)
