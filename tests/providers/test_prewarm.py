"""PreWarmer: renews an entry at the longest safe interval, and gives it up when that no longer pays."""

from __future__ import annotations

import asyncio

import pytest

from prefixroute import ConfigError, PreWarmer
from prefixroute.providers import cheapest_lifetime, find_model, keep_alive_usd, renewals_worth

SONNET = find_model("claude-sonnet-5-5")
TOKENS = 20_000


class Time:
    """Virtual seconds. ``pass_`` wakes sleepers whose time has come, one after another."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future

    async def pass_(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            for _ in range(10):
                await asyncio.sleep(0)
            due = [sleeper for sleeper in self._sleepers if sleeper[0] <= end and not sleeper[1].done()]
            if not due:
                break
            soonest = min(due, key=lambda sleeper: sleeper[0])
            self._sleepers.remove(soonest)
            self.now = max(self.now, soonest[0])
            soonest[1].set_result(None)
        self.now = end


def warmer(time: Time, pings: list[float], **given: object) -> PreWarmer:
    async def ping() -> None:
        pings.append(time.now)

    return PreWarmer(ping, SONNET, TOKENS, clock=time.clock, sleep=time.sleep, **given)  # type: ignore[arg-type]


def test_how_many_renewals_pay() -> None:
    assert renewals_worth(SONNET, TOKENS) == 24  # (2.50 - 0.10) / 0.10
    assert renewals_worth(SONNET, TOKENS, "1h") == 39
    free = SONNET.with_figures(read=0.0)
    assert renewals_worth(free, TOKENS) == float("inf")
    assert renewals_worth(SONNET.with_figures(write=0.05), TOKENS) == 0


def test_the_cheapest_lifetime_depends_on_how_long_nobody_comes() -> None:
    assert cheapest_lifetime(SONNET, TOKENS, 60).name == "5m"
    assert cheapest_lifetime(SONNET, TOKENS, 3_600).name == "5m"  # 2.5 + 11 x 0.1 = 3.6 < 4
    assert cheapest_lifetime(SONNET, TOKENS, 7_200).name == "1h"  # 2.5 + 23 x 0.1 = 4.8 > 4.1
    assert keep_alive_usd(SONNET, TOKENS, 3_600, "5m") == pytest.approx(0.02 * 3.6)


async def test_it_renews_in_time_and_stops_when_savings_are_spent() -> None:
    time, pings = Time(), []
    async with warmer(time, pings) as kept:
        await time.pass_(3_600)
        assert pings == []  # nothing to keep before the first use
        kept.used()
        await time.pass_(285 * 3 + 1)
        assert pings == [3_600 + 285, 3_600 + 570, 3_600 + 855]
        kept.used()
        await time.pass_(86_400)
        assert len(pings) == 3 + 24
        assert not kept.is_keeping
        assert kept.usd == pytest.approx(27 * TOKENS * 0.1e-6)
        kept.used()
        await time.pass_(300)
        assert len(pings) == 28


async def test_a_use_puts_the_next_renewal_off() -> None:
    time, pings = Time(), []
    async with warmer(time, pings) as kept:
        for _ in range(10):
            kept.used()
            await time.pass_(200)
        assert pings == []
        await time.pass_(100)
        assert pings == [2_085]


async def test_a_ping_that_fails_gives_the_entry_up_until_the_next_use() -> None:
    time, calls = Time(), 0

    async def ping() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionError("gone")

    async with PreWarmer(ping, SONNET, TOKENS, clock=time.clock, sleep=time.sleep) as kept:
        kept.used()
        await time.pass_(7_200)
        assert calls == 1
        assert isinstance(kept.last_error, ConnectionError)
        kept.used()
        await time.pass_(300)
        assert calls == 2


async def test_leaving_stops_it_even_in_a_ping() -> None:
    time = Time()

    async def ping() -> None:
        await asyncio.Event().wait()

    kept = PreWarmer(ping, SONNET, TOKENS, clock=time.clock, sleep=time.sleep)
    async with kept:
        kept.used()
        await time.pass_(300)
        with pytest.raises(ConfigError, match="running"):
            await kept.__aenter__()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tokens": 100}, "512 tokens"),
        ({"margin_s": 300.0}, "below.*lifetime.*300 s"),
        ({"margin_s": float("nan")}, "margin_s"),
        ({"lifetime": "2h"}, "lifetimes 5m, 1h"),
        ({"ping": 3}, "ping.*function"),
        ({"model": find_model("gemini-2.5-pro"), "mode": "explicit"}, "do not renew"),
    ],
)
def test_what_cannot_be_kept(given: dict[str, object], told: str) -> None:
    async def ping() -> None: ...

    with pytest.raises(ConfigError, match=told):
        PreWarmer(**({"ping": ping, "model": SONNET, "tokens": TOKENS} | given))  # type: ignore[arg-type]
