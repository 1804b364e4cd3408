"""A signal may raise between any two lines of a call of a router that has peers.

The next beat makes all agree again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from interrupting import at_line, lines
from mesh import NAMES, NOTHING, Mesh, load_of, prompt

from prefixroute.types import Replica


class Setting:
    """Two routers with requests in every stage at the first."""

    def __init__(self) -> None:
        self.mesh = Mesh(2)
        self.here, self.there = self.mesh.routers
        self.waiting = self.here.route(prompt(1), session="s")
        self.started = self.here.route(prompt(2), session="t")
        self.started.first_token()
        self.hedged = self.here.route(prompt(3))
        self.hedge = self.hedged.hedge()
        self.mesh.deliver()
        self.decision = self.here.choose(prompt(4), session="v")

    def frames(self, act: Callable[[Setting], object]) -> list[bytes]:
        act(self)
        return [data for _, data in self.mesh.take()]

    def beat(self) -> None:
        self.mesh.tick(2.0)
        self.mesh.deliver()


CALLS: dict[str, Callable[[Setting], object]] = {
    "commit": lambda s: s.here.commit(s.decision),
    "first_token": lambda s: s.waiting.first_token(),
    "finish": lambda s: s.waiting.finish(output=list(range(50))),
    "abort": lambda s: s.waiting.abort(),
    "retry": lambda s: s.waiting.retry(),
    "the hedge wins": lambda s: s.hedge.first_token(),
    "drain": lambda s: s.here.drain("r0"),
    "clear": lambda s: s.here.clear("r0"),
    "sync": lambda s: s.here.sync({name: Replica(incarnation="2" if name == "r1" else "") for name in NAMES}),
    "forget": lambda s: s.here.forget("s"),
    "tick": lambda s: s.mesh.links[0].tick(now=s.mesh.now + 1.5),
}


def interrupted(number: int, call: Callable[[], object]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    sys.settrace(at_line(number, interrupt))
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)


def assert_sound(setting: Setting) -> None:
    """End everything, and let a beat pass: nobody counts anything any more, and both serve the next request."""
    for ticket in (setting.waiting, setting.started, setting.hedged, setting.hedge):
        ticket.abort()
    setting.here.stats()
    setting.mesh.deliver()
    setting.beat()
    for router in setting.mesh.routers:
        assert load_of(router) == NOTHING
    ticket = setting.here.route(prompt(9))
    setting.mesh.deliver()
    assert load_of(setting.there) == load_of(setting.here)
    assert setting.there.choose(prompt(9)).hit_tokens == 3_984
    ticket.finish()


@pytest.mark.parametrize("name", CALLS)
def test_an_exception_at_any_line_of_a_call(name: str) -> None:
    call = CALLS[name]
    counted = Setting()
    for number in range(1, lines(lambda: call(counted)) + 1):
        setting = Setting()
        interrupted(number, lambda setting=setting: call(setting))  # type: ignore[misc]
        assert_sound(setting)


@pytest.mark.parametrize("name", CALLS)
def test_an_exception_at_any_line_of_applying_what_a_call_sends(name: str) -> None:
    call = CALLS[name]
    counted = Setting()
    count = lines(lambda: [counted.there.apply_peer(data) for data in counted.frames(call)])
    for number in range(1, count + 1):
        setting = Setting()
        frames = setting.frames(call)
        interrupted(number, lambda setting=setting, frames=frames: [setting.there.apply_peer(f) for f in frames])  # type: ignore[misc]
        assert_sound(setting)
