"""The window of versions in which an adapter knows its host."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from prefixroute.errors import HostError


def require(package: str, low: str, below: str) -> None:
    """Check that a host is of a version that its adapter knows: hosts change their hooks between minor versions.

    Args:
        package: the host's distribution, which is the extra of prefixroute too.
        low: the first version that is known.
        below: the first one that is not.

    Raises:
        HostError: the host is not installed, or is of another version.
    """
    try:
        found = version(package)
    except PackageNotFoundError as error:
        raise HostError(f"{package} is not installed: it needs {package}>={low},<{below}") from error
    if not _numbers(low) <= _numbers(found) < _numbers(below):
        raise HostError(f"this adapter knows {package}>={low},<{below}, found {found}")


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version's release, without what marks a preview or a build."""
    release = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(number) for number in release[0].split(".")) if release else ()
