"""How simulated engines build their steps and what these cost; the engines themselves are compiled.

The model is step-accurate and event-cheap. A *step* of an engine takes up to ``chunk_tokens`` prompt tokens from the
requests in prefill, first come first served, and one token for each decoding request. Steps without prompt tokens are
all alike, so a run of them up to the next change is one event. A request therefore costs its chunks plus about two
events, not one per token.

Answers take memory as they grow, block by block. When blocks run out the request that was admitted last is preempted,
as vLLM does: it waits at the front of the queue, and what was evicted of it meanwhile is computed again.

A request may be prefilled by one replica and decoded by another. Its keys and values move over a link once the decode
replica has room for them; the prefill replica keeps them until then. The first token is sampled by the prefill replica
and is out when the request joins the batch of the decode replica.

Left out, on purpose: speculative decoding, and the time of the scheduler itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from prefixroute._core import Cluster, StepPrices
from prefixroute.costmodel import CostModel, Link, TransferPrices
from prefixroute.errors import ConfigError
from prefixroute.validation import check_fields, check_int

CHUNK_TOKENS, MAX_RUNNING = 8_192, 256
"""vLLM's defaults for ``max_num_batched_tokens``, of a server on an H100, and for ``max_num_seqs``."""
FIRST_TOKEN, FINISHED, CHANGED, ABORTED = range(4)
"""Kinds of outcomes of :meth:`Cluster.advance`."""


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

    def __post_init__(self) -> None:
        """Check the counts."""
        check_fields(self, check_int, "chunk_tokens", "max_running", low=1)

    @property
    def prices(self) -> StepPrices | Callable[[list[tuple[int, int]], int, int], float]:
        """The prices of steps as numbers.

        A function that is called for each step if the cost model has a formula of its own.
        """
        cost = self.cost
        if isinstance(cost, CostModel) and type(cost).step_seconds is CostModel.step_seconds:
            return cost.prices
        return lambda chunks, decodes, context: cost.step_seconds(
            chunks, decodes=decodes, decode_context_tokens=context
        )

    def cluster(self, *, warmup: int = 0, late_s: float | None = None, link: str | Link | None = None) -> Cluster:
        """Return replicas of this model, none yet.

        Args:
            warmup: their log begins with the request of this number.
            late_s: seconds above which their log counts a gap between two tokens as late; None = none is.
            link: what keys and values move over between those that prefill and those that decode.

        Raises:
            ConfigError: there is a link, and the cost model has no ``transfer_prices`` of it.
        """
        limits = {"chunk_tokens": self.chunk_tokens, "max_running": self.max_running}
        transfers = None if link is None else self._transfers(link)
        late_s = inf if late_s is None else late_s
        return Cluster(
            self.prices, **limits, overhead_s=self.cost.overhead_s, warmup=warmup, late_s=late_s, link=transfers
        )

    def _transfers(self, link: str | Link) -> TransferPrices:
        price = getattr(self.cost, "transfer_prices", None)
        if price is None:
            raise ConfigError(
                f"prefill and decode apart need a cost model with transfer_prices(link), got {self.cost!r}"
            )
        prices: TransferPrices = price(link)
        return prices


__all__ = [
    "ABORTED",
    "CHANGED",
    "CHUNK_TOKENS",
    "FINISHED",
    "FIRST_TOKEN",
    "MAX_RUNNING",
    "Cluster",
    "EngineModel",
    "StepCost",
]
