"""Policies that score every replica on offer and take the best: sums of costs, products, predicted times, scorers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, TypeAlias

from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError, OverloadedError
from prefixroute.policies.base import Policy, Scores
from prefixroute.policies.view import View

COST = CostModel()
"""Seconds of a prefill where nothing is measured: the default GPU and model of the cost model, an assumption."""


QUEUED_TOKENS = 1_024
"""Length of the prompts that a queue is priced as: its tokens are many requests', not one long prompt's."""


def queue_seconds(cost: CostModel, tokens: int) -> float:
    """Return the seconds to compute so many queued tokens, in prompts of ``QUEUED_TOKENS``."""
    return tokens * cost.prefill_seconds(QUEUED_TOKENS) / QUEUED_TOKENS


def prefill_prices(cost: CostModel, prompt: int, hits: Iterable[int]) -> dict[int, float]:
    """Return the seconds to compute the rest of a prompt behind each of the hits: few are distinct."""
    price = cost.prefill_seconds
    return {hit: price(prompt - hit, hit) for hit in set(hits)}


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
        temperature: softmax over the costs, in their unit; 0 = the least.
        cost: prices seconds.
    """

    prefill: float = 1.0
    credit: float = 1.0
    queue: float = 1.0
    decode: float = 1.0
    unit: str = "tokens"
    temperature: float = 0.0
    cost: CostModel = COST
    name: ClassVar[str] = "linear-cost"
    needs: ClassVar[frozenset[str]] = frozenset({"queued", "decoding"})

    def __post_init__(self) -> None:
        """Check the unit and the temperature."""
        if self.unit not in {"tokens", "seconds"}:
            raise ConfigError(f"linear-cost unit must be 'tokens' or 'seconds', got {self.unit!r}")
        if self.temperature < 0.0:
            raise ConfigError(f"linear-cost temperature must be at least 0, got {self.temperature}")

    def decide(self, view: View) -> Scores:
        """Return the negated costs."""
        costs = self._seconds(view) if self.unit == "seconds" else self._tokens(view)
        return Scores([-cost for cost in costs], "least_cost", self.temperature)

    def _tokens(self, view: View) -> list[float]:
        prompt, rows = view.prompt_tokens, self._rows(view)
        prefill, credit, queue, decode = self.prefill, self.credit, self.queue, self.decode
        return [
            (prefill * cost if (cost := queue * queued + prompt - credit * hit) > 0.0 else 0.0)
            + decode * (decoding + prompt)
            for queued, decoding, hit in rows
        ]

    @staticmethod
    def _rows(view: View) -> Iterable[tuple[int, int, int]]:
        """Tokens queued, in decode and hit of each slot on offer."""
        offered = view.offered
        return zip(offered(view.queued or ()), offered(view.decoding or ()), offered(view.hits), strict=True)

    def _seconds(self, view: View) -> list[float]:
        prompt, rows, credit = view.prompt_tokens, self._rows(view), self.credit
        prices = {
            hit: self.cost.prefill_seconds(prompt - round(credit * hit), round(credit * hit)) for hit in set(view.hits)
        }
        each, step = self.queue * queue_seconds(self.cost, 1), self.cost.decode_seconds
        return [
            self.prefill * (each * queued + prices[hit]) + self.decode * step(1, decoding + prompt)
            for queued, decoding, hit in rows
        ]


@dataclass(frozen=True, slots=True)
class LMetric(Policy):
    """Least product of new prefill tokens and batch size: no parameter to tune (arXiv 2603.15202).

    Attributes:
        batch: ``requests`` in flight (the paper), or ``decode-tokens``: context in decode (Dynamo's form).
    """

    batch: str = "requests"
    name: ClassVar[str] = "lmetric"
    needs: ClassVar[frozenset[str]] = frozenset({"queued"})

    def __post_init__(self) -> None:
        """Check what the batch is measured in."""
        if self.batch not in {"requests", "decode-tokens"}:
            raise ConfigError(f"lmetric batch must be 'requests' or 'decode-tokens', got {self.batch!r}")

    @property
    def wants(self) -> frozenset[str]:
        """What is queued, and what the batch is measured in."""
        return self.needs | {"in_flight" if self.batch == "requests" else "decoding"}

    def decide(self, view: View) -> Scores:
        """Return the negated products."""
        prompt, offered = view.prompt_tokens, view.offered
        batch = offered((view.in_flight if self.batch == "requests" else view.decoding) or ())
        rows = zip(offered(view.queued or ()), offered(view.hits), batch, strict=True)
        return Scores([-(queued + prompt - hit) * (size + 1) for queued, hit, size in rows], "least_product")


@dataclass(frozen=True, slots=True)
class PrebleE2(Policy):
    """Preble's E2: exploit the longest match if it is longer than the rest of the prompt, else explore by cost.

    Exploit: among the replicas that hold the longest match, the least prefill seconds in the window. Explore: the least
    sum of those and the seconds that this prompt would take there. What Preble adds for eviction is left out.

    Attributes:
        share: exploit from this share of the prompt on (Preble: half).
        cost: prices the prompt.
    """

    share: float = 0.5
    cost: CostModel = COST
    name: ClassVar[str] = "preble-e2"
    needs: ClassVar[frozenset[str]] = frozenset({"window_s"})

    def decide(self, view: View) -> Scores:
        """Return the negated costs; a replica that is no holder is out of an exploit."""
        window, hits, prompt = view.offered(view.window_s or ()), view.offered(view.hits), view.prompt_tokens
        best = max(hits)
        if best > self.share * prompt:
            return Scores([-s if hit == best else -inf for s, hit in zip(window, hits, strict=True)], "exploit")
        prices = prefill_prices(self.cost, prompt, hits)
        return Scores([-(s + prices[hit]) for s, hit in zip(window, hits, strict=True)], "explore")


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
    needs: ClassVar[frozenset[str]] = frozenset({"queued", "rates"})

    def decide(self, view: View) -> Scores:
        """Return the negated predictions, in seconds."""
        times = self.predict(view)
        slo = view.request.slo_ttft_s
        least = min(times)
        if self.reject and slo is not None and least > slo:
            raise OverloadedError(
                f"predicted time to first token {least:.3f} s is over the limit of {slo} s", least - slo
            )
        return Scores([-time for time in times], "least_ttft")

    def predict(self, view: View) -> list[float]:
        """Return the predicted time to first token at each slot on offer, in seconds."""
        queued, hits = view.offered(view.queued or ()), view.offered(view.hits)
        prices = prefill_prices(self.cost, view.prompt_tokens, hits)
        each, speed = queue_seconds(self.cost, 1), self.transfer_tokens_per_s
        rows = zip(queued, hits, self._slowness(view), strict=True)
        if speed <= 0.0:
            return [slow * (each * tokens + prices[hit]) for tokens, hit, slow in rows]
        best, threshold = max(hits), self.balancing_threshold
        fetched = prices[best]
        return [
            (best - hit) / speed + slow * (each * tokens + fetched)
            if best > threshold * hit
            else slow * (each * tokens + prices[hit])
            for tokens, hit, slow in rows
        ]

    def _slowness(self, view: View) -> list[float]:
        """Return how many times longer than by the cost model each replica takes; the mean where it is not known."""
        rates = view.rates
        if not self.learn or rates is None:
            return [1.0] * len(view.slots)
        model_rate = 1.0 / queue_seconds(self.cost, 1)
        offered = view.offered(rates)
        known = [model_rate / rate for rate in offered if rate is not None]
        if len(known) in {0, len(offered)}:
            return known or [1.0] * len(offered)
        mean = sum(known) / len(known)
        return [mean if rate is None else model_rate / rate for rate in offered]


Scorer: TypeAlias = Callable[[View], Sequence[float]]
"""A function of a view that gives each slot on offer a number in [0, 1], the higher the better."""


def _prefix(view: View) -> list[float]:
    """Share of the prompt held."""
    length = view.prompt_tokens or 1
    return [hit / length for hit in view.offered(view.hits)]


LONG_MATCH = 8_192


def _length(view: View) -> list[float]:
    """Square of the tokens held over 8,192, at most 1: long matches count out of proportion (Higress)."""
    return [min(hit / LONG_MATCH, 1.0) ** 2 for hit in view.offered(view.hits)]


def _lowest_is_best(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    if high == low:
        return [1.0] * len(values)
    unit = 1.0 / (high - low)
    return [(high - value) * unit for value in values]


def _load(view: View) -> list[float]:
    """Load, from 1 at the least loaded to 0 at the most loaded."""
    return _lowest_is_best(view.offered(view.loads))


def _queue(view: View) -> list[float]:
    """Requests in flight, from 1 at the fewest to 0 at the most."""
    return _lowest_is_best(view.offered(view.in_flight or ()))


def _tokens(view: View) -> list[float]:
    """Uncached tokens that wait, from 1 at the fewest to 0 at the most."""
    return _lowest_is_best(view.offered(view.queued or ()))


def _kv_use(view: View) -> list[float]:
    """Free share of the KV cache; one that does not report counts as the mean of those that do, or a half."""
    reports = view.reports or ()
    if not any(reports):
        return [0.5] * len(view.slots)
    free = {s: 1.0 - r.kv_use for s in view.slots if (r := reports[s]) is not None and r.kv_use is not None}
    unknown = sum(free.values()) / len(free) if free else 0.5
    return [free.get(s, unknown) for s in view.slots]


def _session(view: View) -> list[float]:
    """1 for the replica that the session is bound to."""
    return [float(s == view.binding) for s in view.slots]


def _no_hit_lru(view: View) -> list[float]:
    """For a prompt that nobody holds: from 1 at the replica that has waited longest for one to 0; else a half."""
    if any(view.offered(view.hits)):
        return [0.5] * len(view.slots)
    return _lowest_is_best(view.offered(view.last_miss or ()))


SCORERS: dict[str, tuple[Scorer, frozenset[str]]] = {
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


@dataclass(frozen=True, slots=True)
class Weighted(Policy):
    """Highest weighted sum of scorers, each in [0, 1], as the Gateway API's endpoint picker has it.

    Attributes:
        scorers: (name or function of a view, weight) pairs. Names: ``prefix`` (share held), ``length`` (tokens held),
            ``load``, ``queue``, ``tokens`` (queued), ``kv-use``, ``session``, ``no-hit-lru`` (spreads cold requests).
        affinity: keep only replicas that hold this share of the prompt, if there is one; 0 = off (llm-d: 0.8).
        temperature: softmax over the sums; 0 = the highest.
    """

    scorers: tuple[tuple[str | Scorer, float], ...] = (("prefix", 3.0), ("queue", 2.0), ("kv-use", 2.0))
    affinity: float = 0.0
    temperature: float = 0.0
    name: ClassVar[str] = "weighted"
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        """Check the scorers' names and weights."""
        object.__setattr__(self, "scorers", tuple((scorer, float(weight)) for scorer, weight in self.scorers))
        unknown = [s for s, _ in self.scorers if not callable(s) and s not in SCORERS]
        if unknown or not self.scorers:
            raise ConfigError(f"weighted scorers must be functions or of {', '.join(SCORERS)}, got {unknown or 'none'}")
        if not 0.0 <= self.affinity <= 1.0 or self.temperature < 0.0:
            raise ConfigError(
                f"weighted needs affinity in 0..1 and temperature >= 0, got {self.affinity} and {self.temperature}"
            )

    @property
    def wants(self) -> frozenset[str]:
        """Signals of the scorers; a function of one's own may read any."""
        wants: frozenset[str] = frozenset()
        for scorer, _ in self.scorers:
            wants |= Policy.needs if callable(scorer) else SCORERS[scorer][1]
        return wants

    def decide(self, view: View) -> Scores:
        """Return the weighted sums."""
        sums = [0.0] * len(view.slots)
        for scorer, weight in self.scorers:
            values = (scorer if callable(scorer) else SCORERS[scorer][0])(view)
            if len(values) != len(sums):
                raise ConfigError(f"a scorer of weighted gave {len(values)} scores for {len(sums)} slots on offer")
            sums = [total + weight * value for total, value in zip(sums, values, strict=True)]
        if self.affinity > 0.0:
            floor = self.affinity * view.prompt_tokens
            near = [view.hits[s] >= floor for s in view.slots]
            if any(near):
                sums = [value if kept else float("-inf") for value, kept in zip(sums, near, strict=True)]
        return Scores(sums, "highest_sum", self.temperature)
