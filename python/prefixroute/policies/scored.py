"""Policies that score every candidate and take the best: sums of costs, products, predicted times, scorers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, TypeAlias

from prefixroute.columns import Column, Formula, Kernel
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError, OverloadedError
from prefixroute.policies.base import Policy, Scored, Scores, check_number, check_parameters, is_column, seen
from prefixroute.policies.view import View
from prefixroute.validation import check_choice, check_fields, check_float, shown

COST = CostModel()
"""Seconds of a prefill where nothing is measured: the default GPU and model of the cost model, an assumption."""
QUEUED_TOKENS = 1_024
"""Length of the prompts that a queue is priced as: its tokens are many requests', not one long prompt's."""
HITS, QUEUED, DECODING, IN_FLIGHT = (Formula(name) for name in ("hits", "queued", "decoding", "in_flight"))


def queue_seconds(cost: CostModel) -> float:
    """Return the seconds to compute a queued token, in prompts of ``QUEUED_TOKENS``."""
    return cost.prefill_seconds(QUEUED_TOKENS) / QUEUED_TOKENS


def prefill(cost: CostModel, cached: Formula) -> Formula:
    """Return the seconds to compute the rest of a prompt behind so many cached tokens, by what prices a prefill."""
    if isinstance(cost, CostModel) and type(cost).prefill_seconds is CostModel.prefill_seconds:
        return Formula.prefill(cost.prices, cost.overhead_s, cached)
    return Formula.prefill(cost.prefill_seconds, 0.0, cached)


def decode_step(cost: CostModel, requests: Formula, contexts: Formula) -> Formula:
    """Return the seconds of a decode step once a prompt has joined these requests with these context tokens."""
    own = type(cost).step_seconds is CostModel.step_seconds and type(cost).decode_seconds is CostModel.decode_seconds
    return Formula.decode(cost.prices if own else cost.decode_seconds, requests, contexts)


@dataclass(frozen=True, slots=True)
class LinearCost(Scored):
    """Least cost: uncached tokens of the request, tokens queued, context in decode, each with a weight.

    ``cost = prefill * (queue * queued + prompt - credit * hit) + decode * (decoding + prompt)``, in tokens; this is
    Dynamo's cost with blocks written as tokens. In seconds, the cost model prices each term instead.

    Attributes:
        prefill: weight of the prefill term (Dynamo's prefill scale: 1).
        credit: how much of a hit counts (Dynamo's overlap credit: 1).
        queue: weight of tokens queued at the replica, within the prefill term.
        decode: weight of context tokens in decode there.
        unit: ``tokens`` or ``seconds``.
        active: the decode term counts blocks as Dynamo does: those of all requests in flight, each once, from booking
            on, and of the prompt only those that are not among them. Otherwise it counts contexts past their first
            token, and the whole prompt. Tokens only.
        temperature: softmax over the costs, in their unit; 0 = the least.
        cost: prices seconds.
    """

    prefill: float = 1.0
    credit: float = 1.0
    queue: float = 1.0
    decode: float = 1.0
    unit: str = "tokens"
    active: bool = False
    temperature: float = 0.0
    cost: CostModel = COST
    name: ClassVar[str] = "linear-cost"
    signals: ClassVar[frozenset[str]] = frozenset({"queued", "decoding"})

    def required_signals(self) -> frozenset[str]:
        """What is queued, and what the decode term counts."""
        return frozenset({"queued", "active", "active_hits"}) if self.active else self.signals

    def __post_init__(self) -> None:
        """Check the unit and the temperature."""
        check_parameters(self)
        check_choice("linear-cost unit", self.unit, ("tokens", "seconds"))
        if self.active and self.unit != "tokens":
            raise ConfigError(f"linear-cost active blocks are priced in tokens, got the unit {shown(self.unit)}")
        check_float("linear-cost temperature", self.temperature, 0)
        check_fields(self, check_float, "prefill", "credit", "queue", "decode", called="linear-cost {}", low=-inf)

    def kernel(self) -> Kernel:
        """Return the rule, compiled: the costs are negated."""
        costs = self._seconds() if self.unit == "seconds" else self._tokens()
        return Kernel.best((costs, "least_cost", None), temperature=self.temperature)

    def _tokens(self) -> Formula:
        uncached = Formula.at_least_zero(Formula.sum((self.queue, QUEUED), (-self.credit, HITS), prompt=1.0))
        decoding = DECODING
        if self.active:  # of the prompt, what is active there already adds nothing
            decoding = Formula.sum((1.0, Formula("active")), (-1.0, Formula("active_hits")))
        return Formula.sum((-self.prefill, uncached), (-self.decode, decoding), prompt=-self.decode)

    def _seconds(self) -> Formula:
        prices = prefill(self.cost, Formula.rounded(Formula.sum((self.credit, HITS))))
        steps = decode_step(self.cost, Formula.constant(0.0), DECODING)
        each = self.queue * queue_seconds(self.cost)
        return Formula.sum((-self.prefill * each, QUEUED), (-self.prefill, prices), (-self.decode, steps))


@dataclass(frozen=True, slots=True)
class LMetric(Scored):
    """Least product of new prefill tokens and batch size: no parameter to tune (arXiv 2603.15202).

    Attributes:
        batch: ``requests`` in flight (the paper), or ``decode-tokens``: context in decode (Dynamo's form).
    """

    batch: str = "requests"
    name: ClassVar[str] = "lmetric"
    signals: ClassVar[frozenset[str]] = frozenset({"queued"})

    def __post_init__(self) -> None:
        """Check what the batch is measured in."""
        check_parameters(self)
        check_choice("lmetric batch", self.batch, ("requests", "decode-tokens"))

    def required_signals(self) -> frozenset[str]:
        """What is queued, and what the batch is measured in."""
        return self.signals | {"in_flight" if self.batch == "requests" else "decoding"}

    def kernel(self) -> Kernel:
        """Return the rule, compiled: the products are negated."""
        new = Formula.sum((1.0, QUEUED), (-1.0, HITS), prompt=1.0)
        others = IN_FLIGHT if self.batch == "requests" else DECODING
        return Kernel.best((Formula.sum((-1.0, new, others), (-1.0, new)), "least_product", None))


@dataclass(frozen=True, slots=True)
class PrebleE2(Scored):
    """Preble's E2: exploit the longest match if it is longer than the rest of the prompt, else explore by cost.

    Exploit: among the replicas that hold the longest match, the least prefill seconds in the window. Explore: the least
    sum of those and the seconds that this prompt would take there. A replica whose load is above ``balance`` times the
    least is out of both. What Preble adds for eviction is left out.

    Attributes:
        share: exploit from this share of the prompt on (Preble: half).
        balance: the load, relative to the least, above which a replica is out (Preble: 1.5) ...
        balance_gap: ... if it is above the least by this much, so that few requests are not told apart.
        cost: prices the prompt.
    """

    share: float = 0.5
    balance: float = 1.5
    balance_gap: float = 10.0
    cost: CostModel = COST
    name: ClassVar[str] = "preble-e2"
    signals: ClassVar[frozenset[str]] = frozenset({"window_s"})

    def kernel(self) -> Kernel:
        """Return the rule, compiled: the costs are negated; a replica that is no holder is out of an exploit."""
        window, within = (-1.0, Formula("window_s")), (1.0, Formula.within(self.balance, self.balance_gap))
        exploit = Formula.sum(window, (1.0, Formula("longest")), within)
        explore = Formula.sum(window, (-1.0, prefill(self.cost, HITS)), within)
        return Kernel.best((exploit, "exploit", self.share), (explore, "explore", None))


@dataclass(frozen=True, slots=True)
class MinTtft(Scored):
    """Least predicted time to first token: the queue's prefill, then this prompt's.

    A replica's learned prefill rate is used once it is known, the cost model until then (scaled by what is known of
    the others, so that an unknown replica is neither favoured nor shunned).

    Attributes:
        learn: use learned rates.
        transfer_tokens_per_s: speed of fetching a prefix from the replica that holds it; 0 = prefixes are not fetched.
        balancing_threshold: fetch if the best match is longer than the own by this factor (Mooncake's Algorithm 1).
        reject: raise ``OverloadedError`` if no replica is predicted to meet the request's ``slo_ttft_s``.
        cost: prices prefill where no rate is known.
    """

    learn: bool = True
    transfer_tokens_per_s: float = 0.0
    balancing_threshold: float = 2.0
    reject: bool = False
    cost: CostModel = COST
    name: ClassVar[str] = "min-ttft"
    signals: ClassVar[frozenset[str]] = frozenset({"queued", "rates"})

    def kernel(self) -> Kernel:
        """Return the rule, compiled: the predictions are negated."""
        speed, rate = self.transfer_tokens_per_s, 1.0 / queue_seconds(self.cost)
        held = Formula.fetched(self.balancing_threshold) if speed > 0.0 else HITS
        rates = Formula.rates(rate) if self.learn else Formula.constant(rate)
        times = Formula.sum((-1.0, QUEUED), (-rate, prefill(self.cost, held)), over=rates)
        if speed > 0.0:
            transfers = Formula.sum((-1.0 / speed, held), (1.0 / speed, HITS))
            times = Formula.sum((1.0, transfers), (1.0, times))
        return Kernel.best((times, "least_ttft", None), rejects=self.reject)

    def decide(self, view: View) -> Scores:
        """Return the negated predictions, in seconds.

        Raises:
            OverloadedError: with ``reject``, the best of them is over the request's limit.
        """
        scores = Scores(*self.kernel().scores(*seen(view)))
        slo = view.request.slo_ttft_s
        least = -max(scores.values)
        if self.reject and slo is not None and least > slo:
            raise OverloadedError(
                f"predicted time to first token {least:.3f} s is over the limit of {slo} s", least - slo
            )
        return scores

    def predict(self, view: View) -> list[float]:
        """Return the predicted time to first token at each candidate slot, in seconds.

        Args:
            view: of the request, with the signals that the policy reads.
        """
        return [-float(score) for score in self.kernel().scores(*seen(view))[0]]


Scorer: TypeAlias = Callable[[View], Column]
"""A function of a view that gives each candidate slot a number in [0, 1], the higher the better."""


SCORERS: dict[str, tuple[Formula, frozenset[str]]] = {
    "saved": (Formula("saved"), frozenset()),
    "prefix": (Formula("prefix"), frozenset()),
    "length": (Formula("length"), frozenset()),
    "load": (Formula.falling(Formula("loads")), frozenset()),
    "queue": (Formula.falling(IN_FLIGHT), frozenset({"in_flight"})),
    "tokens": (Formula.falling(QUEUED), frozenset({"queued"})),
    "kv-use": (Formula("kv_free"), frozenset({"reports"})),
    "session": (Formula("session"), frozenset()),
    "no-hit-lru": (Formula.cold(Formula.falling(Formula("last_miss"))), frozenset({"last_miss"})),
}
"""Scorers by name, each with the signals it reads. A short match of a short prompt is not worth a queue (``saved``);
long matches count out of proportion (``length``, Higress)."""


def _scorers(given: Any) -> tuple[tuple[str | Scorer, float], ...]:
    """Return pairs of a scorer and its weight; raise :class:`ConfigError` if they are none."""
    try:
        pairs = tuple((scorer, weight) for scorer, weight in given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"weighted scorers must be pairs of a scorer and a weight, got {shown(given)}") from error
    known = [callable(scorer) or (isinstance(scorer, str) and scorer in SCORERS) for scorer, _ in pairs]
    if not pairs or not all(known):
        unknown = [scorer for (scorer, _), fits in zip(pairs, known, strict=True) if not fits]
        raise ConfigError(
            f"weighted scorers must be functions or of {', '.join(SCORERS)}, got {shown(unknown) if unknown else 'none'}"
        )
    for scorer, weight in pairs:
        check_number(f"the weight of {shown(scorer)} in weighted scorers", weight)
    return tuple((scorer, float(weight)) for scorer, weight in pairs)


@dataclass(frozen=True, slots=True)
class Weighted(Policy):
    """Highest weighted sum of scorers, each in [0, 1], as the Gateway API's endpoint picker has it.

    Attributes:
        scorers: (name or function of a view, weight) pairs. Names: ``saved`` (tokens held, a half at 1,024), ``prefix``
            (share held), ``length`` (tokens held, squared),
            ``load``, ``queue``, ``tokens`` (queued), ``kv-use``, ``session``, ``no-hit-lru`` (spreads cold requests).
        affinity: keep only replicas that hold this share of the prompt, if there is one; 0 = off (llm-d: 0.8).
        temperature: softmax over the sums; 0 = the highest.
        spill_ratio: with ``spill_gap``, a replica is out whose load is above this multiple of the least load and ...
        spill_gap: ... above the least load by this much: what is hot is shed. ``inf`` = never.
    """

    scorers: tuple[tuple[str | Scorer, float], ...] = (("saved", 4.0), ("queue", 2.0), ("kv-use", 2.0))
    affinity: float = 0.0
    temperature: float = 0.0
    spill_ratio: float = 2.0
    spill_gap: float = 10.0
    name: ClassVar[str] = "weighted"
    signals: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        """Check the scorers' names and weights."""
        check_parameters(self)
        object.__setattr__(self, "scorers", _scorers(self.scorers))
        check_float("weighted affinity", self.affinity, 0, 1)
        check_fields(self, check_float, "temperature", "spill_ratio", called="weighted {}", low=0)
        check_float("weighted spill_gap", self.spill_gap, 0, endless=True)

    def required_signals(self) -> frozenset[str]:
        """Signals of the scorers; a function of one's own may read any."""
        signals: frozenset[str] = frozenset()
        for scorer, _ in self.scorers:
            signals |= Policy.signals if callable(scorer) else SCORERS[scorer][1]
        return signals

    def kernel(self) -> Kernel | None:
        """Return the rule, compiled; ``None`` if a function of the user's own has to be called with a view."""
        return None if any(callable(scorer) for scorer, _ in self.scorers) else self._sums()

    def _sums(self) -> Kernel:
        terms, functions = [], 0
        for scorer, weight in self.scorers:
            terms.append((weight, Formula.given(functions) if callable(scorer) else SCORERS[scorer][0]))
            functions += callable(scorer)
        if self.affinity > 0.0:
            terms.append((1.0, Formula.holding(self.affinity)))
        if self.spill_gap < inf:
            terms.append((1.0, Formula.within(self.spill_ratio, self.spill_gap)))
        return Kernel.best((Formula.sum(*terms), "highest_sum", None), temperature=self.temperature)

    def decide(self, view: View) -> Scores:
        """Return the weighted sums."""
        given = [_scored(scorer(view), len(view.slots)) for scorer, _ in self.scorers if callable(scorer)]
        return Scores(*self._sums().scores(*seen(view), given=given))


def _scored(values: Column, count: int) -> Column:
    """Return what a user's scorer gave; raise :class:`ConfigError` unless it is a number for each candidate slot."""
    if not is_column(values):
        raise ConfigError(f"a scorer of weighted must give a number for each candidate slot, got {shown(values)}")
    if len(values) != count:
        raise ConfigError(f"a scorer of weighted gave {len(values)} scores for {count} candidate slots")
    return values
