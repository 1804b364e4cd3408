"""Fit the shares of ``gpus.toml`` and the constants of ``speeds.py`` to recorded step times, and print them.

Least squares of the logarithm of ours over theirs, with a soft limit on what one step can weigh and a weak pull to
where the search starts. Needs SciPy, which aiconfigurator-core brings. Run in ``benches``:
``python -m accuracy.calibrate`` fits all,
``python -m accuracy.calibrate experts`` what layers of experts cost, with the rest as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from accuracy.step_times import DECODE, STEPS, Configuration, ours, recorded
from prefixroute.costmodel import CostModel, Gpu, find_gpu
from prefixroute.costmodel.speeds import Kernels, PricedReplica, price_steps

CONSTANTS = ("layer_s", "prefill_layer_s", "activation_passes")
OF_EXPERTS = ("latent_layer_s", "expert_passes")
"""Constants of all GPUs; the second only in models with experts."""
COMPUTE, MEMORY, LINK = ("bf16", "fp8", "fp4", "attention"), ("weights", "cache"), ("link", "link_latency_s")
EXPERTS = ("bf16", "fp8", "fp4", "mxfp4", "weights", "layer_s", "padding", "narrow")
OWNERS = {
    **{("H200", name): "H100" for name in (*COMPUTE, *LINK, *(f"experts.{name}" for name in EXPERTS))},  # the same chip
    **{("B200", name): "H100" for name in LINK},
}
"""Shares that a GPU has in common with another one."""
LIMITS = {
    "layer_s": (1e-6, 40e-6),
    "prefill_layer_s": (1e-9, 40e-6),
    "activation_passes": (2, 16),
    "expert_passes": (1, 12),
    "experts.bf16": (0.05, 0.8),
    "experts.weights": (0.05, 0.98),
    "experts.padding": (1, 64),
    "experts.narrow": (1, 1_000),
}
PULL = 0.03
SOFT = 0.08


@dataclass(frozen=True)
class Parameter:
    """A figure that is fitted: a constant of all GPUs, or a share of one and of those that have it in common."""

    name: str
    gpu: str = ""

    @property
    def start(self) -> float:
        """The present value."""
        if not self.gpu:
            return float(getattr(Kernels(), self.name))
        of, _, name = self.name.rpartition(".")
        shares = find_gpu(self.gpu).shares
        return float(getattr(shares.experts if of else shares, name))

    @property
    def limits(self) -> tuple[float, float]:
        """Least and largest value."""
        return LIMITS.get(self.name, (1e-6, 300e-6) if self.name.endswith("_s") else (0.05, 1.0))


def parameters(rows: list[Configuration], *, experts_only: bool) -> list[Parameter]:
    """Return what the rows can tell."""
    found = [Parameter(name) for name in (*(() if experts_only else CONSTANTS), *OF_EXPERTS)]
    for name in dict.fromkeys(row.gpu for row in rows):
        gpu, own = find_gpu(name), [row for row in rows if row.gpu == name]
        shares = [] if experts_only else [*_shares(gpu, own)]
        told = {_kernel(gpu, row) for row in own if row.is_sparse}
        shares += [f"experts.{each}" for each in EXPERTS if told and (each in told or each not in EXPERTS[:4])]
        found += [Parameter(share, OWNERS.get((name, share), name)) for share in shares]
    return [*dict.fromkeys(found)]


def _shares(gpu: Gpu, rows: list[Configuration]) -> Iterator[str]:
    formats = {gpu.computes(row.cost.model.weight_format) for row in rows} | {"bf16", "attention"}
    yield from (name for name in COMPUTE if name in formats)
    yield from (*MEMORY, *(LINK if any(row.tensor_parallel > 1 for row in rows) else ()))


def _kernel(gpu: Gpu, row: Configuration) -> str:
    """Return the name of the share of peak operations that a model's experts reach."""
    experts = row.cost.model.experts
    stored = experts.weight_format if experts else ""
    return stored if stored == "mxfp4" else gpu.computes(stored)


def model_of(row: Configuration, values: dict[tuple[str, str], float]) -> CostModel:
    """Return the cost model of a configuration with the shares and constants of these values."""
    cost, shares = row.cost, row.cost.gpu.shares
    kernels = replace(Kernels(), **{name: value for (gpu, name), value in values.items() if not gpu})
    plain, experts = {}, {}
    for (gpu, name), value in values.items():
        if gpu and OWNERS.get((row.gpu, name), row.gpu) == gpu:
            of, _, share = name.rpartition(".")
            (experts if of else plain)[share] = value
    shares = replace(shares, **plain, experts=replace(shares.experts, **experts))
    gpu_ = replace(cost.gpu, shares=shares)
    cost.prices = price_steps(
        PricedReplica(gpu_, cost.model, row.tensor_parallel, row.expert_parallel, kernels=kernels)
    )
    return cost


def used(row: Configuration) -> Iterator[int]:
    """Yield the steps that are fitted.

    All, but decode in fp8 on a B200, where the tables have batch 1 slower than batch 16.
    """
    for at, (kind, *_) in enumerate(STEPS):
        if not (row.gpu == "B200" and row.weight_format == "fp8" and kind == DECODE):
            yield at


def fit(*, experts_only: bool = False) -> dict[tuple[str, str], float]:
    """Return the fitted figures by GPU (empty for constants) and name."""
    rows = [row for row in recorded() if row.fitted and (row.is_sparse or not experts_only)]
    sought = parameters(rows, experts_only=experts_only)
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
    for (owner, name), value in fit(experts_only=sys.argv[1:] == ["experts"]).items():
        print(f"{owner or 'all':5} {name:18} {value:.4g}")
