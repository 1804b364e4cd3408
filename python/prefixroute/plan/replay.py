"""Requests of a trace against a cache of unlimited size, one for each lifetime, by the rules of one provider."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefixroute.providers.catalog import Lifetime, Mode, Model, Price
from prefixroute.workload import Request
from prefixroute.workload.tree import PrefixTree, Stretch


class Found(NamedTuple):
    """What a request finds with one lifetime, in tokens.

    Attributes:
        hit: read from the cache.
        early: not read only because the request that wrote them had not begun to answer.
    """

    hit: int
    early: int


class Replay:
    """One pass over the requests: a tree of every prefix, and what each lifetime finds of it.

    Args:
        block_size: tokens of the blocks of the trace.
        model: minimum and prices.
        mode: rules.
        tier: service tier.
        begin_s: seconds from a request's arrival until its response begins and what it writes can be read.
    """

    def __init__(self, block_size: int, model: Model, mode: Mode, tier: str, *, begin_s: float) -> None:
        """Start with no request; raise ConfigError for an unknown tier."""
        model.price(0, tier)
        steps = sorted((one for one in model.prices if one.tier == tier), key=lambda one: one.above_tokens)
        self._above, self._prices = [one.above_tokens for one in steps], steps
        self._block, self._model, self._mode = block_size, model, mode
        self._tree = PrefixTree()
        self._arrivals = array("d")
        exact = mode.match != "prefix"
        self._finders: dict[str, _Prefixes | _Units] = {
            one.name: _Units(one, detects=mode.match == "units") if exact else _Prefixes(one, self._arrivals, begin_s)
            for one in mode.lifetimes
        }

    def price(self, request: Request) -> Price:
        """Return what a request's tokens cost."""
        return self._prices[max(0, bisect_left(self._above, max(1, request.prompt_tokens)) - 1)]

    def find(self, number: int, request: Request) -> dict[str, Found]:
        """Look a request up for each lifetime, and remember its prompt. Prompts under the minimum find nothing."""
        now, prompt = request.arrival_s, request.prompt.array
        known = self._tree.touch(number, prompt)
        self._arrivals.append(now)
        cacheable = self._model.is_cacheable(request.prompt_tokens)
        found = {}
        for name, finder in self._finders.items():
            blocks, later = finder.find(prompt, known, now)
            hit = self._tokens(blocks, request) if cacheable else 0
            found[name] = Found(hit, self._tokens(later, request) - hit if cacheable and later > blocks else 0)
        return found

    def _tokens(self, blocks: int, request: Request) -> int:
        """Return the tokens of leading blocks that are hit: none under the minimum, whole increments above it."""
        found, least = min(blocks * self._block, request.prompt_tokens), self._model.minimum_tokens
        if found < least:
            return 0
        step = self._mode.increment_tokens
        return found if step is None else least + (found - least) // step * step


class _Prefixes:
    """Any prefix can be hit, up to the last block that was used within the lifetime.

    What a request writes can be read once it has begun to answer, or once an earlier one has that it ran beside and
    that writes the same. Of each request are kept: the blocks that it read; those that an earlier one was writing too,
    and when these can be read.
    """

    def __init__(self, lifetime: Lifetime, arrivals: array[float], begin_s: float) -> None:
        self._seconds, self._arrivals, self._begin_s = lifetime.seconds, arrivals, begin_s
        self._read, self._beside, self._ready = array("q"), array("q"), array("d")

    def find(self, _prompt: NDArray[np.uint64], known: list[Stretch], now: float) -> tuple[int, int]:
        """Return the leading blocks that can be read, and those that could be if all before had begun to answer."""
        blocks = later = 0
        ready = now + self._begin_s
        for toucher, first, last in known:
            if now - self._arrivals[toucher] > self._seconds:
                break  # what comes later was used earlier
            later = last
            end = int(min(last, self._readable(toucher, now)))
            if blocks == first:
                blocks = max(first, end)
            if end < last:
                ready = min(ready, self._ready[toucher])
        self._read.append(blocks)
        self._beside.append(later)
        self._ready.append(ready)
        return blocks, later

    def _readable(self, toucher: int, now: float) -> float:
        """Return how many leading blocks of an earlier request can be read now."""
        if now >= self._arrivals[toucher] + self._begin_s:
            return float("inf")
        return self._beside[toucher] if now >= self._ready[toucher] else self._read[toucher]


class _Units:
    """Entries are exact: they end where a prompt ended, and a longer prompt hits one only as a whole.

    ``detects``: the common prefix of two prompts becomes an entry too, once it was seen. The prompt that shows it does
    not hit it; the next one does.
    """

    def __init__(self, lifetime: Lifetime, *, detects: bool) -> None:
        self._seconds, self._detects = lifetime.seconds, detects
        self._used: dict[int, float] = {}

    def find(self, prompt: NDArray[np.uint64], known: list[Stretch], now: float) -> tuple[int, int]:
        """Return the blocks of the longest live entry that the prompt begins with, twice."""
        depth = known[-1].last if known else 0
        hashes = prompt[:depth].tolist()
        longest = 0
        for end in range(depth, 0, -1):
            used_s = self._used.get(hashes[end - 1])
            if used_s is not None and now - used_s <= self._seconds:
                longest = end
                self._used[hashes[end - 1]] = now
                break
        if len(prompt):
            self._used[int(prompt[-1])] = now
        if self._detects and longest < depth < len(prompt):
            self._used[hashes[-1]] = now
        return longest, longest
