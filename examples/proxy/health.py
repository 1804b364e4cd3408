"""Who may be asked: one circuit breaker for each replica, fed by requests and by health checks."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import httpx
from pybreaker import (
    STATE_CLOSED,
    STATE_OPEN,
    CircuitBreaker,
    CircuitBreakerError,
    CircuitBreakerListener,
    CircuitBreakerState,
)

import prefixroute as pr

log = logging.getLogger("proxy")


class Unhealthy(Exception):  # noqa: N818  # a finding, not a fault of ours
    """A replica that answers, but not as a healthy one does."""


class Health(CircuitBreakerListener):
    """An open breaker suspends its replica in the router, a closed one resumes it.

    Health checks never touch the router's load: only tickets do, so a passing check cannot make a busy replica look idle.
    """

    def __init__(self, router: pr.Router, client: httpx.AsyncClient, failures: int, reset_s: float) -> None:
        """Watch the router's replicas. ``failures`` in a row open a breaker, which stays open for ``reset_s`` at least."""
        self._router, self._client = router, client
        self._breakers = {
            name: CircuitBreaker(
                name=name, fail_max=failures, reset_timeout=reset_s, listeners=[self], throw_new_error_on_trip=False
            )
            for name in router.replicas
        }

    def record(self, name: str, error: Exception | None = None) -> None:
        """Tell a replica's breaker how a request or a check went; an open one listens again after its reset time."""
        if isinstance(error, httpx.ConnectError):
            self._router.clear(name)  # nobody listens: the process is gone, and its cache with it
        with suppress(CircuitBreakerError, httpx.RequestError, Unhealthy):
            self._breakers[name].call(_raise, error)

    def state_change(self, cb: CircuitBreaker, _: CircuitBreakerState | None, new: CircuitBreakerState) -> None:
        """Follow a breaker (called by it)."""
        name = cb.name or ""
        if new.name == STATE_OPEN:
            log.warning("%s is suspended after %d failures", name, cb.fail_counter)
            self._router.suspend(name)
        elif new.name == STATE_CLOSED:
            log.warning("%s is back", name)
            self._router.resume(name)

    async def watch(self, name: str, interval_s: float, timeout_s: float) -> None:
        """Check a replica again and again."""
        while True:
            await self._check(name, timeout_s)
            await asyncio.sleep(interval_s)

    async def _check(self, name: str, timeout_s: float) -> None:
        error: Exception | None = None
        try:
            response = await self._client.get(f"{name}/health", timeout=timeout_s)
            if response.is_error:
                error = Unhealthy(f"{name}/health says {response.status_code}")
        except httpx.RequestError as failed:
            error = failed
        # A passing check closes an open breaker but excuses no failed request of a closed one.
        if error is not None or self._breakers[name].current_state != STATE_CLOSED:
            self.record(name, error)


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error
