"""Step times of the cost model beside those of aiconfigurator-core, which rests on measured kernels (extra ``aic``).

``step_times.json`` keeps its times, so that tests compare without the package; ``make accuracy STUDY=step_times`` takes
them again. Of the configurations some were fitted (see ``calibrate.py``); they were chosen before the fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from prefixroute.costmodel import CostModel

RECORDED = Path(__file__).with_name("step_times.json")
PREFILL, DECODE = "prefill", "decode"
STEPS = (
    *((PREFILL, tokens, 0) for tokens in (128, 512, 2_048, 8_192, 32_768)),
    (PREFILL, 200, 8_600),
    *((DECODE, *step) for step in ((1, 1_000), (1, 8_000), (16, 2_000), (64, 2_000), (256, 2_000))),
)
"""Steps compared: (prefill, new tokens, cached tokens) and (decode, requests, tokens of context of each)."""
COLUMNS = (
    *(f"prefill {new:,}" + (f" behind {cached:,}" if cached else "") for kind, new, cached in STEPS if kind == PREFILL),
    *(f"decode {requests} x {context:,}" for kind, requests, context in STEPS if kind == DECODE),
)


@dataclass(frozen=True)
class Configuration:
    """A model on a replica, and milliseconds of its steps as aiconfigurator-core says.

    Attributes:
        model: its name in ``models.toml``.
        gpu: the kind of GPU.
        tensor_parallel: GPUs of the replica.
        weight_format: of all weights; None = the model's own.
        expert_parallel: whether experts are spread over the GPUs whole.
        published: whether it is a row of the table that the goal was set on.
        fitted: whether the calibration used it.
        milliseconds: of each of :data:`STEPS`.
    """

    model: str
    gpu: str
    tensor_parallel: int = 1
    weight_format: str | None = None
    expert_parallel: bool = False
    published: bool = False
    fitted: bool = False
    milliseconds: tuple[float, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        """Return the configuration in words."""
        gpus = f"{self.tensor_parallel} x {self.gpu}" if self.tensor_parallel > 1 else self.gpu
        parts = [self.model, gpus, self.weight_format or "", "experts spread" if self.expert_parallel else ""]
        return ", ".join(filter(None, parts))

    @property
    def cost(self) -> CostModel:
        """Our cost model of it."""
        return CostModel(
            self.gpu,
            self.model,
            tensor_parallel=self.tensor_parallel,
            weight_format=self.weight_format,
            expert_parallel=self.expert_parallel,
        )

    @property
    def is_sparse(self) -> bool:
        """Whether the model is a mixture of experts."""
        return self.cost.model.experts is not None


CONFIGURATIONS = (
    Configuration("Qwen3-8B", "H100", published=True),
    Configuration("Llama-3.1-8B", "H100", published=True, fitted=True),
    Configuration("Llama-3.1-8B", "H100", weight_format="fp8", published=True, fitted=True),
    Configuration("Llama-3.1-8B", "B200", published=True, fitted=True),
    Configuration("Qwen3-32B", "H100", 2, published=True),
    Configuration("Qwen3-32B", "H100", 8, published=True, fitted=True),
    Configuration("Llama-3.1-70B", "H100", 4, published=True, fitted=True),
    Configuration("Llama-3.1-70B", "H100", 4, weight_format="fp8", published=True),
    Configuration("Llama-3.1-70B", "B200", weight_format="fp4", published=True, fitted=True),
    Configuration("Llama-3.1-70B", "B200", 4, published=True),
    Configuration("gpt-oss-120b", "H100", published=True, fitted=True),
    Configuration("DeepSeek-V3", "H200", 8, published=True, fitted=True),
    Configuration("Llama-3.1-8B", "H200", fitted=True),
    Configuration("Qwen3-30B-A3B", "H100", fitted=True),
    Configuration("Llama-3.1-8B", "A100", fitted=True),
    Configuration("Qwen3-32B", "A100", 4, fitted=True),
    Configuration("Llama-3.1-8B", "L40S", fitted=True),
    Configuration("Llama-3.1-8B", "L40S", weight_format="fp8", fitted=True),
    Configuration("Qwen3-32B", "L40S", 2, fitted=True),
    Configuration("Llama-3.1-70B", "B200", 2, weight_format="fp8", fitted=True),
    Configuration("Qwen3-32B", "H100", 4),
    Configuration("Llama-3.1-70B", "H100", 8),
    Configuration("Llama-3.1-70B", "H200", 2),
    Configuration("Llama-3.1-70B", "H200", 4, weight_format="fp8"),
    Configuration("Llama-3.1-70B", "B200"),
    Configuration("Llama-3.1-8B", "B200", weight_format="fp8"),
    Configuration("Qwen3-8B", "A100"),
    Configuration("Qwen3-32B", "A100", 2),
    Configuration("Qwen3-8B", "L40S"),
    Configuration("Qwen3-235B-A22B", "H200", 8),
    Configuration("Qwen3-235B-A22B", "H200", 8, expert_parallel=True),
    Configuration("Qwen3-235B-A22B", "B200", 8),
    Configuration("Qwen3-30B-A3B", "H200"),
    Configuration("Qwen3-30B-A3B", "B200", fitted=True),
    Configuration("gpt-oss-120b", "H200"),
    Configuration("gpt-oss-120b", "B200", fitted=True),
    Configuration("DeepSeek-V3", "H200", 8, expert_parallel=True),
    Configuration("DeepSeek-V3", "B200", 8),
    Configuration("Qwen3-235B-A22B", "B200", 8, weight_format="fp8", fitted=True),
    Configuration("Qwen3-235B-A22B", "B200", 8, weight_format="fp4", fitted=True),
    Configuration("Qwen3-30B-A3B", "B200", weight_format="fp8", fitted=True),
    Configuration("Qwen3-30B-A3B", "B200", weight_format="fp4", fitted=True),
    Configuration("Qwen3-235B-A22B", "B200", 4, weight_format="fp8"),
    Configuration("Qwen3-235B-A22B", "B200", 4, weight_format="fp4"),
    Configuration("Qwen3-30B-A3B", "B200", 2, weight_format="fp4"),
    Configuration("Qwen3-30B-A3B", "B200", 2),
    Configuration("Qwen3-235B-A22B", "B200", 4),
    Configuration("Qwen3-235B-A22B", "B200", 8, expert_parallel=True),
    Configuration("gpt-oss-120b", "B200", 2),
    Configuration("gpt-oss-120b", "H100", 2),
    Configuration("Qwen3-30B-A3B", "H200", 2),
)


def recorded() -> list[Configuration]:
    """Return the configurations with the times that were taken last."""
    return [
        Configuration(**{**row, "milliseconds": tuple(row["milliseconds"])}) for row in json.loads(RECORDED.read_text())
    ]


def ours(configuration: Configuration, cost: CostModel | None = None) -> list[float]:
    """Return milliseconds of each of :data:`STEPS` by our cost model."""
    cost = cost or configuration.cost
    return [1e3 * seconds for seconds in _seconds(cost)]


def _seconds(cost: CostModel) -> Iterator[float]:
    for kind, first, second in STEPS:
        yield cost.prefill_seconds(first, second) if kind == PREFILL else cost.decode_seconds(first, first * second)


def errors(configuration: Configuration) -> np.ndarray:
    """Return the relative error of each step: ours over theirs, less 1."""
    return np.array(ours(configuration)) / np.array(configuration.milliseconds) - 1


def measure(configuration: Configuration) -> list[float]:
    """Return milliseconds of each of :data:`STEPS` by aiconfigurator-core."""
    from prefixroute.costmodel.aic import compile_engine  # noqa: PLC0415 - an extra

    engine = compile_engine(
        configuration.gpu,
        configuration.model,
        tensor_parallel=configuration.tensor_parallel,
        expert_parallel=configuration.expert_parallel,
        weight_format=configuration.weight_format,
    )
    return [
        engine.predict_prefill_latency(1, first + second, second)
        if kind == PREFILL
        else engine.predict_decode_latency(first, second, 2)
        for kind, first, second in STEPS
    ]


def main(*, write: bool) -> None:
    """Take all times again, print the errors and, if asked to, keep the times."""
    taken = [
        replace(each, milliseconds=tuple(float(f"{time:.5g}") for time in measure(each))) for each in CONFIGURATIONS
    ]
    if write:
        RECORDED.write_text("[\n" + ",\n".join(json.dumps(asdict(row)) for row in taken) + "\n]\n")
    for each in taken:
        found = errors(each)
        kind = "fitted" if each.fitted else ""
        print(f"{each!s:40} {kind:6} " + " ".join(f"{100 * error:+4.0f}" for error in found))
