"""Policies that score every candidate and take the best: sums of costs, products, predicted times, scorers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, TypeAlias

import numpy as np

from prefixroute.columns import Column, falling, filled, highest, lowest, mapped, sum_of_products
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError, OverloadedError
from prefixroute.policies.base import Policy, Scores, check_number, check_parameters, is_column
from prefixroute.policies.view import View
from prefixroute.validation import check_float, shown

COST = CostModel()
"""Seconds of a prefill where nothing is measured: the default GPU and model of the cost model, an assumption."""


QUEUED_TOKENS = 1_024
"""Length of the prompts that a queue is priced as: its tokens are many requests', not one long prompt's."""


def queue_seconds(cost: CostModel) -> float:
    """Return the seconds to compute a queued token, in prompts of ``QUEUED_TOKENS``."""
    return cost.prefill_seconds(QUEUED_TOKENS) / QUEUED_TOKENS


def rest_seconds(cost: CostModel, prompt: int, hits: Column) -> Column:
    """Return the seconds to compute the rest of a prompt behind each of the hits, by any object that prices a prefill."""
    if isinstance(cost, CostModel):
        return cost.rest_seconds(prompt, hits)
    price = cost.prefill_seconds
    return mapped(hits, lambda hit: price(prompt - hit, hit))


@dataclass(frozen=True, slots=True)
class LinearCost(Policy):
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
        if self.unit not in {"tokens", "seconds"}:
            raise ConfigError(f"linear-cost unit must be 'tokens' or 'seconds', got {shown(self.unit)}")
        if self.active and self.unit != "tokens":
            raise ConfigError(f"linear-cost active blocks are priced in tokens, got the unit {shown(self.unit)}")
        check_float("linear-cost temperature", self.temperature, 0)
        for name in ("prefill", "credit", "queue", "decode"):
            check_float(f"linear-cost {name}", getattr(self, name), -inf)

    def decide(self, view: View) -> Scores:
        """Return the negated costs."""
        of_candidates = view.of_candidates
        decoding: Column = of_candidates((view.active if self.active else view.decoding) or ())
        if self.active:  # of the prompt, what is active there already adds nothing
            decoding = sum_of_products(0.0, (1.0, decoding), (-1.0, of_candidates(view.active_hits or ())))
        rows = of_candidates(view.queued or ()), decoding, of_candidates(view.hits)
        negated = self._seconds if self.unit == "seconds" else self._tokens
        return Scores(negated(view.prompt_tokens, *rows), "least_cost", self.temperature)

    def _tokens(self, prompt: int, queued: Column, decoding: Column, hits: Column) -> Column:
        uncached = sum_of_products(prompt, (self.queue, queued), (-self.credit, hits))
        if lowest(uncached)[0] < 0.0:
            uncached = np.maximum(uncached, 0.0)
        return sum_of_products(-self.decode * prompt, (-self.prefill, uncached), (-self.decode, decoding))

    def _seconds(self, prompt: int, queued: Column, decoding: Column, hits: Column) -> Column:
        price, step, credit = self.cost.prefill_seconds, self.cost.decode_seconds, self.credit
        prices = mapped(hits, lambda hit: price(prompt - round(credit * hit), round(credit * hit)))
        steps = mapped(decoding, lambda context: step(1, context + prompt))
        each = self.queue * queue_seconds(self.cost)
        return sum_of_products(0.0, (-self.prefill * each, queued), (-self.prefill, prices), (-self.decode, steps))


@dataclass(frozen=True, slots=True)
class LMetric(Policy):
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
        if self.batch not in {"requests", "decode-tokens"}:
            raise ConfigError(f"lmetric batch must be 'requests' or 'decode-tokens', got {shown(self.batch)}")

    def required_signals(self) -> frozenset[str]:
        """What is queued, and what the batch is measured in."""
        return self.signals | {"in_flight" if self.batch == "requests" else "decoding"}

    def decide(self, view: View) -> Scores:
        """Return the negated products."""
        of_candidates = view.of_candidates
        others = of_candidates((view.in_flight if self.batch == "requests" else view.decoding) or ())
        new = sum_of_products(
            view.prompt_tokens, (1.0, of_candidates(view.queued or ())), (-1.0, of_candidates(view.hits))
        )
        return Scores(sum_of_products(0.0, (-1.0, new, others), (-1.0, new)), "least_product")


@dataclass(frozen=True, slots=True)
class PrebleE2(Policy):
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

    def __post_init__(self) -> None:
        """Check the bounds and the cost."""
        check_parameters(self)

    def decide(self, view: View) -> Scores:
        """Return the negated costs; a replica that is no holder is out of an exploit."""
        window, hits, prompt = (
            view.of_candidates(view.window_s or ()),
            view.of_candidates(view.hits),
            view.prompt_tokens,
        )
        best, within = highest(hits)[0], _bounded(view, self.balance, self.balance_gap)
        if best > self.share * prompt:
            out = mapped(hits, lambda hit: 0.0 if hit == best else -inf)
            scores = sum_of_products(0.0, (-1.0, window), (1.0, out), (1.0, within))
            if highest(scores)[0] > -inf:
                return Scores(scores, "exploit")
        prices = rest_seconds(self.cost, prompt, hits)
        return Scores(sum_of_products(0.0, (-1.0, window), (-1.0, prices), (1.0, within)), "explore")


@dataclass(frozen=True, slots=True)
class MinTtft(Policy):
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

    def __post_init__(self) -> None:
        """Check the speed, the threshold and the cost."""
        check_parameters(self)

    def decide(self, view: View) -> Scores:
        """Return the negated predictions, in seconds."""
        scores = self._negated(view)
        slo = view.request.slo_ttft_s
        least = -highest(scores)[0]
        if self.reject and slo is not None and least > slo:
            raise OverloadedError(
                f"predicted time to first token {least:.3f} s is over the limit of {slo} s", least - slo
            )
        return Scores(scores, "least_ttft")

    def predict(self, view: View) -> list[float]:
        """Return the predicted time to first token at each candidate slot, in seconds."""
        return [-float(score) for score in self._negated(view)]

    def _negated(self, view: View) -> Column:
        hits, prompt, speed = view.of_candidates(view.hits), view.prompt_tokens, self.transfer_tokens_per_s
        model_rate = 1.0 / queue_seconds(self.cost)
        rates, queue = self._rates(view, model_rate), (-1.0, view.of_candidates(view.queued or ()))
        if speed <= 0.0:
            return sum_of_products(0.0, queue, (-model_rate, rest_seconds(self.cost, prompt, hits)), over=rates)
        best, threshold = highest(hits)[0], self.balancing_threshold
        fetched = mapped(hits, lambda hit: best if best > threshold * hit else hit)
        transfers = sum_of_products(0.0, (-1.0 / speed, fetched), (1.0 / speed, hits))
        times = sum_of_products(0.0, queue, (-model_rate, rest_seconds(self.cost, prompt, fetched)), over=rates)
        return sum_of_products(0.0, (1.0, transfers), (1.0, times))

    def _rates(self, view: View, model_rate: float) -> Column:
        """Return the prefill rate of each replica, tokens a second; where it is not known, the mean of the others."""
        if not self.learn or view.rates is None:
            return [model_rate] * len(view.slots)
        return filled(view.of_candidates(view.rates), model_rate)


Scorer: TypeAlias = Callable[[View], Column]
"""A function of a view that gives each candidate slot a number in [0, 1], the higher the better."""


def _prefix(view: View) -> Column:
    """Share of the prompt held."""
    return sum_of_products(0.0, (1.0 / (view.prompt_tokens or 1), view.of_candidates(view.hits)))


HALF_SAVED = 1_024


def _saved(view: View) -> Column:
    """Tokens held, as held / (held + 1,024): a short match of a short prompt is not worth a queue, a long one is."""
    return mapped(view.of_candidates(view.hits), lambda hit: hit / (hit + HALF_SAVED))


def _bounded(view: View, ratio: float, gap: float) -> Column:
    """0 for a replica whose load is at most ``ratio`` times the least, or within ``gap`` of it; else minus infinity."""
    loads = view.of_candidates(view.loads)
    low = lowest(loads)[0]
    bound = max(ratio * low, low + gap)
    return mapped(loads, lambda load: 0.0 if load <= bound else -inf)


LONG_MATCH = 8_192


def _length(view: View) -> Column:
    """Square of the tokens held over 8,192, at most 1: long matches count out of proportion (Higress)."""
    return mapped(view.of_candidates(view.hits), lambda hit: min(hit / LONG_MATCH, 1.0) ** 2)


def _load(view: View) -> Column:
    """Load, from 1 at the least loaded to 0 at the most loaded."""
    return falling(view.of_candidates(view.loads))


def _queue(view: View) -> Column:
    """Requests in flight, from 1 at the fewest to 0 at the most."""
    return falling(view.of_candidates(view.in_flight or ()))


def _tokens(view: View) -> Column:
    """Uncached tokens that wait, from 1 at the fewest to 0 at the most."""
    return falling(view.of_candidates(view.queued or ()))


def _kv_use(view: View) -> Column:
    """Free share of the KV cache; one that does not report counts as the mean of those that do, or a half."""
    reports = view.reports or ()
    if reports.count(None) == len(reports):
        return [0.5] * len(view.slots)
    free = {s: 1.0 - r.kv_use for s in view.slots if (r := reports[s]) is not None and r.kv_use is not None}
    unknown = sum(free.values()) / len(free) if free else 0.5
    return [free.get(s, unknown) for s in view.slots]


def _session(view: View) -> Column:
    """1 for the replica that the session is bound to."""
    slots, scores = view.slots, [0.0] * len(view.slots)
    if view.binding in slots:
        scores[slots.index(view.binding)] = 1.0
    return scores


def _no_hit_lru(view: View) -> Column:
    """For a prompt that nobody holds: from 1 at the replica that has waited longest for one to 0; else a half."""
    if highest(view.of_candidates(view.hits))[0]:
        return [0.5] * len(view.slots)
    return falling(view.of_candidates(view.last_miss or ()))


SCORERS: dict[str, tuple[Scorer, frozenset[str]]] = {
    "saved": (_saved, frozenset()),
    "prefix": (_prefix, frozenset()),
    "length": (_length, frozenset()),
    "load": (_load, frozenset()),
    "queue": (_queue, frozenset({"in_flight"})),
    "tokens": (_tokens, frozenset({"queued"})),
    "kv-use": (_kv_use, frozenset({"reports"})),
    "session": (_session, frozenset()),
    "no-hit-lru": (_no_hit_lru, frozenset({"last_miss"})),
}
"""Scorers by name, each with the signals it reads."""


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
        check_float("weighted temperature", self.temperature, 0)
        check_float("weighted spill_ratio", self.spill_ratio, 0)
        check_float("weighted spill_gap", self.spill_gap, 0, endless=True)

    def required_signals(self) -> frozenset[str]:
        """Signals of the scorers; a function of one's own may read any."""
        signals: frozenset[str] = frozenset()
        for scorer, _ in self.scorers:
            signals |= Policy.signals if callable(scorer) else SCORERS[scorer][1]
        return signals

    def decide(self, view: View) -> Scores:
        """Return the weighted sums."""
        count = len(view.slots)
        terms: list[tuple[float, Column]] = []
        for scorer, weight in self.scorers:
            values = scorer(view) if callable(scorer) else SCORERS[scorer][0](view)
            if not is_column(values):
                raise ConfigError(
                    f"a scorer of weighted must give a number for each candidate slot, got {shown(values)}"
                )
            if len(values) != count:
                raise ConfigError(f"a scorer of weighted gave {len(values)} scores for {count} candidate slots")
            terms.append((weight, values))
        if self.affinity > 0.0:
            hits, floor = view.of_candidates(view.hits), self.affinity * view.prompt_tokens
            if highest(hits)[0] >= floor:
                terms.append((1.0, mapped(hits, lambda hit: 0.0 if hit >= floor else -inf)))
        if self.spill_gap < inf:
            terms.append((1.0, _bounded(view, self.spill_ratio, self.spill_gap)))
        return Scores(sum_of_products(0.0, *terms), "highest_sum", self.temperature)
