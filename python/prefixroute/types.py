"""Small value types that every part of prefixroute shares. They hold data and check it; they decide nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.limits import PROVISIONAL_S
from prefixroute.validation import check_fields, check_float, check_given, check_instance, check_int, check_texts, shown

EMPTY_ATTRS: Mapping[str, Any] = MappingProxyType({})
"""The attributes of a request that was given none."""

MIXED, PREFILL, DECODE = "mixed", "prefill", "decode"
ROLES = (MIXED, PREFILL, DECODE)
"""What a replica does of a request: all of it, the prompt, or the answer."""

new_tuple: Callable[[Any, tuple[Any, ...]], Any] = tuple.__new__
"""Make a named tuple of a class and the values of all its fields, in a quarter of the time of the class's own
constructor."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """What besides the tokens decides whether cached blocks may be shared.

    Equal tokens of two namespaces never match. Nor do tokens that somebody chose, unless they know the key of the index
    (:attr:`PrefixIndex.hash_key`, random by default); by accident two blocks meet once in 2**64.

    Attributes:
        model: name of the model. A router whose engines report KV events takes it for a choice of replicas and no part
            of hashes, since events do not name it; see :class:`~prefixroute.routing.cache_names.CacheNames`.
        lora: name of the adapter (make the version part of it: two versions must not share blocks).
        salt: the engine's cache salt, usually one per tenant.
        extra: ``(token position, key)`` pairs, a key being ``str`` or ``bytes``, for content that is not in the token
            ids: images by digest, prompt embeddings. A key enters the hash of the block that holds its position.
    """

    model: str = ""
    lora: str = ""
    salt: str = ""
    extra: tuple[tuple[int, str | bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Replica:
    """What is known about one engine process (a data-parallel rank is a replica of its own).

    Attributes:
        incarnation: identity of the process behind the name. When it changes, the replica has come back empty.
        capacity_tokens: tokens its KV cache holds; ``None`` = the router's ``capacity_tokens``.
        weight: speed relative to the others (> 0). A replica of weight 2 carries twice the load at equal rank.
        models: models and adapters it serves; ``None`` = everything. Compared with
            ``namespace.lora or namespace.model``.
        address: where the host sends requests, if the name is not the address. Passed through; read only to warn of
            other processes that route to the same replicas.
        rank: data-parallel rank behind the address. Passed through, never read.
        events: the engine's KV events are fed into the index, so that routed blocks are provisional.
        reuse_reports: the engine reports the reuse of a block in the shape of a store event, so that such an event is
            no further copy (see :meth:`PrefixIndex.add_replica`). Fixed when the replica is added.
        role: ``mixed`` = it computes prompts and decodes; ``prefill`` or ``decode`` = only one of these, and gets
            requests by :meth:`Router.route_pair` alone.
    """

    incarnation: str = ""
    capacity_tokens: int | None = None
    weight: float = 1.0
    models: frozenset[str] | None = None
    address: str | None = None
    rank: int | None = None
    events: bool = False
    reuse_reports: bool = False
    role: str = MIXED

    def __post_init__(self) -> None:
        """Refuse what no replica can have; accept any collection of models."""
        check_float("weight", self.weight, 0, above=True)
        check_given(self, check_int, "capacity_tokens", low=1)
        check_fields(self, check_instance, "events", "reuse_reports", kind=bool)
        if not isinstance(self.role, str) or self.role not in ROLES:
            raise ConfigError(
                f"a replica's role must be {', '.join(ROLES[:-1])} or {ROLES[-1]}, got {shown(self.role)}"
            )
        if self.models is not None:
            object.__setattr__(self, "models", frozenset(check_texts("models", self.models)))


@dataclass(frozen=True, slots=True)
class Caps:
    """Admission caps of every replica. ``None`` = no cap. A cap on something unknown lets the request pass.

    Attributes:
        in_flight: requests that this router has in flight there.
        uncached_tokens: prompt tokens waiting to be computed there, by this router's book.
        waiting: requests in the engine's queue, as reported.
        running: requests in the engine's batch, as reported.
        kv_use: share of the KV cache in use, 0 to 1, as reported.
        retry_after_s: seconds that :class:`~prefixroute.errors.OverloadedError` suggests to wait.
    """

    in_flight: int | None = None
    uncached_tokens: int | None = None
    waiting: int | None = None
    running: int | None = None
    kv_use: float | None = None
    retry_after_s: float = 1.0

    def __post_init__(self) -> None:
        """Refuse caps that would admit nothing by mistake."""
        check_given(self, check_int, "in_flight", "uncached_tokens", "waiting", "running", called="cap {}", low=1)
        check_given(self, check_float, "kv_use", called="cap {}", low=0, high=1, above=True)
        check_float("retry_after_s", self.retry_after_s, 0)


@dataclass(frozen=True, slots=True)
class Timing:
    """Every span of time that the router keeps, in seconds, with the source of each default.

    Attributes:
        session_idle_s: a session unused for so long is forgotten (SGLang's router: 600).
        ticket_s: a request without progress for so long is given up and refunded.
        slow_start_s: a fresh or readmitted replica reaches its full share after so long.
        report_fresh_s: a reported load older than this is unknown (SGLang's router: 5).
        provisional_s: routed blocks of an event-fed replica vanish unless confirmed within this (llm-d: 2). It goes to
            the index that the router makes; an index given with ``index=`` has its own.
        window_s: length of the window of prefill seconds (Preble: 180).
        peer_s: what a peer has in flight is given back after it was not heard of for so long; it speaks every second.
    """

    session_idle_s: float = 600.0
    ticket_s: float = 600.0
    slow_start_s: float = 30.0
    report_fresh_s: float = 5.0
    provisional_s: float = PROVISIONAL_S
    window_s: float = 180.0
    peer_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse spans that are not positive (slow start may be 0: off)."""
        spans = ("session_idle_s", "ticket_s", "report_fresh_s", "provisional_s", "window_s", "peer_s")
        check_fields(self, check_float, *spans, low=0, above=True, endless=True)
        check_float("slow_start_s", self.slow_start_s, 0)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A replica's own account of its load. ``None`` = not reported, which is unknown and never zero.

    Attributes:
        at: time of the report on the router's clock, in seconds.
        waiting: requests in its queue.
        running: requests in its batch.
        waiting_tokens: uncached prompt tokens in its queue.
        kv_use: share of the KV cache in use, 0 to 1.
        tokens_per_s: measured prefill throughput.
    """

    at: float
    waiting: int | None = None
    running: int | None = None
    waiting_tokens: int | None = None
    kv_use: float | None = None
    tokens_per_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse loads that no replica can have."""
        check_given(self, check_float, "waiting", "running", "waiting_tokens", "tokens_per_s", low=0)
        check_given(self, check_float, "kv_use", low=0, high=1)
