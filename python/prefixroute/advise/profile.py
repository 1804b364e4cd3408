"""What a workload shares, and with whom: the facts that decide whether routing can matter, before any policy is run.

Two passes. The first finds the *heads*: what groups of sessions begin with (system prompts, tools), see
:mod:`prefixroute.advise.heads`. The second serves every request from one unlimited cache and splits its hit tokens by
who computed them: the common head, the request's own session, or another session.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixroute.advise.heads import Head, Heads
from prefixroute.hashing import common_blocks
from prefixroute.policies import CacheAware
from prefixroute.sim.stores import BlockStore
from prefixroute.workload import USER, Request, Workload

Hashes = NDArray[np.uint64]

RECENT_CONTEXTS = 16
"""Contexts of a session that its next request is compared with: sub-agents of one session take turns."""
EARLY_SHARE = 0.5
"""A prompt that leaves its session's history before this share of what the two could have in common left it early."""
UNLIKE = 0.2
"""Share of the prompts without anything in common that are no longer than the one before, from which they are no
turns."""
HOT = 0.1
"""Share of the prompt tokens from which one tenant, session or head is named."""
MIN_MATCH_TOKENS = CacheAware().min_match_tokens


@dataclass(frozen=True, slots=True)
class Break:
    """A place near the start of prompts where turns of one session stop being equal, as a date or an id there does.

    Attributes:
        tokens: prompt tokens before the block in which they differ.
        block_size: size of that block: the place is known no better.
        share: turns after a session's first that break there, of all such turns.
        floor_if_fixed: the floor, were those turns to begin with the history before them.
    """

    tokens: int
    block_size: int
    share: float
    floor_if_fixed: float


@dataclass(frozen=True, slots=True)
class Hottest:
    """Who has the most of the prompt tokens.

    Attributes:
        kind: ``tenant``, ``user``, ``session`` or ``head``.
        name: the key, as the log or the private trace has it; of a head, the hash of its last block.
        requests: share of the requests.
        tokens: share of the prompt tokens.
        head_tokens: length of the head; 0 for anybody.
    """

    kind: str
    name: str
    requests: float
    tokens: float
    head_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """Facts of a workload. Ratios are of prompt tokens unless they say otherwise, and lie between 0 and 1.

    Attributes:
        name: the workload's.
        block_size: tokens in a block.
        requests: how many.
        sessions: distinct session keys.
        keyless: share of requests without a session key.
        documents: distinct document keys.
        models: distinct models asked for.
        prompt_tokens: of all requests.
        unequal: of the prompt tokens that no request before had, by request: standard deviation over mean; 0 where all
            are alike.
        span_s: seconds from the first arrival to the last.
        head_tokens: length of the longest head that at least half of the sessions begin with.
        heads: the heads, those of the most sessions first.
        hottest: the tenant, the user, the session and the head with the most prompt tokens, where one has a notable
            share.
        floor: recompute ratio of one unlimited cache.
        shared_head: prompt tokens hit in a head.
        shared_session: further prompt tokens hit that the request's own session had computed.
        shared_others: further prompt tokens hit that another session had computed.
        short: share of requests shorter than one block.
        short_hits: tokens hit beyond the heads in hits shorter than the minimum match of ``cache-aware``.
        reported: share of requests whose log says how many tokens were cached.
        broken: where turns break near the start, if they do.
    """

    name: str
    block_size: int
    requests: int
    sessions: int
    keyless: float
    documents: int
    models: int
    prompt_tokens: int
    unequal: float
    span_s: float
    head_tokens: int
    heads: tuple[Head, ...]
    hottest: tuple[Hottest, ...]
    floor: float
    shared_head: float
    shared_session: float
    shared_others: float
    short: float
    short_hits: float
    reported: float
    broken: Break | None

    @property
    def longest_head(self) -> int:
        """Tokens of the longest head; 0 without one."""
        return Heads(self.heads).longest

    @property
    def requests_per_s(self) -> float | None:
        """Mean rate of arrivals; None where the workload spans no time."""
        return self.requests / self.span_s if self.span_s > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        heads = [{"tokens": head.tokens, "share": head.share} for head in self.heads]
        return {**asdict(self), "heads": heads}


def profile(workload: Workload) -> Profile:
    """Measure a workload in two passes. Costs some microseconds a request and one context per session.

    Args:
        workload: read twice; it must give the same requests each time.

    Returns:
        Tokens, sessions, shared heads and arrivals of the workload.
    """
    tally = _Tally(workload.block_size, Heads.in_workload(workload))
    for request in workload.requests():
        tally.add(request)
    return tally.result(workload.name)


def _unequal(count: int, total: int, squares: int) -> float:
    """Return the standard deviation over the mean of so many numbers, from their sum and that of their squares."""
    return math.sqrt(max(0, count * squares - total**2)) / max(1, total)


class _Tally:
    """The second pass."""

    def __init__(self, block_size: int, heads: Heads) -> None:
        self.size, self.heads = block_size, heads
        self.store = BlockStore(None, block_size)
        self.contexts: dict[str, list[Hashes]] = {}
        self.documents: set[str] = set()
        self.models: set[str] = set()
        self.requests = self.prompt = self.squares = self.keyless = self.short = self.reported = self.turns = 0
        self.hit = self.by_head = self.by_session = self.short_hits = 0
        self.first_s = self.last_s = 0.0
        self.breaks: Counter[int] = Counter()
        self.unlike = 0
        self.lost: Counter[int] = Counter()
        self.shares: dict[str, dict[str, list[int]]] = {kind: {} for kind in ("tenant", "user", "session", "head")}

    def add(self, request: Request) -> None:
        """Count one request."""
        if not self.requests:
            self.first_s = request.arrival_s
        self.last_s = request.arrival_s
        self.requests += 1
        self.prompt += request.prompt_tokens
        self.short += not len(request.prompt)
        self.reported += request.reported_hit_tokens is not None
        if request.model is not None:
            self.models.add(request.model)
        if request.document is not None:
            self.documents.add(request.document)
        hit = self.store.serve(request)
        self.squares += (request.prompt_tokens - hit) ** 2
        blocks = request.prompt.array
        head = self.heads.of(blocks)
        by_head = 0 if head is None else min(hit, head.tokens)
        self._share("tenant", request.tenant, request.prompt_tokens)
        self._share("user", request.attrs.get(USER), request.prompt_tokens)
        self._share("session", request.session, request.prompt_tokens)
        self._share("head", None if head is None else f"{head.last:016x}", request.prompt_tokens)
        self.hit += hit
        self.by_head += by_head
        self.short_hits += (hit - by_head) * (hit < MIN_MATCH_TOKENS)
        if request.session is None:
            self.keyless += 1
            return
        own = self._own(request, hit)
        self.by_session += max(0, min(hit, own) - by_head)

    def _share(self, kind: str, name: str | None, tokens: int) -> None:
        if name is not None:
            count = self.shares[kind].setdefault(name, [0, 0])
            count[0] += 1
            count[1] += tokens

    def _hottest(self) -> Iterator[Hottest]:
        for kind, shares in self.shares.items():
            if len(shares) < 2:  # noqa: PLR2004 - one alone is everybody
                continue
            name, (requests, tokens) = max(shares.items(), key=lambda item: item[1][1])
            if tokens >= HOT * self.prompt:
                length = next((head.tokens for head in self.heads.found if f"{head.last:016x}" == name), 0)
                yield Hottest(kind, name, requests / self.requests, tokens / self.prompt, length * (kind == "head"))

    def _own(self, request: Request, hit: int) -> int:
        """Return the tokens that the session's own history had computed, and note where the turn left it."""
        blocks, context = request.prompt.array, request.context.array
        history = self.contexts.setdefault(request.session or "", [])
        best = 0
        if history:
            shared = [common_blocks(blocks, earlier) for earlier in history]
            best = max(shared)
            possible = min(len(blocks), len(history[shared.index(best)]))
            self.turns += 1
            if best < EARLY_SHARE * possible:
                self.breaks[best] += 1
                self.unlike += not best and len(blocks) <= len(history[-1])
                self.lost[best] += max(0, possible * self.size - hit)
            if best:
                history.pop(shared.index(best))
        history.append(context)
        del history[:-RECENT_CONTEXTS]
        return best * self.size

    def result(self, name: str) -> Profile:
        """Return the facts."""
        prompt, requests = max(self.prompt, 1), max(self.requests, 1)
        return Profile(
            name=name,
            block_size=self.size,
            requests=self.requests,
            sessions=len(self.contexts),
            keyless=self.keyless / requests,
            documents=len(self.documents),
            models=len(self.models),
            prompt_tokens=self.prompt,
            unequal=_unequal(requests, self.prompt - self.hit, self.squares),
            span_s=self.last_s - self.first_s,
            head_tokens=self.heads.common,
            heads=self.heads.found,
            hottest=tuple(self._hottest()),
            floor=1.0 - self.hit / prompt,
            shared_head=self.by_head / prompt,
            shared_session=self.by_session / prompt,
            shared_others=(self.hit - self.by_head - self.by_session) / prompt,
            short=self.short / requests,
            short_hits=self.short_hits / prompt,
            reported=self.reported / requests,
            broken=self._broken(),
        )

    def _broken(self) -> Break | None:
        """Return the place where at least half of the turns leave their history early, all at the same block.

        Prompts that have nothing in common may be no turns of anything. Turns with a date in their first block grow all
        the same.
        """
        if not self.breaks:
            return None
        block, count = self.breaks.most_common(1)[0]
        if 2 * count < self.turns or (not block and self.unlike > UNLIKE * count):
            return None
        gained = self.hit + self.lost[block]
        return Break(block * self.size, self.size, count / self.turns, 1.0 - gained / self.prompt)
