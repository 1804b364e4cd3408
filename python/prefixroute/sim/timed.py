"""Timed simulation: requests arrive when they say, and routers hear of first tokens and ends when they happen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any

from prefixroute.errors import ConfigError, NoReplicaError
from prefixroute.router import PairTicket, Ticket
from prefixroute.routing import steps
from prefixroute.sim.engine import CHANGED, FIRST_TOKEN, Cluster, EngineModel
from prefixroute.sim.fleet import Progress, SimulatedFleet
from prefixroute.sim.front import Front
from prefixroute.sim.metrics import TokenGaps
from prefixroute.sim.request_log import RequestLog
from prefixroute.sim.scenario import Scenario
from prefixroute.sim.stores import BlockStore
from prefixroute.sim.untimed import PROGRESS_EVERY
from prefixroute.workload import Request

LET_GO_EVERY = 64
"""Requests between two looks for tickets that have ended."""


class Agenda:
    """Calls at seconds of the run, by time and then in the order in which they were planned."""

    def __init__(self) -> None:
        """Start with nothing planned."""
        self.calls: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        """A heap: the next call is the first."""
        self._planned = 0

    def plan(self, at: float, action: Callable[..., None], *arguments: object) -> None:
        """Call ``action(*arguments)`` at second ``at``."""
        self._planned += 1
        heappush(self.calls, (at, self._planned, action, arguments))

    def call_next(self) -> None:
        """Make the next call."""
        _, _, action, arguments = heappop(self.calls)
        action(*arguments)


@dataclass(slots=True)
class _LiveReplica:
    """A living replica: its number in the cluster, what it holds, and when it began."""

    number: int
    name: str
    store: BlockStore
    born: float


class TimedRun:
    """One timed run, from its first request to its last answer.

    Replicas and their clock are a compiled :class:`Cluster`. It is advanced to each arrival, and tells what has
    happened since: the routers learn of it in that order. Late events are on an agenda. What happens at one instant
    happens in this order: changes of the fleet, late events, ends of steps, arrivals.

    ``retried`` counts requests moved by a death. Events may reach a router, and the fleet change, after the last
    answer: no replica is idle then, for the run is over.
    """

    def __init__(self, scenario: Scenario, block_size: int, model: EngineModel) -> None:
        """Set up idle replicas and the routers before them."""
        self.log = RequestLog(timed=True)
        self.fleet = SimulatedFleet(scenario, block_size)
        self.agenda = Agenda()
        self.now = 0.0
        self.front = Front(scenario, block_size, self.fleet.stores, lambda: self.now, self.agenda.plan)
        split = scenario.split
        self._cluster = model.cluster(
            warmup=scenario.warmup,
            late_s=None if scenario.promise is None else scenario.promise.itl_s,
            link=None if split is None else split.link,
        )
        self._replicas: dict[str, _LiveReplica] = {}
        self._by_number: list[_LiveReplica] = []
        self._flights: dict[int, tuple[Request, Ticket | PairTicket | None]] = {}
        self._oldest: deque[int] = deque()
        self._arrived = 0
        self._tells = False
        """Whether the cluster tells the router what happens, without Python in between."""
        self._begun = self._ended = 0.0
        self._lives: list[tuple[str, float, float, float]] = []
        self.retried = 0
        for name in self.fleet.names:
            self._start(name)

    def run(self, requests: Iterable[Request], progress: Progress | None = None) -> None:
        """Let the requests arrive, and run until the last has left and nothing is planned any more."""
        changes = self.fleet.changes
        for request in requests:
            arrival = request.arrival_s
            if changes and changes[-1].at <= arrival:
                self._change_until(arrival)
            self._play(arrival)
            self.now = arrival
            self._arrive(request)
            if progress is not None and self._arrived % PROGRESS_EVERY == 0:
                progress(self._arrived)
        self._change_until(inf)
        self._play(inf)
        for replica in self._replicas.values():
            self._account(replica, self._cluster.busy_s(replica.number))
        self.log.extend(self._cluster.take_log())

    def alive_s(self, names: Container[str]) -> float:
        """Return the seconds that these replicas lived during the run, all together."""
        lives = [(born, died) for name, born, died, _ in self._lives if name in names]
        return sum(max(0.0, min(died, self._ended) - max(born, self._begun)) for born, died in lives)

    def busy(self, names: Container[str]) -> float:
        """Return the share of this time in which they had work."""
        alive_s = self.alive_s(names)
        return sum(busy_s for name, _, _, busy_s in self._lives if name in names) / alive_s if alive_s else 0.0

    @property
    def preemptions(self) -> int:
        """How many times a request was preempted because answers had filled the memory of its replica."""
        return self._cluster.preempted

    @property
    def gaps(self) -> TokenGaps:
        """Gaps between tokens of answers."""
        return TokenGaps.of(self._cluster.gaps())

    def _change_until(self, until: float) -> None:
        """Let the fleet change up to second ``until``, and what comes before each change happen."""
        changes = self.fleet.changes
        while changes and changes[-1].at <= until:
            change = changes.pop()
            self._play(change.at, inclusive=False)
            self.now = change.at
            self.fleet.change(change, drain=self.front.drain, die=self._die, begin=self._join)

    def _play(self, until: float, *, inclusive: bool = True) -> None:
        """Advance the cluster, and tell the routers what has happened and what was planned, in the order of time."""
        outcomes = self._cluster.advance(until, inclusive)
        if outcomes:
            self._tell(outcomes)
            while len(outcomes) >= Cluster.BATCH:
                outcomes = self._cluster.advance(until, inclusive)
                self._tell(outcomes)
        planned = self.agenda.calls
        while planned and planned[0][0] <= until:
            self._call_planned()

    def _call_planned(self) -> None:
        self.now = self.agenda.calls[0][0]
        self.agenda.call_next()

    def _tell(self, outcomes: list[tuple[int, float, int, Any]]) -> None:
        """Tell the routers what has happened, and make the calls planned before."""
        planned, flights = self.agenda.calls, self._flights
        for kind, at, number, detail in outcomes:
            while planned and planned[0][0] <= at:
                self._call_planned()
            self.now = at
            if kind == FIRST_TOKEN:
                ticket = flights[number][1]
                if ticket is not None:
                    ticket.first_token(now=at)
            elif kind == CHANGED:
                replica = self._by_number[number]
                self.front.observed(replica.name, replica.store, detail, at)
            else:
                request, ticket = flights.pop(number)
                if self._tells:
                    if detail is not None and ticket is not None:
                        steps.tell_trust(ticket.attempt.name, believed=detail)
                elif ticket is not None:
                    ticket.finish(output=request.context, reported_hit_tokens=detail, now=at)
                self._ended = at

    def _arrive(self, request: Request) -> None:
        number = self._arrived
        ticket = self.front.route(request, self.now)
        if not number:
            self._begun = self.now
            self._tells = self._can_tell(request, ticket)
        self._arrived += 1
        self._submit(number, request, ticket)
        self._oldest.append(number)
        if number % LET_GO_EVERY == 0:
            self._let_go()

    def _can_tell(self, request: Request, ticket: Ticket | PairTicket) -> bool:
        """Let the cluster tell the router directly, if it is the only one and nobody else hears of its requests."""
        state = ticket.host.state
        if isinstance(ticket, PairTicket) or not self.front.is_alone:
            return False
        if state.block_size != request.context.block_size:  # it believes in other blocks than the engines have
            return False
        self._cluster.tell(state.ledger, state.belief)
        return True

    def _submit(self, number: int, request: Request, ticket: Ticket | PairTicket) -> None:
        """Give a request to its replica, or to the two of its pair."""
        self._flights[number] = request, ticket
        session = self.log.session_number(request, number)
        arrival, prompt, context, prompt_tokens, output_tokens = request[:5]
        decode, attempt = None, ticket.attempt
        if attempt.prefill is None:
            replica = self._replicas[attempt.name].number
        else:
            replica, decode = self._replicas[attempt.prefill.name].number, self._replicas[attempt.name].number
        self._cluster.submit(
            replica, number, session, prompt, context, prompt_tokens, output_tokens, arrival, self.now, decode,
            attempt if self._tells else None,
        )  # fmt: skip

    def _let_go(self) -> None:
        """Let go of tickets that have ended, the oldest first.

        A ticket holds all that its decision was made of, several times what the cluster knows of a request. In an
        overload most of those that wait have a ticket that has expired.
        """
        flights, oldest = self._flights, self._oldest
        while oldest:
            flight = flights.get(oldest[0])
            if flight is not None:
                request, ticket = flight
                if ticket is not None and ticket.attempt.open:
                    return
                flights[oldest[0]] = request, None
                self._cluster.let_go(oldest[0])
            oldest.popleft()

    def _start(self, name: str) -> None:
        store = self.fleet.stores[name]
        if not isinstance(store, BlockStore):
            raise ConfigError("a timed simulation needs cache 'blocks'")
        number = self._cluster.add(store.cache, self.fleet.numbers[name])
        self._replicas[name] = replica = _LiveReplica(number, name, store, self.now)
        self._by_number.append(replica)

    def _join(self, name: str) -> None:
        self._start(name)
        self.front.add(name)

    def _die(self, name: str) -> None:
        """Lose a replica; the host sends what it had elsewhere, and those requests start again."""
        replica = self._replicas.pop(name)
        numbers, bereft, busy_s = self._cluster.stop(replica.number, self.now)
        self._account(replica, busy_s)
        self.front.remove(name)
        self.fleet.remove(name)
        for number in numbers:
            self._submit(number, *self._reroute(number, name))
        for number in bereft:
            self._flights[number] = _, following = self._reroute(number, name)
            self._cluster.redirect(number, self._replicas[following.replicas[-1]].number)
        self.retried += len(numbers) + len(bereft)

    def _reroute(self, number: int, died: str) -> tuple[Request, Ticket | PairTicket]:
        request, ticket = self._flights[number]
        try:
            return request, self.front.retry(request, ticket, died, self.now)
        except NoReplicaError as error:
            raise ConfigError(f"the last replica died at {self.now:g} s with requests in flight") from error

    def _account(self, replica: _LiveReplica, busy_s: float) -> None:
        self._lives.append((replica.name, replica.born, self.now, busy_s))
