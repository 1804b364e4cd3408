"""Keep a cache entry alive between uses, for as long as that is cheaper than writing it again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from prefixroute.errors import ConfigError
from prefixroute.providers.catalog import Lifetime, Mode, Model
from prefixroute.validation import check_callable, check_float, check_int

MARGIN_S = 15.0
"""Seconds before the end of a lifetime at which it is renewed: a slow call still arrives in time (ASSUMED)."""


def renewals_worth(model: Model, tokens: int, lifetime: str | None = None, mode: str | None = None) -> float:
    """Return how many renewals in a row cost no more than what they save: (write - read) / read, rounded down.

    A renewal reads the prefix once. It saves, at the next use, the difference between writing the prefix and reading
    it. Renewing until the cost reaches that saving, and no longer, costs at most twice what one who knew the next use
    would pay: the bound of the ski-rental problem (Karlin, Manasse, Rudolph and Sleator, 1988). Infinity where reads
    are free.

    Args:
        model: whose prices.
        tokens: of the prefix; prices may depend on its length.
        lifetime: a lifetime of the mode; its default unless given.
        mode: a mode of the model; its default unless given.
    """
    price, chosen = model.price(tokens), model.mode(mode).lifetime(lifetime)
    saved = price.writing(chosen.name) - price.read
    if saved <= 0:
        return 0
    return math.floor(saved / price.read + 1e-9) if price.read else math.inf


def keep_alive_usd(model: Model, tokens: int, idle_s: float, lifetime: str, mode: str | None = None) -> float:
    """Return the dollars of writing a prefix once and keeping it alive over ``idle_s`` seconds without use.

    write x tokens + (ceil(idle / lifetime) - 1) x read x tokens, the last lifetime needing no renewal. Infinity where a
    read does not renew the lifetime and one is not enough.

    Args:
        model: whose prices count.
        tokens: of the prefix.
        idle_s: seconds without use.
        lifetime: with which it is written.
        mode: of caching; ``None`` = the model's first.
    """
    check_float("idle_s", idle_s, 0)
    price, used = model.price(tokens), model.mode(mode)
    seconds = used.lifetime(lifetime).seconds
    renewals = max(0, math.ceil(idle_s / seconds) - 1)
    if renewals and not used.refresh_on_read:
        return math.inf
    return price.usd(tokens, "write", lifetime) + renewals * price.usd(tokens, "read")


def cheapest_lifetime(model: Model, tokens: int, idle_s: float, mode: str | None = None) -> Lifetime:
    """Return the lifetime with which :func:`keep_alive_usd` is least; the shorter one of two that cost the same.

    Args:
        model: whose prices count.
        tokens: of the prefix.
        idle_s: seconds without use.
        mode: of caching; ``None`` = the model's first.
    """
    return min(
        model.mode(mode).lifetimes,
        key=lambda one: (keep_alive_usd(model, tokens, idle_s, one.name, mode), one.seconds),
    )


class PreWarmer:
    """Renews one cache entry at the longest safe interval while nobody uses it, and stops when that no longer pays.

    ``ping`` sends the request that renews the entry: the same prefix, model, tools, thinking and effort as the real
    calls, and no answer (Claude: ``max_tokens=0``; OpenAI's Responses: ``prompt_cache_options={"prewarm": True}``).
    Call :meth:`used` when a real request starts. After an idle stretch in which renewals have cost what they could
    save, the entry is given up until the next :meth:`used`. A ping that raises gives it up too: its error is in
    :attr:`last_error`.

    Use it as an asynchronous context manager, or run :meth:`run` in a task. For one event loop; no thread may share it.

    Args:
        ping: sends the renewing request.
        model: whose prices and rules.
        tokens: tokens of the prefix.
        lifetime: a lifetime of the mode; its default unless given.
        mode: a mode of the model; its default unless given.
        margin_s: seconds before the end of the lifetime at which it is renewed.
        clock: seconds, any zero; they must pass as those of ``sleep`` do.
        sleep: waits for some seconds.

    Raises:
        ConfigError: the entry cannot be kept like this: too short to be cached, a lifetime that reads do not renew, or
            a margin that leaves nothing of it.

    Attributes:
        pings: renewals sent.
        usd: what they cost, by the prices of ``model``.
        last_error: what the last ping that failed raised, or None.
    """

    def __init__(
        self,
        ping: Callable[[], Awaitable[object]],
        model: Model,
        tokens: int,
        *,
        lifetime: str | None = None,
        mode: str | None = None,
        margin_s: float = MARGIN_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Check that the entry can be kept; send nothing yet."""
        for name, value in (("ping", ping), ("clock", clock), ("sleep", sleep)):
            check_callable(name, value)
        check_int("tokens", tokens, 1)
        if not model.is_cacheable(tokens):
            raise ConfigError(f"{model.id} caches prefixes of {model.minimum_tokens:,} tokens or more, got {tokens:,}")
        used: Mode = model.mode(mode)
        if not used.refresh_on_read:
            raise ConfigError(
                f"reads do not renew an entry of {model.id} ({used.name}): there is nothing to keep alive"
            )
        kept = used.lifetime(lifetime)
        check_float("margin_s", margin_s, 0)
        if margin_s >= kept.seconds:
            raise ConfigError(f"margin_s must be below the lifetime of {kept.seconds:g} s, got {margin_s:g}")
        self.interval_s = kept.seconds - margin_s
        self.most_idle_pings = renewals_worth(model, tokens, kept.name, mode)
        self._ping_usd = model.price(tokens).usd(tokens, "read")
        self._ping, self._clock, self._sleep = ping, clock, sleep
        self._renewed_s = 0.0
        self._idle_pings: float = math.inf  # nothing to keep before the first use
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.pings = 0
        self.usd = 0.0
        self.last_error: Exception | None = None

    @property
    def is_keeping(self) -> bool:
        """Whether the entry is being kept alive; False before the first use and after it was given up."""
        return self._idle_pings < self.most_idle_pings

    def used(self) -> None:
        """Say that a real request with this prefix starts now: it renews the entry, and an idle stretch begins anew."""
        self._renewed_s = self._clock()
        self._idle_pings = 0
        self._awake.set()

    async def run(self) -> None:
        """Keep the entry alive until cancelled."""
        while True:
            self._awake.clear()
            if not self.is_keeping:
                await self._awake.wait()
                continue
            left = self._renewed_s + self.interval_s - self._clock()
            if left > 0:
                await self._sleep(left)
                continue
            await self._renew()

    async def _renew(self) -> None:
        self._renewed_s = self._clock()  # a lifetime counts from the start of a request
        self._idle_pings += 1
        self.pings += 1
        self.usd += self._ping_usd
        try:
            await self._ping()
        except Exception as error:  # noqa: BLE001 - any client's error; the entry may be gone
            self.last_error = error
            if not self._awake.is_set():
                self._idle_pings = math.inf

    async def __aenter__(self) -> Self:
        """Start keeping the entry alive in a task."""
        if self._task is not None:
            raise ConfigError("a PreWarmer runs once at a time, this one is running")
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait until a ping in flight has been cancelled."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
