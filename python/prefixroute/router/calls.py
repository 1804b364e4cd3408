"""What all calls of a router share: its state, guarded by its lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from prefixroute.live import LoadPoller, Subscriber
from prefixroute.router.link import PeerLink
from prefixroute.router.tickets import Guarded
from prefixroute.routing import RouterState
from prefixroute.telemetry.records import Sink
from prefixroute.telemetry.volatile import VolatileSample


class RouterCalls:
    """A part of the calls of :class:`~prefixroute.router.Router`, over the state that all parts share.

    Attributes:
        shadows: the policies that follow its requests, and what each is compared with.
    """

    def _guard(
        self,
        state: RouterState,
        record: Sink | None = None,
        timer: Callable[[], float] | None = None,
        sample: VolatileSample | None = None,
    ) -> None:
        self._state, self._guarded = state, Guarded(state, sample)
        self._lock, self._time = self._guarded.lock, self._guarded.time
        self.shadows = self._guarded.shadows
        self._record, self._timer = record, timer
        self._watching: list[Subscriber | LoadPoller] = []
        self._peers: PeerLink | None = None
        self._looks_around = False

    @classmethod
    def of(cls, state: RouterState) -> Self:
        """Return a router over a state, e.g. a shadow's.

        Args:
            state: what it decides on and books into.

        Returns:
            A router that records nothing.
        """
        router = cls.__new__(cls)
        router._guard(state)  # noqa: SLF001  # its own class's
        return router
