"""Where the hits went: why prompt tokens were computed that might have been in a cache.

Each recomputed token has one reason, the first that applies:

- *first sight*: no earlier request had this prefix, so no cache could have it;
- *volatile*: it would have been seen before, but for a text in the prompt's head that changes with every request;
- *elsewhere*: only other replicas were ever sent this prefix: routing, or a router that did not know;
- *evicted*: the replica that served the request was sent this prefix before, and has lost it: capacity;
- *undecided*: one of the last two, where nobody says which replica served the request.

``trace`` splits what a log reports this way, ``compare`` and ``advise`` what they simulate, and a Router's metrics what it learns
of its own requests.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from operator import add
from typing import NamedTuple

from prefixroute.workload.request import Request
from prefixroute.workload.tree import PrefixTree


class HitLosses(NamedTuple):
    """Prompt tokens of some requests, by what became of them. All but ``prompt`` add up to it.

    Attributes:
        prompt: of all these requests.
        hit: found in a cache.
        first_sight: no cache could have had them.
        volatile: seen before, but for a changing text before them.
        elsewhere: only other replicas had been sent them.
        evicted: their replica had been sent them and lost them.
        undecided: elsewhere or evicted; the replica is not known.
    """

    prompt: int = 0
    hit: int = 0
    first_sight: int = 0
    volatile: int = 0
    elsewhere: int = 0
    evicted: int = 0
    undecided: int = 0

    @property
    def recomputed(self) -> int:
        """Tokens that were computed."""
        return self.prompt - self.hit

    def share(self, reason: str) -> float:
        """Return one of the figures as a share of all prompt tokens; 0 where there are none."""
        return float(getattr(self, reason)) / self.prompt if self.prompt else 0.0

    def to_dict(self) -> dict[str, int]:
        """Return every figure under its name."""
        return self._asdict()

    def plus(self, other: HitLosses) -> HitLosses:
        """Return the figures of both together."""
        return HitLosses(*map(add, self, other))


class LossMeter:
    """Splits the recomputed tokens of one request after another, in order of arrival.

    Memory: 8 bytes for each distinct block of each replica, and of the prompts without what is volatile in them.
    """

    def __init__(self, block_size: int, *, volatile: bool = False) -> None:
        """Start with empty caches. ``volatile``: requests may have masked blocks, see :attr:`Request.masked`."""
        self._block_size = block_size
        self._masked = PrefixTree() if volatile else None
        self._replicas: dict[Hashable, PrefixTree] = {}
        self._number = 0

    def add(self, request: Request, seen: int, hit: int, replica: Hashable | None = None) -> HitLosses:
        """Return what became of a request's prompt tokens, and remember the request.

        Args:
            request: the next one.
            seen: leading tokens of its prompt that some request before had.
            hit: tokens that were found in the cache of the replica that served it. More than were seen is possible in
                a log that begins while caches are full.
            replica: which one that was; None is not known.
        """
        self._number += 1
        hit = min(hit, request.prompt_tokens)
        seen = min(max(seen, hit), request.prompt_tokens)
        unmasked = max(seen, self._seen_masked(request))
        held = None if replica is None else max(hit, min(seen, self._seen_by(replica, request)))
        return HitLosses(
            prompt=request.prompt_tokens,
            hit=hit,
            first_sight=request.prompt_tokens - unmasked,
            volatile=unmasked - seen,
            elsewhere=0 if held is None else seen - held,
            evicted=0 if held is None else held - hit,
            undecided=seen - hit if held is None else 0,
        )

    def _seen_masked(self, request: Request) -> int:
        """Return leading tokens that some request before had, but for what is volatile; a request without it has its own."""
        if self._masked is None:
            return 0
        prompt, context = request.masked or (request.prompt, request.context)
        known = self._masked.touch(self._number, prompt.array, context.array)
        return min(min(known[-1].last, len(prompt)) * self._block_size, request.prompt_tokens) if known else 0

    def _seen_by(self, replica: Hashable, request: Request) -> int:
        tree = self._replicas.setdefault(replica, PrefixTree())
        known = tree.touch(self._number, request.prompt.array, request.context.array)
        return min(min(known[-1].last, len(request.prompt)) * self._block_size, request.prompt_tokens) if known else 0


def losses_of(
    requests: Iterable[Request],
    block_size: int,
    replicas: Sequence[int],
    hits: Sequence[int],
    *,
    volatile: bool = False,
) -> HitLosses:
    """Return where the hits of a whole run went.

    Args:
        requests: in order of arrival.
        block_size: tokens of a block.
        replicas: which replica served each request.
        hits: tokens that each found in the cache there.
        volatile: requests may have masked blocks, see :attr:`~prefixroute.workload.Request.masked`.
    """
    meter, tree = LossMeter(block_size, volatile=volatile), PrefixTree()
    total = HitLosses()
    for number, (request, replica, hit) in enumerate(zip(requests, replicas, hits, strict=True)):
        known = tree.touch(number, request.prompt.array, request.context.array)
        seen = min(known[-1].last, len(request.prompt)) * block_size if known else 0
        total = total.plus(meter.add(request, seen, hit, replica))
    return total
