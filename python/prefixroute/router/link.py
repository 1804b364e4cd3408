"""The link of a router to its peers: the commit feed behind the router's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixroute.errors import PeerError
from prefixroute.peers.feed import PeerFeed
from prefixroute.validation import check_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prefixroute.router.tickets import Guarded
    from prefixroute.routing import RouterState
    from prefixroute.types import Replica


class PeerLink:
    """What :meth:`Router.peer_feed` returns. Thread-safe: every method is one step under the router's lock.

    Attributes:
        ident: number of this router among its peers.
    """

    def __init__(
        self,
        guarded: Guarded,
        send: Callable[[bytes], object],
        change: Callable[[Callable[[RouterState], object]], object],
        ident: int | None,
    ) -> None:
        """Begin to tell. ``change``: makes a change of the fleet, in shadows too."""
        self._guarded = guarded
        self._feed = PeerFeed(guarded.state, send, change, ident=ident)
        self.ident, self.is_open = self._feed.ident, True
        with guarded.lock:
            self._feed.open(guarded.time(None))

    def apply(self, data: bytes, now: float | None = None) -> bool:
        """Take in a message, see :meth:`Router.apply_peer`."""
        if type(data) is not bytes:
            check_instance("data", data, bytes)
        guarded, feed = self._guarded, self._feed
        now, state = guarded.time(now), guarded.state
        with guarded.lock:
            if not self.is_open:
                return False
            if state.step is not None:
                state.repair()
            step = state.begin()
            try:
                applied = feed.apply(data, now)
            except PeerError:  # nothing was changed
                state.end(step)
                raise
            state.end(step)
            return applied

    def tick(self, *, now: float | None = None) -> None:
        """Let time pass: call it about once a second while no request does, so that peers know this router lives.

        Args:
            now: time on the router's clock, in seconds.
        """
        guarded = self._guarded
        now, state = guarded.time(now), guarded.state
        with guarded.lock:
            if state.step is not None:
                state.repair()
            state.sweep(now)

    def close(self) -> None:
        """End: peers give back at once what this router has in flight, and this one what they have."""
        with self._guarded.lock:
            self.is_open = False
            step = self._guarded.state.begin()
            self._feed.close()
            self._guarded.state.end(step)

    def stats(self, *, now: float | None = None) -> dict[str, Any]:
        """Return counters and gauges as plain data: peers heard of, their requests in flight, messages, trouble.

        Args:
            now: time on the router's clock, in seconds.
        """
        now = self._guarded.time(now)
        with self._guarded.lock:
            return self._feed.stats(now)

    def changed(self) -> None:
        """Tell of what the host has changed in the fleet."""
        if self.is_open:
            self._feed.look(self._guarded.time(None))

    def cleared(self, name: str | None) -> None:
        """Tell that the caches of one replica, or of all, were cleared."""
        with self._guarded.lock:
            names = [*self._guarded.state.fleet.members] if name is None else [name]
            for each in names if self.is_open else ():
                self._feed.cleared(each)

    def renewed(self) -> None:
        """Tell that the weights have changed."""
        with self._guarded.lock:
            if self.is_open:
                self._feed.cleared(None)

    def reconcile(self, wanted: Mapping[str, Replica | None]) -> Mapping[str, Replica | None]:
        """Return replicas as a host lists them, without incarnations that a peer knows to be gone."""
        with self._guarded.lock:
            return self._feed.registers.reconcile(wanted) if self.is_open else wanted
