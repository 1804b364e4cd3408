"""A trace under a provider's rules: what each lifetime reuses and costs, and the best for each class of sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from prefixroute.document import figures
from prefixroute.errors import ConfigError, TraceError
from prefixroute.plan.replay import Found, Replay
from prefixroute.providers.catalog import STANDARD, Mode, Model, Price
from prefixroute.validation import check_choice, check_float, check_int
from prefixroute.workload import Request, Workload

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
        early_tokens: of these, written again because the request that wrote them first had not begun to answer.
        usd: of prompts and answers.
    """

    lifetime: str
    hit_tokens: float = 0.0
    written_tokens: float = 0.0
    early_tokens: float = 0.0
    usd: float = 0.0

    def add(self, request: Request, hit: float, price: Price, *, writes: bool, early: float = 0.0) -> None:
        """Count a request of which ``hit`` tokens are found; the others are written, or are plain input."""
        self.early_tokens += early
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
        minimum: tokens of the shortest prompt that is cached.
        requests: how many.
        sessions: how many sessions; requests without one count none.
        prompt_tokens: of all of them.
        uncached: what they cost without a cache.
        kept: by lifetime.
        bound: by lifetime, behind the binding that was asked for.
        short: requests whose prompt is under the model's minimum.
        gaps: pairs of requests of one session in a row.
        long_gaps: of these, longer than each lifetime.
    """

    name: str
    minimum: int
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    uncached: Reuse = field(default_factory=lambda: Reuse("no cache"))
    kept: dict[str, Reuse] = field(default_factory=dict)
    bound: dict[str, Reuse] = field(default_factory=dict)
    short: int = 0
    gaps: int = 0
    long_gaps: Counter[str] = field(default_factory=Counter)
    _seconds: Mapping[str, float] = field(default_factory=dict, repr=False)
    _sessions: set[str] = field(default_factory=set, repr=False)

    def count(self, request: Request, gap_s: float | None) -> None:
        """Count a request, which came ``gap_s`` seconds after the one before in its session."""
        self.requests += 1
        self.prompt_tokens += request.prompt_tokens
        self.output_tokens += request.output_tokens
        if request.session is not None:
            self._sessions.add(request.session)
        if gap_s is not None:
            self.gaps += 1
            self.long_gaps.update(name for name, seconds in self._seconds.items() if gap_s > seconds)

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
                "written_again_too_early_tokens": reuse.early_tokens,
                "usd": reuse.usd,
                "usd_per_million_requests": 1e6 * reuse.usd / max(1, self.requests),
            }

        return {
            "class": self.name,
            **figures(self, "requests", "sessions", "prompt_tokens", "output_tokens"),
            "under_minimum": self.short,
            "gaps_over_lifetime": {name: self.long_gaps[name] / max(1, self.gaps) for name in self.kept},
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
            **figures(self, "binding"),
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
    begin_s: float = 0.0,
    progress: Callable[[float], None] | None = None,
) -> TracePlan:
    """Run a trace through a cache of unlimited size for each lifetime of a model, by the rules of its provider.

    Entries end with each prompt (a mark, or a breakpoint, at its end) and a read starts their lifetime again. The
    tokens of a prompt that are not found are written at the price of the lifetime. Prompts under the minimum are not
    cached. With
    ``begin_s``, requests that come before the one that writes has begun to answer write again, which
    :func:`~prefixroute.providers.fan_out` avoids; without, they count as hits.

    Args:
        workload: the trace, read once.
        model: prices and rules; every request is priced by them, whatever model it names.
        mode: way of caching; the model's default unless given.
        tier: service tier.
        by: what sessions are classed by, of :data:`CLASSES`.
        binding: a gateway that pins sessions for a time.
        begin_s: seconds from a request's arrival until its response begins.
        progress: told the share of the requests done, where their number is known.

    Returns:
        Sums for all requests and for each class.

    Raises:
        TraceError: at a bad line, or if there is no request.
        ConfigError: an unknown mode, tier or class.
    """
    used = _replayed(model, mode, by)
    check_float("begin_s", begin_s, 0, 86_400)
    replay = Replay(workload.block_size, model, used, tier, begin_s=begin_s)
    sessions: dict[str, float] = {}
    classes: dict[str, Traffic] = {}
    total = _traffic(ALL, model, used, binding)
    first = last = 0.0
    for number, request in enumerate(workload.requests()):
        first, last = (request.arrival_s if number == 0 else first), request.arrival_s
        name = ", ".join(value for key in by if (value := CLASSES[key](request)) is not None) or "unnamed"
        own = classes.get(name)
        if own is None:
            label = name if len(classes) < MOST_CLASSES else "others"
            own = classes.setdefault(label, _traffic(label, model, used, binding))
        gap = _gap(request, sessions)
        for one in (total, own):
            one.count(request, gap)
        _add(request, replay.find(number, request), replay.price(request), (total, own), _kept(gap, binding))
        if progress is not None and workload.request_count and number % 1000 == 0:
            progress(number / workload.request_count)
    if not total.requests:
        raise TraceError(f"{workload.name}: the workload holds no request")
    ordered = sorted(classes.values(), key=lambda one: -one.uncached.usd)
    return TracePlan(
        workload.name, model.id, used, total, tuple(ordered) if len(ordered) > 1 else (), last - first, binding,
        workload.notes,
    )  # fmt: skip


def _replayed(model: Model, mode: str | None, by: Sequence[str]) -> Mode:
    """Return the mode by whose rules a trace is replayed; refuse one that is not for it, and classes that are none."""
    used = model.mode(mode)
    for name in by:
        check_choice("what sessions are classed by", name, CLASSES)
    if used.kind == "stored":
        raise ConfigError(
            f"entries of {model.id} ({used.name}) are made by hand: plan them with their rent, not from a trace"
        )
    return used


def _gap(request: Request, sessions: dict[str, float]) -> float | None:
    """Return seconds since the session's last request; None for its first."""
    if request.session is None:
        return None
    before = sessions.get(request.session)
    sessions[request.session] = request.arrival_s
    return None if before is None else request.arrival_s - before


def _kept(gap: float | None, binding: Binding | None) -> float:
    """Return the probability that a session's next target is its last one."""
    lapsed = binding is not None and gap is not None and gap > binding.seconds
    return 1 / binding.targets if binding is not None and lapsed else 1.0


def _add(request: Request, found: Mapping[str, Found], price: Price, into: tuple[Traffic, ...], kept: float) -> None:
    """Count what each lifetime finds of a request."""
    for one in into:
        writes = request.prompt_tokens >= one.minimum
        one.short += not writes
        one.uncached.add(request, 0, price, writes=False)
        for name, (hit, early) in found.items():
            one.kept[name].add(request, hit, price, writes=writes, early=early)
            if one.bound:
                one.bound[name].add(request, hit * kept, price, writes=writes)


def _traffic(name: str, model: Model, mode: Mode, binding: Binding | None) -> Traffic:
    kept = {one.name: Reuse(one.name) for one in mode.lifetimes}
    bound = {} if binding is None else {one.name: Reuse(one.name) for one in mode.lifetimes}
    return Traffic(
        name, model.minimum_tokens, kept=kept, bound=bound, _seconds={one.name: one.seconds for one in mode.lifetimes}
    )
