"""What prefill and decoding cost, in seconds and dollars, from the GPU's data sheet and the model's shape.

Prefill of n new tokens behind c cached ones takes ``2 P n + 2 L d ((c + n)^2 - c^2)`` floating-point operations: two
for each active weight P and token, and four for each layer L, attention width d and pair of a new token with one at or
before it. Divided by the share of the GPU's peak that is reached, that gives seconds. A step of an engine takes the
longer of that and the time to read weights and cached keys and values from memory (the roofline).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from prefixroute._core import StepPrices
from prefixroute.columns import Column, mapped
from prefixroute.costmodel.assumption import Assumption
from prefixroute.costmodel.gpus import MOST_USD_PER_HOUR, Gpu, find_gpu
from prefixroute.costmodel.models import ModelShape, find_model
from prefixroute.errors import ConfigError
from prefixroute.validation import check_float, check_int

DEFAULT_GPU = "H100"
DEFAULT_MODEL = "Qwen3-8B"
DEFAULT_UTILIZATION = 0.5
DEFAULT_BANDWIDTH_UTILIZATION = 0.8
DEFAULT_MEMORY_SHARE = 0.9
MOST_GPUS = 4_096
"""Far above any replica."""
HOURS_PER_MONTH = 730
"""Hours of a month, 365 x 24 / 12, as cloud bills count them."""

LEAST_SHARE = 1e-6
"""Far below any utilization; seconds stay finite."""
MOST_OVERHEAD_S = 86_400
MOST_TOKENS = 1e15
"""Far above any prompt; operations stay finite."""
_SECONDS_PER_HOUR = 3600
_ARTICLE = "seed article, 2026-11"
_ENGINE = "vLLM's default for gpu_memory_utilization"


class CostModel:
    """Seconds and dollars of one replica: ``tensor_parallel`` GPUs of one kind that serve one model.

    What is not given is a default, and listed as assumed in :attr:`assumptions`. Objects are immutable by convention,
    compare by value and pickle. Methods take and give tokens, seconds, bytes and US dollars.

    Args:
        gpu: a name of ``gpus.toml`` or a :class:`Gpu`.
        model: a name of ``models.toml``, the path of a ``config.json`` or a :class:`ModelShape`.
        utilization: share of the GPU's peak operations that prefill reaches; 0.5 unless given.
        usd_per_gpu_hour: price of one GPU; the price in ``gpus.toml`` unless given.
        tensor_parallel: GPUs of one replica; 1 unless given.
        bandwidth_utilization: share of the peak memory bandwidth that a step reaches; 0.8 unless given.
        memory_share: share of the GPU's memory for weights and cache; 0.9 unless given.
        weight_bytes: bytes of one weight; the model's unless given.
        kv_bytes: bytes of one number in the cache; the model's, which is 2, unless given.
        overhead_s: seconds added to each prefill, whatever its length; 0 unless given or fitted.

    Raises:
        ConfigError: for an unknown name or a figure outside of what is possible.
    """

    __slots__ = (
        "_arguments", "bandwidth_utilization", "gpu", "memory_share", "model", "overhead_s", "prices", "tensor_parallel", "usd_per_gpu_hour",
        "utilization",
    )  # fmt: skip

    def __init__(
        self,
        gpu: str | Gpu | None = None,
        model: str | ModelShape | None = None,
        *,
        utilization: float | None = None,
        usd_per_gpu_hour: float | None = None,
        tensor_parallel: int | None = None,
        bandwidth_utilization: float | None = None,
        memory_share: float | None = None,
        weight_bytes: float | None = None,
        kv_bytes: float | None = None,
        overhead_s: float | None = None,
    ) -> None:
        """Look up names, check figures and work out the seconds of one operation and one byte."""
        self._arguments: dict[str, Any] = {
            "gpu": gpu,
            "model": model,
            "utilization": utilization,
            "usd_per_gpu_hour": usd_per_gpu_hour,
            "tensor_parallel": tensor_parallel,
            "bandwidth_utilization": bandwidth_utilization,
            "memory_share": memory_share,
            "weight_bytes": weight_bytes,
            "kv_bytes": kv_bytes,
            "overhead_s": overhead_s,
        }
        self.gpu = gpu if isinstance(gpu, Gpu) else find_gpu(DEFAULT_GPU if gpu is None else gpu)
        shape = model if isinstance(model, ModelShape) else find_model(DEFAULT_MODEL if model is None else model)
        self.model = replace(
            shape,
            weight_bytes=shape.weight_bytes if weight_bytes is None else weight_bytes,
            kv_bytes=shape.kv_bytes if kv_bytes is None else kv_bytes,
        )
        self.utilization = _share("utilization", utilization, DEFAULT_UTILIZATION)
        self.bandwidth_utilization = _share(
            "bandwidth_utilization", bandwidth_utilization, DEFAULT_BANDWIDTH_UTILIZATION
        )
        self.memory_share = _share("memory_share", memory_share, DEFAULT_MEMORY_SHARE)
        self.usd_per_gpu_hour = _up_to(MOST_USD_PER_HOUR, "usd_per_gpu_hour", usd_per_gpu_hour, self.gpu.usd_per_hour)
        self.overhead_s = _up_to(MOST_OVERHEAD_S, "overhead_s", overhead_s, 0.0)
        self.tensor_parallel = 1 if tensor_parallel is None else tensor_parallel
        check_int("tensor_parallel", self.tensor_parallel, 1, MOST_GPUS)
        self.prices = self._price_steps()

    def _price_steps(self) -> StepPrices:
        model, speed = self.model, self.utilization * self.gpu.flops * self.tensor_parallel
        return StepPrices.formula(
            linear_s=2 * model.active_parameters / speed,
            attention_s=2 * model.layers * model.attention_width / speed,
            byte_s=1 / (self.bandwidth_utilization * self.gpu.bandwidth * self.tensor_parallel),
            weight_bytes=model.parameters * model.weight_bytes,
            active_weight_bytes=model.active_parameters * model.weight_bytes,
            kv_bytes=model.kv_bytes_per_token,
        )

    def prefill_flops(self, new_tokens: float, cached_tokens: float = 0) -> float:
        """Return the operations to compute ``new_tokens`` behind ``cached_tokens``.

        Raises:
            ConfigError: one is negative, no number or endless.
        """
        check_float("new_tokens", new_tokens, 0, MOST_TOKENS)
        check_float("cached_tokens", cached_tokens, 0, MOST_TOKENS)
        context = cached_tokens + new_tokens
        pairs = context * context - cached_tokens * cached_tokens
        model = self.model
        return 2 * model.active_parameters * new_tokens + 2 * model.layers * model.attention_width * pairs

    @overload
    def prefill_seconds(self, new_tokens: float, cached_tokens: float = 0) -> float: ...
    @overload
    def prefill_seconds(
        self,
        new_tokens: NDArray[np.integer | np.floating],
        cached_tokens: NDArray[np.integer | np.floating] | float = 0,
    ) -> NDArray[np.float64]: ...
    def prefill_seconds(
        self,
        new_tokens: float | NDArray[np.integer | np.floating],
        cached_tokens: float | NDArray[np.integer | np.floating] = 0,
    ) -> float | NDArray[np.float64]:
        """Return the seconds to first token on an idle replica: compute ``new_tokens`` behind ``cached_tokens``.

        This is :meth:`step_seconds` of one chunk, plus :attr:`overhead_s`. Arrays of any numeric type give an array of float64 of
        the same shape. Numbers must be 0 or more and finite, and are not checked: a router asks for each replica at every
        decision.

        Raises:
            ConfigError: an array with a value that is negative, no number or endless.
        """
        if not isinstance(new_tokens, np.ndarray) and not isinstance(cached_tokens, np.ndarray):
            return self.prices.prefill_seconds(new_tokens, cached_tokens) + self.overhead_s
        new, cached = np.broadcast_arrays(_tokens("new_tokens", new_tokens), _tokens("cached_tokens", cached_tokens))
        seconds = self.prices.prefill_seconds_of(new.ravel(), cached.ravel())
        return seconds.reshape(new.shape) + self.overhead_s

    def rest_seconds(self, prompt_tokens: int, cached_tokens: Column) -> NDArray[np.float64]:
        """Return :meth:`prefill_seconds` of the rest of one prompt behind each of several cached heads, as decisions ask.

        A ``prefill_seconds`` of a subclass is called for each head.
        """
        if type(self).prefill_seconds is not CostModel.prefill_seconds:
            return mapped(cached_tokens, lambda cached: self.prefill_seconds(prompt_tokens - cached, cached))
        return self.prices.rest_seconds(prompt_tokens, cached_tokens) + self.overhead_s

    def step_seconds(
        self, prefill: Iterable[tuple[int, int]] = (), *, decodes: int = 0, decode_context_tokens: int = 0
    ) -> float:
        """Return the seconds of one engine step: the longer of computing and of reading memory.

        All figures must be 0 or more and finite, and are not checked: a simulated engine asks at every step.

        Args:
            prefill: (new tokens, tokens before them) of each prompt that has a chunk in the step.
            decodes: sequences that produce one token each.
            decode_context_tokens: tokens that these have in the cache, all together.
        """
        return self.prices.step_seconds(list(prefill), decodes, decode_context_tokens)

    def decode_seconds(self, sequences: int, context_tokens: int) -> float:
        """Return the seconds of one token for each of ``sequences`` that hold ``context_tokens`` all together.

        Both must be 0 or more and finite, and are not checked: a router asks for each replica at every decision.
        """
        return self.step_seconds(decodes=sequences, decode_context_tokens=context_tokens)

    @property
    def capacity_tokens(self) -> int:
        """Tokens that the KV cache of one replica holds: memory left by the weights, by bytes a token.

        A layer's cache is split over the GPUs as far as it has KV heads to split; a latent (MLA) is copied to each.

        Raises:
            ConfigError: if the weights leave no room.
        """
        weights = self.model.parameters * self.model.weight_bytes / self.tensor_parallel
        room = self.gpu.memory_bytes * self.memory_share - weights
        if room <= 0:
            raise ConfigError(
                f"{self.model.name} takes {weights / 1e9:.1f} GB on each of {self.tensor_parallel} {self.gpu.name} of "
                f"{self.gpu.memory_bytes * self.memory_share / 1e9:.1f} usable GB: raise tensor_parallel"
            )
        shards = min(self.tensor_parallel, self.model.kv_shards)
        return math.floor(room * shards / self.model.kv_bytes_per_token)

    @overload
    def usd(self, seconds: float) -> float: ...
    @overload
    def usd(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def usd(self, seconds: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
        """Return the dollars of one replica for that many seconds; of a difference of seconds, which may be negative, too."""
        usd: float | NDArray[np.float64] = seconds * (self.usd_per_gpu_hour * self.tensor_parallel / _SECONDS_PER_HOUR)
        return usd

    def usd_per_month(self, replicas: float) -> float:
        """Return the dollars of ``replicas`` replicas for a month of 730 hours.

        Raises:
            ConfigError: less than none, or no finite number.
        """
        check_float("replicas", replicas, 0, MOST_TOKENS)
        return replicas * self.tensor_parallel * self.usd_per_gpu_hour * HOURS_PER_MONTH

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Every figure behind the results, in a fixed order, with its source."""
        gpu, model, notes = self.gpu, self.model, "; ".join(self.model.notes)
        by_user = "given by the user"

        def row(name: str, value: float | str, unit: str, source: str) -> Assumption:
            given = self._arguments[name] is not None
            return Assumption(name, value, unit, by_user if given else source, not given)

        return (
            row("gpu", gpu.name, "", _ARTICLE),
            Assumption("gpu_flops", gpu.flops, "bf16 operations/s", gpu.source, assumed=False),
            Assumption("gpu_bandwidth", gpu.bandwidth, "bytes/s", gpu.source, assumed=False),
            Assumption("gpu_memory", gpu.memory_bytes, "bytes", gpu.source, assumed=False),
            row("model", model.name, "", _ARTICLE),
            Assumption("model_active_parameters", model.active_parameters, "", model.source, assumed=False),
            Assumption("model_kv_bytes_per_token", model.kv_bytes_per_token, "bytes", model.source, assumed=False),
            *([Assumption("model_note", notes, "", model.source, assumed=True)] if notes else []),
            self._weight_width(),
            row("kv_bytes", model.kv_bytes, "bytes a number", "bf16, vLLM's default for kv_cache_dtype"),
            row("utilization", self.utilization, "of peak operations", _ARTICLE),
            row("bandwidth_utilization", self.bandwidth_utilization, "of peak bandwidth", "planning figure, 2026-11"),
            row("memory_share", self.memory_share, "of GPU memory", _ENGINE),
            row("tensor_parallel", self.tensor_parallel, "GPUs a replica", "one GPU a replica, seed article, 2026-11"),
            row("overhead_s", self.overhead_s, "s", "none; fit measurements to learn it"),
            row("usd_per_gpu_hour", self.usd_per_gpu_hour, "$/h", gpu.price_source),
        )

    def _weight_width(self) -> Assumption:
        model, given = self.model, self._arguments["weight_bytes"] is not None
        source = "given by the user" if given else model.weight_source or "bf16, nothing says how weights are stored"
        return Assumption(
            "weight_bytes", model.weight_bytes, "bytes a weight", source, not (given or model.weight_source)
        )

    def with_measured(self, *, utilization: float, overhead_s: float) -> CostModel:
        """Return this model with the two figures that measurements can tell."""
        return CostModel(**{**self._arguments, "utilization": utilization, "overhead_s": overhead_s})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments; prices are worked out again."""
        return _rebuilt, (type(self), self._arguments)

    def _key(self) -> tuple[object, ...]:
        return tuple((item.name, item.value) for item in self.assumptions)

    def __eq__(self, other: object) -> bool:
        """Compare by value."""
        return self._key() == other._key() if isinstance(other, CostModel) else NotImplemented

    def __hash__(self) -> int:
        """Hash by value."""
        return hash(self._key())

    def __repr__(self) -> str:
        """Return the call that makes an equal object."""
        return (
            f"CostModel({self.gpu.name!r}, {self.model.name!r}, utilization={self.utilization}, "
            f"usd_per_gpu_hour={self.usd_per_gpu_hour}, tensor_parallel={self.tensor_parallel})"
        )


def _rebuilt(kind: type[CostModel], arguments: dict[str, Any]) -> CostModel:
    return kind(**arguments)


def _share(name: str, value: float | None, default: float) -> float:
    share = default if value is None else value
    check_float(name, share, LEAST_SHARE, 1)
    return share


def _tokens(name: str, values: float | NDArray[np.integer | np.floating]) -> NDArray[np.float64]:
    tokens = np.asarray(values, np.float64)
    good = (tokens >= 0) & (tokens <= MOST_TOKENS)
    if not good.all():
        at = int(np.argmin(good))
        raise ConfigError(
            f"{name} must be at least 0 and at most {MOST_TOKENS:g}, got {tokens.flat[at]:g} at position {at}"
        )
    return tokens


def _up_to(most: float, name: str, value: float | None, default: float) -> float:
    figure = default if value is None else value
    check_float(name, figure, 0, most)
    return figure
