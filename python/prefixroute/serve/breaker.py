"""Circuit breakers: one for each engine. Rules alone, with the time passed in."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """What a breaker lets through."""

    CLOSED = "closed"  # everything
    OPEN = "open"  # nothing
    HALF_OPEN = "half-open"  # requests on trial: the first failure opens it again, the first success closes it


class Breaker:
    """Opens after failures in a row; a passing check puts it on trial after a time, and a served request closes it.

    An engine that was gone, so that nobody listened at its port, is another process when it answers a check: it is on
    trial at once.

    The time doubles with each trial that fails, so that an engine whose checks pass and whose requests fail is asked
    less and less often.

    Args:
        failures: in a row that open it.
        reset_s: shortest time open, in seconds.
        max_reset_s: longest time open, if that is more.
    """

    __slots__ = ("_base_s", "_failures", "_gone", "_max_s", "_opened_at", "_reset_s", "failed", "state")

    def __init__(self, failures: int, reset_s: float, max_reset_s: float) -> None:
        self._failures, self._base_s, self._max_s = failures, reset_s, max(reset_s, max_reset_s)
        self._reset_s, self._opened_at = reset_s, 0.0
        self.state, self.failed, self._gone = State.CLOSED, 0, False

    def served(self) -> State:
        """Note a request that the engine has served. One that ends while the breaker is open began before it opened."""
        if self.state is State.HALF_OPEN:
            self._close()
        elif self.state is State.CLOSED:
            self.failed = 0
        return self.state

    def fails(self, now: float, *, gone: bool = False) -> State:
        """Note a failure, of a request or of a check. ``gone``: nobody listens."""
        self.failed += 1
        self._gone = self._gone or gone
        if self.state is State.HALF_OPEN:
            self._reset_s = min(2 * self._reset_s, self._max_s)
            self._open(now)
        elif self.state is State.OPEN:
            return self.state
        elif self.failed >= self._failures:
            self._open(now)
        return self.state

    def passes(self, now: float) -> State:
        """Note a check that passes: it excuses no failed request, and opens the way for a trial."""
        if self.state is State.OPEN and (self._gone or now - self._opened_at >= self._reset_s):
            self.state = State.HALF_OPEN
        self._gone = False
        return self.state

    def _open(self, now: float) -> None:
        self.state, self._opened_at = State.OPEN, now

    def _close(self) -> None:
        self.state, self.failed, self._reset_s = State.CLOSED, 0, self._base_s
