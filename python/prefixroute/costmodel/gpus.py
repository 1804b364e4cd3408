"""The GPUs that the cost model knows: speed, memory and price, each with its source, from ``gpus.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from prefixroute.errors import ConfigError
from prefixroute.validation import check_float

MOST_USD_PER_HOUR = 1_000_000
"""Far above any price; dollars stay finite."""
_MOST = 1e24
"""Far above any GPU; seconds stay finite and above 0."""


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
    """

    name: str
    description: str
    flops: float
    memory_bytes: float
    bandwidth: float
    source: str
    usd_per_hour: float
    price_source: str

    def __post_init__(self) -> None:
        """Check the figures.

        Raises:
            ConfigError: one is no number, or outside of what is possible.
        """
        for name in ("flops", "memory_bytes", "bandwidth"):
            check_float(name, getattr(self, name), 1, _MOST)
        check_float("usd_per_hour", self.usd_per_hour, 0, MOST_USD_PER_HOUR)


@cache
def gpus() -> dict[str, Gpu]:
    """Return the known GPUs by name."""
    text = files("prefixroute.costmodel").joinpath("gpus.toml").read_text(encoding="utf-8")
    return {name: Gpu(name=name, **row) for name, row in tomllib.loads(text).items()}


def find_gpu(name: str) -> Gpu:
    """Return the GPU of that name; case does not matter.

    Raises:
        ConfigError: if there is none; the message lists the known ones.
    """
    for known, gpu in gpus().items():
        if isinstance(name, str) and known.lower() == name.lower():
            return gpu
    raise ConfigError(f"gpu must be one of {', '.join(gpus())}, got {name!r}")
