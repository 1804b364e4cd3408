"""The figures that price the steps of a model on its GPUs: peaks, the shares of them that are reached, and constants.

The constants hold for every GPU. They and the shares of ``gpus.toml`` are fitted together to step times of
aiconfigurator-core 0.12.0 (measured kernels of vLLM 0.24), 2026-11; ``docs/accuracy.md`` has the rows, and what of them
was fitted and what predicted. ``benches/accuracy/calibrate.py`` fits them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefixroute._core import StepPrices
from prefixroute.costmodel.gpus import Gpu
from prefixroute.costmodel.shape import Attention, ModelShape

BF16 = 2
"""Bytes of a number of a token's vector."""
FEED_FORWARD_PASSES = 3
"""Times that the inner vector of a feed-forward layer is read or written."""
FEED_FORWARD_PRODUCTS = 3
"""Products of an expert: gate, up and down, each of the model's width and the expert's."""
ALL_REDUCES = 2
"""Sums over the GPUs of a replica in a layer: after attention and after its feed-forward part."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Constants of an engine's kernels, alike on every GPU.

    Attributes:
        layer_s: seconds of a layer beside its products, reads and messages: launches, norms, positions.
        prefill_layer_s: further seconds of a layer of attention in a step with prompt tokens: the kernel for prompts.
        latent_layer_s: further seconds of a layer of latent attention, whose projections are many and small.
        activation_passes: times that a token's vector is read or written in a layer beside its products.
        expert_passes: times that it is moved for each expert that it picks.
        imbalance: how much longer the GPU with the most tokens computes than the mean, where experts are spread whole.
    """

    layer_s: float = 40e-6
    prefill_layer_s: float = 35e-6
    latent_layer_s: float = 147e-6
    activation_passes: float = 16.0
    expert_passes: float = 1.0
    imbalance: float = 1.25


KERNELS = Kernels()


@dataclass(frozen=True, slots=True)
class PricedReplica:
    """GPUs that serve one model together, and how fast they are against what was calibrated.

    Attributes:
        gpu: the kind of GPU.
        model: what they serve.
        tensor_parallel: how many GPUs there are.
        expert_parallel: whether experts are spread over them whole, and not each split over all.
        compute: factor on the share of peak operations that is reached.
        memory: factor on the share of peak bandwidth.
        kernels: the constants of its engine.
    """

    gpu: Gpu
    model: ModelShape
    tensor_parallel: int = 1
    expert_parallel: bool = False
    compute: float = 1.0
    memory: float = 1.0
    kernels: Kernels = KERNELS

    @property
    def weights_bandwidth(self) -> float:
        """Bytes of weights that all GPUs together read in a second."""
        return self.tensor_parallel * self.gpu.bandwidth * self.gpu.shares.weights * self.memory

    def flops(self, weight_format: str) -> float:
        """Operations a second of large products, on all GPUs together."""
        return self.tensor_parallel * self.gpu.reached_flops(weight_format) * self.compute

    def flops_of_experts(self, weight_format: str) -> float:
        """Operations a second of the products of experts, on all GPUs together."""
        return self.tensor_parallel * self.gpu.reached_flops_of_experts(weight_format) * self.compute

    @property
    def attention_flops(self) -> float:
        """Operations a second of attention over prompts, on all GPUs together."""
        return self.tensor_parallel * self.gpu.flops * self.gpu.shares.attention * self.compute


def price_steps(replica: PricedReplica) -> StepPrices:
    """Return the calibrated prices of the steps of a replica."""
    model, kernels, bandwidth = replica.model, replica.kernels, replica.weights_bandwidth
    latent = sum(layers.layers for layers in model.attention if layers.latent)
    attention = sum(layers.layers for layers in model.attention)
    experts = model.experts.layers if model.experts else 0
    head_bytes = model.head_parameters * BF16
    return StepPrices.roofline(
        step_s=model.layers * kernels.layer_s
        + latent * kernels.latent_layer_s
        + experts * replica.gpu.shares.experts.layer_s
        + head_bytes / bandwidth
        + _messages(replica) * replica.gpu.shares.link_latency_s,
        prefill_s=attention * kernels.prefill_layer_s,
        token_s=_activation_seconds(replica) + _message_seconds(replica),
        logits_s=2 * model.head_parameters / replica.flops("bf16"),
        state_s=2 * model.state_bytes / bandwidth,
        matmul=(
            2 * model.dense_parameters / replica.flops(model.weight_format),
            model.dense_parameters * model.dense_weight_bytes / bandwidth,
        ),
        experts=_experts(replica),
        attention=[one for layers in model.attention for one in _attention(replica, layers)],
    )


def _messages(replica: PricedReplica) -> int:
    return ALL_REDUCES * replica.model.layers + 1 if replica.tensor_parallel > 1 else 0


def _message_seconds(replica: PricedReplica) -> float:
    """Seconds to sum one token's vectors over the GPUs, each of which sends and receives 2 (n - 1) / n of them."""
    gpus, gpu = replica.tensor_parallel, replica.gpu
    sent = _messages(replica) * replica.model.hidden * BF16 * 2 * (gpus - 1) / gpus
    return sent / (gpu.link_bandwidth * gpu.shares.link)


def _activation_seconds(replica: PricedReplica) -> float:
    """Seconds to read and write one token's vectors.

    Each GPU does it for the whole width, and for its part of the inner.
    """
    model = replica.model
    whole = replica.kernels.activation_passes * model.layers * model.hidden
    if model.experts:
        whole += replica.kernels.expert_passes * model.experts.layers * model.experts.picked * model.hidden
    split = FEED_FORWARD_PASSES * model.feed_forward_width / replica.tensor_parallel
    return (whole + split) * BF16 * replica.tensor_parallel / replica.weights_bandwidth


def _experts(replica: PricedReplica) -> tuple[float, float, float, float, float] | None:
    experts = replica.model.experts
    if experts is None:
        return None
    shares = replica.gpu.shares.experts
    whole = replica.expert_parallel or replica.tensor_parallel == 1
    columns = experts.parameters / (FEED_FORWARD_PRODUCTS * replica.model.hidden)
    narrow = shares.narrow / (columns if whole else columns / replica.tensor_parallel)
    compute = (1 + narrow) * 2 * experts.active / replica.flops_of_experts(experts.weight_format)
    if replica.expert_parallel and replica.tensor_parallel > 1:
        compute *= replica.kernels.imbalance
    bandwidth = replica.tensor_parallel * replica.gpu.bandwidth * shares.weights * replica.memory
    read = experts.stored * experts.weight_bytes / bandwidth
    return compute, read, float(experts.count), float(experts.picked), shares.padding


def _attention(replica: PricedReplica, layers: Attention) -> list[tuple[float, float, float]]:
    """Return (seconds a pair, seconds a token of context, window) of like layers, and of their index."""
    shards = min(replica.tensor_parallel, layers.kv_shards)
    cache = shards * replica.gpu.bandwidth * replica.gpu.shares.cache * replica.memory
    limits = [layers.window or float("inf"), layers.entry_tokens * (layers.picked or float("inf"))]
    entries = layers.layers / layers.entry_tokens
    main = (
        entries * 2 * layers.width / replica.attention_flops,
        entries * layers.kv_values * replica.model.kv_bytes / cache,
        min(limits),
    )
    if not layers.index_width:
        return [main]
    index = entries * 2 * layers.index_width / replica.attention_flops, entries * layers.index_bytes / cache
    return [main, (*index, float("inf"))]
