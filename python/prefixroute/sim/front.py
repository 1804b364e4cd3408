"""The routers of a run, what stands before them, and their views of the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from zlib import crc32

from prefixroute.costmodel import CostModel
from prefixroute.limits import FIXED_HASH_KEY
from prefixroute.policies import TransferCost
from prefixroute.router import PairTicket, Router, Ticket
from prefixroute.sim.observe import EventFeed, Events, Perfect, PerfectBelief
from prefixroute.sim.replica import CacheEvent
from prefixroute.sim.scenario import Scenario
from prefixroute.sim.split import role_of
from prefixroute.sim.stores import Store
from prefixroute.types import Replica, Timing
from prefixroute.workload import Request

UNLIMITED_TOKENS = 1 << 50
"""A capacity that no run fills: belief about replicas that never evict."""


class Mail:
    """Carries the commit feed between the routers of a run.

    Args:
        routers: each hears all others.
        delay_s: seconds from sending to arrival; 0 = what was said before a request is known when that is routed.
        clock: gives the second of the run.
        later: schedules a call at a second of the run; unused without a delay.
    """

    def __init__(
        self, routers: Sequence[Router], delay_s: float, clock: Callable[[], float], later: Callable[..., None]
    ) -> None:
        """Connect the routers."""
        self._routers, self._delay_s, self._clock, self._later = routers, delay_s, clock, later
        self._waiting: list[tuple[int, bytes]] = []
        for number, router in enumerate(routers):
            router.peer_feed(partial(self._send, number), ident=number + 1, first_sequence=1)

    def _send(self, sender: int, data: bytes) -> None:
        if self._delay_s:
            self._later(self._clock() + self._delay_s, self._apply, sender, data)
        else:
            self._waiting.append((sender, data))

    def deliver(self) -> None:
        """Deliver what was said without a delay, and what is answered to that."""
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for sender, data in waiting:
                self._apply(sender, data)

    def _apply(self, sender: int, data: bytes) -> None:
        for number, router in enumerate(self._routers):
            if number != sender:
                router.apply_peer(data)


class Front:
    """Production routers on a virtual clock.

    One, or several that share nothing, or what they book by their commit feed.

    Args:
        scenario: the run's.
        block_size: tokens in a block, the workload's.
        truth: stores by replica name; observation reads them, the front never writes.
        clock: gives the second of the run.
        later: schedules a call at a second of the run.
    """

    def __init__(
        self,
        scenario: Scenario,
        block_size: int,
        truth: Mapping[str, Store],
        clock: Callable[[], float],
        later: Callable[..., None],
    ) -> None:
        """Build the routers and connect what they observe."""
        observation, count = scenario.observation, scenario.routers
        shares, asks = scenario.peer_delay_s is not None, isinstance(observation, Perfect)
        self._split, self._events = scenario.split, isinstance(observation, Events)
        self._perfect = [PerfectBelief(block_size, truth) for _ in range(count if asks else 0)]
        self.routers = [
            Router(
                {name: self._replica(name) for name in truth},
                policy=scenario.policy,
                decode_policy=_decode_policy(scenario),
                block_size=block_size,
                capacity_tokens=scenario.capacity_tokens or UNLIMITED_TOKENS,
                seed=scenario.seed + number * 1_000_003,
                hash_seed=scenario.hash_seed,
                clock=clock,
                load=scenario.load_signal,
                recent_window=scenario.window,
                index=belief,
                timer=None,
                hash_key=FIXED_HASH_KEY if shares else None,
                timing=Timing(peer_s=inf) if shares else Timing(),  # no router of a run dies
            )
            for number, belief in enumerate(self._perfect or [None] * count)
        ]
        self._mail: Mail | None = None
        if scenario.peer_delay_s is not None:
            self._mail = Mail(self.routers, scenario.peer_delay_s, clock, later)
        self._feed: EventFeed | None = None
        if isinstance(observation, Events):
            self._feed = EventFeed(self.routers, observation, truth, later, scenario.seed)
        self._only = self.routers[0] if count == 1 else None
        self._sticky = scenario.front == "sticky"
        self._turn = 0

    def _replica(self, name: str) -> Replica:
        return Replica(events=self._events, role=role_of(name, self._split))

    def route(self, request: Request, now: float) -> Ticket | PairTicket:
        """Pass a request to a router at second ``now``, and book what it decides: a pair where the fleet is split."""
        self._hear_of(request)
        router = self._next(request) if self._only is None else self._only
        route = router.route if self._split is None else router.route_pair
        attrs = request.attrs if request.document is None else {**request.attrs, "document": request.document}
        return route(request.prompt, now=now, session=request.session, attrs=attrs)

    def retry(self, request: Request, ticket: Ticket | PairTicket | None, died: str, now: float) -> Ticket | PairTicket:
        """Route a request again: by the router that has its ticket, to a replica that has not been tried, or anew.

        Args:
            request: the request.
            ticket: its ticket, if it is still known.
            died: the replica that has died.
            now: second of the run.
        """
        if ticket is None:
            return self.route(request, now)
        self._hear_of(request)
        if isinstance(ticket, Ticket):
            return ticket.retry(now=now)
        return ticket.retry(role_of(died, self._split), now=now)

    def _hear_of(self, request: Request) -> None:
        """Let the routers hear what was said before this request, and what a perfect belief is asked about."""
        if self._mail is not None:
            self._mail.deliver()
        for belief in self._perfect:
            belief.request = request

    def _next(self, request: Request) -> Router:
        routers = self.routers
        if self._sticky and request.session is not None:
            return routers[crc32(request.session.encode()) % len(routers)]
        self._turn += 1
        return routers[self._turn % len(routers)]

    @property
    def is_alone(self) -> bool:
        """Whether there is one router, which predicts its replicas from what it sent and what finished."""
        return self._only is not None and self._mail is None and not self.watches

    @property
    def watches(self) -> bool:
        """Whether :meth:`observed` has anything to tell the routers."""
        return self._feed is not None

    def observed(self, name: str, store: Store, events: Iterable[CacheEvent], now: float) -> None:
        """Let the routers learn, as far as they can, of what has just changed in a store."""
        if self._feed is not None:
            self._feed.send(name, store, events, now)

    def add(self, name: str) -> None:
        """Tell every router of a new replica."""
        for router in self.routers:
            router.add_replica(name, self._replica(name))

    def remove(self, name: str) -> None:
        """Tell every router that a replica is gone."""
        for router in self.routers:
            router.remove_replica(name)

    def drain(self, name: str) -> None:
        """Tell every router to send a replica nothing new."""
        for router in self.routers:
            router.drain(name)


def _decode_policy(scenario: Scenario) -> TransferCost | str:
    """Return what picks the replica that decodes: by the link and the prices of the run."""
    if scenario.split is None or scenario.engine is None:
        return TransferCost.name
    cost, link = scenario.engine.cost, scenario.split.link
    return TransferCost(link, cost=cost) if isinstance(cost, CostModel) else TransferCost(link)
