"""A trace under a provider's rules: what each lifetime would reuse and cost, and which is best for each class of sessions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefixroute.errors import ConfigError, TraceError
from prefixroute.providers.catalog import STANDARD, Lifetime, Mode, Model, Price
from prefixroute.validation import check_float, check_int
from prefixroute.workload import Request, Workload
from prefixroute.workload.tree import PrefixTree, Stretch

CLASSES: dict[str, Callable[[Request], str | None]] = {
    "model": lambda request: request.model,
    "tenant": lambda request: request.tenant,
    "agent": lambda request: "sub-agent" if "agent" in request.attrs else "main",
    "type": lambda request: request.attrs.get("type"),
}
"""What sessions can be classed by: what is known when a request is sent."""
DEFAULT_CLASSES = ("model", "agent")
MOST_CLASSES = 1_000
ALL = "all"
_SESSIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class Binding:
    """A gateway that pins a session to one of several workspaces, keys or deployments, each with a cache of its own.

    Attributes:
        seconds: after the session's last request, the next may go to another one.
        targets: how many there are.
    """

    seconds: float
    targets: int = 2

    def __post_init__(self) -> None:
        """Check both figures."""
        check_float("the seconds of a binding", self.seconds, 0)
        check_int("the targets of a binding", self.targets, 1)


@dataclass(slots=True)
class Reuse:
    """What one lifetime makes of some requests. Token counts are sums; US dollars include the answers.

    Attributes:
        lifetime: its name; ``no cache`` for none.
        hit_tokens: prompt tokens read from the cache.
        written_tokens: prompt tokens written to it.
        usd: of prompts and answers.
    """

    lifetime: str
    hit_tokens: float = 0.0
    written_tokens: float = 0.0
    usd: float = 0.0

    def add(self, request: Request, hit: float, price: Price, *, writes: bool) -> None:
        """Count a request of which ``hit`` tokens are found; the others are written, or are plain input."""
        rest = request.prompt_tokens - hit
        self.hit_tokens += hit
        self.written_tokens += rest if writes else 0.0
        rate = price.writing(self.lifetime) if writes else price.input
        self.usd += (hit * price.read + rest * rate + request.output_tokens * price.output) / 1e6


@dataclass(slots=True)
class Traffic:
    """Requests of one class, or of all, under one model's prices.

    Attributes:
        name: the class; ``all`` for all requests.
        requests: how many.
        sessions: how many sessions; requests without one count none.
        prompt_tokens: of all of them.
        uncached: what they cost without a cache.
        kept: by lifetime.
        bound: by lifetime, behind the binding that was asked for.
        short: requests whose prompt is under the model's minimum.
    """

    name: str
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    uncached: Reuse = field(default_factory=lambda: Reuse("no cache"))
    kept: dict[str, Reuse] = field(default_factory=dict)
    bound: dict[str, Reuse] = field(default_factory=dict)
    short: int = 0
    _sessions: set[str] = field(default_factory=set, repr=False)

    @property
    def sessions(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    @property
    def best(self) -> Reuse:
        """What costs least: a lifetime, or no cache, also where a lifetime costs the same."""
        return min((self.uncached, *self.kept.values()), key=lambda reuse: reuse.usd)

    def ratio(self, reuse: Reuse) -> float:
        """Return the share of prompt tokens read from the cache."""
        return reuse.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""

        def row(reuse: Reuse) -> dict[str, object]:
            return {
                "hit_ratio": self.ratio(reuse),
                "written_tokens": reuse.written_tokens,
                "usd": reuse.usd,
                "usd_per_million_requests": 1e6 * reuse.usd / max(1, self.requests),
            }

        return {
            "class": self.name,
            "requests": self.requests,
            "sessions": self.sessions,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "under_minimum": self.short,
            "best": self.best.lifetime,
            "no_cache": row(self.uncached),
            "lifetimes": {name: row(reuse) for name, reuse in self.kept.items()},
            "behind_binding": {name: row(reuse) for name, reuse in self.bound.items()},
        }


@dataclass(frozen=True, slots=True)
class TracePlan:
    """A trace under a model's rules and prices.

    Attributes:
        workload: the trace's name.
        model: the model's id.
        mode: way of caching.
        total: all requests.
        classes: by class, the most expensive first; none where there is one only.
        span_s: seconds from the first request to the last.
        binding: the binding asked for, or None.
        notes: of the trace.
    """

    workload: str
    model: str
    mode: Mode
    total: Traffic
    classes: tuple[Traffic, ...]
    span_s: float
    binding: Binding | None
    notes: tuple[str, ...]

    @property
    def mixed_usd(self) -> float:
        """US dollars with the best lifetime of each class."""
        return sum(one.best.usd for one in self.classes) if self.classes else self.total.best.usd

    @property
    def binding_loss(self) -> dict[str, float]:
        """US dollars that the binding costs, by lifetime, where it is shorter than the lifetime: a trap."""
        if self.binding is None:
            return {}
        seconds = {one.name: one.seconds for one in self.mode.lifetimes}
        return {
            name: reuse.usd - self.total.kept[name].usd
            for name, reuse in self.total.bound.items()
            if self.binding.seconds < seconds[name]
        }

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        return {
            "workload": self.workload,
            "model": self.model,
            "mode": self.mode.name,
            "span_s": self.span_s,
            "total": self.total.to_dict(),
            "classes": [one.to_dict() for one in self.classes],
            "usd_best_of_each_class": self.mixed_usd,
            "binding": None
            if self.binding is None
            else {"seconds": self.binding.seconds, "targets": self.binding.targets},
            "binding_loss_usd": self.binding_loss,
        }


def plan_trace(
    workload: Workload,
    model: Model,
    *,
    mode: str | None = None,
    tier: str = STANDARD,
    by: Sequence[str] = DEFAULT_CLASSES,
    binding: Binding | None = None,
    progress: Callable[[float], None] | None = None,
) -> TracePlan:
    """Run a trace through a cache of unlimited size for each lifetime of a model, by the rules of its provider.

    Entries end with each prompt (a mark, or a breakpoint, at its end) and a read starts their lifetime again. The tokens of a
    prompt that are not found are written at the price of the lifetime. Prompts under the minimum are not cached. Requests in
    flight at once count as hits of one another: see :func:`~prefixroute.providers.fan_out` for making that so.

    Args:
        workload: the trace, read once.
        model: prices and rules; every request is priced by them, whatever model it names.
        mode: way of caching; the model's default unless given.
        tier: service tier.
        by: what sessions are classed by, of :data:`CLASSES`.
        binding: a gateway that pins sessions for a time.
        progress: told the share of the requests done, where their number is known.

    Returns:
        Sums for all requests and for each class.

    Raises:
        TraceError: at a bad line, or if there is no request.
        ConfigError: an unknown mode, tier or class.
    """
    used = model.mode(mode)
    unknown = [name for name in by if name not in CLASSES]
    if unknown:
        raise ConfigError(f"sessions are classed by {', '.join(CLASSES)}, got {', '.join(map(str, unknown))}")
    if used.kind == "stored":
        raise ConfigError(
            f"entries of {model.id} ({used.name}) are made by hand: plan them with their rent, not from a trace"
        )
    reader = _Replay(workload.block_size, model, used, tier, binding)
    classes: dict[str, Traffic] = {}
    total = _traffic(ALL, used, binding)
    first = last = 0.0
    for number, request in enumerate(workload.requests()):
        first, last = (request.arrival_s if number == 0 else first), request.arrival_s
        name = ", ".join(value for key in by if (value := CLASSES[key](request)) is not None) or "unnamed"
        own = classes.get(name)
        if own is None:
            label = name if len(classes) < MOST_CLASSES else "others"
            own = classes.setdefault(label, _traffic(label, used, binding))
        reader.add(number, request, (total, own))
        if progress is not None and workload.request_count and number % 1000 == 0:
            progress(number / workload.request_count)
    if not total.requests:
        raise TraceError(f"{workload.name}: the workload holds no request")
    ordered = sorted(classes.values(), key=lambda one: -one.uncached.usd)
    return TracePlan(
        workload.name, model.id, used, total, tuple(ordered) if len(ordered) > 1 else (), last - first, binding,
        workload.notes,
    )  # fmt: skip


def _traffic(name: str, mode: Mode, binding: Binding | None) -> Traffic:
    kept = {one.name: Reuse(one.name) for one in mode.lifetimes}
    bound = {} if binding is None else {one.name: Reuse(one.name) for one in mode.lifetimes}
    return Traffic(name, kept=kept, bound=bound)


class _Steps(NamedTuple):
    """Prices of one tier by context length."""

    above: list[int]
    prices: list[Price]

    def at(self, tokens: int) -> Price:
        return self.prices[max(0, bisect_left(self.above, max(1, tokens)) - 1)]


class _Replay:
    """One pass over the requests: a tree of every prefix, and what each lifetime finds of it."""

    def __init__(self, block_size: int, model: Model, mode: Mode, tier: str, binding: Binding | None) -> None:
        model.price(0, tier)
        steps = sorted((one for one in model.prices if one.tier == tier), key=lambda one: one.above_tokens)
        self._steps = _Steps([one.above_tokens for one in steps], steps)
        self._block, self._model, self._mode, self._binding = block_size, model, mode, binding
        self._tree = PrefixTree()
        self._arrivals: list[float] = []
        self._last: dict[str, float] = {}
        self._units: dict[int, float] = {}

    def add(self, number: int, request: Request, into: tuple[Traffic, ...]) -> None:
        """Look a request up, count it, and remember its prompt."""
        now, prompt = request.arrival_s, request.prompt.array
        known = self._tree.touch(number, prompt)
        self._arrivals.append(now)
        price, cacheable = self._steps.at(request.prompt_tokens), self._model.is_cacheable(request.prompt_tokens)
        ends = self._unit_ends(prompt, known, now) if self._mode.match != "prefix" else None
        kept = self._kept(request, now)
        hits = {one.name: self._hit(request, one, known, ends, now) if cacheable else 0 for one in self._mode.lifetimes}
        for one in into:
            one.requests += 1
            one.prompt_tokens += request.prompt_tokens
            one.output_tokens += request.output_tokens
            one.short += not cacheable
            if request.session is not None:
                one._sessions.add(request.session)  # noqa: SLF001 - of this module
            one.uncached.add(request, 0, price, writes=False)
            for name, hit in hits.items():
                one.kept[name].add(request, hit, price, writes=cacheable)
                if self._binding is not None:
                    one.bound[name].add(request, hit * kept, price, writes=cacheable)

    def _kept(self, request: Request, now: float) -> float:
        """Return the probability that the session's next target is its last one."""
        if self._binding is None or request.session is None:
            return 1.0
        before = self._last.get(request.session)
        self._last[request.session] = now
        lapsed = before is not None and now - before > self._binding.seconds
        return 1 / self._binding.targets if lapsed else 1.0

    def _hit(
        self,
        request: Request,
        lifetime: Lifetime,
        known: list[Stretch],
        ends: list[tuple[int, float]] | None,
        now: float,
    ) -> int:
        """Return the tokens found: up to the last block that was used within the lifetime, by the rules of the mode."""
        blocks = 0
        if ends is None:
            for stretch in known:
                if now - self._arrivals[stretch.toucher] > lifetime.seconds:
                    break  # what comes later was used earlier
                blocks = stretch.last
        else:
            blocks = max((end for end, used_s in ends if now - used_s <= lifetime.seconds), default=0)
        found = min(blocks * self._block, request.prompt_tokens)
        if found < self._model.minimum_tokens:
            return 0
        step = self._mode.increment_tokens
        return (
            found if step is None else self._model.minimum_tokens + (found - self._model.minimum_tokens) // step * step
        )

    def _unit_ends(self, prompt: NDArray[np.uint64], known: list[Stretch], now: float) -> list[tuple[int, float]]:
        """Return where entries end that this prompt begins with, in blocks, and when each was last used; then add its own.

        Entries are exact: they end where a prompt ended. With ``units``, the common prefix of two prompts becomes one too,
        once it was seen: the prompt that shows it does not hit it, the next one does.
        """
        depth = known[-1].last if known else 0
        hashes = prompt[:depth].tolist()
        found = []
        for end in range(depth, 0, -1):
            used_s = self._units.get(hashes[end - 1])
            if used_s is not None:
                found.append((end, used_s))
                self._units[hashes[end - 1]] = now
        if len(prompt):
            self._units[int(prompt[-1])] = now
        if self._mode.match == "units" and 0 < depth < len(prompt):
            self._units.setdefault(hashes[-1], now)
        return found
