"""Policies that hash a key: sessions, rendezvous, bounded load, prefix hash, documents.

All of them use one order of replicas per key: rendezvous hashing (Thaler, Ravishankar 1996) over the replicas' *names*.
Adding a replica moves about 1/N of the keys, all of them to it; removing one moves only its keys; the order in which
replicas are listed does not matter; and routers that share nothing agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import inf
from typing import ClassVar

from prefixroute.columns import Kernel
from prefixroute.errors import ConfigError
from prefixroute.policies.base import MOST_TOKENS, Compiled, Policy, check_parameters, kernel_of
from prefixroute.policies.spread import POWER_OF_TWO
from prefixroute.validation import check_choice, check_instance, check_int

CACHED_KEY = 256
"""Characters up to which the hash of a key is remembered, so that what is remembered is bounded in bytes."""


def text_hash(text: str) -> int:
    """Return the 64-bit hash of a replica name or a key: BLAKE2b of its UTF-8 bytes, little endian."""
    return _short_hash(text) if len(text) <= CACHED_KEY else _hash(text)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


_short_hash = lru_cache(maxsize=65_536)(_hash)


def name_hash(name: str, seed: int) -> int:
    """Return the 64-bit hash of a replica's name; each ``seed`` but 0 is another placement of all keys."""
    return text_hash(f"{name}\0{seed}" if seed else name)


@dataclass(frozen=True, slots=True)
class Session(Compiled):
    """Keep each session on its replica: the first binding is its rendezvous choice, the router remembers it.

    Reasons: ``primary`` (the bound replica), ``assigned`` (first time), ``rebound`` (it is gone, draining, full or has
    failed: the session moves to its next rendezvous choice), ``detour`` (suspended or excluded: this request goes
    there, the binding stays), ``no_session`` (keyless: the fallback decides).

    Attributes:
        fallback: policy of requests without a session.
        placement: who places a session that is new or has to move. ``rendezvous``: its key, so that routers which share
            nothing agree. ``fallback``: the fallback policy, so that each router has a home of its own for it.
    """

    fallback: Policy = POWER_OF_TWO
    placement: str = "rendezvous"
    name: ClassVar[str] = "session"
    matches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the fallback and the placement."""
        check_parameters(self)
        check_choice("session placement", self.placement, ("rendezvous", "fallback"))

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.session(self.placement == "rendezvous", text_hash, kernel_of(self.fallback))


@dataclass(frozen=True, slots=True)
class TwoChoices(Compiled):
    """Take the less loaded of a session's two first rendezvous choices; the first of them if both are equal.

    Routers that share nothing agree on the two, and on the first one while load is light. Requests without a session
    take the less loaded of two drawn replicas.
    """

    name: ClassVar[str] = "two-choices"
    matches: ClassVar[bool] = False

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.two_choices(text_hash)


TWO_CHOICES = TwoChoices()
"""The default home of what nobody holds."""


@dataclass(frozen=True, slots=True)
class Rendezvous(Compiled):
    """Send equal keys to equal replicas, with no state at all: several routers agree without talking.

    Attributes:
        key: ``session``, ``head`` (hash of the prompt's first ``head_tokens``) or ``document`` (``attrs["document"]``,
            else the head).
        head_tokens: length of the head in tokens, rounded down to full blocks.
        fallback: policy of requests without a key.
    """

    key: str = "session"
    head_tokens: int = 256
    fallback: Policy = POWER_OF_TWO
    name: ClassVar[str] = "rendezvous"
    matches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the key and the head."""
        check_parameters(self)
        check_choice(f"{self.name} key", self.key, Kernel.KEYS)

    def required_signals(self) -> frozenset[str]:
        """The head, unless sessions are the key."""
        return self.fallback.required_signals() | _head(self.key)

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.hashed(self.key, text_hash, kernel_of(self.fallback))


@dataclass(frozen=True, slots=True)
class Document(Compiled):
    """Send a document's questions to one replica: hash of ``attrs["document"]``, else of the prompt's head.

    Attributes:
        head_tokens: length of the head in tokens, rounded down to full blocks.
        fallback: policy of requests with neither.
    """

    head_tokens: int = 1_024
    fallback: Policy = POWER_OF_TWO
    name: ClassVar[str] = "document"
    signals: ClassVar[frozenset[str]] = frozenset({"head"})
    matches: ClassVar[bool] = False

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.hashed("document", text_hash, kernel_of(self.fallback))


@dataclass(frozen=True, slots=True)
class Bounded(Compiled):
    """Consistent hashing with bounded loads: a key's first choice with room takes it.

    A replica has room if its load, this request included, is at most ``ceil(factor * (total + 1) / n)``: the bound
    is never below 1, however many replicas there are (Mirrokni, Thorup, Zadimoghaddam 2016).

    Attributes:
        factor: how far above the mean a replica may go (KubeAI, SMG: 1.25).
        rescue: what overflows the first choice goes first to a replica that starves, with a load below
            ``floor(total / (n * factor))``, so that one hot key leaves no replica idle; then to the next with room.
        key: ``head``, ``session`` or ``document``.
        head_tokens: length of the head in tokens, rounded down to full blocks.
        fallback: policy of requests without a key.
    """

    factor: float = 1.25
    rescue: bool = True
    key: str = "head"
    head_tokens: int = 256
    fallback: Policy = POWER_OF_TWO
    name: ClassVar[str] = "bounded"
    matches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the factor and the key."""
        check_parameters(self)
        check_choice(f"{self.name} key", self.key, Kernel.KEYS)
        if not 1.0 < self.factor < inf:
            raise ConfigError(f"bounded factor must be a finite number above 1, got {self.factor}")

    def required_signals(self) -> frozenset[str]:
        """The head, unless sessions are the key."""
        return self.fallback.required_signals() | _head(self.key)

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.bounded(self.key, self.factor, self.rescue, text_hash, kernel_of(self.fallback))


@dataclass(frozen=True, slots=True)
class PrefixHash(Compiled):
    """Hash the head of the prompt; leave an overloaded home for the least loaded replica.

    The home is overloaded if its load is above ``factor * mean`` and above ``mean + gap``.

    Attributes:
        head_tokens: length of the head in tokens (SMG: 256), rounded down to full blocks.
        boundaries: lengths in tokens at which shared prefixes end (engines that keep state at checkpoints only); the
            longest one inside the prompt replaces ``head_tokens``, which stands for prompts shorter than all of them.
        factor: overload relative to the mean (SMG: 1.25).
        gap: overload above the mean, in units of the load (SMG: 10).
        fallback: policy of prompts shorter than a block.
    """

    head_tokens: int = 256
    boundaries: tuple[int, ...] = ()
    factor: float = 1.25
    gap: float = 10.0
    fallback: Policy = POWER_OF_TWO
    name: ClassVar[str] = "prefix-hash"
    signals: ClassVar[frozenset[str]] = frozenset({"head"})
    matches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the lengths and the bounds."""
        check_parameters(self)
        check_instance("prefix-hash boundaries", self.boundaries, Sequence)
        for length in self.boundaries:
            check_int("a length of prefix-hash boundaries", length, 0, MOST_TOKENS)

    def kernel(self) -> Kernel:
        """Return the rule, compiled."""
        return Kernel.prefix_hash(self.factor, self.gap, kernel_of(self.fallback))


def _head(key: str) -> frozenset[str]:
    return frozenset() if key == "session" else frozenset({"head"})
