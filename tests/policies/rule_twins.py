"""Each compiled rule as plain Python: scores of candidates, and picks. What the kernels do has to be the same to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, exp, inf, log, nextafter
from typing import Any

from prefixroute.columns import start_seconds
from prefixroute.policies import (
    Bounded,
    Document,
    LeastLoaded,
    LinearCost,
    LMetric,
    MinTtft,
    Policy,
    PowerOfTwo,
    PrebleE2,
    PrefixHash,
    Rendezvous,
    Session,
    TransferCost,
    TwoChoices,
    View,
    Weighted,
)  # fmt: skip
from prefixroute.policies.base import resolve
from prefixroute.policies.keyed import text_hash

MASK = (1 << 64) - 1
TIE = 1 << 20
Row = list[float]


def mix64(value: int) -> int:
    value &= MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def rank(key: int, replica: int) -> int:
    product = (key ^ replica) * (replica ^ 0xE7037ED1A0B428DB | 1)
    return (product ^ (product >> 64)) & MASK


def rendezvous(view: View, key: int, slots: Sequence[int] | None = None) -> int:
    mixed, weights = mix64(key), view.weights

    def place(slot: int) -> float:
        points = rank(mixed, view.hashes[slot])
        return points if weights is None else log((points + 0.5) * 2.0**-64) / weights[slot]

    return max(view.slots if slots is None else slots, key=place)


def of(view: View, column: Any) -> list[Any]:
    return [column[slot] for slot in view.slots]


def total(constant: float, terms: Sequence[Sequence[Any]], over: Row | None = None) -> Row:
    """Constant and products of a weight and columns, added up at each place in the order in which they are given."""
    sums = [constant] * len(terms[0][1])
    for weight, *columns in terms:
        for at in range(len(sums)):
            product = weight
            for column in columns:
                product *= column[at]
            sums[at] += product
    return sums if over is None else [value / divisor for value, divisor in zip(sums, over, strict=True)]


def added(values: Sequence[float]) -> float:
    """The sum, from the first on: `sum` of Python 3.12 and later rounds once."""
    result = 0.0
    for value in values:
        result += value
    return result


def falling(values: Row) -> Row:
    low, high = min(values), max(values)
    return [(high - value) / (high - low) if high > low else 1.0 for value in values]


def within(view: View, ratio: float, gap: float) -> Row:
    loads = of(view, view.loads)
    bound = max(ratio * min(loads), min(loads) + gap)
    return [0.0 if load <= bound else -inf for load in loads]


def rest(cost: Any, view: View, hits: Row) -> Row:
    return [cost.prefill_seconds(view.prompt_tokens - hit, hit) for hit in hits]


def queue_seconds(cost: Any) -> float:
    return cost.prefill_seconds(1_024) / 1_024


def linear_cost(policy: LinearCost, view: View) -> tuple[Row, str]:
    prompt, queued, hits = view.prompt_tokens, of(view, view.queued), of(view, view.hits)
    if policy.unit == "seconds":
        credited = [round(policy.credit * hit) for hit in hits]
        steps = [policy.cost.decode_seconds(1, context + prompt) for context in of(view, view.decoding)]
        queue = (-policy.prefill * (policy.queue * queue_seconds(policy.cost)), queued)
        prices = (-policy.prefill, rest(policy.cost, view, credited))
        return total(0.0, [queue, prices, (-policy.decode, steps)]), "least_cost"
    decoding = of(view, view.decoding)
    if policy.active:
        decoding = total(0.0, [(1.0, of(view, view.active)), (-1.0, of(view, view.active_hits))])
    uncached = [max(0.0, value) for value in total(prompt, [(policy.queue, queued), (-policy.credit, hits)])]
    return total(-policy.decode * prompt, [(-policy.prefill, uncached), (-policy.decode, decoding)]), "least_cost"


def lmetric(policy: LMetric, view: View) -> tuple[Row, str]:
    others = of(view, view.in_flight if policy.batch == "requests" else view.decoding)
    new = total(view.prompt_tokens, [(1.0, of(view, view.queued)), (-1.0, of(view, view.hits))])
    return total(0.0, [(-1.0, new, others), (-1.0, new)]), "least_product"


def preble(policy: PrebleE2, view: View) -> tuple[Row, str]:
    hits, out = of(view, view.hits), (1.0, within(view, policy.balance, policy.balance_gap))
    window = (-1.0, of(view, view.window_s))
    if max(hits) > policy.share * view.prompt_tokens:
        holders = [0.0 if hit == max(hits) else -inf for hit in hits]
        scores = total(0.0, [window, (1.0, holders), out])
        if max(scores) > -inf:
            return scores, "exploit"
    return total(0.0, [window, (-1.0, rest(policy.cost, view, hits)), out]), "explore"


def filled(rates: list[float | None], otherwise: float) -> Row:
    known = [rate for rate in rates if rate is not None]
    mean = otherwise
    if known:
        mean = known[0] if len(set(known)) == 1 else len(known) / added([1.0 / rate for rate in known])
    return [mean if rate is None else rate for rate in rates]


def min_ttft(policy: MinTtft, view: View) -> tuple[Row, str]:
    rate, hits, speed = 1.0 / queue_seconds(policy.cost), of(view, view.hits), policy.transfer_tokens_per_s
    rates = filled(of(view, view.rates), rate) if policy.learn else [rate] * len(hits)
    best, queue = max(hits), (-1.0, of(view, view.queued))
    held = [best if speed > 0.0 and best > policy.balancing_threshold * hit else hit for hit in hits]
    times = total(0.0, [queue, (-rate, rest(policy.cost, view, held))], rates)
    if speed > 0.0:
        times = total(0.0, [(1.0, total(0.0, [(-1.0 / speed, held), (1.0 / speed, hits)])), (1.0, times)])
    return times, "least_ttft"


def kv_free(view: View) -> Row:
    uses = [None if report is None else report.kv_use for report in of(view, view.reports)]
    known = [1.0 - use for use in uses if use is not None]
    mean = 0.5
    if known:
        mean = added(known) / len(known)
    return [mean if use is None else 1.0 - use for use in uses]


SCORERS: dict[str, Callable[[View], Row]] = {
    "saved": lambda view: [hit / (hit + 1_024) for hit in of(view, view.hits)],
    "prefix": lambda view: [1.0 / (view.prompt_tokens or 1) * hit for hit in of(view, view.hits)],
    "length": lambda view: [min(hit / 8_192, 1.0) ** 2 for hit in of(view, view.hits)],
    "load": lambda view: falling(of(view, view.loads)),
    "queue": lambda view: falling(of(view, view.in_flight)),
    "tokens": lambda view: falling(of(view, view.queued)),
    "kv-use": kv_free,
    "session": lambda view: [float(slot == view.binding) for slot in view.slots],
    "no-hit-lru": lambda view: (
        [0.5] * len(view.slots) if max(of(view, view.hits)) else falling(of(view, view.last_miss))
    ),
}


def weighted(policy: Weighted, view: View) -> tuple[Row, str]:
    terms: list[tuple[float, Row]] = []
    for scorer, weight in policy.scorers:
        terms.append((weight, list(scorer(view)) if callable(scorer) else SCORERS[scorer](view)))
    hits, floor = of(view, view.hits), policy.affinity * view.prompt_tokens
    if policy.affinity > 0.0 and max(hits) >= floor:
        terms.append((1.0, [0.0 if hit >= floor else -inf for hit in hits]))
    if policy.spill_gap < inf:
        terms.append((1.0, within(view, policy.spill_ratio, policy.spill_gap)))
    return total(0.0, terms), "highest_sum"


def transfer(policy: TransferCost, view: View) -> tuple[Row, str]:
    prompt, weights = view.prompt_tokens, of(view, view.weights or [1.0] * len(view.hashes))
    moving = [policy.prices.seconds(prompt - hit) for hit in of(view, view.hits)]
    moving = [0.0 if slot == view.kv_at else seconds for slot, seconds in zip(view.slots, moving, strict=True)]
    requests = [count / weight for count, weight in zip(of(view, view.in_flight), weights, strict=True)]
    contexts = [held / weight for held, weight in zip(of(view, view.decoding), weights, strict=True)]
    steps = policy.cost.prices
    seconds = [_joined(steps, 1.0 + count, held + prompt) for count, held in zip(requests, contexts, strict=True)]
    limit = view.request.max_tokens
    tokens = policy.output_tokens if limit is None else min(limit, policy.output_tokens)
    return total(0.0, [(-1.0, moving), (-float(tokens), seconds)]), "least_transfer"


def _joined(steps: Any, requests: float, context: float) -> float:
    assert requests == int(requests)
    assert context == int(context)
    return steps.step_seconds([], int(requests), int(context))


SCORED: dict[type[Policy], Callable[[Any, View], tuple[Row, str]]] = {
    LinearCost: linear_cost, LMetric: lmetric, PrebleE2: preble, MinTtft: min_ttft, Weighted: weighted, TransferCost: transfer,
}  # fmt: skip


def best_of(scores: Row, temperature: float, view: View) -> int:
    point, high = view.draw(TIE), max(scores)
    if temperature > 0.0:
        shares = [exp((score - high) / temperature) for score in scores]
        left = point * added(shares)
        for at, share in enumerate(shares):
            left -= share
            if left < 0.0:
                return at
        return scores.index(high)
    equal = [at for at, score in enumerate(scores) if score == high]
    return equal[int(point * len(equal))]


def least(view: View, values: Sequence[float], k: int, among: Sequence[int] | None = None) -> int:
    slots = view.slots if among is None else among
    low = min(values[slot] for slot in slots)
    equal = [slot for slot in slots if values[slot] == low]
    return equal[int(view.draw(k) * len(equal))] if len(equal) > 1 else equal[0]


def of_two(view: View, rank_of: Callable[[int], Any]) -> int:
    slots = view.slots
    if len(slots) == 1:
        return slots[0]
    first, second = int(view.draw(0) * len(slots)), int(view.draw(1) * (len(slots) - 1))
    a, b = slots[first], slots[second + (second >= first)]
    return b if rank_of(b) < rank_of(a) else a


def power_of_two(policy: PowerOfTwo, view: View) -> tuple[int, str]:
    reports = view.reports or ()

    def by_report(slot: int) -> tuple[float, ...]:
        report = reports[slot]
        values = (report.waiting_tokens, report.waiting, report.running)
        return (*(inf if value is None else value for value in values), view.in_flight[slot])

    if policy.by == "load":
        return of_two(view, view.loads.__getitem__), "power_of_two"
    unreported = any(reports[slot] is None for slot in view.slots)
    return of_two(view, view.in_flight.__getitem__ if unreported else by_report), "power_of_two"


def least_loaded(policy: LeastLoaded, view: View) -> tuple[int, str]:
    columns = {"load": view.loads, "requests": view.in_flight, "uncached-tokens": view.queued, "held-tokens": view.held}
    if policy.by in columns:
        values = columns[policy.by]
    else:
        values = [None] * len(view.hashes)
        for slot in view.slots:
            report = view.reports[slot]
            if report is not None and policy.by == "kv-use":
                values[slot] = report.kv_use
            elif report is not None:
                figures = report.waiting_tokens, report.waiting, report.kv_use, report.tokens_per_s
                values[slot] = start_seconds(*figures, view.queued[slot])
            if values[slot] is None:
                return least(view, view.loads, 0), "unreported"
    low = min(of(view, values))
    return least(view, view.loads, 0, [slot for slot in view.slots if values[slot] == low]), "least"


def two_choices(_: TwoChoices, view: View) -> tuple[int, str]:
    if not view.request.session:
        return of_two(view, view.loads.__getitem__), "power_of_two"
    key = text_hash(view.request.session)
    first = rendezvous(view, key)
    others = [slot for slot in view.slots if slot != first]
    second = rendezvous(view, key, others) if others else first
    return (second if view.loads[second] < view.loads[first] else first), "two_choices"


def key_of(name: str, view: View) -> int | None:
    document, session = view.request.attrs.get("document"), view.request.session
    if name == "session":
        return text_hash(session) if session else None
    return view.head if name == "head" or document in (None, "") else text_hash(str(document))


def fallback(policy: Any, view: View, reason: str) -> tuple[int, str]:
    other = policy.fallback
    return (PICKS[type(other)](other, view) if type(other) in PICKS else resolve(other.decide(view), view, ""))[
        0
    ], reason


def session(policy: Session, view: View) -> tuple[int, str]:
    bound = view.binding
    if not view.request.session:
        return fallback(policy, view, "no_session")
    if bound in view.slots:
        return bound, "primary"
    reason = "assigned" if bound is None else "rebound" if bound < 0 else "detour"
    if policy.placement == "fallback":
        return fallback(policy, view, reason)
    return rendezvous(view, text_hash(view.request.session)), reason


def hashed(policy: Rendezvous | Document, view: View) -> tuple[int, str]:
    key = key_of("document" if isinstance(policy, Document) else policy.key, view)
    return fallback(policy, view, "no_key") if key is None else (rendezvous(view, key), "hashed")


def bounded(policy: Bounded, view: View) -> tuple[int, str]:
    key = key_of(policy.key, view)
    if key is None:
        return fallback(policy, view, "no_key")
    loads, count, booked = view.loads, len(view.slots), added(of(view, view.loads))
    bound, home = ceil(policy.factor * (booked + 1) / count), rendezvous(view, key)
    if loads[home] + 1 <= bound:
        return home, "hashed"
    low = nextafter(booked // (count * policy.factor), -inf)
    starving = [slot for slot in view.slots if loads[slot] <= low]
    if policy.rescue and starving:
        return rendezvous(view, key, starving), "overflow_starving"
    free = [slot for slot in view.slots if loads[slot] <= bound - 1]
    return (rendezvous(view, key, free), "overflow") if free else (least(view, loads, 2), "full")


def prefix_hash(policy: PrefixHash, view: View) -> tuple[int, str]:
    if view.head is None:
        return fallback(policy, view, "no_key")
    home, loads = rendezvous(view, view.head), of(view, view.loads)
    mean, load = added(loads) / len(loads), view.loads[home]
    if load > policy.factor * mean and load > mean + policy.gap:
        return least(view, view.loads, 2), "overflow"
    return home, "hashed"


PICKS: dict[type[Policy], Callable[[Any, View], tuple[int, str]]] = {
    PowerOfTwo: power_of_two, LeastLoaded: least_loaded, TwoChoices: two_choices, Session: session, Rendezvous: hashed,
    Document: hashed, Bounded: bounded, PrefixHash: prefix_hash,
}  # fmt: skip
