"""One replica in time: a queue, chunked prefill beside decode, and its cache.

The model is step-accurate and event-cheap. A *step* of the engine takes up to ``chunk_tokens`` prompt tokens from the
requests in prefill, first come first served, and one token for each decoding request. Steps without prompt tokens are
all alike, so a run of them up to the next change is one event. A request therefore costs its chunks plus about two
events, not one per token.

Left out, on purpose: preemption (a request keeps its blocks; what its output does not find room for is dropped when
it ends), speculative decoding, and the time of the scheduler itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from prefixroute._core import ReplicaEngine, StepPrices
from prefixroute.costmodel import CostModel
from prefixroute.validation import check_int

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixroute.router import Ticket
    from prefixroute.workload import Request

CHUNK_TOKENS, MAX_RUNNING = 8_192, 256
"""vLLM's defaults for ``max_num_batched_tokens``, of a server on an H100, and for ``max_num_seqs``."""


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
    chunk_tokens: int = CHUNK_TOKENS
    max_running: int = MAX_RUNNING

    @property
    def prices(self) -> StepPrices | None:
        """The prices of the cost model's steps; None if it has a formula of its own, which is then called."""
        known = isinstance(self.cost, CostModel) and type(self.cost).step_seconds is CostModel.step_seconds
        return self.cost.prices if known else None  # type: ignore[attr-defined]  # a CostModel, as just checked

    def __post_init__(self) -> None:
        """Check the counts."""
        for name in ("chunk_tokens", "max_running"):
            check_int(name, getattr(self, name), 1)


class Job:
    """One request on its way through one replica. Times are seconds, NaN until they are known.

    ``ticket`` is None once the router has given the request up, though it still waits.
    """

    __slots__ = (
        "arrival",
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
        self.ticket: Ticket | None = ticket
        self.arrival = arrival
        self.started = self.first_token = self.finished = float("nan")
        self.handle: int | None = None
        self.hit = 0
        self.load_s = 0.0


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


__all__ = ["EngineModel", "Job", "Listener", "ReplicaEngine", "StepCost", "Store"]
