"""What the name of a model means for cached blocks: the one rule by which requests and engines' KV events meet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from prefixroute.types import Namespace, Replica

MAX_ADAPTERS = 4096
"""Adapters remembered of one replica. The one that was heard of first is forgotten for one that is new."""


class CacheNames(NamedTuple):
    """Under which namespace the blocks of a request lie, in a fleet some of whose engines report KV events.

    An engine that reports events holds one base model, and its events do not name it: they name the adapter and the
    salt. So a model that such a replica serves selects replicas, and is no part of block hashes. A request that names
    an adapter as its model, as vLLM's API has it (``adapter``) or SGLang's (``base:adapter``), belongs to that
    adapter's blocks. Which names are adapters is known from events. A model that no reporting replica serves is part of
    the hash as it is.

    Attributes:
        reported: models and adapters that replicas with events serve; ``None`` = any.
        adapters: names of adapters that events have named.
    """

    reported: frozenset[str] | None = frozenset()
    adapters: frozenset[str] = frozenset()

    @classmethod
    def among(cls, reporting: Iterable[tuple[Replica, Iterable[str]]]) -> CacheNames:
        """Return the names of a fleet: for each replica with events what is known of it, and its adapters."""
        reported: frozenset[str] | None = frozenset()
        adapters: set[str] = set()
        for replica, known in reporting:
            reported = None if reported is None or replica.models is None else reported | replica.models
            adapters.update(known)
        return cls(reported, frozenset(adapters))

    def of(self, namespace: Namespace | None) -> Namespace | None:
        """Return the namespace that the blocks of a request are hashed under."""
        reported = self.reported
        if reported is not None and not reported:
            return namespace
        if not isinstance(namespace, Namespace) or not isinstance(namespace.model, str) or not namespace.model:
            return namespace  # what is no namespace is refused where it is hashed
        if reported is not None and (namespace.lora or namespace.model) not in reported:
            return namespace
        return replace(namespace, model="", lora=namespace.lora or self._adapter(namespace.model))

    def _adapter(self, model: str) -> str:
        if model in self.adapters:
            return model
        behind = model.partition(":")[2]
        return behind if behind in self.adapters else ""
