"""What the router's tests share: a router over the reference model of an index, on a clock that tests move by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fake_belief import FakeBelief
from prefixroute.router import Router


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_router(clock: Clock) -> Callable[..., Router]:
    """Return a maker of routers: ``make_router(8, policy=...)`` has replicas r0 to r7."""

    def make(replicas: int | Iterable[str] = 8, **options: Any) -> Router:
        names = [f"r{i}" for i in range(replicas)] if isinstance(replicas, int) else replicas
        options.setdefault("index", FakeBelief(options.get("block_size", 16)))
        options.setdefault("clock", clock)
        return Router(names, **options)

    return make
