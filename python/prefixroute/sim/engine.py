"""One replica in time: a queue, chunked prefill beside decode, and its cache.

The model is step-accurate and event-cheap. A *step* of the engine takes up to ``chunk_tokens`` prompt tokens from the
requests in prefill, first come first served, and one token for each decoding request. Steps without prompt tokens are
all alike, so a run of them up to the next change is one event. A request therefore costs its chunks plus about two
events, not one per token.

Left out, on purpose: preemption (a request keeps its blocks; what its output does not find room for is dropped when
it ends), speculative decoding, and the time of the scheduler itself.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from prefixroute.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixroute.router import Ticket
    from prefixroute.sim.clock import EventQueue
    from prefixroute.workload import Request


class StepCost(Protocol):
    """What the engine asks of a cost model: :class:`prefixroute.costmodel.CostModel` has it."""

    @property
    def overhead_s(self) -> float:
        """Seconds added to each prefill."""

    def step_seconds(
        self, prefill: Iterable[tuple[int, int]] = (), *, decodes: int = 0, decode_context_tokens: int = 0
    ) -> float:
        """Seconds of a step with these chunks, (new tokens, tokens before them), beside ``decodes`` requests."""


@dataclass(frozen=True, slots=True)
class EngineModel:
    """How an engine builds its steps, and what they cost.

    Args:
        cost: seconds of a step.
        chunk_tokens: tokens of one step; vLLM's ``max_num_batched_tokens``, 8,192 for a server on an H100 (ASSUMED).
            Smaller chunks disturb decode less and prefill more.
        max_running: requests admitted at once; vLLM's ``max_num_seqs``, 256 (ASSUMED).

    Raises:
        ConfigError: a count below one.
    """

    cost: StepCost
    chunk_tokens: int = 8_192
    max_running: int = 256

    def __post_init__(self) -> None:
        """Check the counts."""
        for name in ("chunk_tokens", "max_running"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")


class Job:
    """One request on its way through one replica. Times are seconds, NaN until they are known."""

    __slots__ = (
        "arrival",
        "computed",
        "finished",
        "first_token",
        "handle",
        "hit",
        "load_s",
        "number",
        "request",
        "started",
        "ticket",
    )

    def __init__(self, number: int, request: Request, ticket: Ticket, arrival: float) -> None:
        """Hold the ``number``-th request, which arrived at second ``arrival`` of the run."""
        self.number = number
        self.request = request
        self.ticket = ticket
        self.arrival = arrival
        self.started = self.first_token = self.finished = float("nan")
        self.handle: int | None = None
        self.hit = 0
        self.load_s = 0.0
        self.computed = 0

    def take(self, budget: int, chunks: list[tuple[int, int]]) -> int:
        """Add up to ``budget`` of the prompt's remaining tokens to a step; return how many."""
        tokens = min(budget, self.request.prompt_tokens - self.computed)
        if tokens > 0:
            chunks.append((tokens, self.computed))
            self.computed += tokens
        return max(tokens, 0)


class Store(Protocol):
    """What an engine asks of its cache."""

    def admit(self, job: Job, *, alone: bool) -> bool:
        """Pin and allocate the blocks of ``job`` and set its ``hit``, ``load_s`` and ``handle``.

        False if there is no room beside the running requests; ``alone`` (nothing else runs) must succeed.
        """

    def release(self, job: Job) -> None:
        """End ``job``: prompt and output stay as ordinary cached blocks."""


class Listener(Protocol):
    """Who hears of a job's progress: the fleet, on behalf of the Router."""

    def first_token(self, job: Job) -> None:
        """Prefill of ``job`` is done."""

    def finished(self, job: Job) -> None:
        """The last token of ``job`` is out."""


class ReplicaEngine:
    """A replica that serves jobs in virtual time; see the module text for the model."""

    __slots__ = (
        "_began", "_context", "_decoding", "_events", "_listener", "_model", "_order", "_prefilling", "_queue", "_step",
        "_steps", "_store", "_token", "_version", "busy_s",
    )  # fmt: skip

    def __init__(self, model: EngineModel, store: Store, events: EventQueue, listener: Listener) -> None:
        """Start idle. ``busy_s`` grows by the seconds spent in steps."""
        self._model, self._store, self._events, self._listener = model, store, events, listener
        self._queue: deque[Job] = deque()
        self._prefilling: list[Job] = []
        self._decoding: list[tuple[int, int, Job]] = []
        self._context = 0  # tokens of the decoding requests, less the tokens each had seen when it joined
        self._token = 0  # decode steps so far: the clock on which outputs end
        self._order = 0
        self._version = 0
        self._began = 0.0
        self._steps = 0  # in the event under way; 0 = idle
        self._step = 0.0  # seconds of each
        self.busy_s = 0.0

    @property
    def waiting(self) -> int:
        """Requests that have not been admitted."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Requests in prefill or decode."""
        return len(self._prefilling) + len(self._decoding)

    def submit(self, job: Job) -> None:
        """Take a job. It starts with the next step if there is room."""
        self._queue.append(job)
        if not self._steps:
            self._begin()
        elif self._steps > 1 and len(self._queue) == 1:
            self._cut_run()

    def stop(self) -> list[Job]:
        """Die: return every job that was here, oldest first, and forget them and the step under way."""
        if self._steps:
            self.busy_s += self._events.now - self._began
        jobs = sorted([entry[2] for entry in self._decoding] + self._prefilling, key=lambda job: job.started)
        jobs += self._queue
        self._queue.clear()
        self._prefilling, self._decoding = [], []
        self._context = self._steps = 0
        self._version += 1
        return jobs

    def _cut_run(self) -> None:
        """End a run of decode steps at the next step boundary, because a request waits."""
        done = int((self._events.now - self._began) / self._step) + 1 if self._step > 0.0 else self._steps
        if done < self._steps:
            self._schedule(done, self._step)

    def _schedule(self, steps: int, step: float) -> None:
        self._version += 1
        self._steps, self._step = steps, step
        at = max(self._began + steps * step, self._events.now)
        self._events.schedule(at, self._end, self._version)

    def _begin(self) -> None:
        """Choose the next step, or fall idle."""
        self._began = self._events.now
        chunks, extra_s = self._fill_chunk() if self._queue or self._prefilling else _NO_CHUNKS
        decoding, cost = len(self._decoding), self._model.cost
        context = self._context + decoding * self._token
        if chunks:
            seconds = cost.step_seconds(chunks, decodes=decoding, decode_context_tokens=context)
            self._schedule(1, seconds + extra_s)
        elif decoding:
            steps = self._decoding[0][0] - self._token
            middle = context + decoding * (steps - 1) // 2  # the context grows by a token a step for each request
            self._schedule(steps, cost.step_seconds(decodes=decoding, decode_context_tokens=middle))
        else:
            self._steps = 0

    def _fill_chunk(self) -> tuple[list[tuple[int, int]], float]:
        """Fill a step with prompt tokens, first come first served, admitting while there is room.

        Returns the chunks as (new tokens, tokens before them), and the seconds that starting requests adds.
        """
        budget = max(1, self._model.chunk_tokens - len(self._decoding))
        chunks: list[tuple[int, int]] = []
        extra_s = 0.0
        for job in self._prefilling:
            budget -= job.take(budget, chunks)
        while budget > 0 and self._queue and self.running < self._model.max_running:
            job = self._queue[0]
            if not self._store.admit(job, alone=self.running == 0):
                break
            self._queue.popleft()
            job.started = self._events.now
            job.computed = min(job.hit, job.request.prompt_tokens - 1)  # the last token is always computed
            self._prefilling.append(job)
            budget -= job.take(budget, chunks)
            extra_s += job.load_s + self._model.cost.overhead_s
        return chunks, extra_s

    def _end(self, version: int) -> None:
        """Close the step or run under way: tokens out, requests on, and the next step."""
        if version != self._version:
            return  # the run was cut short, or the replica died
        now = self._events.now
        self.busy_s += now - self._began
        ended: list[Job] = []
        if self._decoding:
            self._token += self._steps
            self._pop_ended(ended)
        if self._prefilling:
            self._pass_to_decode(now, ended)
        for job in ended:
            job.finished = now
            self._store.release(job)
            self._listener.finished(job)
        self._begin()

    def _pop_ended(self, ended: list[Job]) -> None:
        """Move the jobs whose last token is out to ``ended``."""
        while self._decoding and self._decoding[0][0] <= self._token:
            last, _, job = heapq.heappop(self._decoding)
            self._context -= job.request.prompt_tokens - (last - job.request.output_tokens + 1)
            ended.append(job)

    def _pass_to_decode(self, now: float, ended: list[Job]) -> None:
        """Give complete prefills their first token; those whose only token it is go to ``ended``."""
        rest = []
        for job in self._prefilling:
            request = job.request
            if job.computed < request.prompt_tokens:
                rest.append(job)
                continue
            job.first_token = now
            self._listener.first_token(job)
            if request.output_tokens <= 1:
                ended.append(job)
                continue
            self._context += request.prompt_tokens - self._token
            self._order += 1
            heapq.heappush(self._decoding, (self._token + request.output_tokens - 1, self._order, job))
        self._prefilling = rest


_NO_CHUNKS: tuple[list[tuple[int, int]], float] = ([], 0.0)
