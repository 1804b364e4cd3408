"""Time mode: the fleet on a clock. Requests arrive when they say, and routers hear of first tokens and ends as they fall."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from prefixroute.errors import ConfigError, NoReplicaError
from prefixroute.router import Ticket
from prefixroute.sim.clock import EventQueue
from prefixroute.sim.engine import EngineModel, Job, ReplicaEngine
from prefixroute.sim.fleet import Fleet, Progress, in_order
from prefixroute.sim.front import Front
from prefixroute.sim.metrics import RequestLog
from prefixroute.sim.ordered import PROGRESS_EVERY
from prefixroute.sim.scenario import FleetChange, Scenario
from prefixroute.sim.stores import BlockStore
from prefixroute.workload import Request


class TimedReplica:
    """A living replica: its engine, and the routers that hear of its jobs."""

    __slots__ = (
        "_booked",
        "_log",
        "_observed",
        "_warmup",
        "born",
        "engine",
        "events",
        "name",
        "number",
        "served",
        "store",
    )

    def __init__(self, run: TimedRun, name: str, model: EngineModel) -> None:
        """Begin empty and idle, now."""
        store = run.fleet.stores[name]
        if not isinstance(store, BlockStore):
            raise ConfigError("time mode needs cache 'blocks'")
        self.name, self.number, self.store = name, run.fleet.numbers[name], store
        self._log, self.events, self._warmup = run.log, run.events, run.warmup
        self._observed = run.front.observed if run.front.watches else None
        self._booked: deque[Job] = deque()
        self.born, self.served = run.events.now, 0.0
        self.engine = ReplicaEngine(model, store, run.events, self)

    def submit(self, job: Job) -> None:
        """Take a job, and let go of tickets that have ended.

        A ticket holds all that its decision was made of, several times what the engine knows of a request. In an
        overload most of those that wait have a ticket that has expired.
        """
        booked = self._booked
        while booked and (ticket := booked[0].ticket) is not None and not ticket.open:
            booked.popleft().ticket = None
        booked.append(job)
        self.engine.submit(job)

    def first_token(self, job: Job) -> None:
        """Prefill is done: tell the router, and let it see what was stored."""
        if job.ticket is not None:
            job.ticket.first_token()
        if self._observed is not None:
            self._observed(self.name, self.store, self.events.now)

    def finished(self, job: Job) -> None:
        """The answer is out: tell the router, and log."""
        request, self.served = job.request, self.events.now
        if job.ticket is not None:
            job.ticket.finish(output=request.context, reported_hit_tokens=job.hit)
        if self._observed is not None:
            self._observed(self.name, self.store, self.events.now)
        if job.number < self._warmup:
            return
        times = (job.started, job.first_token, job.finished, request.output_tokens)
        self._log.served(job.number, self.number, request, job.hit, *times)


class TimedRun:
    """One run in time mode, from its first request to its last answer.

    ``alive_s`` and ``busy_s`` are summed over replicas; ``retried`` counts jobs moved by a death. Events may reach a router,
    and the fleet change, after the last answer: no replica is idle then, for the run is over.
    """

    def __init__(self, scenario: Scenario, block_size: int, model: EngineModel) -> None:
        """Set up idle replicas and the routers before them."""
        self._model, self.warmup = model, scenario.warmup
        self.events = EventQueue()
        self.fleet = Fleet(scenario, block_size)
        self.log = RequestLog(timed=True)
        self.front = Front(scenario, block_size, self.fleet.stores, self.events.time, self.events.schedule)
        self._replicas = {name: TimedReplica(self, name, model) for name in self.fleet.names}
        self._progress: Progress | None = None
        self._arrived = 0
        self._begun = self._ended = 0.0
        self._lives: list[tuple[float, float]] = []
        self.busy_s = 0.0
        self.retried = 0
        for change in in_order(scenario.changes):
            self.events.schedule(change.at, self._change, change)

    def run(self, requests: Iterable[Request], progress: Progress | None = None) -> None:
        """Let the requests arrive, one scheduled at a time, and run until the last has left."""
        self._progress = progress
        self._next(iter(requests))
        self.events.run()
        for replica in self._replicas.values():
            self._account(replica)

    @property
    def alive_s(self) -> float:
        """Seconds that replicas lived during the run, all together."""
        return sum(max(0.0, min(died, self._ended) - max(born, self._begun)) for born, died in self._lives)

    def _next(self, requests: Iterator[Request]) -> None:
        request = next(requests, None)
        if request is not None:
            self.events.schedule(request.arrival_s, self._arrive, request, requests)

    def _arrive(self, request: Request, rest: Iterator[Request]) -> None:
        if not self._arrived:
            self._begun = self.events.now
        ticket = self.front.route(request)
        self._replicas[ticket.replica].submit(Job(self._arrived, request, ticket, self.events.now))
        self._arrived += 1
        if self._progress is not None and self._arrived % PROGRESS_EVERY == 0:
            self._progress(self._arrived)
        self._next(rest)

    def _change(self, change: FleetChange) -> None:
        self.fleet.check(change)
        name = change.replica
        if change.action == "drain":
            self.front.drain(name)
        elif change.action == "die":
            self._die(name)
        else:
            self.fleet.add(name)
            self._replicas[name] = TimedReplica(self, name, self._model)
            self.front.add(name)

    def _die(self, name: str) -> None:
        """Lose a replica; the host sends what it had elsewhere, and those requests start again."""
        replica = self._replicas.pop(name)
        jobs = replica.engine.stop()
        self._account(replica)
        self.front.remove(name)
        self.fleet.remove(name)
        for job in jobs:
            ticket = self._reroute(job.request, job.ticket)
            self._replicas[ticket.replica].submit(Job(job.number, job.request, ticket, job.arrival))
            self.retried += 1

    def _reroute(self, request: Request, ticket: Ticket | None) -> Ticket:
        try:
            return self.front.retry(request, ticket)
        except NoReplicaError as error:
            raise ConfigError(f"the last replica died at {self.events.now:g} s with requests in flight") from error

    def _account(self, replica: TimedReplica) -> None:
        self._lives.append((replica.born, self.events.now))
        self._ended = max(self._ended, replica.served)
        self.busy_s += replica.engine.busy_s
