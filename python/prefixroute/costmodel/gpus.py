"""The GPUs that the cost model knows: speed, memory and price, each with its source, from ``gpus.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from prefixroute.shipped import shipped_table
from prefixroute.validation import check_choice, check_fields, check_float

MOST_USD_PER_HOUR = 1_000_000
"""Far above any price; dollars stay finite."""
LEAST_SHARE = 1e-6
"""Far below any utilization; seconds stay finite."""
MOST_LATENCY_S = 1.0
MOST_TILE = 1_024
"""Rows or columns of the largest tile."""
_MOST = 1e24
"""Far above any GPU; seconds stay finite and above 0."""


@dataclass(frozen=True, slots=True)
class ExpertShares:
    """What the kernels of experts reach: of another make on each generation of GPUs, and unlike large products.

    Attributes:
        bf16: of the peak operations in bf16, by wide experts with many tokens.
        fp8: of the peak in fp8.
        fp4: of the peak in fp4.
        mxfp4: of the peak in bf16, where weights in MXFP4 are unpacked.
        weights: of the peak bandwidth, by reading the experts that a batch picks.
        layer_s: seconds of a layer of experts beside computing and reading: choosing, sorting and gathering.
        padding: rows that the tokens of an expert are filled up by, at most, since a tile is computed whole.
        narrow: columns of an expert on one GPU at which its products reach half of what those of wide experts reach.
    """

    bf16: float = 0.43
    fp8: float = 0.12
    fp4: float = 0.1
    mxfp4: float = 0.32
    weights: float = 0.8
    layer_s: float = 25e-6
    padding: float = 3.0
    narrow: float = 91.0

    def __post_init__(self) -> None:
        """Check the figures.

        Raises:
            ConfigError: one is no number, or outside of what is possible.
        """
        check_fields(self, check_float, "bf16", "fp8", "fp4", "mxfp4", "weights", low=LEAST_SHARE, high=1)
        check_float("layer_s", self.layer_s, 0, MOST_LATENCY_S)
        check_fields(self, check_float, "padding", "narrow", low=0, high=MOST_TILE)


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of each peak that an engine's kernels reach; planning figures unless they were calibrated.

    Attributes:
        bf16: of the peak operations in bf16, by large products.
        fp8: of the peak in fp8.
        fp4: of the peak in fp4.
        attention: of the peak in bf16, by attention over a prompt.
        weights: of the peak bandwidth, by reading weights.
        cache: of the peak bandwidth, by reading keys and values.
        link: of the bandwidth to other GPUs, by all-reduces.
        link_latency_s: seconds of an all-reduce of next to nothing.
        experts: what layers of experts reach.
        source: where these are from.
    """

    bf16: float = 0.6
    fp8: float = 0.5
    fp4: float = 0.4
    attention: float = 0.5
    weights: float = 0.8
    cache: float = 0.8
    link: float = 0.7
    link_latency_s: float = 10e-6
    experts: ExpertShares = ExpertShares()
    source: str = "planning figures, 2026-11"

    def __post_init__(self) -> None:
        """Check the figures.

        Raises:
            ConfigError: one is no number, or outside of what is possible.
        """
        shares = ("bf16", "fp8", "fp4", "attention", "weights", "cache", "link")
        check_fields(self, check_float, *shares, low=LEAST_SHARE, high=1)
        check_float("link_latency_s", self.link_latency_s, 0, MOST_LATENCY_S)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU.

    Attributes:
        name: what it is asked for by, such as ``H100``.
        description: maker, form factor, memory.
        flops: dense bf16 floating-point operations a second at peak.
        memory_bytes: memory of one GPU, nominal.
        bandwidth: bytes a second between memory and cores at peak.
        source: where these are from.
        usd_per_hour: price of one GPU for an hour.
        price_source: where the price is from, with its date.
        fp8_flops: operations a second in fp8; 0 = it has none, and computes in bf16.
        fp4_flops: operations a second in fp4; 0 = it has none.
        link_bandwidth: bytes a second to the other GPUs of a replica, one direction.
        shares: what of these peaks is reached.
    """

    name: str
    description: str
    flops: float
    memory_bytes: float
    bandwidth: float
    source: str
    usd_per_hour: float
    price_source: str
    fp8_flops: float = 0.0
    fp4_flops: float = 0.0
    link_bandwidth: float = 64e9
    shares: Shares = Shares()

    def __post_init__(self) -> None:
        """Check the figures.

        Raises:
            ConfigError: one is no number, or outside of what is possible.
        """
        check_fields(self, check_float, "flops", "memory_bytes", "bandwidth", "link_bandwidth", low=1, high=_MOST)
        check_fields(self, check_float, "fp8_flops", "fp4_flops", low=0, high=_MOST)
        check_float("usd_per_hour", self.usd_per_hour, 0, MOST_USD_PER_HOUR)

    def computes(self, weight_format: str) -> str:
        """Return the format in which products with such weights are computed: ``bf16``, ``fp8`` or ``fp4``.

        Weights of a format that the GPU has no units for, and of integer formats, are unpacked and computed in bf16.

        Args:
            weight_format: how weights are stored, e.g. ``fp8``.
        """
        peaks = {"fp8": self.fp8_flops, "fp4": self.fp4_flops}
        return weight_format if peaks.get(weight_format) else "bf16"

    def reached_flops(self, weight_format: str) -> float:
        """Return the operations a second that large products with such weights reach.

        Args:
            weight_format: how weights are stored, e.g. ``fp8``.
        """
        computed = self.computes(weight_format)
        return self._peak(computed) * float(getattr(self.shares, computed))

    def reached_flops_of_experts(self, weight_format: str) -> float:
        """Return the operations a second that the products of experts with such weights reach.

        Args:
            weight_format: how weights are stored, e.g. ``fp4``.
        """
        computed = self.computes(weight_format)
        name = "mxfp4" if computed == "bf16" and weight_format in {"mxfp4", "fp4"} else computed
        return self._peak(computed) * float(getattr(self.shares.experts, name))

    def _peak(self, computed: str) -> float:
        return {"bf16": self.flops, "fp8": self.fp8_flops, "fp4": self.fp4_flops}[computed]


@cache
def gpus() -> dict[str, Gpu]:
    """Return the known GPUs by name."""
    return {name: _gpu(name, row) for name, row in shipped_table("prefixroute.costmodel", "gpus.toml").items()}


def _gpu(name: str, row: dict[str, Any]) -> Gpu:
    shares = row.get("shares", {})
    experts = ExpertShares(**shares.get("experts", {}))
    return Gpu(name=name, **{**row, "shares": Shares(**{**shares, "experts": experts})})


def find_gpu(name: str) -> Gpu:
    """Return the GPU of that name; case does not matter.

    Args:
        name: e.g. ``H100``.

    Raises:
        ConfigError: if there is none; the message lists the known ones.
    """
    found = next((known for known in gpus() if isinstance(name, str) and known.lower() == name.lower()), name)
    check_choice("gpu", found, gpus())
    return gpus()[found]
