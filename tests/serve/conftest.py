"""Fixtures of the proxy's tests: parts that run, and end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict

import pytest
from loopback import Engine, MakeEngines, MakeProxy, MakeScripted, Proxy, Scripted

from prefixroute.testing import Behaviour


@pytest.fixture
def make_engines() -> Iterator[MakeEngines]:
    """Return a maker of engine processes that differ in nothing: ``make_engines(2, decode_s=0.01)``."""
    with ExitStack() as stack:

        def make(count: int, **behaviour: float) -> list[Engine]:
            engines = [stack.enter_context(closing(Engine(**behaviour))) for _ in range(count)]
            return [engine.wait() for engine in engines]

        yield make


@pytest.fixture(scope="session")
def shared_engines() -> Iterator[list[Engine]]:
    """Return two engine processes for all tests that kill none."""
    with ExitStack() as stack:
        engines = [stack.enter_context(closing(Engine())) for _ in range(2)]
        yield [engine.wait() for engine in engines]


@pytest.fixture
def pair(shared_engines: list[Engine]) -> Iterator[list[Engine]]:
    """Return two engines, as fast as they can be until the test says otherwise."""
    for engine in shared_engines:
        engine.control(prefill_s_per_1k=0, decode_s=0)
    yield shared_engines
    for engine in shared_engines:
        engine.control(**asdict(Behaviour()))


@pytest.fixture
def make_scripted() -> Iterator[MakeScripted]:
    """Return a maker of engines that answer with given bytes: ``make_scripted(pieces, health=b"...")``."""
    with ExitStack() as stack:
        yield lambda pieces, **options: stack.enter_context(closing(Scripted(pieces, **options)))


@pytest.fixture
def make_proxy() -> Iterator[MakeProxy]:
    """Return a maker of running proxies: ``make_proxy(engines, upstream__retries=0)``."""
    with ExitStack() as stack:
        yield lambda replicas, **settings: stack.enter_context(Proxy(replicas, **settings))
