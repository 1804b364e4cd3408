"""Everything that a run depends on beside its workload and its prices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

from prefixroute.errors import ConfigError
from prefixroute.policies import Answer, Policy, View, as_policy
from prefixroute.routing import DEFAULT_LOAD
from prefixroute.sim.engine import EngineModel
from prefixroute.sim.observe import Events, History, Observation, Perfect
from prefixroute.sim.split import Split
from prefixroute.sim.stores import Tier
from prefixroute.validation import check_choice, check_fields, check_float, check_given, check_int, shown

CacheKind = Literal["blocks", "entries"]
FrontKind = Literal["round-robin", "sticky"]
AnyPolicy: TypeAlias = str | Policy | Callable[[View], Answer]
"""A name of a policy or preset, an object, or a check_callable of a view."""
Action = Literal["die", "return", "add", "drain"]

ARTICLE_CAPACITY_TOKENS = 300_000
"""KV cache of one replica: the reference article's, 44.2 GB for Qwen3-8B in bf16."""
ARTICLE_WINDOW = 200
"""Decisions of the fleet that the load of an untimed run counts (reference article, up to 8 replicas)."""
WINDOW_PER_REPLICA = 25
"""The same for each replica of a larger fleet: with 200 over 64, counts of 3 say nothing and policies herd."""


@dataclass(frozen=True, slots=True)
class FleetChange:
    """Something that happens to the fleet during a run.

    Args:
        at: when: requests served so far if untimed, seconds if timed.
        action: ``die`` (cache and requests in flight are lost, routers notice at once), ``return`` (back, empty),
            ``add`` (a new replica, empty), ``drain`` (no new requests).
        replica: name of the replica; :attr:`Scenario.names` has those that a run starts with.
    """

    at: float
    action: Action
    replica: str

    def __post_init__(self) -> None:
        """Check time and action."""
        check_float("the time of a change of the fleet", self.at, 0)
        check_choice("a change of the fleet", self.action, get_args(Action))


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a request must keep to count as goodput. ``None``: nothing is promised of that.

    Args:
        ttft_s: seconds to the first token at most.
        tpot_s: seconds per output token after the first at most; a request with one token keeps it.
        itl_s: seconds between two tokens of an answer at most; a request with one token keeps it.
        itl_percentile: share of the gaps of each request, in per cent, that must keep ``itl_s``; 100 = every gap.
        e2e_s: seconds to the last token at most.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    itl_s: float | None = None
    itl_percentile: float = 100.0
    e2e_s: float | None = None

    def __post_init__(self) -> None:
        """Check the seconds."""
        limits = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
        check_given(self, check_float, *limits, called="{} of a promise", low=0, above=True)
        check_float("itl_percentile of a promise", self.itl_percentile, 0, 100, above=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fleet, a way of routing, and what is simulated of them. Equal scenarios and workloads give equal bytes.

    Args:
        policy: name of a policy or preset, a policy object, or a function of a view.
        replicas: replicas at the start, 1 or more.
        split: how many of them only prefill, how many only decode, and over what link; timed, and all of them together
            are ``replicas``. ``None`` = each does both.
        named: names of the replicas as a real fleet has them: hashing places keys as there, whatever the seed. ``None``
            = made up, and the seed fixes where keys are placed.
        seed: of the routers' draws, of where hashing places keys, and of losses; the workload has a seed of its own.
        cache: the truth: ``blocks`` (vLLM's rules) or ``entries`` (the reference article's whole entries).
        capacity_tokens: KV cache of one replica; ``None`` = unlimited, in truth and belief.
        observe: the path from truth to belief; ``None`` = ``Perfect()`` with entries, ``History()`` with blocks.
        load: the signal that policies balance; ``None`` = ``recent`` untimed, the Router's default ``requests`` timed.
        recent_window: decisions that ``recent`` counts; ``None`` = 200, or 25 for each replica if that is more.
        engine: ``None`` = untimed; an engine model = timed, which needs cache ``blocks``.
        routers: routers that share nothing, unless there is a ``peer_delay_s``.
        peer_delay_s: seconds that what routers tell each other by their commit feed is under way; ``None`` = they share
            nothing, 0 = the next request finds it known. Needs ``routers`` above 1, and a timed simulation if above 0.
        front: what stands before them: ``round-robin`` spreads requests, ``sticky`` sends a session always to one.
        changes: what happens to the fleet, in any order.
        warmup: requests served before counting begins: they warm caches and belief, and are in no number.
        label: what tables call the policy; empty = its name.
        tiers: memories below the GPU's (CPU, disk), fastest first; cache ``blocks`` only.
        promise: what a request must keep to count as goodput, timed only; ``None`` = goodput is not measured.
        given: names of the settings, the engine's too, that somebody chose, so that results mark the others ASSUMED;
            ``None`` = those that are not what they are by default.

    Raises:
        ConfigError: a figure outside of what is allowed, or two settings that do not fit together.
    """

    policy: AnyPolicy = "cache-aware"
    replicas: int = 8
    split: Split | None = None
    named: tuple[str, ...] | None = None
    seed: int = 0
    cache: CacheKind = "blocks"
    capacity_tokens: int | None = ARTICLE_CAPACITY_TOKENS
    observe: Observation | None = None
    load: str | None = None
    recent_window: int | None = None
    engine: EngineModel | None = None
    routers: int = 1
    peer_delay_s: float | None = None
    front: FrontKind = "round-robin"
    changes: tuple[FleetChange, ...] = ()
    warmup: int = 0
    label: str = ""
    tiers: tuple[Tier, ...] = ()
    promise: Promise | None = None
    given: frozenset[str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Check each setting, then how they fit together."""
        check_fields(self, check_int, "replicas", "routers", low=1)
        check_int("warmup", self.warmup, 0)
        check_given(self, check_int, "recent_window", low=1)
        check_given(self, check_int, "capacity_tokens", called="{} (None: unlimited)", low=1)
        check_choice("cache", self.cache, get_args(CacheKind))
        check_choice("front", self.front, get_args(FrontKind))
        if self.promise is not None and not self.engine:
            raise ConfigError("a promise needs a timed simulation: give an engine, or --timed")
        if self.cache == "entries" and (self.engine or self.tiers or isinstance(self.observe, Events)):
            raise ConfigError("cache 'entries' has an order but no time, tiers or events: use cache 'blocks' for those")
        self._check_names()
        self._check_split()
        self._check_delays()

    def _check_delays(self) -> None:
        if self.peer_delay_s is not None:
            check_float("peer_delay_s", self.peer_delay_s, 0)
            if self.routers == 1:
                raise ConfigError("peer_delay_s is between several routers: routers must be at least 2, got 1")
        delays = {"event": self.observe.delay_s if isinstance(self.observe, Events) else 0.0, "peer": self.peer_delay_s}
        late = {what: delay_s for what, delay_s in delays.items() if delay_s}
        if late and not self.engine:
            what, delay_s = next(iter(late.items()))
            raise ConfigError(
                f"an untimed simulation has no clock: {what} delay must be 0 without an engine, got {delay_s}"
            )

    def _check_names(self) -> None:
        if self.named is None:
            return
        if self.split is not None:
            raise ConfigError("the replicas of a split fleet have names of their own: named must be None")
        if isinstance(self.named, str) or len(set(self.named)) != self.replicas or len(self.named) != self.replicas:
            raise ConfigError(f"named must be {self.replicas} names, each once, got {shown(self.named)}")

    def _check_split(self) -> None:
        split = self.split
        if split is None:
            return
        if not self.engine:
            raise ConfigError("prefill and decode apart need a timed simulation: give an engine, or --timed")
        if split.replicas != self.replicas:
            raise ConfigError(f"a split of {split} needs replicas={split.replicas}, got {self.replicas}")

    @property
    def names(self) -> list[str]:
        """Names of the replicas that a run starts with."""
        if self.named is not None:
            return list(self.named)
        return replica_names(self.replicas) if self.split is None else self.split.names

    @property
    def hash_seed(self) -> int:
        """Where hashing places keys beside the names; 0 = by the names alone, as routers do by default."""
        return self.seed if self.named is None else 0

    @property
    def observation(self) -> Observation:
        """The path from truth to belief, default resolved."""
        return self.observe or (Perfect() if self.cache == "entries" else History())

    @property
    def load_signal(self) -> str:
        """The signal that every policy of the run balances."""
        return self.load or (DEFAULT_LOAD if self.engine else "recent")

    @property
    def window(self) -> int:
        """Decisions that the load signal ``recent`` counts."""
        return self.recent_window or max(ARTICLE_WINDOW, WINDOW_PER_REPLICA * self.replicas)

    @property
    def policy_name(self) -> str:
        """What tables call the policy."""
        if self.label or isinstance(self.policy, str):
            return self.label or str(self.policy)
        return as_policy(self.policy).name

    def is_given(self, setting: str) -> bool:
        """Whether somebody chose this setting.

        Args:
            setting: name of a field.

        Returns:
            True if the field was given, even with its default as value.
        """
        if self.given is not None:
            return setting in self.given
        return bool(getattr(self, setting) != type(self).__dataclass_fields__[setting].default)

    def unlimited(self) -> Scenario:
        """Return the same scenario with caches that never evict."""
        return replace(self, capacity_tokens=None, tiers=())


def replica_names(count: int) -> list[str]:
    """Return the names of the replicas that a run of ``count`` starts with which prefill and decode.

    Args:
        count: of replicas.
    """
    return [f"replica-{number}" for number in range(count)]
