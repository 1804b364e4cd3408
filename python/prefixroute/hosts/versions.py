"""The windows of versions in which adapters know their hosts: hosts change their hooks between minor versions."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from prefixroute.errors import HostError

WINDOWS: dict[str, tuple[str, str]] = {
    "ray": ("2.60", "2.61"),
    "litellm": ("1.110", "1.111"),
    "httpx": ("0.28", "1.0"),
    "verl": ("0.9.1", "0.10"),
    "skypilot": ("0.14", "0.15"),
}
"""By the host's distribution, which is the extra of prefixroute too: the first version known, and the first that is
not."""


def require(package: str) -> None:
    """Check that a host is installed, in a version that its adapter knows.

    Args:
        package: one of :data:`WINDOWS`.

    Raises:
        HostError: the host is not installed, or is of another version.
    """
    low, below = WINDOWS[package]
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
