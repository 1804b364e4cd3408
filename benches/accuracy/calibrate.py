"""Fit the shares of ``gpus.toml`` and the constants of ``speeds.py`` to recorded step times, and print them.

Least squares of the logarithm of ours over theirs, with a soft limit on what one step can weigh and a weak pull to where the search
starts. Needs SciPy, which aiconfigurator-core brings. Run in ``benches``: ``python -m accuracy.calibrate``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from accuracy.step_times import DECODE, STEPS, Configuration, ours, recorded
from prefixroute.costmodel import CostModel, Shares, find_gpu
from prefixroute.costmodel.speeds import Kernels, Replica, price_steps

CONSTANTS = (
    "layer_s",
    "prefill_layer_s",
    "latent_layer_s",
    "expert_layer_s",
    "activation_passes",
    "expert_passes",
    "experts_bf16",
    "experts_fp8",
)
COMPUTE, MEMORY, LINK = ("bf16", "fp8", "fp4", "attention"), ("weights", "cache"), ("link", "link_latency_s")
OWNERS = {
    **{("H100", name): "H100" for name in (*COMPUTE, *MEMORY, *LINK)},
    **{("H200", name): "H100" for name in (*COMPUTE, *LINK)},  # the same chip and links as an H100
    **{("B200", name): "H100" for name in LINK},
}
"""Shares that a GPU has in common with another one."""
STARTS = Shares(bf16=0.8, fp8=0.7, fp4=0.7, attention=0.62, weights=0.85, cache=0.9, link=0.7, link_latency_s=5e-6)
LIMITS = {
    "layer_s": (1e-6, 40e-6),
    "prefill_layer_s": (1e-9, 40e-6),
    "activation_passes": (2, 16),
    "expert_passes": (1, 12),
}
PULL = 0.03
SOFT = 0.08


@dataclass(frozen=True)
class Parameter:
    """A figure that is fitted: a constant of all GPUs, or a share of one and of those that have it in common."""

    name: str
    gpu: str = ""
    start: float = 1.0

    @property
    def limits(self) -> tuple[float, float]:
        """Least and largest value."""
        if self.name.endswith("_s"):
            return LIMITS.get(self.name, (1e-6, 300e-6))
        return LIMITS.get(self.name, (0.05, 1.0))


def parameters(rows: list[Configuration]) -> list[Parameter]:
    """Return what the rows can tell."""
    found = [Parameter(name, start=getattr(Kernels(), name)) for name in CONSTANTS]
    for gpu in dict.fromkeys(row.gpu for row in rows):
        formats = {find_gpu(gpu).computes(row.cost.model.weight_format) for row in rows if row.gpu == gpu}
        several = any(row.tensor_parallel > 1 for row in rows if row.gpu == gpu)
        names = [name for name in COMPUTE if name in formats | {"bf16", "attention"}]
        names += [*MEMORY, *(LINK if several else ())]
        found += [Parameter(name, gpu, getattr(STARTS, name)) for name in names if OWNERS.get((gpu, name), gpu) == gpu]
    return found


def model_of(row: Configuration, values: dict[tuple[str, str], float]) -> CostModel:
    """Return the cost model of a configuration with the shares and constants of these values."""
    cost = row.cost
    kernels = replace(Kernels(), **{name: values["", name] for name in CONSTANTS})
    own = {
        name: values[OWNERS.get((row.gpu, name), row.gpu), name]
        for name in (*COMPUTE, *MEMORY, *LINK)
        if (OWNERS.get((row.gpu, name), row.gpu), name) in values
    }
    gpu = replace(cost.gpu, shares=replace(cost.gpu.shares, **own))
    cost.prices = price_steps(Replica(gpu, cost.model, row.tensor_parallel, row.expert_parallel, kernels=kernels))
    return cost


def used(row: Configuration) -> Iterator[int]:
    """Yield the steps that are fitted: all, but decode in fp8 on a B200, where the tables have batch 1 slower than batch 16."""
    for at, (kind, *_) in enumerate(STEPS):
        if not (row.gpu == "B200" and row.weight_format == "fp8" and kind == DECODE):
            yield at


def fit() -> dict[tuple[str, str], float]:
    """Return the fitted figures by GPU (empty for constants) and name."""
    rows = [row for row in recorded() if row.fitted]
    sought = parameters(rows)
    starts = np.log([np.clip(one.start, *one.limits) for one in sought])

    def residuals(logs: np.ndarray) -> np.ndarray:
        values = {(one.gpu, one.name): float(np.exp(log)) for one, log in zip(sought, logs, strict=True)}
        found = []
        for row in rows:
            steps = list(used(row))
            ratio = np.array(ours(row, model_of(row, values)))[steps] / np.array(row.milliseconds)[steps]
            found.append(np.log(ratio))
        return np.concatenate([*found, PULL * (logs - starts)])

    low, high = (np.log([one.limits[side] for one in sought]) for side in (0, 1))
    found = least_squares(
        residuals, np.clip(starts, low + 1e-9, high - 1e-9), bounds=(low, high), loss="soft_l1", f_scale=SOFT
    )
    return {(one.gpu, one.name): float(np.exp(log)) for one, log in zip(sought, found.x, strict=True)}


if __name__ == "__main__":
    for (owner, name), value in fit().items():
        print(f"{owner or 'all':5} {name:18} {value:.4g}")
