"""``simulate`` with several routers: what is refused, and what a result says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

SIMULATE = ("simulate", "chat,requests=60,arrivals=poisson:10", "--policies", "session", "--seeds", "1", "-q")
SHARING = ("--routers", "8", "--peer-delay", "100ms")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (SHARING, "--timed"),
        (("--timed", "--peer-delay", "100ms"), "--routers"),
        (("--peer-delay", "0"), "--routers"),
        (("--timed", "--routers", "2", "--peer-delay", "soon"), "--peer-delay must be a time"),
    ],
)
def test_a_delay_needs_several_routers_and_a_clock(
    prefixroute: Callable[..., Any], options: tuple[str, ...], word: str
) -> None:
    said = prefixroute(*SIMULATE, *options)
    assert said.code == 2
    assert word in said.err


@pytest.mark.parametrize("options", [("--timed", *SHARING), ("--routers", "2", "--peer-delay", "0")])
def test_a_delay_that_fits_is_simulated(prefixroute: Callable[..., Any], options: tuple[str, ...]) -> None:
    assert prefixroute(*SIMULATE, *options).code == 0
