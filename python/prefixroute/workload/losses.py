"""Where the hits went: why prompt tokens were computed that might have been in a cache.

Each recomputed token has one reason, the first that applies:

- *first sight*: no earlier request had this prefix, so no cache could have it;
- *volatile*: it would have been seen before, but for a text in the prompt's head that changes with every request;
- *elsewhere*: only other replicas were ever sent this prefix: routing;
- *unknown*: the same, but a router that saw every cache would have hit them: its index or its events, and not its
  policy. Only a simulation can tell it, by a second run; in a log these tokens are *elsewhere*;
- *evicted*: the replica that served the request was sent this prefix before, and has lost it: capacity;
- *undecided*: one of the last two, where nobody says which replica served the request, or a log reports no hit at all.

``trace`` splits what a log reports this way, ``compare`` and ``advise`` what they simulate, and a Router's metrics what
it learns of its own requests.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
        unknown: likewise, and a router that saw every cache would have hit them.
        evicted: their replica had been sent them and lost them.
        undecided: elsewhere or evicted; the replica is not known, or no hit was reported at all.
    """

    prompt: int = 0
    hit: int = 0
    first_sight: int = 0
    volatile: int = 0
    elsewhere: int = 0
    unknown: int = 0
    evicted: int = 0
    undecided: int = 0

    @property
    def recomputed(self) -> int:
        """Tokens that were computed."""
        return self.prompt - self.hit

    def share(self, reason: str) -> float:
        """Return one of the figures as a share of all prompt tokens; 0 where there are none.

        Args:
            reason: name of a figure.
        """
        return float(getattr(self, reason)) / self.prompt if self.prompt else 0.0

    def told_apart(self, unknown_share: float) -> HitLosses:
        """Return the figures with what the router did not know told apart from what it decided.

        Args:
            unknown_share: of what is elsewhere, the share that a router that saw every cache would have hit, 0 to 1.
        """
        unknown = round(self.elsewhere * unknown_share)
        return self._replace(elsewhere=self.elsewhere - unknown, unknown=self.unknown + unknown)

    @property
    def lacks_hits(self) -> bool:
        """Whether there is no hit at all, though replicas were sent what they had been sent before.

        Caches are off, or report nothing.
        """
        return not self.hit and self.evicted + self.undecided > 0

    def without_reasons(self) -> HitLosses:
        """Return the figures with elsewhere and evicted as undecided: a cache that never hits tells neither."""
        undecided = self.elsewhere + self.evicted + self.undecided
        return self._replace(elsewhere=0, evicted=0, undecided=undecided)

    def to_dict(self) -> dict[str, int]:
        """Return every figure under its name."""
        return self._asdict()

    def plus(self, other: HitLosses) -> HitLosses:
        """Return the figures of both together.

        Args:
            other: figures of other requests.
        """
        return HitLosses(*map(add, self, other))


class LossMeter:
    """Splits the recomputed tokens of one request after another, in order of arrival.

    Memory: 8 bytes for each distinct block of each replica, and of the prompts without what is volatile in them.
    """

    def __init__(self, block_size: int, *, volatile: bool = False) -> None:
        """Start with empty caches. ``volatile``: requests may have masked blocks, see :attr:`Request.masked`.

        Args:
            block_size: tokens in a block.
            volatile: tell apart what only a changing text makes new.
        """
        self._block_size = block_size
        self._masked = PrefixTree() if volatile else None
        self._replicas: dict[Hashable, PrefixTree] = {}
        self._number = 0

    def add(
        self, request: Request, seen: int, hit: int, replica: Hashable | None = None, *, unmasked: int | None = None
    ) -> HitLosses:
        """Return what became of a request's prompt tokens, and remember the request.

        Args:
            request: the next one.
            seen: leading tokens of its prompt that some request before had.
            hit: tokens that were found in the cache of the replica that served it. More than were seen is possible in
                a log that begins while caches are full.
            replica: which one that was; None is not known.
            unmasked: leading tokens that some request before had, but for what is volatile, where that is known
                already.
        """
        self._number += 1
        hit = min(hit, request.prompt_tokens)
        seen = min(max(seen, hit), request.prompt_tokens)
        unmasked = max(seen, self.seen_unmasked(request) if unmasked is None else unmasked)
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

    def seen_unmasked(self, request: Request) -> int:
        """Return leading tokens that some request before had, but for what is volatile.

        A request without it has its own.

        Args:
            request: the next one.
        """
        if self._masked is None:
            return 0
        blocks = self._masked.leading(self._number, *(request.masked or (request.prompt, request.context)))
        return min(blocks * self._block_size, request.prompt_tokens)

    def _seen_by(self, replica: Hashable, request: Request) -> int:
        tree = self._replicas.setdefault(replica, PrefixTree())
        blocks = tree.leading(self._number, request.prompt, request.context)
        return min(blocks * self._block_size, request.prompt_tokens)


class Sightings(NamedTuple):
    """What was seen before of each request, whoever serves it: the same in every run of a workload.

    Attributes:
        seen: leading tokens of its prompt that some request before had, shape ``[requests]``.
        unmasked: the same, but for what is volatile.
    """

    seen: NDArray[np.int64]
    unmasked: NDArray[np.int64]

    @classmethod
    def of(cls, requests: Iterable[Request], block_size: int, *, volatile: bool = False) -> Sightings:
        """Look at requests in order of arrival; ``volatile`` as for :class:`LossMeter`.

        Args:
            requests: of the workload.
            block_size: tokens in a block.
            volatile: tell apart what only a changing text makes new.

        Returns:
            When the blocks of each request were seen before.
        """
        meter, tree = LossMeter(block_size, volatile=volatile), PrefixTree()
        seen, unmasked = array("q"), array("q")
        for number, request in enumerate(requests):
            seen.append(tree.leading(number, request.prompt, request.context) * block_size)
            unmasked.append(meter.seen_unmasked(request))
        return cls(np.array(seen, np.int64), np.array(unmasked, np.int64))


def losses_of(
    requests: Iterable[Request], block_size: int, replicas: Sequence[int], hits: Sequence[int], sightings: Sightings
) -> HitLosses:
    """Return where the hits of a whole run went.

    Args:
        requests: in order of arrival.
        block_size: tokens of a block.
        replicas: which replica served each request.
        hits: tokens that each found in the cache there.
        sightings: of the same requests.
    """
    meter, total = LossMeter(block_size), HitLosses()
    each = zip(requests, replicas, hits, sightings.seen.tolist(), sightings.unmasked.tolist(), strict=True)
    for request, replica, hit, seen, unmasked in each:
        total = total.plus(meter.add(request, seen, hit, replica, unmasked=unmasked))
    return total
