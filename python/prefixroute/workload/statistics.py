"""What a workload is like: lengths, sessions, what it shares, and how much of that a cache of a given size would keep.

One pass. The reuse by cache size is exact for least recently used: a block is hit in a cache of C blocks if fewer than
C distinct blocks were touched since its own last touch (Mattson's stack distance). A prompt's head counts as touched
after its tail, so the tail is evicted first.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from prefixroute.document import figures
from prefixroute.errors import TraceError
from prefixroute.hashing import common_blocks
from prefixroute.recent import Recent
from prefixroute.workload.losses import HitLosses, LossMeter
from prefixroute.workload.request import REPLICA, Request
from prefixroute.workload.summary import Groups, Lengths
from prefixroute.workload.tree import PrefixTree, TouchCounts
from prefixroute.workload.workload import Workload

KEPT_S = (10, 60, 300, 600, 3600)
"""Seconds after its last use that a block is kept, for the figures of a summary."""
HEAD_TOKENS = 1024
"""Prefixes shorter than this are routed by load (the minimum match of ``cache-aware``)."""
_RECENT_SESSIONS = 10_000


@dataclass(slots=True)
class _Session:
    first_s: float
    last_s: float
    turns: int = 0


@dataclass(slots=True, eq=False)
class TraceStatistics:
    """Accumulates requests with :meth:`add`; everything else is read off. Ratios are weighted by tokens.

    Memory: 8 bytes a distinct block, some 60 bytes a request and a small object a session.
    """

    name: str
    block_size: int
    volatile: bool = False
    """Whether requests may have masked blocks."""
    _tree: PrefixTree = field(default_factory=PrefixTree, repr=False)
    _counts: TouchCounts = field(default_factory=TouchCounts, repr=False)
    _arrivals: array[float] = field(default_factory=lambda: array("d"), repr=False)
    _prompts: array[int] = field(default_factory=lambda: array("q"), repr=False)
    _outputs: array[int] = field(default_factory=lambda: array("q"), repr=False)
    _hits: array[int] = field(default_factory=lambda: array("q"), repr=False)
    _first_distance: array[int] = field(default_factory=lambda: array("q"), repr=False)
    _stretch_blocks: array[int] = field(default_factory=lambda: array("q"), repr=False)
    _ages: array[float] = field(default_factory=lambda: array("d"), repr=False)
    _gaps: array[float] = field(default_factory=lambda: array("d"), repr=False)
    _sessions: dict[str, _Session] = field(default_factory=dict, repr=False)
    _before: Recent[tuple[str, str], NDArray[np.uint64]] = field(
        default_factory=lambda: Recent(_RECENT_SESSIONS), repr=False
    )
    _groups: dict[int, Counter[int]] = field(default_factory=dict, repr=False)
    blocks: int = 0
    previous_turn_tokens: int = 0
    rewritten: int = 0
    reported_requests: int = 0
    reported_prompt_tokens: int = 0
    reported_hit_tokens: int = 0
    _reported: HitLosses = field(default_factory=HitLosses, repr=False)
    _unlimited: HitLosses = field(default_factory=HitLosses, repr=False)
    _meter: LossMeter = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Choose the depths at which requests are grouped."""
        depths = {1, 2, max(1, math.ceil(HEAD_TOKENS / self.block_size))}
        self._groups = {depth: Counter() for depth in sorted(depths)}
        self._meter = LossMeter(self.block_size, volatile=self.volatile)

    def add(self, request: Request) -> int:
        """Take the next request in; return how many of its prompt's tokens an unlimited cache would have hit.

        Args:
            request: in order of arrival.

        Returns:
            Tokens.
        """
        number = len(self._arrivals)
        prompt, context = request.prompt.array, request.context.array
        known = self._tree.touch(number, prompt, context)
        found = 0
        for stretch in known:
            last = min(stretch.last, len(prompt))
            if last > stretch.first:
                self._first_distance.append(self._counts.after(stretch.toucher))
                self._stretch_blocks.append(last - stretch.first)
                self._ages.append(request.arrival_s - self._arrivals[stretch.toucher])
                found = last
        for stretch in known:
            self._counts.add(stretch.toucher, stretch.first - stretch.last)
        self._counts.add(number, len(context))
        self.blocks += len(prompt)
        hit = min(found * self.block_size, request.prompt_tokens)
        self._arrivals.append(request.arrival_s)
        self._prompts.append(request.prompt_tokens)
        self._outputs.append(request.output_tokens)
        self._hits.append(hit)
        self._add_session(request)
        for depth, counter in self._groups.items():
            if len(prompt) >= depth:
                counter[int(prompt[depth - 1])] += 1
        reported, replica = request.reported_hit_tokens, request.attrs.get(REPLICA)
        lost = self._meter.add(request, hit, hit if reported is None else reported, replica)
        if reported is None:
            self._unlimited = self._unlimited.plus(lost)
        else:
            self._reported = self._reported.plus(lost)
            self.reported_requests += 1
            self.reported_prompt_tokens += request.prompt_tokens
            self.reported_hit_tokens += reported
        return hit

    def _add_session(self, request: Request) -> None:
        if request.session is None:
            return
        session = self._sessions.get(request.session)
        if session is None:
            session = self._sessions[request.session] = _Session(request.arrival_s, request.arrival_s)
        else:
            self._gaps.append(request.arrival_s - session.last_s)
        session.last_s = request.arrival_s
        session.turns += 1
        key = (request.session, request.attrs.get("agent", ""))
        prompt, before = request.prompt.array, self._before.get(key)
        if before is not None:
            kept = common_blocks(prompt, before)
            self.previous_turn_tokens += kept * self.block_size
            self.rewritten += 2 * kept < len(before)
        self._before[key] = prompt

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return len(self._arrivals)

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return self._arrivals[-1] - self._arrivals[0] if self._arrivals else 0.0

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(self._prompts)

    @property
    def output_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(self._outputs)

    @property
    def prompt_lengths(self) -> Lengths:
        """Tokens of a prompt."""
        return Lengths.of(np.array(self._prompts))

    @property
    def output_lengths(self) -> Lengths:
        """Tokens of an answer."""
        return Lengths.of(np.array(self._outputs))

    @property
    def unique_blocks(self) -> int:
        """Distinct blocks of all prompts."""
        return self._tree.used()

    @property
    def blocks_used_once(self) -> float:
        """Share of the distinct blocks that are in one prompt only."""
        return self._tree.used_once() / max(1, self.unique_blocks)

    @property
    def ideal_hit_ratio(self) -> float:
        """Hit ratio of one cache of unlimited size, full blocks only."""
        return sum(self._hits) / max(1, self.prompt_tokens)

    @property
    def floor(self) -> float:
        """Recompute ratio of one cache of unlimited size, full blocks only: no routing gets below it."""
        return 1 - self.ideal_hit_ratio

    @property
    def ideal_hit_ratio_by_request(self) -> float:
        """Mean over requests of each request's own hit ratio in that cache."""
        return float((np.array(self._hits) / np.maximum(1, np.array(self._prompts))).mean()) if self._hits else 0.0

    @property
    def ideal_hit_ratio_of_last_half(self) -> float:
        """Hit ratio of that cache over the second half of the requests, when it is warm."""
        half = len(self._hits) // 2
        return sum(self._hits[half:]) / max(1, sum(self._prompts[half:]))

    @property
    def previous_turn_hit_ratio(self) -> float:
        """Hit ratio if each request could only reuse the request before it in its session."""
        return self.previous_turn_tokens / max(1, self.prompt_tokens)

    @property
    def rewritten_ratio(self) -> float:
        """Share of the requests that keep less than half of the blocks of the request before in their session."""
        return self.rewritten / max(1, self.requests)

    @property
    def losses(self) -> HitLosses:
        """Where the hits went, of the requests whose cached tokens the log reports.

        Where it reports none, of all of them in one cache of unlimited size: what is recomputed is then first sight, or
        volatile.
        """
        if self.reports_no_hits:
            return self._reported.without_reasons()
        return self._reported if self.reported_requests else self._unlimited

    @property
    def reports_no_hits(self) -> bool:
        """Whether the log reports 0 cached tokens throughout, though prefixes came back.

        Caches are off, or hits are not reported.
        """
        return self._reported.lacks_hits

    def losses_usd_per_million_requests(self, usd_per_token: float) -> dict[str, float]:
        """Return the dollars of each reason why tokens were computed, per million requests of :attr:`losses`.

        Args:
            usd_per_token: US dollars of a recomputed token, such as ``CostModel().usd_per_token(1_000)``.
        """
        requests = self.reported_requests or self.requests
        price = usd_per_token * 1e6 / max(1, requests)
        return {name: price * tokens for name, tokens in self.losses.to_dict().items() if name not in {"prompt", "hit"}}

    @property
    def sessions(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    @property
    def turns(self) -> Lengths:
        """Requests of a session."""
        return Lengths.of(np.array([session.turns for session in self._sessions.values()]))

    @property
    def session_lengths_s(self) -> Lengths:
        """Seconds from a session's first request to its last."""
        return Lengths.of(np.array([session.last_s - session.first_s for session in self._sessions.values()]))

    @property
    def gaps_s(self) -> Lengths:
        """Seconds between a request and the one before in its session."""
        return Lengths.of(np.array(self._gaps))

    def gaps_over(self, seconds: float) -> float:
        """Return the share of these gaps that are longer than ``seconds``.

        Args:
            seconds: bound of the gap.
        """
        return float((np.array(self._gaps) > seconds).mean()) if self._gaps else 0.0

    @property
    def instants(self) -> tuple[int, int]:
        """How many distinct arrival times there are, and the most requests at one of them."""
        _, counts = np.unique(np.array(self._arrivals), return_counts=True)
        return len(counts), int(counts.max(initial=0))

    @property
    def groups(self) -> tuple[Groups, ...]:
        """Requests grouped by their first block, their first two, and their first 1,024 tokens."""
        return tuple(
            Groups(depth, len(counter), max(counter.values(), default=0)) for depth, counter in self._groups.items()
        )

    def load_over_time(self, bins: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the starts in seconds of equal stretches of the trace, and the prompt tokens per second in each.

        Args:
            bins: how many stretches.
        """
        arrivals, prompts = np.array(self._arrivals), np.array(self._prompts)
        tokens, edges = np.histogram(arrivals, bins=bins, weights=prompts)
        return edges[:-1] - edges[0], tokens / np.diff(edges)

    def hit_ratio_if_kept(self, seconds: float) -> float:
        """Return the hit ratio of an unlimited cache that keeps a block ``seconds`` after its last use.

        Args:
            seconds: for which a block is kept.
        """
        kept = np.array(self._stretch_blocks)[np.array(self._ages) <= seconds].sum()
        return float(kept) * self.block_size / max(1, self.prompt_tokens)

    def hit_ratios_of_cache(self, capacities_tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the hit ratio of one LRU cache of each of these sizes in tokens; exact, shape as given.

        Args:
            capacities_tokens: sizes of the cache, of any shape.
        """
        blocks = np.asarray(capacities_tokens) // self.block_size
        first, count = np.array(self._first_distance), np.array(self._stretch_blocks)
        if not len(first):
            return np.zeros(blocks.shape)
        size = int((first + count).max()) + 1
        starts, ends = np.bincount(first, minlength=size), np.bincount(first + count, minlength=size)
        at_distance = np.cumsum(starts - ends)
        hits = np.concatenate([[0], np.cumsum(at_distance)])
        return hits[np.minimum(blocks, size)] * self.block_size / max(1, self.prompt_tokens)

    def miss_ratio_curve(self, points: int = 64) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return cache sizes in tokens, log-spaced from 16 blocks to all there is, and the recompute ratio at each.

        Args:
            points: how many sizes.
        """
        most = max(32, self._counts.total)
        blocks = np.unique(np.geomspace(16, most, points).astype(np.int64))
        return blocks * self.block_size, 1 - self.hit_ratios_of_cache(blocks * self.block_size)

    def to_dict(self) -> dict[str, object]:
        """Return every figure under its name, ready for JSON."""
        sizes, misses = self.miss_ratio_curve()
        instants, most = self.instants
        return {
            "workload": self.name,
            **figures(self, *_FIGURES),
            "distinct_arrivals": instants,
            "most_at_one_instant": most,
            "groups": [
                {"blocks": group.depth, "count": group.count, "largest": group.largest} for group in self.groups
            ],
            "hit_ratio_if_kept_s": {str(seconds): self.hit_ratio_if_kept(seconds) for seconds in KEPT_S},
            "miss_ratio_curve": {"cache_tokens": sizes.tolist(), "recompute_ratio": misses.tolist()},
            **figures(self, "reported_requests", "reported_prompt_tokens", "reported_hit_tokens"),
            "losses": self.losses.to_dict(),
        }


_FIGURES = (
    "block_size", "requests", "span_s", "prompt_tokens", "output_tokens", "prompt_lengths", "output_lengths", "blocks",
    "unique_blocks", "blocks_used_once", "floor", "ideal_hit_ratio", "ideal_hit_ratio_by_request",
    "ideal_hit_ratio_of_last_half", "previous_turn_hit_ratio", "rewritten_ratio", "sessions", "turns", "session_lengths_s",
    "gaps_s",
)  # fmt: skip
"""Figures that JSON has under their own names."""


def measure(workload: Workload) -> TraceStatistics:
    """Read a workload once and return its statistics.

    Args:
        workload: read once.

    Returns:
        The statistics.

    Raises:
        TraceError: at a bad line, or if there is no request.
    """
    statistics = TraceStatistics(workload.name, workload.block_size, workload.volatile is not None)
    for request in workload.requests():
        statistics.add(request)
    if not statistics.requests:
        raise TraceError(f"{workload.name}: the workload holds no request")
    return statistics


def floor(workload: Workload) -> float:
    """Return the recompute ratio of one cache of unlimited size, full blocks only; reads the workload once.

    Args:
        workload: read once.

    Raises:
        TraceError: at a bad line, or if there is no request.
    """
    tree = PrefixTree()
    tokens = hits = 0
    for number, request in enumerate(workload.requests()):
        found = tree.leading(number, request.prompt, request.context)
        hits += min(found * workload.block_size, request.prompt_tokens)
        tokens += request.prompt_tokens
    if not tokens:
        raise TraceError(f"{workload.name}: the workload holds no request")
    return 1 - hits / tokens
