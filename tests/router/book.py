"""What tests read of a router's book: load, lost hits; a belief that refuses, and work that many threads do at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from fake_belief import FakeBelief, FakeInsertion
from prefixroute.errors import TokensError
from prefixroute.router import Router


class Refusing(FakeBelief):
    """Refuses what it is told to insert, once it is told to."""

    refuses = False

    def insert(self, name: str, prompt: object, namespace: object = None, now: float = 0.0) -> FakeInsertion:
        if self.refuses:
            raise TokensError("no")
        return super().insert(name, prompt, None, now)


def loads(router: Router) -> tuple[int, ...]:
    """Return requests in flight, tokens queued and tokens in decode over the fleet."""
    replicas = router.stats()["replicas"].values()
    return tuple(sum(one[name] for one in replicas) for name in ("in_flight", "uncached_tokens", "decode_tokens"))


def lost(router: Router, family: str) -> dict[tuple[str, str], float]:
    """Return a family of lost hits by policy and reason, as Prometheus reads it."""
    line = re.compile(rf'prefixroute_{family}_total{{policy="(.*)",reason="(.*)"}} (.*)')
    found = map(line.fullmatch, router.metrics_text().splitlines())
    return {(match[1], match[2]): float(match[3]) for match in found if match is not None}


def in_threads(work: Iterable[Callable[[], object]]) -> None:
    """Run functions at once; raise what any of them raises."""
    work = list(work)
    with ThreadPoolExecutor(len(work)) as pool:
        for running in [pool.submit(function) for function in work]:
            running.result()
