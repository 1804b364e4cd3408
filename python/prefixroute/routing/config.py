"""The configuration of a router: every option with its default and its check, frozen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from operator import index as index_of
from typing import Any, TypedDict

from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.policies import Answer, Policy, TransferCost, View, as_policy, preset_of
from prefixroute.policies.scored import COST
from prefixroute.routing.fleet import MEDIA
from prefixroute.routing.loads import DEFAULT_LOAD, LOADS
from prefixroute.routing.prompts import check_prompts
from prefixroute.types import Caps, Timing
from prefixroute.validation import (
    check_callable,
    check_choice,
    check_given,
    check_instance,
    check_int,
    check_names,
    shown,
)

Capacity = int | Mapping[str, int]
"""KV-cache size in tokens of every replica, or by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """Every option of a router. A shadow has the same configuration with another policy.

    Attributes:
        policy: a name, a preset's name, a :class:`~prefixroute.policies.Policy`, or a function of a view. A preset
            replaces ``block_size``, ``capacity_tokens`` and ``ttl_s`` by its own; the router's ``notes`` say so.
        decode_policy: the policy that picks the replica that decodes, in :meth:`Router.route_pair`; in the same forms.
        block_size: tokens in a block, 1 to 65,536: the engines' own.
        capacity_tokens: KV-cache size of a replica in tokens; an int for all, or a mapping by name.
        prompt_kind: ``tokens``, ``text`` or ``messages``; a prompt of another kind raises ``TokensError``, unless the
            call names its kind.
        seed: fixes every random draw.
        hash_seed: fixes where rendezvous hashing places a key, beside the replicas' names; 0 = by the names alone.
            Routers that should agree use the same value. With few sessions hashing may spread them unevenly by chance;
            another value gives another placement.
        hash_key: key of the hashes of prompts, 0 to 2**64 - 1. ``None`` = random, so that nobody can compute a prompt
            whose blocks match those of another namespace; but where the policy places a request by its prompt's head,
            which routers of several processes do alike, the fixed key. Give a secret one to have both.
        clock: returns seconds; used where ``now=`` is not given.
        load: name of the one load signal that every policy balances, see :data:`~prefixroute.router.LOADS`.
        recent_window: length of the window of the load signals ``requests`` and ``recent``, in decisions of the whole
            fleet; ``None`` = 200, or 25 for each replica if that is more.
        ttl_s: seconds after which a block that was not used again is no longer believed; ``None`` = never.
        max_bytes: memory of the index; ``None`` = unbounded.
        tier_credits: what a block counts that is held on GPU, in CPU memory or on disk, each 0 to 1 (Dynamo: 1, 0.75,
            0.25); hit tokens are then credited tokens. Tiers are known from KV events.
        caps: admission caps of every replica.
        timing: every span of time that the router keeps.
        session_capacity: sessions remembered at most, at about 100 bytes each; the longest unused goes first.
        render: turns messages (or text) into the text that the engine tokenizes: a chat template.
        tokenizer: turns text into token ids; a function or a ``tokenizers.Tokenizer``.
        cost: GPU, model and price of a replica. It prices prefill for the window of prefill seconds and for regret;
            where it is given, lost hits are counted in dollars too, at :attr:`usd_per_token`.

    Raises:
        ConfigError: an option is outside of what is allowed, or two do not fit together.
    """

    policy: str | Policy | Callable[[View], Answer] = "cache-aware"
    decode_policy: str | Policy | Callable[[View], Answer] = TransferCost.name
    block_size: int = 16
    capacity_tokens: Capacity = 300_000
    prompt_kind: str = "tokens"
    seed: int = 0
    hash_seed: int = 0
    hash_key: int | None = None
    clock: Callable[[], float] = time.monotonic
    load: str = DEFAULT_LOAD
    recent_window: int | None = None
    ttl_s: float | None = None
    max_bytes: int | None = None
    tier_credits: tuple[float, float, float] = (1.0, 1.0, 1.0)
    caps: Caps = Caps()  # noqa: RUF009  # frozen
    timing: Timing = Timing()  # noqa: RUF009  # frozen
    session_capacity: int = 1_000_000
    render: Callable[[Any], str] | None = None
    tokenizer: Any = None
    cost: CostModel = COST

    def __post_init__(self) -> None:
        """Check what nobody would look at before the first request."""
        as_policy(self.policy)
        as_policy(self.decode_policy)
        check_int("block size", self.block_size, 1, MAX_BLOCK_SIZE)
        check_given(self, check_int, "hash_key", low=0, high=2**64 - 1)
        for name in ("seed", "hash_seed"):
            check_int(name, getattr(self, name))
            object.__setattr__(self, name, index_of(getattr(self, name)))
        check_int("session_capacity", self.session_capacity, 1)
        check_given(self, check_int, "recent_window", low=1)
        check_callable("clock", self.clock)
        check_choice("load", self.load, LOADS)
        check_instance("caps", self.caps, Caps)
        check_instance("timing", self.timing, Timing)
        check_prompts(self.prompt_kind, self.render, self.tokenizer)
        if not hasattr(self.cost, "prefill_seconds"):
            raise ConfigError(f"cost must be a CostModel, got {shown(self.cost)}")
        credits_ = self.tier_credits
        if not isinstance(credits_, Sequence) or len(credits_) != len(MEDIA) or not all(map(_is_share, credits_)):
            raise ConfigError(
                f"tier_credits must be three numbers from 0 to 1 for GPU, CPU and disk, got {shown(credits_)}"
            )

    @classmethod
    def of(cls, options: RouterOptions, others: Iterable[str] = ()) -> RouterConfig:
        """Return the configuration with these options.

        Args:
            options: fields of this class by name.
            others: further options of a router, which an error names too.

        Raises:
            ConfigError: an option does not exist, or is outside of what is allowed.
        """
        known = {field.name for field in fields(cls)}
        if not known.issuperset(options):
            check_names("a router", "option", sorted(set(options) - known), sorted(known.union(others)))
        return cls(**options)

    @property
    def usd_per_token(self) -> float | None:
        """US dollars of a recomputed prompt token by the ``cost`` that was given.

        ``None`` where none was: a default is no price.
        """
        return None if self.cost is COST else self.cost.usd_per_token()

    @property
    def policy_name(self) -> str:
        """Name by which the policy was given."""
        return _name_of(self.policy)

    @property
    def decode_policy_name(self) -> str:
        """Name by which the policy of decode replicas was given."""
        return _name_of(self.decode_policy)

    def resolved(self, index_block_size: int | None) -> tuple[RouterConfig, tuple[str, ...]]:
        """Return the configuration with a preset's belief settings applied, and in words what they changed.

        Args:
            index_block_size: tokens in a block of an index that the caller brings, which overrules all others;
                ``None`` = the router makes its own index.
        """
        preset = preset_of(self.policy)
        if index_block_size is not None:
            note = f"preset {self.policy!r}: the index was given, so the preset's belief settings are not applied"
            return replace(self, block_size=index_block_size), () if preset is None else (note,)
        if preset is None:
            return self, ()
        notes, size = [], preset.belief.block_size
        if size is not None and size % self.block_size:
            notes.append(
                f"preset {self.policy!r}: block_size {size} does not fit prompts in blocks of {self.block_size}; "
                f"kept {self.block_size}"
            )
            size = None
        belief = {"block_size": size, "capacity_tokens": preset.belief.capacity_tokens, "ttl_s": preset.belief.ttl_s}
        changed = {name: value for name, value in belief.items() if value is not None and value != getattr(self, name)}
        notes += [
            f"preset {self.policy!r}: {name} {getattr(self, name)} replaced by {value}"
            for name, value in changed.items()
        ]
        return replace(self, **changed), tuple(notes)  # type: ignore[arg-type]


class RouterOptions(TypedDict, total=False):
    """The keywords of :class:`~prefixroute.router.Router`: the fields of :class:`RouterConfig`, each optional."""

    policy: str | Policy | Callable[[View], Answer]
    decode_policy: str | Policy | Callable[[View], Answer]
    block_size: int
    capacity_tokens: Capacity
    prompt_kind: str
    seed: int
    hash_seed: int
    hash_key: int | None
    clock: Callable[[], float]
    load: str
    recent_window: int | None
    ttl_s: float | None
    max_bytes: int | None
    tier_credits: tuple[float, float, float]
    caps: Caps
    timing: Timing
    session_capacity: int
    render: Callable[[Any], str] | None
    tokenizer: Any
    cost: CostModel


def _is_share(credit: Any) -> bool:
    real = isinstance(credit, Real)
    return real and 0.0 <= credit <= 1.0


def _name_of(policy: str | Policy | Callable[[View], Answer]) -> str:
    return policy if isinstance(policy, str) else as_policy(policy).name
