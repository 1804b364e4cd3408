"""Step times of aiconfigurator-core: its model over measured kernels of vLLM, SGLang and TensorRT-LLM, as a grid.

The package is the extra ``aic`` and is imported only here, when it is asked for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from prefixroute.costmodel.gpus import find_gpu
from prefixroute.costmodel.models import hub_names
from prefixroute.costmodel.steptimes import Axis, Points, StepTimes
from prefixroute.errors import ConfigError
from prefixroute.validation import check_choice, shown

if TYPE_CHECKING:
    from aiconfigurator_core.sdk.engine import EngineHandle

BACKENDS = ("vllm", "sglang", "trtllm")
SYSTEMS = {"H100": "h100_sxm", "H200": "h200_sxm", "B200": "b200_sxm", "A100": "a100_sxm", "L40S": "l40s"}
"""Names of GPUs there, by ours."""
_PRODUCTS = {
    "bf16": "bfloat16",
    "fp8": "fp8",
    "fp4": "nvfp4",
    "mxfp4": "w4a16_mxfp4",
    "int8": "int8_wo",
    "int4": "int4_wo",
}
"""Formats of weights there, by ours; of experts the first three, mxfp4 and int4."""
_ONLY_EXPERTS, _NO_EXPERTS = {"mxfp4"}, {"int8"}

TOKENS: Axis = (1, 2, 4, 8, 16, 32, 64, 96, 128, *(round(128 * 1.25**step) for step in range(1, 36)))
"""Prompt tokens of a step; attention grows with their square, a quarter more a point keeps straight lines within 1.3
%."""
CACHED: Axis = (0, 1_024, *(2_048 * 2**step for step in range(8)))
"""Tokens before them; seconds are a straight line in these."""
DECODES: Axis = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1_024)
CONTEXT: Axis = (1, *(256 * 2**step for step in range(11)))
_PLACE = re.compile(r" at /\S+")
"""Where the package's tables lie, in its errors."""
_BESIDE = 2_048
"""Prompt tokens of a step at which the cost of further tokens is taken that decode beside them."""


class ReplicaOptions(TypedDict, total=False):
    """How a replica runs a model, as :meth:`StepTimes.from_aiconfigurator` takes it; the defaults are those there."""

    backend: str
    tensor_parallel: int
    expert_parallel: bool
    weight_format: str | None


@lru_cache(maxsize=16)
def step_times(gpu: str, model: str | Path, **options: Unpack[ReplicaOptions]) -> StepTimes:
    """Return the step times of a model on a replica; see :meth:`StepTimes.from_aiconfigurator`."""
    asked = _asked(gpu, model, **options)
    with _quiet(asked):
        engine = asked.compiled()
        prefill = _table(
            TOKENS, CACHED, lambda new, cached: engine.predict_prefill_latency(1, int(new + cached), int(cached))
        )
        decode = _table(
            DECODES, CONTEXT, lambda requests, each: engine.predict_decode_latency(int(requests), int(each), 2)
        )
        rest = [engine.predict_prefill_latency(1, int(_BESIDE + requests), 0) for requests in (0, *DECODES)]
    beside = _beside(decode, [1e-3 * (seconds - rest[0]) for seconds in rest[1:]])
    version = metadata.version("aiconfigurator-core")
    source = f"aiconfigurator-core {version}, {asked.backend} tables, {asked.where}"
    return StepTimes(f"aic:{asked.backend}", source, prefill, decode, beside, step_s=prefill[2][0])


def _table(rows: Axis, columns: Axis, milliseconds: Callable[[float, float], float]) -> Points:
    return rows, columns, tuple(1e-3 * milliseconds(row, column) for row in rows for column in columns)


def _beside(decode: Points, tokens: list[float]) -> Points:
    """Return what requests that decode add to a step with prompt tokens.

    Their attention, and their tokens in the products.
    """
    rows, columns, seconds = decode
    width = len(columns)
    values = tuple(
        max(0.0, seconds[at] - seconds[at - at % width] + tokens[at // width]) for at in range(len(rows) * width)
    )
    return rows, columns, values


def compile_engine(gpu: str, model: str | Path, **options: Unpack[ReplicaOptions]) -> EngineHandle:
    """Return the package's own engine, which predicts milliseconds of any step.

    See :meth:`StepTimes.from_aiconfigurator`.
    """
    asked = _asked(gpu, model, **options)
    with _quiet(asked):
        return asked.compiled()


@dataclass(frozen=True)
class _Asked:
    """A replica in the package's own words.

    Attributes:
        where: the model and its GPUs, in ours.
        model: its name, or the folder of its ``config.json``.
        system: the kind of GPU.
        backend: the engine.
        replica: how many GPUs share products and experts.
        formats: of weights.
    """

    where: str
    model: str
    system: str
    backend: str
    replica: Mapping[str, int]
    formats: Mapping[str, str]

    def compiled(self) -> EngineHandle:
        """Return the package's engine."""
        from aiconfigurator_core.sdk.engine import EngineHandle  # noqa: PLC0415 - heavy, and an extra

        return EngineHandle.compile(self.model, self.system, self.backend, **self.replica, **self.formats)

    @property
    def is_there(self) -> bool:
        """Whether there are step times of it."""
        try:
            engine = self.compiled()
            return bool(engine.predict_prefill_latency(1, 128, 0) and engine.predict_decode_latency(1, 128, 2))
        except Exception:  # noqa: BLE001 - of any kind, as the package raises them
            return False

    def instead(self) -> str:
        """Return in words with which other backends, and in which other formats of weights, there are step times."""
        others = [one for one in BACKENDS if one != self.backend and replace(self, backend=one).is_there]
        known = {name: _formats(name) for name in _PRODUCTS if name not in _ONLY_EXPERTS}
        stored = [name for name, each in known.items() if each != self.formats and replace(self, formats=each).is_there]
        found = [f"with {' and '.join(others)}"] if others else []
        found += [f"with weights in {', '.join(stored)}"] if stored else []
        return f"there are some {', and '.join(found)}" if found else "nor with another engine or format of weights"


def _asked(
    gpu: str,
    model: str | Path,
    *,
    backend: str = "vllm",
    tensor_parallel: int = 1,
    expert_parallel: bool = False,
    weight_format: str | None = None,
) -> _Asked:
    from aiconfigurator_core.sdk import common  # noqa: PLC0415 - heavy, and an extra

    check_choice("backend", backend, BACKENDS)
    name = find_gpu(gpu).name
    if name not in SYSTEMS:
        raise ConfigError(f"tables are there of {', '.join(SYSTEMS)}, got gpu {shown(gpu)}")
    split = (1, tensor_parallel) if expert_parallel else (tensor_parallel, 1)
    replica = {"tp_size": tensor_parallel, **dict(zip(("moe_tp_size", "moe_ep_size"), split, strict=True))}
    where = f"{model} on {tensor_parallel} {gpu}{' with expert parallelism' * expert_parallel}"
    found = _model(model, common.DefaultHFModels)
    return _Asked(where, found, SYSTEMS[name], backend, replica, _formats(weight_format))


def _formats(weight_format: str | None) -> dict[str, str]:
    if weight_format is None:
        return {}
    check_choice("weight_format", weight_format, _PRODUCTS)
    kind = _PRODUCTS[weight_format]
    products = {} if weight_format in _ONLY_EXPERTS else {"gemm_quant_mode": kind}
    return products if weight_format in _NO_EXPERTS else {**products, "moe_quant_mode": kind}


def _model(model: str | Path, known: Any) -> str:
    """Return a model as the tables name it: by its name on the hub, or the folder of its ``config.json``."""
    path = Path(model)
    if path.suffix == ".json" and path.is_file():
        path = path.parent
    if path.is_dir():
        return str(path)
    name = {ours.lower(): hub for ours, hub in hub_names().items()}.get(str(model).lower(), str(model))
    if name not in known:
        ours = ", ".join(hub_names())
        raise ConfigError(
            f"there are tables for {ours}, for a folder with a config.json, and for {len(known)} names such as {min(known)}; got {str(model)!r}"
        )
    return name


@contextmanager
def _quiet(asked: _Asked) -> Iterator[None]:
    """Keep the package's log quiet, and say by name what it has no tables for, and what there is instead."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    except (ConfigError, KeyboardInterrupt):
        raise
    except Exception as error:
        reason = _PLACE.sub("", " ".join(str(error).split()))[:200]
        raise ConfigError(
            f"aiconfigurator has no step times of {asked.where} with {asked.backend} ({reason}); {asked.instead()}"
        ) from error
    finally:
        logging.disable(before)
