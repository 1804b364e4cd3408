"""The figures behind a cost model: what each is, where it is from, and whether somebody gave it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from prefixroute.costmodel.assumption import Assumption
from prefixroute.costmodel.capacity import CONTEXT_TOKENS

if TYPE_CHECKING:
    from prefixroute.costmodel.cost import CostModel

CALIBRATED, ARTICLE = "calibrated", "article"
"""Presets: how steps are priced unless step times are given."""
_SOURCE_OF_ARTICLE = "reference article, 2026-11"
_ENGINE = "vLLM's default for gpu_memory_utilization"


def figures_behind(cost: CostModel) -> Iterator[Assumption]:
    """Yield every figure behind the results of a cost model, in a fixed order, with its source."""
    gpu, model = cost.gpu, cost.model
    article = cost.preset == ARTICLE
    default, price = (_SOURCE_OF_ARTICLE,) * 2 if article else (gpu.shares.source, gpu.price_source)
    yield _asked(cost, "gpu", gpu.name, "", _SOURCE_OF_ARTICLE)
    yield _stated("gpu_flops", gpu.flops, "bf16 operations/s", gpu.source)
    yield _stated("gpu_bandwidth", gpu.bandwidth, "bytes/s", gpu.source)
    yield _stated("gpu_memory", gpu.memory_bytes, "bytes", gpu.source)
    yield _asked(cost, "model", model.name, "", _SOURCE_OF_ARTICLE)
    yield _stated("model_active_parameters", model.active_parameters, "", model.source)
    yield _stated("model_kv_bytes_per_token", model.kv_bytes_per_token, "bytes", model.source)
    if model.kv_bytes_per_request:
        source = f"{model.source}; spread over {CONTEXT_TOKENS:,} tokens for a capacity"
        yield _stated("model_kv_bytes_per_request", model.kv_bytes_per_request, "bytes", source)
        yield _stated("model_kv_bytes_per_token_at_most", model.kv_bytes_per_token_at_most, "bytes", model.source)
    if model.notes:
        yield Assumption("model_note", "; ".join(model.notes), "", model.source, assumed=True)
    yield _width(cost, "weight_bytes", "weight", model.weight_source, "bf16, nothing says how weights are stored")
    yield _width(cost, "kv_bytes", "number", model.kv_source, "bf16, vLLM's default for kv_cache_dtype")
    yield from _speeds(cost, default)
    yield _asked(cost, "memory_share", cost.memory_share, "of GPU memory", _ENGINE)
    unit = f"GPU{'s' * (cost.tensor_parallel != 1)} per replica"
    yield _asked(cost, "tensor_parallel", cost.tensor_parallel, unit, "one GPU a replica, reference article, 2026-11")
    yield _asked(cost, "overhead_s", cost.overhead_s, "s", "none; fit measurements to learn it")
    yield _asked(cost, "usd_per_gpu_hour", cost.usd_per_gpu_hour, "$/h", price)


def _stated(name: str, value: float | str, unit: str, source: str) -> Assumption:
    """Return a figure that its source states."""
    return Assumption(name, value, unit, source, assumed=False)


def _asked(cost: CostModel, name: str, value: float | str, unit: str, source: str) -> Assumption:
    """Return a figure that is an argument of the cost model, or a default."""
    return Assumption.of(name, value, unit, source, given=cost.is_given(name))


def _width(cost: CostModel, name: str, unit: str, said: str, usual: str) -> Assumption:
    """Return the row of a width of the model's, which its config says or does not."""
    row = _asked(cost, name, getattr(cost.model, name), f"bytes per {unit}", said or usual)
    return replace(row, assumed=row.assumed and not said)


def _speeds(cost: CostModel, default: str) -> Iterator[Assumption]:
    """Yield how steps are priced, and the shares of the peaks that this rests on."""
    if cost.step_times is not None:
        yield _stated("speeds", cost.step_times.name, "", cost.step_times.source)
        return
    yield _stated("speeds", cost.preset, "", default)
    yield _asked(cost, "utilization", cost.utilization, "of peak operations", default)
    yield _asked(cost, "bandwidth_utilization", cost.bandwidth_utilization, "of peak bandwidth", default)
