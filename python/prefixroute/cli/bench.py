"""``prefixroute bench``: what a decision costs on this machine, for a conversation of 8,800 tokens."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import prefixroute
from prefixroute.cli import console
from prefixroute.cli.groups import grouped, option
from prefixroute.cli.output import print_json
from prefixroute.cli.table import show
from prefixroute.document import SCHEMA
from prefixroute.hashing import hash_blocks
from prefixroute.report.table import Column, Table
from prefixroute.router import Router

EXAMPLE = "Example: prefixroute bench --json"

PROMPT_TOKENS = 8_800
"""The twelfth turn of the chat workload."""
FLEETS = (8, 64)
BATCH = 20
"""Calls between two looks at the clock, so that looking costs nothing."""


class CallTiming(NamedTuple):
    """Microseconds of one call."""

    what: str
    replicas: int | None
    median_us: float
    p99_us: float


COLUMNS = (
    Column("step", "what", text=True),
    Column("replicas", "replicas"),
    Column("median µs", "median_us", "{:,.2f}".format),
    Column("p99 µs", "p99_us", "{:,.2f}".format),
)


@grouped
def command(
    *,
    seconds: float = option(0.3, "How long to repeat each step.", min=0.01),
    as_json: bool = option(False, "Print one JSON object.", "--json"),
) -> None:
    """Time a decision on this machine: hashing, choosing, and the whole of route + finish."""
    found = list(timings(seconds))
    if as_json:
        machine = {
            "machine": platform.machine(),
            "python": platform.python_version(),
            "version": prefixroute.__version__,
        }
        rows = [timing._asdict() for timing in found]
        print_json({"schema": SCHEMA, **machine, "prompt_tokens": PROMPT_TOKENS, "rows": rows})
        return
    show(Table.of(f"a prompt of {PROMPT_TOKENS:,} tokens, all cached", COLUMNS, found), console.stdout())


def timings(seconds: float) -> Iterator[CallTiming]:
    """Yield the timing of each step, repeating each for ``seconds``."""
    tokens = np.arange(PROMPT_TOKENS, dtype=np.uint32)
    listed = tokens.tolist()
    yield _time("hash an array", None, lambda: hash_blocks(tokens), seconds)
    yield _time("hash a list", None, lambda: hash_blocks(listed), seconds)
    for replicas in FLEETS:
        router = Router([f"replica-{number}" for number in range(replicas)], policy="cache-aware")
        router.route(tokens, session="chat").finish()
        yield _time("choose (changes nothing)", replicas, partial(router.choose, tokens, session="chat"), seconds)
        yield _time("route + finish", replicas, partial(_serve, router, tokens), seconds)


def _serve(router: Router, tokens: NDArray[np.uint32]) -> None:
    router.route(tokens, session="chat").finish()


def _time(what: str, replicas: int | None, call: Callable[[], object], seconds: float) -> CallTiming:
    """Repeat ``call`` for ``seconds`` after a warm-up; at least 100 batches."""
    for _ in range(BATCH):
        call()
    laps: list[float] = []
    end = perf_counter_ns() + round(1e9 * seconds)
    while len(laps) < 100 or perf_counter_ns() < end:  # noqa: PLR2004 - enough for a 99th percentile
        start = perf_counter_ns()
        for _ in range(BATCH):
            call()
        laps.append((perf_counter_ns() - start) / BATCH / 1_000)
    median, p99 = np.percentile(laps, (50, 99))
    return CallTiming(what, replicas, float(median), float(p99))
