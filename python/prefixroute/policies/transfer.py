"""The policy of decode replicas: what handing a prompt over costs, and what decoding beside others costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from prefixroute.columns import Formula, Kernel
from prefixroute.costmodel import DEFAULT_LINK, CostModel, Link, TransferPrices
from prefixroute.policies.base import Scored, check_parameters
from prefixroute.policies.scored import COST, DECODING, IN_FLIGHT, decode_step
from prefixroute.validation import check_instance

OUTPUT_TOKENS = 338
"""Tokens of an answer whose length nobody knows: the mean of ShareGPT (Kwon et al., SOSP 2023, figure 11)."""


@dataclass(frozen=True, slots=True)
class TransferCost(Scored):
    """Least seconds to move the prompt's keys and values there and to decode the answer beside what is in flight.

    For the decode half of a pair (``route_pair``). A replica that holds a head of the prompt needs only the rest; the
    replica that computes the prompt, if it decodes too, needs nothing. So holding a prefix counts for as much as the
    link makes of it, and the load decides the rest.

    Attributes:
        link: what keys and values move over: a name, GB/s, or a :class:`~prefixroute.costmodel.Link`.
        output_tokens: length of an answer, or the request's ``max_tokens`` if that is less.
        cost: prices decode steps and bytes of a token.
    """

    link: str | Link = DEFAULT_LINK
    output_tokens: int = OUTPUT_TOKENS
    cost: CostModel = COST
    prices: TransferPrices = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "transfer-cost"
    signals: ClassVar[frozenset[str]] = frozenset({"in_flight", "decoding", "kv_at"})

    def __post_init__(self) -> None:
        """Check the length, and price the link."""
        check_parameters(self)
        check_instance("transfer-cost cost", self.cost, CostModel)
        object.__setattr__(self, "prices", self.cost.transfer_prices(self.link))

    def kernel(self) -> Kernel:
        """Return the rule, compiled: the seconds are negated."""
        requests, decoding = (Formula.sum((1.0, load), over=Formula("weights")) for load in (IN_FLIGHT, DECODING))
        steps = decode_step(self.cost, requests, decoding)
        answer = (-1.0, Formula.answer(self.output_tokens), steps)
        return Kernel.best((Formula.sum((-1.0, Formula.transfer(self.prices)), answer), "least_transfer", None))
