"""A signal may raise, or call the router again, between any two lines of a call: nothing wrong is left behind.

A tracer stands for the signal. It also acts where no signal can, between the body of a ``with`` and the release of the
lock, which its thread may take again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pytest
from book import loads
from interrupting import at_line, lines

from prefixroute.errors import PrefixRouteError
from prefixroute.router import Decision, PairTicket, Router, Ticket
from prefixroute.router.booking import Booking
from prefixroute.types import Replica, Timing

A, B = (np.arange(4_000, dtype=np.uint32) + 100_000 * number for number in (1, 2))
NAMES = ["r0", "r1", "r2"]
S = TypeVar("S", bound="Setting")


class Setting:
    """A router with requests in every stage, on a clock of its own."""

    def __init__(self, *, shadowed: bool) -> None:
        self.now = 0.0
        self.router = Router(NAMES, clock=lambda: self.now, timing=Timing(ticket_s=50.0))
        if shadowed:
            self.router.shadow("session")
        for prompt, name in ((A, "r0"), (B, "r1")):
            self.router.route(prompt, candidates=[name]).finish()
        self.ticket = self.router.route(A, session="s")
        self.keyed = self.router.route(B, session="t", key="k")
        self.started = self.router.route(B, session="u")
        self.started.first_token()
        self.hedged = self.router.route(A)
        self.hedge = self.hedged.hedge()
        self.decision = self.router.choose(A, session="v")

    @property
    def tickets(self) -> tuple[Booking, ...]:
        return self.ticket, self.keyed, self.started, self.hedged, self.hedge

    def serve(self) -> None:
        """Serve a request at every replica."""
        router = self.router
        router.sync([*NAMES, "r7"])
        for name in (*NAMES, "r7"):
            router.resume(name)
            with router.route(B, candidates=[name], key="next") as ticket:
                assert ticket.replica == name
            assert router.choose(B, candidates=[name]).hit_tokens == 3_984

    def drop(self) -> None:
        self.ticket = self.keyed
        self.router.stats()

    def expire(self) -> None:
        self.now = 100.0
        self.router.stats()


class PairSetting(Setting):
    """A fleet of which some replicas only prefill and some only decode, with pairs in every stage."""

    NAMES = ("p0", "p1", "d0", "d1")

    def __init__(self, *, shadowed: bool) -> None:
        self.now = 0.0
        self.roles = {name: Replica(role="prefill" if name[0] == "p" else "decode") for name in self.NAMES}
        self.router = Router(self.roles, clock=lambda: self.now, timing=Timing(ticket_s=50.0))
        if shadowed:
            self.router.shadow("session")
        self.router.route_pair(A, candidates=["p0", "d0"]).finish()
        self.router.route_pair(B, candidates=["p1", "d1"]).finish()
        self.ticket = self.router.route_pair(A, session="s")
        self.keyed = self.router.route_pair(B, session="t", key="k")
        self.started = self.router.route_pair(B, session="u")
        self.started.first_token()
        self.decision = self.router.choose_pair(A, session="v")

    @property
    def tickets(self) -> tuple[Booking, ...]:
        return self.ticket, self.keyed, self.started

    def serve(self) -> None:
        self.router.sync(self.roles)
        for i in "01":
            self.router.resume(f"p{i}")
            self.router.resume(f"d{i}")
            with self.router.route_pair(B, candidates=[f"p{i}", f"d{i}"], key="next") as ticket:
                assert ticket.replicas == (f"p{i}", f"d{i}")
            pair = self.router.choose_pair(B, candidates=[f"p{i}", f"d{i}"])
            assert [half.hit_tokens for half in pair] == [3_984, 3_984]


PAIR_CALLS: dict[str, Callable[[PairSetting], object]] = {
    "choose_pair": lambda s: s.router.choose_pair(A, session="s"),
    "commit_pair": lambda s: s.router.commit_pair(s.decision),
    "route_pair": lambda s: s.router.route_pair(A, session="w"),
    "route_pair with a key in flight": lambda s: s.router.route_pair(A, key="k"),
    "first_token": lambda s: s.ticket.first_token(),
    "finish": lambda s: s.ticket.finish(output=list(range(50)), reported_hit_tokens=0),
    "finish by key": lambda s: s.router.finish("k"),
    "finish after the first token": lambda s: s.started.finish(),
    "abort": lambda s: s.ticket.abort(),
    "retry": lambda s: s.ticket.retry(),
    "retry of the prompt": lambda s: s.ticket.retry("prefill"),
    "retry of the answer": lambda s: s.ticket.retry("decode"),
    "retry after the first token": lambda s: s.started.retry("decode"),
    "drop": Setting.drop,
    "expire": Setting.expire,
    "remove_replica": lambda s: s.router.remove_replica("d0"),
    "drain": lambda s: s.router.drain("p0"),
}

CALLS: dict[str, Callable[[Setting], object]] = {
    "choose": lambda s: s.router.choose(A, session="s"),
    "commit": lambda s: s.router.commit(s.decision),
    "route": lambda s: s.router.route(A, session="w"),
    "route with a key": lambda s: s.router.route(A, key="new"),
    "route with a key in flight": lambda s: s.router.route(A, key="k"),
    "first_token": lambda s: s.ticket.first_token(),
    "finish": lambda s: s.ticket.finish(output=list(range(50)), reported_hit_tokens=0),
    "finish by key": lambda s: s.router.finish("k"),
    "finish after the first token": lambda s: s.started.finish(),
    "abort": lambda s: s.ticket.abort(),
    "retry": lambda s: s.ticket.retry(),
    "hedge": lambda s: s.ticket.hedge(),
    "the hedge wins": lambda s: s.hedge.first_token(),
    "retry of a hedge": lambda s: s.hedged.retry(),
    "drop": Setting.drop,
    "expire": Setting.expire,
    "add_replica": lambda s: s.router.add_replica("r9"),
    "remove_replica": lambda s: s.router.remove_replica("r0"),
    "sync": lambda s: s.router.sync({"r0": Replica(incarnation="2"), "r1": None, "r8": Replica(weight=2.0)}),
    "drain": lambda s: s.router.drain("r0"),
    "suspend": lambda s: s.router.suspend("r0", for_s=5.0),
    "resume": lambda s: s.router.resume("r0"),
    "update_load": lambda s: s.router.update_load("r0", waiting=1, running=2),
    "clear": lambda s: s.router.clear("r0"),
    "new_epoch": lambda s: s.router.new_epoch(),
    "apply_cleared": lambda s: s.router.apply_cleared("r0"),
}


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Fail a test that hangs."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the router hangs"))
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def assert_sound(setting: Setting) -> None:
    """Give everything back, and serve the next requests at every replica."""
    router = setting.router
    for ticket in setting.tickets:
        ticket.abort()
    router.abort("k")
    router.abort("new")
    followers = [Router.of(state) for state in router.shadows.states]
    for each in (router, *followers):
        assert loads(each) == (0, 0, 0)
    setting.serve()
    assert [each.replicas for each in followers] in ([], [router.replicas] * 2)


@pytest.mark.parametrize(
    ("name", "shadowed"),
    [
        *((name, False) for name in CALLS),
        *((name, True) for name in ("route", "finish", "abort", "retry", "add_replica")),
    ],
)
def test_an_exception_at_any_line_leaves_a_sound_router(name: str, shadowed: bool) -> None:
    at_every_line(Setting, CALLS[name], interrupt, KeyboardInterrupt, shadowed=shadowed)


@pytest.mark.parametrize(
    ("name", "shadowed"),
    [
        *((name, False) for name in PAIR_CALLS),
        *((name, True) for name in ("route_pair", "finish", "abort", "retry", "retry of the answer")),
    ],
)
def test_an_exception_at_any_line_of_a_pair_leaves_a_sound_router(name: str, shadowed: bool) -> None:
    at_every_line(PairSetting, PAIR_CALLS[name], interrupt, KeyboardInterrupt, shadowed=shadowed)


def at_every_line(
    kind: type[S],
    call: Callable[[S], object],
    act: Callable[[S], object],
    expected: type[BaseException],
    check: Callable[[S, Any], object] = lambda _, __: None,
    *,
    shadowed: bool = False,
) -> None:
    """Make a call as often as it has lines, each time on a setting of its own, and ``act`` at another line each time."""
    counted = kind(shadowed=shadowed)
    count = lines(lambda: call(counted))
    assert count > 3
    for number in range(1, count + 1):
        setting = kind(shadowed=shadowed)
        sys.settrace(at_line(number, partial(act, setting)))
        try:
            with suppress(expected):
                check(setting, call(setting))
        finally:
            sys.settrace(None)
        assert_sound(setting)


def interrupt(_: Setting) -> None:
    raise KeyboardInterrupt


def untraced(act: Callable[[S], object]) -> Callable[[S], None]:
    """Return a call to the router that is not traced itself, and may be refused."""

    def inside(setting: S) -> None:
        sys.settrace(None)
        with suppress(PrefixRouteError):
            act(setting)

    return inside


def held_by_name(decision: Any) -> dict[str, int]:
    return dict(zip(decision.view.names, decision.view.hits, strict=True))


NESTED: dict[str, Callable[[Setting], object]] = {
    "choose": lambda s: s.router.choose(B),
    "route and finish": lambda s: s.router.route(B).finish(),
    "end the same": lambda s: [ticket.abort() for ticket in (s.ticket, s.hedge)],  # type: ignore[func-returns-value]
    "grow": lambda s: s.router.sync([*NAMES, "r4", "r5", "r6"]),
    "shrink": lambda s: s.router.remove_replica("r2"),
}


PAIR_NESTED: dict[str, Callable[[PairSetting], object]] = {
    "route and finish": lambda s: s.router.route_pair(B).finish(),
    "end the same": lambda s: s.ticket.abort(),
    "retry the same": lambda s: s.ticket.retry("decode"),
    "shrink": lambda s: s.router.remove_replica("d1"),
}


@pytest.mark.parametrize("nested", PAIR_NESTED)
@pytest.mark.parametrize("name", ["route_pair", "first_token", "retry of the prompt", "retry of the answer"])
def test_a_call_at_any_line_of_a_pairs_leaves_a_sound_router(name: str, nested: str) -> None:
    at_every_line(PairSetting, PAIR_CALLS[name], untraced(PAIR_NESTED[nested]), PrefixRouteError, give_back)


@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize("name", ["choose", "route", "first_token", "finish", "abort", "retry", "hedge", "add_replica"])
def test_a_call_at_any_line_of_another_leaves_a_sound_router(name: str, nested: str) -> None:
    at_every_line(Setting, CALLS[name], untraced(NESTED[nested]), PrefixRouteError, give_back)


def give_back(setting: Setting, result: Any) -> None:
    """End what was booked; hits of a decision are those of its view, whatever came in between."""
    if isinstance(result, Ticket | PairTicket):
        result.abort()
    elif isinstance(result, Decision):
        held = held_by_name(setting.decision)
        assert held_by_name(result).items() & held.items() >= {("r0", 3_984), ("r1", held["r1"])}


IMPORT_FIRST = """
import prefixroute._core
from numpy._core import multiarray
del multiarray._ARRAY_API
from prefixroute import Router
assert Router(["a"], policy="cache-aware").route([1] * 64).replica == "a"
"""


def test_the_bindings_of_numpy_are_loaded_by_the_import() -> None:
    """Loaded by the first call, they panic where a signal handler's exception ends that load."""
    subprocess.run([sys.executable, "-c", IMPORT_FIRST], check=True, timeout=60)
