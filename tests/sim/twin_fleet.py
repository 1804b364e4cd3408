"""The reference model of a fleet: every step, transfer and token by itself, on one list of events.

A replica may serve requests whole, or prefill and decode may be apart: a request is served by a pair of replicas.

Memory is counted in tokens (blocks of one). Prompts of one group share a head.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from prefixroute.hashing import BlockHashes
from prefixroute.sim.replica import Admitted, ReplicaCache
from prefixroute.sim.request_log import RequestLog


@dataclass(eq=False)
class Asked:
    """One request, the pair that serves it, and how it got on."""

    number: int
    arrival: float
    prompt_tokens: int
    output_tokens: int
    pair: tuple[int, int] = (0, 0)
    """Who prefills and who decodes; one replica twice serves the request whole."""
    group: int = 0
    shared: int = 0
    started: float = -1.0
    prefilled: float = -1.0
    first_token: float = -1.0
    finished: float = -1.0
    hit: int = -1
    moved: int = -1
    computed: int = 0
    target: int = 0
    told: int = 0
    order: int = 0
    handle: int | None = None
    kept: int | None = None
    outgrown: bool = False
    most_cached: int = 1 << 32
    tokens: list[float] = field(default_factory=list)
    """When each token of the answer was out."""

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.tokens)]

    @property
    def decodes(self) -> bool:
        return self.told > 0 and self.computed >= self.target

    def text(self, tokens: int) -> BlockHashes:
        head = np.arange(min(tokens, self.shared), dtype=np.uint64) + np.uint64((self.group + 1) << 48)
        own = np.arange(max(0, tokens - self.shared), dtype=np.uint64) + np.uint64((self.number + 1) << 32)
        return BlockHashes(np.concatenate([head, own]), token_count=tokens, block_size=1)

    @property
    def context(self) -> BlockHashes:
        return self.text(self.prompt_tokens + max(self.output_tokens - 1, 0))


@dataclass
class Replica:
    """One replica; ``number`` says which."""

    number: int
    room: int | None
    queue: deque[Asked] = field(default_factory=deque)
    running: list[Asked] = field(default_factory=list)
    moving: list[Asked] = field(default_factory=list)
    landed: list[Asked] = field(default_factory=list)
    handed: int = 0
    steps: bool = False
    admitted: int = 0
    preempted: int = 0
    link_free: float = 0.0

    def __post_init__(self) -> None:
        self.cache = ReplicaCache(self.room, 1)

    @property
    def count(self) -> int:
        return len(self.running) + len(self.moving) + len(self.landed)


def log_of(cluster: Any) -> RequestLog:
    """Return what a cluster has written down since it was last asked."""
    log = RequestLog(timed=True)
    log.extend(cluster.take_log())
    return log


class Twin:
    """Replicas by number, and the requests that they serve."""

    def __init__(
        self,
        cost: Any,
        replicas: int = 1,
        link: Callable[[int], float] = float,
        latency_s: float = 0.0,
        *,
        chunk: int,
        room: int | None,
        max_running: int,
    ) -> None:
        self.cost, self.link, self.latency_s = cost, link, latency_s
        self.chunk, self.max_running = chunk, max_running
        self.replicas = [Replica(number, room) for number in range(replicas)]
        self.events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.planned = 0

    def plan(self, at: float, call: Callable[..., None], *arguments: Any) -> None:
        self.planned += 1
        heapq.heappush(self.events, (at, self.planned, call, arguments))

    def serve(self, asks: Sequence[Asked]) -> None:
        for ask in asks:
            self.plan(ask.arrival, self.enqueue, self.replicas[ask.pair[0]], ask)
        while self.events:
            at, _, call, arguments = heapq.heappop(self.events)
            call(*arguments, at)

    def enqueue(self, replica: Replica, ask: Asked, now: float) -> None:
        replica.queue.append(ask)
        self.begin(replica, now)

    def begin(self, replica: Replica, now: float) -> None:
        """Begin a step, unless one is under way or there is nothing to do."""
        if replica.steps:
            return
        preempts = self.make_room(replica)
        decoding = [ask for ask in replica.running if ask.decodes]
        budget, tokens = max(1, self.chunk - len(decoding)), 0
        for ask in sorted((ask for ask in replica.running if not ask.decodes), key=lambda ask: ask.order):
            tokens += compute(ask, budget - tokens)
        while not preempts and replica.queue and tokens < budget and replica.count < self.max_running:
            ask = replica.queue[0]
            if not self.admit(replica, ask, now):
                break
            replica.queue.popleft()
            if ask.prefilled >= 0 and ask.moved < 0:
                self.move(replica, ask, now)
            else:
                tokens += compute(ask, budget - tokens)
                replica.running.append(ask)
        if tokens or decoding:
            replica.steps = True
            seconds = self.cost.step_seconds([(tokens, 0)], decodes=len(decoding))
            self.plan(now + seconds, self.end, replica, decoding)

    def admit(self, replica: Replica, ask: Asked, now: float) -> bool:
        ask.target = ask.prompt_tokens + ask.told
        admitted = replica.cache.start(ask.text(ask.target))
        hit = replica.cache.hit(ask.text(ask.target))
        if isinstance(admitted, Admitted):
            ask.handle, hit = admitted.request, admitted.hit_tokens
        elif replica.count or replica.handed:
            return False
        replica.admitted += 1
        ask.order = replica.admitted
        if ask.started < 0:
            ask.started, ask.hit = now, hit
        ask.computed = min(hit, ask.target - 1, ask.most_cached)
        return True

    def move(self, replica: Replica, ask: Asked, now: float) -> None:
        """Begin to bring what is not cached here, when both ends of the link are free."""
        sender = self.replicas[ask.pair[0]]
        ask.moved = ask.target - ask.computed
        replica.moving.append(ask)
        sent = max(now, sender.link_free, replica.link_free) + self.link(ask.moved)
        sender.link_free = replica.link_free = sent
        self.plan(sent + self.latency_s, self.arrive, replica, ask)

    def arrive(self, replica: Replica, ask: Asked, now: float) -> None:
        replica.moving.remove(ask)
        replica.landed.append(ask)
        if not replica.steps:
            self.join(replica, now)
            self.begin(replica, now)
        sender = self.replicas[ask.pair[0]]
        sender.handed -= 1
        if ask.kept is not None:
            sender.cache.finish(ask.kept, ask.text(ask.prompt_tokens))
        self.begin(sender, now)

    def join(self, replica: Replica, now: float) -> None:
        for ask in replica.landed:
            ask.computed = ask.target
            self.tell(replica, ask, now)
        replica.landed = []

    def tell(self, replica: Replica, ask: Asked, now: float) -> None:
        """A token is out."""
        ask.first_token = ask.first_token if ask.told else now
        ask.told += 1
        ask.tokens.append(now)
        if ask.told >= max(1, ask.output_tokens):
            ask.finished = now
            if ask in replica.running:
                replica.running.remove(ask)
            if ask.handle is not None:
                replica.cache.finish(ask.handle, ask.context)
        elif ask not in replica.running:
            replica.running.append(ask)

    def end(self, replica: Replica, decoding: list[Asked], now: float) -> None:
        replica.steps = False
        handed = []
        for ask in list(replica.running):
            if ask in decoding:
                self.tell(replica, ask, now)
            elif ask.computed == ask.target and replica.number == ask.pair[0] != ask.pair[1] and ask.prefilled < 0:
                ask.prefilled, ask.kept, ask.handle = now, ask.handle, None
                replica.running.remove(ask)
                replica.handed += 1
                handed.append(ask)
            elif ask.computed == ask.target:
                self.tell(replica, ask, now)
        self.join(replica, now)
        self.begin(replica, now)
        for ask in handed:
            self.enqueue(self.replicas[ask.pair[1]], ask, now)

    def make_room(self, replica: Replica) -> bool:
        preempts = False
        for ask in [ask for ask in replica.running if ask.decodes]:
            while ask in replica.running and not self.grows(replica, ask):
                self.preempt(replica, max(replica.running, key=lambda each: each.order))
                preempts = True
        return preempts

    def grows(self, replica: Replica, ask: Asked) -> bool:
        if ask.handle is None or ask.outgrown:
            return True
        if replica.cache.grow(ask.handle, ask.text(ask.prompt_tokens + ask.told)) is None:
            return True
        ask.outgrown = replica.count == 1
        return ask.outgrown

    def preempt(self, replica: Replica, ask: Asked) -> None:
        replica.running.remove(ask)
        if ask.handle is not None:
            replica.cache.abort(ask.handle)
        ask.most_cached = (1 << 32) if ask.decodes else ask.computed
        ask.handle, ask.outgrown = None, False
        replica.preempted += 1
        replica.queue.appendleft(ask)


def compute(ask: Asked, budget: int) -> int:
    tokens = max(0, min(budget, ask.target - ask.computed))
    ask.computed += tokens
    return tokens
