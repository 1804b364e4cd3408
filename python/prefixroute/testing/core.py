"""One engine without a network.

The simulator's own, with real tokens in and KV events out, in whatever time it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.sim.engine import ABORTED, CHANGED, FIRST_TOKEN, EngineModel
from prefixroute.sim.replica import CacheEvent, ReplicaStore
from prefixroute.testing.kv_events import EventEncoder
from prefixroute.types import Namespace
from prefixroute.workload.request import cached_tokens

NO_NAMESPACE = Namespace()


@dataclass(slots=True)
class PlainCost:
    """Prices steps by two numbers, which may change while the engine runs.

    Attributes:
        prefill_s_per_1k: seconds for 1,000 uncached prompt tokens.
        decode_s: seconds for a step that decodes.
        overhead_s: seconds added to each prefill.
    """

    prefill_s_per_1k: float = 0.1
    decode_s: float = 0.01
    overhead_s: float = 0.0

    def step_seconds(
        self, prefill: Iterable[tuple[int, int]] = (), *, decodes: int = 0, decode_context_tokens: int = 0
    ) -> float:
        """Return the seconds of a step, see :class:`prefixroute.sim.engine.StepCost`.

        Args:
            prefill: new and cached tokens of each request that is computed.
            decodes: requests that decode.
            decode_context_tokens: of all of these.
        """
        del decode_context_tokens
        return sum(new for new, _ in prefill) * self.prefill_s_per_1k / 1000 + (self.decode_s if decodes else 0.0)


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request, as tokens.

    Attributes:
        prompt: token ids, at least one.
        context: token ids of prompt and answer; begins with all full blocks of the prompt.
        output_tokens: tokens of the answer.
        namespace: adapter and salt.
        first_token: called when the first token is out.
        finished: called when the last is.
    """

    prompt: list[int]
    context: list[int]
    output_tokens: int
    namespace: Namespace = NO_NAMESPACE
    first_token: Callable[[], None] = field(default=lambda: None)
    finished: Callable[[], None] = field(default=lambda: None)


@dataclass(slots=True, eq=False)
class EngineJob:
    """A request inside the engine; its client may have left. ``hit`` is known once its first token is out."""

    number: int
    asked: EngineRequest
    context: BlockHashes
    hit: int = 0
    left: bool = False
    ended: bool = False


class EngineCore:
    """The simulator's engine and cache, driven by :meth:`advance`. Not thread-safe.

    A request whose client leaves is dropped: at once if it waits or nobody else is served, else at the end of the step
    under way, as engines do. What it has computed stays cached.

    Args:
        model: how steps are built and what they cost.
        capacity_tokens: size of the KV cache; ``None`` = unlimited.
        block_size: tokens in a block.
        publish: called with each KV-event batch, in order.
        encoder: writes those batches; by default in vLLM's format.
    """

    def __init__(
        self,
        model: EngineModel,
        *,
        capacity_tokens: int | None,
        block_size: int,
        publish: Callable[[bytes], Any] | None = None,
        encoder: EventEncoder | None = None,
    ) -> None:
        self.model, self.block_size = model, block_size
        self.requests = self.prompt_tokens = self.hit_tokens = 0
        self._publish = publish
        self._encoder = encoder or (EventEncoder(block_size) if publish is not None else None)
        self.now = 0.0
        """The engine's time in seconds."""
        self._capacity_tokens = capacity_tokens
        self._store = ReplicaStore(capacity_tokens, block_size, record_events=self._encoder is not None)
        self._cluster = model.cluster()
        self._replica = self._cluster.add(self._store, 0)
        self._jobs: dict[int, EngineJob] = {}

    @property
    def next_at(self) -> float | None:
        """When something happens next, unless a request comes first."""
        return self._cluster.next_at

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._cluster.waiting(self._replica)

    @property
    def running(self) -> int:
        """Requests in the batch whose clients are still there."""
        return sum(not job.left for job in self._jobs.values()) - self.waiting

    @property
    def held_tokens(self) -> int:
        """Tokens in the cache."""
        return self._store.cached_tokens

    @property
    def kv_use(self) -> float:
        """Share of the cache that running requests pin."""
        return self._store.pinned_tokens / self._capacity_tokens if self._capacity_tokens else 0.0

    @property
    def step_s(self) -> float:
        """Seconds of a step that only decodes, as the batch is now."""
        decodes = max(1, self._cluster.running(self._replica))
        return self.model.cost.step_seconds(decodes=decodes, decode_context_tokens=self._store.pinned_tokens)

    def hit(self, prompt: list[int], namespace: Namespace = NO_NAMESPACE) -> int:
        """Return the leading tokens of a prompt that need no prefill now.

        Args:
            prompt: token ids.
            namespace: what else must be equal for blocks to be shared.
        """
        return self._store.hit(hash_blocks(prompt, self.block_size, namespace))

    def advance(self, to: float) -> None:
        """Let time pass.

        Args:
            to: time in seconds; it does not go back.
        """
        more = True
        while more:
            outcomes = self._cluster.advance(to)
            more = len(outcomes) >= self._cluster.BATCH
            for kind, at, number, detail in outcomes:
                self.now = at
                if kind == CHANGED:
                    self._tell(detail)
                elif kind == FIRST_TOKEN:
                    self._first_token(self._jobs[number], detail)
                elif kind == ABORTED:
                    self._end(self._jobs[number])
                else:
                    self._finished(self._jobs[number])
        self.now = max(self.now, to)

    def submit(self, asked: EngineRequest) -> EngineJob:
        """Take a request, now.

        Args:
            asked: the request.

        Returns:
            The request as the engine has it.
        """
        prompt = hash_blocks(asked.prompt, self.block_size, asked.namespace)
        kept = asked.context[: cached_tokens(len(asked.prompt), asked.output_tokens)]
        context = hash_blocks(kept, self.block_size, asked.namespace)
        job = EngineJob(self.requests, asked, context)
        lengths = len(asked.prompt), asked.output_tokens
        if self._encoder is not None:
            self._encoder.learn(context, asked.context, asked.namespace)
        self._cluster.submit(self._replica, job.number, 0, prompt, context, *lengths, self.now, self.now)
        self.requests += 1
        self._jobs[job.number] = job
        self._tell(self._store.take_events())
        return job

    def leave(self, job: EngineJob) -> None:
        """Note that a request's client has gone.

        Args:
            job: of the request.
        """
        job.left = True
        if job.ended:
            return
        if any(not other.left for other in self._jobs.values()):
            if self._cluster.abort(self._replica, job.number, self.now):
                self._end(job)
            return
        stopped, _, _ = self._cluster.stop(self._replica, self.now)
        self._replica = self._cluster.add(self._store, 0)
        for number in stopped:
            self._end(self._jobs[number])
        self._tell(self._store.take_events())

    def reset(self) -> bool:
        """Empty the cache, if nothing is running; return whether it was."""
        if self._jobs:
            return False
        self._store.clear()
        self._store.take_events()
        if self._encoder is not None and self._publish is not None:
            self._publish(self._encoder.cleared())
        return True

    def _first_token(self, job: EngineJob, hit_tokens: int) -> None:
        job.hit = hit_tokens
        self.prompt_tokens += len(job.asked.prompt)
        self.hit_tokens += hit_tokens
        if not job.left:
            job.asked.first_token()

    def _finished(self, job: EngineJob) -> None:
        self._end(job)
        if not job.left:
            job.asked.finished()

    def _end(self, job: EngineJob) -> None:
        job.ended = True
        del self._jobs[job.number]
        if self._encoder is not None:
            self._encoder.forget(job.context)

    def _tell(self, events: Iterable[CacheEvent]) -> None:
        """Publish what the cache has done."""
        if self._encoder is None or self._publish is None:
            return
        batch = self._encoder.encode(events)
        if batch is not None:
            self._publish(batch)
