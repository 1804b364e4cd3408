"""The policy of decode replicas: what handing a prompt over costs, and what decoding beside others costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from prefixroute.columns import Column, sum_of_products
from prefixroute.costmodel import DEFAULT_LINK, CostModel, Link, TransferPrices
from prefixroute.policies.base import Policy, Scores, check_parameters
from prefixroute.policies.scored import COST
from prefixroute.validation import check_instance

if TYPE_CHECKING:
    from prefixroute.policies.view import View

OUTPUT_TOKENS = 338
"""Tokens of an answer whose length nobody knows: the mean of ShareGPT (Kwon et al., SOSP 2023, figure 11)."""


@dataclass(frozen=True, slots=True)
class TransferCost(Policy):
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

    def decide(self, view: View) -> Scores:
        """Return the negated seconds."""
        prompt, slots = view.prompt_tokens, view.slots
        moving = self.prices.rest_seconds(prompt, view.of_candidates(view.hits))
        if view.kv_at is not None and view.kv_at in slots:
            moving[slots.index(view.kv_at)] = 0.0
        requests: Column = view.of_candidates(view.in_flight or ())
        decoding: Column = view.of_candidates(view.decoding or ())
        if view.weights is not None:
            weights = np.asarray(view.of_candidates(view.weights))
            requests, decoding = requests / weights, decoding / weights
        steps = self.cost.joined_seconds(prompt, requests, decoding)
        limit = view.request.max_tokens
        tokens = self.output_tokens if limit is None else min(limit, self.output_tokens)
        return Scores(sum_of_products(0.0, (-1.0, moving), (-float(tokens), steps)), "least_transfer")
