"""The shape of a model as far as steps and the KV cache cost: its weights, its layers of attention, its experts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from prefixroute.costmodel.storage import BF16_BYTES, FORMATS
from prefixroute.errors import ConfigError
from prefixroute.validation import check_choice, check_fields, check_float, check_given, check_int

WIDEST_BYTES = 8
_MOST = 1e24
"""Far above any model; seconds stay finite."""
_WIDTHS = {"bf16": 2.0, "fp8": 1.0, "fp4": 4.5 / 8, "mxfp4": 4.25 / 8, "int8": 1.0, "int4": 4.25 / 8}
"""Bytes of a weight of each format, with scales of usual groups."""
_NARROW, _WIDE = 0.75, 1.5
"""Bytes of a weight below which it is taken for fp4, and from which on for bf16, where only the bytes are given."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Layers of attention that are alike.

    Attributes:
        layers: how many there are.
        width: mean of the widths of all queries and of all values of a layer; heads x head size where the two are
            equal.
        kv_values: numbers that one cache entry of a layer holds: keys and values of all KV heads, or one latent.
        kv_shards: GPUs that an entry can be split over without copies: the KV heads, or 1 for a latent.
        latent: whether keys and values are projected from a latent (MLA).
        window: newest tokens that a layer keeps and attends to; None = all.
        entry_tokens: tokens that share one entry; more than 1 where a layer compresses.
        index_bytes: bytes beside an entry, of a key by which an index picks entries.
        index_width: half the width of all queries of that index.
        picked: entries that a token attends to at most; None = all.
        shared: whether they read the cache of earlier layers and keep none.
    """

    layers: int
    width: float
    kv_values: int
    kv_shards: int
    latent: bool = False
    window: int | None = None
    entry_tokens: int = 1
    index_bytes: float = 0.0
    index_width: float = 0.0
    picked: int | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        """Check the figures.

        Raises:
            ConfigError: one is no number, or outside of what is possible.
        """
        check_fields(self, check_int, "layers", "kv_values", "kv_shards", "entry_tokens", low=1, high=_MOST)
        check_given(self, check_int, "window", "picked", low=1, high=_MOST)
        check_float("width", self.width, 1, _MOST)
        check_fields(self, check_float, "index_bytes", "index_width", low=0, high=_MOST)

    def entry_bytes(self, kv_bytes: float) -> float:
        """Bytes of one entry over all of these layers; 0 where they share the cache of others.

        Args:
            kv_bytes: bytes of one number of the cache.

        Returns:
            Bytes.
        """
        return 0.0 if self.shared else self.layers * (self.kv_values * kv_bytes + self.index_bytes)

    def bytes_per_token(self, kv_bytes: float) -> float:
        """Bytes that the cache grows by with each token; 0 where a window bounds it.

        Args:
            kv_bytes: bytes of one number of the cache.

        Returns:
            Bytes a token.
        """
        return 0.0 if self.window else self.entry_bytes(kv_bytes) / self.entry_tokens

    def bytes_per_request(self, kv_bytes: float) -> float:
        """Bytes that a request takes whatever its length, once it is longer than the window; 0 without a window.

        Args:
            kv_bytes: bytes of one number of the cache.

        Returns:
            Bytes a request.
        """
        return self.entry_bytes(kv_bytes) * self.window if self.window else 0.0


@dataclass(frozen=True, slots=True)
class Experts:
    """Layers of experts, of which each token passes through a few.

    Attributes:
        layers: how many layers have them.
        count: experts of a layer.
        picked: experts of a layer that one token passes through.
        parameters: weights of one expert.
        weight_format: a name of :data:`~prefixroute.costmodel.storage.FORMATS`.
        weight_bytes: bytes of one weight, its share of scales included.
    """

    layers: int
    count: int
    picked: int
    parameters: float
    weight_format: str = "bf16"
    weight_bytes: float = BF16_BYTES

    def __post_init__(self) -> None:
        """Check the figures.

        Raises:
            ConfigError: one is no number, or outside of what is possible.
        """
        check_fields(self, check_int, "layers", "count", low=1, high=_MOST)
        check_int("picked", self.picked, 1, self.count)
        check_float("parameters", self.parameters, 1, _MOST)
        check_float("weight_bytes", self.weight_bytes, 0, WIDEST_BYTES, above=True)
        check_choice("weight_format", self.weight_format, FORMATS)

    @property
    def stored(self) -> float:
        """Weights of all experts."""
        return self.layers * self.count * self.parameters

    @property
    def active(self) -> float:
        """Weights of the experts that one token passes through."""
        return self.layers * self.picked * self.parameters


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model costs time and memory.

    Attributes:
        name: what tables call it.
        parameters: all weights, embeddings included.
        active_parameters: weights that one token passes through (fewer than all in a mixture of experts), embeddings
            included.
        layers: layers of every kind.
        hidden: width of the model.
        attention: its layers of attention.
        source: where the shape is from.
        head_parameters: weights of the output head, which only the last token of a prompt passes through.
        embedding_parameters: weights of embeddings and head together, once where they are tied.
        feed_forward_width: sum over the layers of the width of their feed-forward part, experts that are picked left
            out.
        experts: its layers of experts; None in a dense model.
        state_bytes: bytes of the state that layers without attention (linear attention, Mamba) keep for a request.
        weight_format: format of the weights outside of experts, a name of
            :data:`~prefixroute.costmodel.storage.FORMATS`.
        weight_bytes: mean bytes of one weight (2 for bf16; a little above 1 for fp8, whose embeddings are bf16).
        kv_bytes: bytes of one number in the cache.
        weight_source: what says how wide a weight is; empty where nothing does, and bf16 is assumed.
        kv_source: what says how wide a number in the cache is; empty where nothing does, and bf16 is assumed.
        notes: where the figures are not exact, and why.
    """

    name: str
    parameters: float
    active_parameters: float
    layers: int
    hidden: int
    attention: tuple[Attention, ...]
    source: str
    head_parameters: float = 0.0
    embedding_parameters: float = 0.0
    feed_forward_width: float = 0.0
    experts: Experts | None = None
    state_bytes: float = 0.0
    weight_format: str = "bf16"
    weight_bytes: float = BF16_BYTES
    kv_bytes: float = BF16_BYTES
    weight_source: str = ""
    kv_source: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the figures.

        Raises:
            ConfigError: one is no number, or outside of what is possible.
        """
        check_fields(self, check_float, "parameters", "active_parameters", low=1, high=_MOST)
        parts = ("head_parameters", "embedding_parameters", "feed_forward_width", "state_bytes")
        check_fields(self, check_float, *parts, low=0, high=_MOST)
        check_fields(self, check_int, "layers", "hidden", low=1, high=_MOST)
        check_fields(self, check_float, "weight_bytes", "kv_bytes", low=0, high=WIDEST_BYTES, above=True)
        check_choice("weight_format", self.weight_format, FORMATS)
        if not self.attention:
            raise ConfigError(
                f"{self.name} must have a layer of attention at least: a cache of prefixes is of keys and values"
            )

    def stored_as(self, weight_bytes: float | None, weight_format: str | None, kv_bytes: float | None) -> ModelShape:
        """Return the shape with weights and cache of the given widths; what is None stays as it is.

        Args:
            weight_bytes: bytes of one weight.
            weight_format: a name of :data:`~prefixroute.costmodel.storage.FORMATS`; what ``weight_bytes`` suggest
                unless given.
            kv_bytes: bytes of one number in the cache.

        Raises:
            ConfigError: a format that is not known, or a width outside of what is possible.
        """
        if weight_format is not None:
            check_choice("weight_format", weight_format, FORMATS)
        shape = self if kv_bytes is None else replace(self, kv_bytes=kv_bytes)
        if weight_bytes is None and weight_format is None:
            return shape
        width = weight_bytes if weight_bytes is not None else _WIDTHS[weight_format or ""]
        shape = replace(shape, weight_bytes=width)
        kind = weight_format or ("fp4" if width < _NARROW else "fp8" if width < _WIDE else "bf16")
        experts = shape.experts and replace(shape.experts, weight_format=kind, weight_bytes=width)
        return replace(shape, weight_format=kind, experts=experts)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes that the cache grows by with each token, over all layers and GPUs.

        Layers with a window do not count.
        """
        return sum(layers.bytes_per_token(self.kv_bytes) for layers in self.attention)

    @property
    def kv_bytes_per_request(self) -> float:
        """Bytes that a request takes whatever its length.

        Layers with a window, and the state of layers without attention.
        """
        return self.state_bytes + sum(layers.bytes_per_request(self.kv_bytes) for layers in self.attention)

    @property
    def kv_bytes_per_token_at_most(self) -> float:
        """Bytes a token of an engine that keeps every token in the layers with a window too."""
        return sum(layers.entry_bytes(self.kv_bytes) / layers.entry_tokens for layers in self.attention)

    @property
    def pair_width(self) -> float:
        """Width of attention over all layers: operations of a pair of tokens, over 4."""
        return sum(layers.layers * layers.width for layers in self.attention)

    @property
    def dense_parameters(self) -> float:
        """Weights that every token passes through, without embeddings and experts."""
        experts = self.experts.active if self.experts else 0.0
        return max(0.0, self.active_parameters - self.embedding_parameters - experts)

    @property
    def dense_weight_bytes(self) -> float:
        """Mean bytes of a weight outside of experts."""
        if self.experts is None:
            return self.weight_bytes
        rest = self.parameters - self.experts.stored
        bytes_left = self.weight_bytes * self.parameters - self.experts.weight_bytes * self.experts.stored
        return min(WIDEST_BYTES, max(0.0, bytes_left / rest)) if rest > 0 else self.weight_bytes

    def kv_bytes_of(self, context_tokens: float, *, shards: int) -> float:
        """Bytes of one request with so many tokens on each of ``shards`` GPUs, which split entries as far as they can.

        Args:
            context_tokens: of the request.
            shards: GPUs over which the model is split.

        Returns:
            Bytes on each GPU.
        """
        total = self.state_bytes / shards
        for layers in self.attention:
            kept = min(context_tokens, layers.window) if layers.window else context_tokens / layers.entry_tokens
            total += layers.entry_bytes(self.kv_bytes) * kept / min(shards, layers.kv_shards)
        return total
