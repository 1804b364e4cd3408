"""Libraries of optional extras: imported when they are used, and named with their extra when they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from prefixroute.errors import ConfigError


def installing(extra: str) -> str:
    """Return the command that installs an extra: of a release, and in a checkout, which no index has.

    Args:
        extra: its name.
    """
    return f"pip install 'prefixroute[{extra}]', or in a checkout pip install '.[{extra}]'"


def extra_module(name: str, extra: str) -> Any:
    """Import a library of an extra.

    Args:
        name: the module.
        extra: the extra of prefixroute that installs it.

    Raises:
        ConfigError: it is not installed; the message says how to install it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"this needs {name}: {installing(extra)}") from error
