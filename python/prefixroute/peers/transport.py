"""What carries frames between routers: the protocol that every transport follows, and that a host may follow too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from prefixroute.errors import PeerError

_LOG = logging.getLogger("prefixroute")
Receive = Callable[[bytes], object]
"""Takes a frame that has come; raises :class:`~prefixroute.errors.PeerError` for one that is none."""
Tick = Callable[[], object]
"""Called about once a second, so that a router without requests beats, and gives up peers that are silent."""
Flush = Callable[[], object]
"""Called every few milliseconds: gives the messages that have gathered since to :meth:`Transport.publish`, as
frames."""


def nothing() -> None:
    """Flush nothing: each message was published when it was said."""


def deliver(frames: Iterable[bytes], receive: Receive, counts: dict[str, int], kind: str) -> None:
    """Give frames that have come to the router; what it refuses is counted, and the first is logged.

    Args:
        frames: in the order in which they came.
        receive: the router's.
        counts: of the transport; ``refused`` is raised.
        kind: of the transport, as logs name it.
    """
    for frame in frames:
        try:
            receive(frame)
        except PeerError as error:
            counts["refused"] += 1
            if counts["refused"] == 1:
                _LOG.warning("peers by %s: a frame was refused: %s; further ones are only counted", kind, error)


@runtime_checkable
class Transport(Protocol):
    """Carries frames to the other routers, and theirs to this one. Frames may be lost, doubled and reordered.

    A frame that comes back to the router that sent it does no harm.
    """

    def open(self, receive: Receive, tick: Tick, flush: Flush = nothing) -> None:
        """Begin. The functions may be called from any thread, until :meth:`close` has returned.

        Args:
            receive: takes each frame of another router.
            tick: lets time pass.
            flush: publishes what has gathered.

        Raises:
            ConfigError: it was opened before.
        """

    def publish(self, frame: bytes) -> None:
        """Send a frame, later and elsewhere.

        Called by ``flush``, and by :meth:`Router.peer_feed` with the router's lock held.
        """

    def status(self) -> dict[str, Any]:
        """Return ``kind`` (text), ``connected`` (bool), ``lost`` and ``refused`` (frames), and figures of its own."""

    def close(self) -> None:
        """Send what waits, if that goes at once, and end. May be called twice."""


@runtime_checkable
class Forkable(Protocol):
    """A transport that can be opened anew in a child process after a fork."""

    def forked(self) -> None:
        """Let go, in a child, of what is the parent's; :meth:`Transport.open` is called next."""
