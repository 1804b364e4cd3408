"""What prefill and decoding cost in seconds and dollars, and what each figure rests on."""

from __future__ import annotations

from prefixroute.costmodel.assumption import Assumption
from prefixroute.costmodel.behind import ARTICLE, CALIBRATED
from prefixroute.costmodel.cost import (
    DEFAULT_GPU,
    DEFAULT_MODEL,
    HOURS_PER_MONTH,
    PRESETS,
    SHORT_SPAN_S,
    CostModel,
)
from prefixroute.costmodel.fit import Fit, Residual, fit
from prefixroute.costmodel.gpus import ExpertShares, Gpu, Shares, find_gpu, gpus
from prefixroute.costmodel.links import DEFAULT_LINK, Link, TransferPrices, find_link, links
from prefixroute.costmodel.models import find_model, models, read_config
from prefixroute.costmodel.shape import Attention, Experts, ModelShape
from prefixroute.costmodel.steptimes import StepTimes
from prefixroute.costmodel.storage import FORMATS

__all__ = [
    "ARTICLE",
    "CALIBRATED",
    "DEFAULT_GPU",
    "DEFAULT_LINK",
    "DEFAULT_MODEL",
    "FORMATS",
    "HOURS_PER_MONTH",
    "PRESETS",
    "SHORT_SPAN_S",
    "Assumption",
    "Attention",
    "CostModel",
    "ExpertShares",
    "Experts",
    "Fit",
    "Gpu",
    "Link",
    "ModelShape",
    "Residual",
    "Shares",
    "StepTimes",
    "TransferPrices",
    "find_gpu",
    "find_link",
    "find_model",
    "fit",
    "gpus",
    "links",
    "models",
    "read_config",
]
