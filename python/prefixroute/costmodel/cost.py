"""What prefill and decoding cost, in seconds and dollars, from the GPU's data sheet and the model's shape.

One function prices a step of an engine, for first-token times, timed simulations and dollars alike:
:class:`prefixroute._core.StepPrices`. By default its figures are a calibrated roofline, see
:mod:`prefixroute.costmodel.speeds`. The preset ``article`` has the formula of the article that the project grew from
instead: prefill of n new tokens behind c cached ones takes ``2 P n + 2 L d ((c + n)^2 - c^2)`` operations, two for each
active weight P and token, and four for each layer L, attention width d and pair of a new token with one at or before
it, at half of the GPU's peak. Step times of other sources are a :class:`~prefixroute.costmodel.steptimes.StepTimes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from prefixroute._core import StepPrices
from prefixroute.costmodel.assumption import Assumption
from prefixroute.costmodel.behind import ARTICLE, CALIBRATED, figures_behind
from prefixroute.costmodel.capacity import CONTEXT_TOKENS, bounds_in, room_beside, tokens_in
from prefixroute.costmodel.gpus import LEAST_SHARE, MOST_USD_PER_HOUR, Gpu, find_gpu
from prefixroute.costmodel.links import DEFAULT_LINK, Link, TransferPrices, find_link
from prefixroute.costmodel.models import find_model
from prefixroute.costmodel.shape import ModelShape
from prefixroute.costmodel.speeds import PricedReplica, price_steps
from prefixroute.costmodel.steptimes import StepTimes
from prefixroute.errors import ConfigError
from prefixroute.validation import check_choice, check_float, check_instance, check_int

PRESETS = (CALIBRATED, ARTICLE)
"""How steps are priced unless step times are given."""
DEFAULT_GPU = "H100"
DEFAULT_MODEL = "Qwen3-8B"
ARTICLE_UTILIZATION = 0.5
ARTICLE_BANDWIDTH_UTILIZATION = 0.8
ARTICLE_USD_PER_HOUR = 4.29
"""Of an H100."""
DEFAULT_MEMORY_SHARE = 0.9
MOST_GPUS = 4_096
"""Far above any replica."""
HOURS_PER_MONTH = 730
"""Hours of a month, 365 x 24 / 12, as cloud bills count them."""
SHORT_SPAN_S = 86_400.0
"""Seconds of a log below which its dollars a month are a guess: traffic rises and falls over a day, and less than a day
shows a part of that only."""

MOST_OVERHEAD_S = 86_400
MOST_TOKENS = 1e15
"""Far above any prompt; operations stay finite."""
_SECONDS_PER_HOUR = 3600
_ARGUMENTS = (
    "gpu", "model", "preset", "utilization", "usd_per_gpu_hour", "tensor_parallel", "expert_parallel", "bandwidth_utilization",
    "memory_share", "weight_bytes", "weight_format", "kv_bytes", "overhead_s", "step_times",
)  # fmt: skip


class CostModel:
    """Seconds and dollars of one replica: ``tensor_parallel`` GPUs of one kind that serve one model.

    What is not given is a default, and listed as assumed in :attr:`assumptions`. Objects are immutable by convention,
    compare by value and pickle. Methods take and give tokens, seconds, bytes and US dollars.

    Args:
        gpu: a name of ``gpus.toml`` or a :class:`Gpu`.
        model: a name of ``models.toml``, the path of a ``config.json`` or a :class:`ModelShape`.
        preset: ``calibrated``, or ``article``: the article's formula, its utilization of 0.5 and its price of an
            H100.
        utilization: share of the GPU's peak operations that large products reach; the GPU's calibrated share unless
            given. Other shares of operations change in proportion.
        usd_per_gpu_hour: price of one GPU; the price in ``gpus.toml`` unless given.
        tensor_parallel: GPUs of one replica; 1 unless given.
        expert_parallel: whether these share out experts whole; each expert is split over all of them unless given.
        bandwidth_utilization: share of the peak memory bandwidth at which weights are read; the GPU's calibrated share
            unless given.
        memory_share: share of the GPU's memory for weights and cache; 0.9 unless given.
        weight_bytes: bytes of one weight; the model's unless given.
        weight_format: ``bf16``, ``fp8``, ``fp4``, ``mxfp4``, ``int8`` or ``int4``; the model's unless given, or what
            ``weight_bytes`` suggest.
        kv_bytes: bytes of one number in the cache; the model's, which is 2 unless its file says otherwise, unless
            given.
        overhead_s: seconds added to each prefill, whatever its length; 0 unless given or fitted.
        step_times: tables of step times of this model on these GPUs, in place of the preset's prices.

    Raises:
        ConfigError: for an unknown name or a figure outside of what is possible.
    """

    __slots__ = (
        "_arguments", "bandwidth_utilization", "expert_parallel", "gpu", "memory_share", "model", "overhead_s", "preset", "prices",
        "step_times", "tensor_parallel", "usd_per_gpu_hour", "utilization",
    )  # fmt: skip

    def __init__(
        self,
        gpu: str | Gpu | None = None,
        model: str | ModelShape | None = None,
        *,
        preset: str | None = None,
        utilization: float | None = None,
        usd_per_gpu_hour: float | None = None,
        tensor_parallel: int | None = None,
        expert_parallel: bool | None = None,
        bandwidth_utilization: float | None = None,
        memory_share: float | None = None,
        weight_bytes: float | None = None,
        weight_format: str | None = None,
        kv_bytes: float | None = None,
        overhead_s: float | None = None,
        step_times: StepTimes | None = None,
    ) -> None:
        """Look up names, check figures and work out the prices of steps."""
        given = locals()
        self._arguments: dict[str, Any] = {name: given[name] for name in _ARGUMENTS}
        self.preset = CALIBRATED if preset is None else preset
        check_choice("preset", self.preset, PRESETS)
        self.gpu = gpu if isinstance(gpu, Gpu) else find_gpu(DEFAULT_GPU if gpu is None else gpu)
        shape = model if isinstance(model, ModelShape) else find_model(DEFAULT_MODEL if model is None else model)
        self.model = shape.stored_as(weight_bytes, weight_format, kv_bytes)
        self._set_shares(utilization, bandwidth_utilization)
        self.memory_share = _share("memory_share", memory_share, DEFAULT_MEMORY_SHARE)
        price = (
            ARTICLE_USD_PER_HOUR if self.preset == ARTICLE and self.gpu.name == DEFAULT_GPU else self.gpu.usd_per_hour
        )
        self.usd_per_gpu_hour = _up_to(MOST_USD_PER_HOUR, "usd_per_gpu_hour", usd_per_gpu_hour, price)
        self.overhead_s = _up_to(MOST_OVERHEAD_S, "overhead_s", overhead_s, 0.0)
        self.tensor_parallel = 1 if tensor_parallel is None else tensor_parallel
        check_int("tensor_parallel", self.tensor_parallel, 1, MOST_GPUS)
        self.expert_parallel = bool(expert_parallel)
        if step_times is not None:
            check_instance("step_times", step_times, StepTimes)
        self.step_times = step_times
        self.prices = self._price_steps()

    def _set_shares(self, utilization: float | None, bandwidth_utilization: float | None) -> None:
        article, shares = self.preset == ARTICLE, self.gpu.shares
        usual = ARTICLE_UTILIZATION if article else shares.bf16
        self.utilization = _share("utilization", utilization, usual)
        usual = ARTICLE_BANDWIDTH_UTILIZATION if article else shares.weights
        self.bandwidth_utilization = _share("bandwidth_utilization", bandwidth_utilization, usual)

    def _price_steps(self) -> StepPrices:
        if self.step_times is not None:
            return self.step_times.prices
        if self.preset == ARTICLE:
            return self._article_prices()
        shares = self.gpu.shares
        return price_steps(
            PricedReplica(
                self.gpu,
                self.model,
                self.tensor_parallel,
                self.expert_parallel,
                compute=self.utilization / shares.bf16,
                memory=self.bandwidth_utilization / shares.weights,
            )
        )

    def _article_prices(self) -> StepPrices:
        model, speed = self.model, self.utilization * self.gpu.flops * self.tensor_parallel
        return StepPrices.formula(
            linear_s=2 * model.active_parameters / speed,
            attention_s=2 * model.pair_width / speed,
            byte_s=1 / (self.bandwidth_utilization * self.gpu.bandwidth * self.tensor_parallel),
            weight_bytes=model.parameters * model.weight_bytes,
            active_weight_bytes=model.active_parameters * model.weight_bytes,
            kv_bytes=model.kv_bytes_per_token_at_most,
        )

    def prefill_flops(self, new_tokens: float, cached_tokens: float = 0) -> float:
        """Return the operations to compute ``new_tokens`` behind ``cached_tokens``.

        Args:
            new_tokens: to compute.
            cached_tokens: before them, which they attend to.

        Raises:
            ConfigError: one is negative, no number or endless.
        """
        check_float("new_tokens", new_tokens, 0, MOST_TOKENS)
        check_float("cached_tokens", cached_tokens, 0, MOST_TOKENS)
        context = cached_tokens + new_tokens
        pairs = context * context - cached_tokens * cached_tokens
        model = self.model
        return 2 * model.active_parameters * new_tokens + 2 * model.pair_width * pairs

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

        This is :meth:`step_seconds` of one chunk, plus :attr:`overhead_s`. Arrays of any numeric type give an array of
        float64 of the same shape. Numbers must be 0 or more and finite, and are not checked: a router asks for each
        replica at every decision.

        Args:
            new_tokens: to compute; an array gives an array of its shape.
            cached_tokens: before them, which they attend to.

        Raises:
            ConfigError: an array with a value that is negative, no number or endless.
        """
        if not isinstance(new_tokens, np.ndarray) and not isinstance(cached_tokens, np.ndarray):
            return self.prices.prefill_seconds(new_tokens, cached_tokens) + self.overhead_s
        new, cached = np.broadcast_arrays(_tokens("new_tokens", new_tokens), _tokens("cached_tokens", cached_tokens))
        seconds = self.prices.prefill_seconds_of(new.ravel(), cached.ravel())
        return seconds.reshape(new.shape) + self.overhead_s

    def step_seconds(
        self, prefill: Iterable[tuple[int, int]] = (), *, decodes: int = 0, decode_context_tokens: int = 0
    ) -> float:
        """Return the seconds of one engine step, by the prices that the model has.

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

        Args:
            sequences: requests that decode together.
            context_tokens: of all of them.
        """
        return self.step_seconds(decodes=sequences, decode_context_tokens=context_tokens)

    def transfer_prices(self, link: str | Link = DEFAULT_LINK) -> TransferPrices:
        """Return the prices of moving keys and values from one such replica to another over a link.

        What moves is what a replica keeps of the tokens: entries of each layer, as far as its window reaches, and
        states. Each GPU holds its part of the entries, and a copy of those that cannot be split.

        Args:
            link: a name of ``links.toml``, GB/s of a replica, or a :class:`~prefixroute.costmodel.Link`.

        Raises:
            ConfigError: an unknown link.
        """
        found, model, gpus = find_link(link), self.model, self.tensor_parallel
        speed = found.bytes_per_s or self.gpu.link_bandwidth * self.gpu.shares.link
        byte_s = 1 / speed if found.per_gpu else gpus / speed
        layers = [
            (
                each.entry_bytes(model.kv_bytes)
                / min(gpus, each.kv_shards)
                / (1 if each.window else each.entry_tokens)
                * byte_s,
                float(each.window or math.inf),
            )
            for each in model.attention
        ]
        return TransferPrices(found.latency_s, model.state_bytes / gpus * byte_s, layers)

    def transfer_seconds(self, tokens: float, link: str | Link = DEFAULT_LINK) -> float:
        """Return the seconds to move the keys and values of ``tokens`` of a prompt over a link, latency included.

        Args:
            tokens: those that the other replica does not hold; nothing moves for 0.
            link: as for :meth:`transfer_prices`.

        Raises:
            ConfigError: an unknown link, or tokens that are negative, no number or endless.
        """
        check_float("tokens", tokens, 0, MOST_TOKENS)
        return self.transfer_prices(link).seconds(tokens)

    @property
    def capacity_tokens(self) -> int:
        """Tokens that the KV cache of one replica holds: memory left by the weights, over the bytes of a token.

        A layer's cache is split over the GPUs as far as it has KV heads to split; a latent (MLA) is copied to each.
        Where requests take bytes whatever their length (layers with a window, states), these are spread over 8,192
        tokens; see :attr:`capacity_bounds`.

        Raises:
            ConfigError: if the weights leave no room.
        """
        return tokens_in(self._room(), self.model, gpus=self.tensor_parallel)

    @property
    def capacity_bounds(self) -> tuple[int, int]:
        """Least and most tokens that the cache holds, by what an engine keeps of layers with a window.

        The least is that of an engine that keeps every token there too; the most that of one long request. Both are
        equal where all layers grow alike.

        Raises:
            ConfigError: if the weights leave no room.
        """
        return bounds_in(self._room(), self.model, gpus=self.tensor_parallel)

    def _room(self) -> float:
        return room_beside(self.model, self.gpu, gpus=self.tensor_parallel, memory_share=self.memory_share)

    @overload
    def usd(self, seconds: float) -> float: ...
    @overload
    def usd(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def usd(self, seconds: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
        """Return the dollars of one replica for that many seconds.

        Of a difference of seconds, which may be negative, too.

        Args:
            seconds: of one replica with all its GPUs.
        """
        usd: float | NDArray[np.float64] = seconds * (self.usd_per_gpu_hour * self.tensor_parallel / _SECONDS_PER_HOUR)
        return usd

    def usd_per_token(self, prompt_tokens: float = CONTEXT_TOKENS) -> float:
        """Return the dollars of computing one prompt token, as the mean of a prompt.

        What a recomputed token costs where nothing is known of its prompt but a usual length. Later tokens of a prompt
        cost more.

        Args:
            prompt_tokens: length of the prompt, none of it cached; above 0.

        Raises:
            ConfigError: a length of 0 or less, or no finite number.
        """
        check_float("prompt_tokens", prompt_tokens, 0, MOST_TOKENS, above=True)
        return self.usd(self.prefill_seconds(prompt_tokens)) / prompt_tokens

    def usd_per_month(self, replicas: float) -> float:
        """Return the dollars of ``replicas`` replicas for a month of 730 hours.

        Args:
            replicas: of one model each, with all their GPUs.

        Raises:
            ConfigError: less than none, or no finite number.
        """
        check_float("replicas", replicas, 0, MOST_TOKENS)
        return replicas * self.tensor_parallel * self.usd_per_gpu_hour * HOURS_PER_MONTH

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Every figure behind the results, in a fixed order, with its source."""
        return tuple(figures_behind(self))

    def is_given(self, argument: str) -> bool:
        """Return whether an argument was given, and is no default.

        Args:
            argument: its name, as :class:`CostModel` takes it.
        """
        return self._arguments[argument] is not None

    def with_measured(self, *, utilization: float, overhead_s: float) -> CostModel:
        """Return this model with the two figures that measurements can tell.

        Args:
            utilization: share of the GPU's peak that a long prefill reaches, above 0 to 1.
            overhead_s: seconds of a request beside its prefill.
        """
        return CostModel(**{**self._arguments, "utilization": utilization, "overhead_s": overhead_s})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments; prices are worked out again."""
        return _rebuilt, (type(self), self._arguments)

    def _key(self) -> tuple[object, ...]:
        figures = tuple((item.name, item.value) for item in self.assumptions)
        return (*figures, self.model, self.gpu, self.expert_parallel, self.step_times)

    def __eq__(self, other: object) -> bool:
        """Compare by value."""
        return self._key() == other._key() if isinstance(other, CostModel) else NotImplemented

    def __hash__(self) -> int:
        """Hash by value."""
        return hash(self._key())

    def __repr__(self) -> str:
        """Return the call that makes an equal object."""
        return (
            f"CostModel({self.gpu.name!r}, {self.model.name!r}, preset={self.preset!r}, utilization={self.utilization}, "
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
