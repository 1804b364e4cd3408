"""What prefill and decoding cost in seconds and dollars, and what each figure rests on."""

from __future__ import annotations

from prefixroute.costmodel.assumption import Assumption
from prefixroute.costmodel.cost import HOURS_PER_MONTH, CostModel
from prefixroute.costmodel.fit import Fit, Residual, fit
from prefixroute.costmodel.gpus import Gpu, find_gpu, gpus
from prefixroute.costmodel.models import ModelShape, find_model, models, read_config

__all__ = [
    "HOURS_PER_MONTH",
    "Assumption",
    "CostModel",
    "Fit",
    "Gpu",
    "ModelShape",
    "Residual",
    "find_gpu",
    "find_model",
    "fit",
    "gpus",
    "models",
    "read_config",
]
