"""Calls that share a prefix: what each order of sending them costs, and when the last of them begins to answer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prefixroute.costmodel.assumption import Assumption
from prefixroute.document import figures
from prefixroute.errors import ConfigError
from prefixroute.providers.catalog import BATCH, STANDARD, Model
from prefixroute.validation import check_fields, check_float, check_given, check_int

NO_CACHE, AT_ONCE, ONE_FIRST, PREWARMED = "no cache", "all at once", "one, then the rest", "pre-warm, then all"
MOST_REQUESTS = 10**12
MOST_TOKENS = 10**9
PREFILL_TOKENS_PER_S = 10_000.0
"""Prompt tokens a second of an API (ASSUMED: none publishes it)."""
OVERHEAD_S = 0.5
"""Seconds to the first token of a prompt that is all cached (ASSUMED)."""
ANSWER_S = 5.0
"""Seconds from the first token to the last, in which a call takes one of the places (ASSUMED)."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast the API answers; None is a default, marked as assumed.

    Attributes:
        prefill_tokens_per_s: prompt tokens a second that are not cached.
        overhead_s: seconds to the first token of a prompt that is all cached.
        answer_s: seconds from the first token to the last.
        concurrency: calls in flight at most; no limit for None.
    """

    prefill_tokens_per_s: float | None = None
    overhead_s: float | None = None
    answer_s: float | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        """Check every figure."""
        check_given(self, check_float, "prefill_tokens_per_s", low=0, above=True)
        check_given(self, check_float, "overhead_s", "answer_s", low=0)
        check_given(self, check_int, "concurrency", low=1)

    def ttft_s(self, uncached_tokens: float) -> float:
        """Return seconds to the first token: overhead + uncached tokens / prefill rate.

        Args:
            uncached_tokens: of the prompt.
        """
        overhead = OVERHEAD_S if self.overhead_s is None else self.overhead_s
        return overhead + uncached_tokens / (self.prefill_tokens_per_s or PREFILL_TOKENS_PER_S)

    def last_s(self, calls: int, ttft_s: float) -> float:
        """Return seconds until the last of equal calls begins to answer.

        The full waves before its own, then its own.

        Args:
            calls: that are sent at once.
            ttft_s: seconds to first token of one of them alone.
        """
        if calls <= 0:
            return 0.0
        waves = 0 if self.concurrency is None else (calls - 1) // self.concurrency
        return waves * (ttft_s + (ANSWER_S if self.answer_s is None else self.answer_s)) + ttft_s

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Return the figures behind the times."""
        figures = [
            ("prefill_tokens_per_s", self.prefill_tokens_per_s, PREFILL_TOKENS_PER_S, "tokens/s"),
            ("overhead_s", self.overhead_s, OVERHEAD_S, "s"),
        ]
        if self.concurrency is not None:
            figures.append(("answer_s", self.answer_s, ANSWER_S, "s"))
        return tuple(
            Assumption(
                name,
                default if given is None else given,
                unit,
                "given" if given is not None else "default",
                given is None,
            )
            for name, given, default, unit in figures
        )


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls that share a prefix.

    Attributes:
        requests: how many.
        shared_tokens: prompt tokens that they share, from the start.
        own_tokens: prompt tokens of each behind that.
        output_tokens: answer tokens of each.
        workspaces: caches that they are spread over: each needs the entry written once.
        miss_probability: that a live entry is not found, from 0 to 1.
    """

    requests: int
    shared_tokens: int
    own_tokens: int = 0
    output_tokens: int = 0
    workspaces: int = 1
    miss_probability: float = 0.0

    def __post_init__(self) -> None:
        """Check every figure."""
        check_int("requests", self.requests, 1, MOST_REQUESTS)
        check_int("shared_tokens", self.shared_tokens, 1, MOST_TOKENS)
        check_fields(self, check_int, "own_tokens", "output_tokens", low=0, high=MOST_TOKENS)
        check_int("workspaces", self.workspaces, 1, MOST_REQUESTS)
        if self.workspaces > self.requests:
            raise ConfigError(f"workspaces must be at most the {self.requests} requests, got {self.workspaces}")
        check_float("miss_probability", self.miss_probability, 0, 1)


@dataclass(frozen=True, slots=True)
class Order:
    """One way of sending the calls. US dollars and seconds.

    Attributes:
        name: what it is called.
        usd: expected cost, with the probability of misses.
        best_usd: cost if every live entry is found.
        worst_usd: cost if none is.
        last_first_token_s: seconds from the first call, a pre-warming one included, until the last begins to answer.
    """

    name: str
    usd: float
    best_usd: float
    worst_usd: float
    last_first_token_s: float


@dataclass(frozen=True, slots=True)
class Burst:
    """What each order costs.

    Attributes:
        model: the model's id.
        lifetime: lifetime that entries are written for.
        calls: what was asked.
        is_cacheable: whether the shared prefix reaches the model's minimum; otherwise no order caches anything.
        minimum_tokens: that minimum.
        is_promised: whether the provider promises that a live entry is found.
        orders: cost and time of each order.
        break_even_one_first: fewest calls for which sending one first costs less than no cache; None if none does.
        break_even_prewarm: the same for pre-warming.
        assumptions: figures behind the times, and of the model's that no source states.
    """

    model: str
    lifetime: str
    calls: Calls
    is_cacheable: bool
    minimum_tokens: int
    is_promised: bool
    orders: tuple[Order, ...]
    break_even_one_first: int | None
    break_even_prewarm: int | None
    assumptions: tuple[Assumption, ...]

    @property
    def best(self) -> Order:
        """The order with the least expected cost; of those that cost the same, the one that ends first."""
        return min(self.orders, key=lambda order: (round(order.usd, 12), order.last_first_token_s))

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        return {
            **figures(self, "model", "lifetime", "calls", "is_cacheable", "minimum_tokens", "is_promised", "orders"),
            "best": self.best.name,
            **figures(self, "break_even_one_first", "break_even_prewarm"),
        }


def plan_burst(
    model: Model,
    calls: Calls,
    *,
    mode: str | None = None,
    lifetime: str | None = None,
    tier: str = STANDARD,
    speed: Speed | None = None,
) -> Burst:
    """Price the orders in which calls that share a prefix can be sent.

    With p shared tokens, n calls, k workspaces and the prices i (input), w (write) and r (read) of a token: no cache
    costs n p i; all at once n p w, since an entry can be read only once a response has begun; one in each workspace and
    then the rest k p w + (n - k) p r; pre-warming and then all k p w + n p r. With a probability m of missing a live
    entry, r becomes (1 - m) r + m w. What is not shared costs the same in each order. Source: the reference article
    (2026-11), whose 10 calls of 20,000 tokens at $2, $2.50 and $0.10 a million cost 40, 50, 6.8 and 7.0 cents.

    Args:
        model: prices and rules.
        calls: how many, how long.
        mode: way of caching; the model's default unless given.
        lifetime: of the entries; the mode's default unless given.
        tier: service tier.
        speed: for the times.

    Returns:
        The dollars and times of each order.

    Raises:
        ConfigError: an unknown mode, lifetime or tier.
    """
    used, speed = model.mode(mode), speed or Speed()
    kept = used.lifetime(lifetime).name
    n, k, p = calls.requests, calls.workspaces, calls.shared_tokens
    price = model.price(p + calls.own_tokens, tier)
    rest = n * (price.usd(calls.own_tokens, "input") + price.usd(calls.output_tokens, "output"))
    cacheable = model.is_cacheable(p)
    plain = price.usd(p, "input")
    write, read = (price.usd(p, "write", kept), price.usd(p, "read")) if cacheable else (plain, plain)
    expected = (1 - calls.miss_probability) * read + calls.miss_probability * write
    cold, warm = speed.ttft_s(p + calls.own_tokens), speed.ttft_s((0 if cacheable else p) + calls.own_tokens)
    late = cold if calls.miss_probability else warm

    def order(name: str, writes: int, reads: int, seconds: float) -> Order:
        usd, best, worst = (writes * write + reads * each + rest for each in (expected, read, write))
        return Order(name, usd, best, worst, seconds)

    orders = (
        Order(NO_CACHE, n * plain + rest, n * plain + rest, n * plain + rest, speed.last_s(n, cold)),
        order(AT_ONCE, n, 0, speed.last_s(n, cold)),
        order(ONE_FIRST, k, n - k, cold + speed.last_s(n - k, late)),
        order(PREWARMED, k, n, speed.ttft_s(p) + speed.last_s(n, late)),
    )
    return Burst(
        model.id,
        kept,
        calls,
        cacheable,
        model.minimum_tokens,
        used.promised,
        orders,
        _first_above(k * (write - expected), plain - expected),
        _first_above(k * write, plain - expected),
        (*speed.assumptions, *figures_assumed(model, mode)),
    )


def _first_above(cost: float, saving: float) -> int | None:
    """Return the fewest calls, at least 1, that each save ``saving`` and together more than ``cost``."""
    if saving <= 0:
        return None
    return max(1, math.floor(cost / saving * (1 + 1e-12)) + 1)


def figures_assumed(model: Model, mode: str | None = None) -> tuple[Assumption, ...]:
    """Return what no source states of a model and its way of caching, as one assumption; nothing if all is stated."""
    used, price = model.mode(mode), model.price()
    values: dict[str, object] = {
        "minimum_tokens": model.minimum_tokens,
        "storage_per_hour": price.storage_per_hour,
        "lifetimes": " or ".join(f"{one.name} of {one.seconds:g} s" for one in used.lifetimes),
    }
    names = (*model.assumed, *used.assumed)
    if not names:
        return ()
    told = ", ".join(f"{name} {values.get(name, getattr(used, name, ''))}" for name in names)
    return (Assumption(model.id, told, "", f"no source states it, {model.date.isoformat()}", assumed=True),)


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """One way of sending calls as a batch, whose hits are best effort: US dollars at best and at worst."""

    name: str
    best_usd: float
    worst_usd: float


def plan_batch(model: Model, calls: Calls, *, lifetime: str | None = None) -> tuple[BatchOrder, ...]:
    """Price calls sent as batches at the batch tier. Hits inside of a batch are best effort.

    A batch of one with the longest lifetime, ended before the others are sent, gives each of them an entry to hit;
    marks without it may all write. Source: the reference article (2026-11), Claude's batches at half of every price.

    Args:
        model: prices; it needs a batch tier.
        calls: how many, how long.
        lifetime: of the batch of one; the longest of the mode unless given.

    Returns:
        The dollars of each order.

    Raises:
        ConfigError: the model has no batch tier, or no such lifetime.
    """
    price, mode = model.price(calls.shared_tokens + calls.own_tokens, BATCH), model.mode()
    longest = max(mode.lifetimes, key=lambda one: one.seconds) if lifetime is None else mode.lifetime(lifetime)
    n, p = calls.requests, calls.shared_tokens
    rest = n * (price.usd(calls.own_tokens, "input") + price.usd(calls.output_tokens, "output"))
    plain = n * price.usd(p, "input") + rest
    if not model.is_cacheable(p):
        return (BatchOrder("a batch without marks", plain, plain),)
    short, long = price.usd(p, "write", mode.lifetime().name), price.usd(p, "write", longest.name)
    read = price.usd(p, "read")
    return (
        BatchOrder("a batch without marks", plain, plain),
        BatchOrder("a batch with marks", short + (n - 1) * read + rest, n * short + rest),
        BatchOrder(
            f"a batch of one for {longest.name}, then the rest",
            long + (n - 1) * read + rest,
            long + (n - 1) * short + rest,
        ),
    )
