"""The hardware of a replica: what it is, how fast, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from prefixroute.cli import arguments
from prefixroute.cli.groups import HARDWARE, option, parser
from prefixroute.costmodel import FORMATS, CostModel
from prefixroute.sim.engine import CHUNK_TOKENS, MAX_RUNNING

_option = partial(option, panel=HARDWARE)
_gpu = partial(_option, None, "GPU of a replica.", show_default="H100")
_tensor_parallel = partial(_option, None, "GPUs of a replica.", min=1, show_default="1")
_utilization = partial(
    _option,
    None,
    "Share of the GPU's peak that large products reach: see `prefixroute fit`.",
    metavar="SHARE",
    show_default="of the GPU",
)
_price = partial(_option, None, "Dollars per GPU and hour.", metavar="USD", show_default="of the GPU")

_FIGURES = {
    "gpu": "gpu",
    "model": "model",
    "served_model": "model",
    "tensor_parallel": "tensor_parallel",
    "utilization": "utilization",
    "overhead": "overhead_s",
    "price": "usd_per_gpu_hour",
    "bandwidth_utilization": "bandwidth_utilization",
    "expert_parallel": "expert_parallel",
    "weight_format": "weight_format",
    "memory_share": "memory_share",
    "weight_bytes": "weight_bytes",
    "kv_bytes": "kv_bytes",
}
"""Arguments of the cost model by the options that give them."""


@dataclass(frozen=True, slots=True)
class Priced:
    """Options that price a replica, by the names of :data:`_FIGURES`, and ``speeds``."""

    @property
    def cost(self) -> CostModel:
        """The cost model; what was not given is a default and marked so."""
        given = {_FIGURES[one.name]: getattr(self, one.name) for one in fields(self) if one.name in _FIGURES}
        return arguments.priced(getattr(self, "speeds", None), given)


@dataclass(frozen=True, slots=True)
class Machine(Priced):
    """GPU and model of a replica, as far as the user says."""

    gpu: str | None = _gpu()
    model: str | None = _option(None, "Model: a known name, or a config.json.", show_default="Qwen3-8B")
    tensor_parallel: int | None = _tensor_parallel()
    expert_parallel: bool | None = _option(
        None, "Spread experts over the GPUs of a replica whole.", "--expert-parallel", show_default="off"
    )
    weight_format: str | None = _option(
        None,
        f"Format of weights, in which they are computed: {', '.join(FORMATS)}.",
        metavar="FORMAT",
        show_default="of the model",
    )
    speeds: str | None = _option(
        None,
        "What prices a step: calibrated; article, the reference article's formula; or aic, aic:vllm, aic:sglang, "
        "aic:trtllm, tables of measured kernels (extra `aic`).",
        metavar="HOW",
        show_default="calibrated",
    )


@dataclass(frozen=True, slots=True)
class LogMachine(Priced):
    """The same, for commands whose ``--model`` picks requests of the log."""

    gpu: str | None = _gpu()
    served_model: str | None = _option(
        None, "Model that prices tokens: a known name, or a config.json.", metavar="NAME", show_default="Qwen3-8B"
    )
    tensor_parallel: int | None = _tensor_parallel()
    price: float | None = _price()


@dataclass(frozen=True, slots=True)
class PricedMachine(Machine):
    """A machine, how fast it is and what it costs."""

    utilization: float | None = _utilization()
    price: float | None = _price()


@dataclass(frozen=True, slots=True)
class Hardware(Machine):
    """A machine, how fast it is and what its cache holds."""

    utilization: float | None = _utilization()
    overhead: float | None = _option(None, "Seconds added to each prefill.", metavar="SECONDS", show_default="0")
    bandwidth_utilization: float | None = _option(
        None,
        "Share of the GPU's peak memory bandwidth at which weights are read.",
        metavar="SHARE",
        show_default="of the GPU",
    )
    weight_bytes: float | None = _option(None, "Bytes a weight.", metavar="BYTES", show_default="of the model")
    kv_bytes: float | None = _option(
        None, "Bytes a number in the KV cache.", metavar="BYTES", show_default="of the model, else 2"
    )
    memory_share: float | None = _option(
        None, "Share of the GPU's memory for weights and KV cache.", metavar="SHARE", show_default="0.9"
    )
    capacity: str | None = _option(
        None,
        "KV cache of one replica, or `unlimited`. With --gpu, --model or what of their memory is used: what these "
        "leave.",
        metavar="TOKENS",
        show_default="300k",
    )
    chunk_tokens: int | None = _option(
        None,
        "Tokens of one step of the engine, timed.",
        parser=parser(arguments.count, what="--chunk-tokens"),
        metavar="TOKENS",
        show_default=f"{CHUNK_TOKENS}",
    )
    max_running: int | None = _option(
        None,
        "Requests that a replica runs at once, timed.",
        parser=parser(arguments.count, what="--max-running"),
        metavar="N",
        show_default=f"{MAX_RUNNING}",
    )

    @property
    def batching(self) -> dict[str, int]:
        """How the engine fills its steps, as far as it was given."""
        given = {"chunk_tokens": self.chunk_tokens, "max_running": self.max_running}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a scenario: the cache as given, else what the given hardware leaves beside the model."""
        if self.capacity is not None:
            unlimited = self.capacity == "unlimited"
            return {"capacity_tokens": None if unlimited else arguments.count(self.capacity, what="--capacity")}
        behind = (
            self.gpu, self.model, self.tensor_parallel, self.memory_share, self.weight_bytes, self.weight_format,
            self.kv_bytes,
        )  # fmt: skip
        known = any(figure is not None for figure in behind)
        return {"capacity_tokens": self.cost.capacity_tokens} if known else {}


@dataclass(frozen=True, slots=True)
class PricedHardware(Hardware):
    """Hardware and what it costs."""

    price: float | None = _price()
