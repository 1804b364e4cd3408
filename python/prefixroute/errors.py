"""Every error that prefixroute raises on purpose.

One base, :class:`PrefixRouteError`; each subclass also derives from the builtin that fits, so that code which
catches ``ValueError`` or ``KeyError`` keeps working. Messages say what was given and what is allowed.
"""

from __future__ import annotations


class PrefixRouteError(Exception):
    """Base of all errors raised by prefixroute."""


class ConfigError(PrefixRouteError, ValueError):
    """A setting is outside of what is allowed, or two settings do not fit together."""


class UnknownReplicaError(PrefixRouteError, KeyError):
    """A replica name that this object does not know."""

    def __str__(self) -> str:
        """Return the plain message (``KeyError`` would show its repr)."""
        return str(self.args[0]) if self.args else ""


class TokensError(PrefixRouteError, ValueError):
    """A prompt that is not a sequence of token ids (0 to 2**32 - 1), or not of the router's prompt kind.

    The message names the first bad position.
    """


class EventError(PrefixRouteError, ValueError):
    """A KV event that cannot be applied: malformed bytes, wrong block size, unknown medium."""


class PeerError(PrefixRouteError, ValueError):
    """A peer's message that cannot be applied.

    Broken, of another version, or of a router with other blocks or another key.
    """


class TraceError(PrefixRouteError, ValueError):
    """A trace file that cannot be read. The message names the file and the line."""


class FieldMapError(ConfigError, TraceError):
    """A field map that no log can be read with: a setting, and a part of the trace it describes."""


class NoReplicaError(PrefixRouteError, RuntimeError):
    """No replica is left that may take the request: the fleet is empty, drained, or all were excluded."""


class OverloadedError(PrefixRouteError, RuntimeError):
    """Every replica that could take the request is over its admission cap.

    Attributes:
        retry_after_s: seconds after which a retry is reasonable.
    """

    def __init__(self, message: str, retry_after_s: float) -> None:
        """Store the message and the suggested wait in seconds."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class HostError(PrefixRouteError, ImportError):
    """A host is not installed, or of a version that its adapter was not tested with."""
