"""How many tokens a replica's KV cache holds: what weights leave of memory, over the bytes of a token."""

from __future__ import annotations

import math
from dataclasses import replace

from prefixroute.costmodel.gpus import Gpu
from prefixroute.costmodel.shape import ModelShape
from prefixroute.errors import ConfigError

CONTEXT_TOKENS = 8_192
"""Tokens of a request, where what requests take whatever their length is spread over their tokens."""
_LONG_TOKENS = 1e15
"""Tokens of one request beside which what it takes whatever its length does not count."""


def room_beside(model: ModelShape, gpu: Gpu, *, gpus: int, memory_share: float) -> float:
    """Return the bytes that weights leave on each GPU of a replica.

    Raises:
        ConfigError: they leave none.
    """
    weights, usable = model.parameters * model.weight_bytes / gpus, gpu.memory_bytes * memory_share
    if usable <= weights:
        raise ConfigError(
            f"{model.name} takes {weights / 1e9:.1f} GB on each of {gpus} {gpu.name} of {usable / 1e9:.1f} usable GB: "
            "raise tensor_parallel"
        )
    return usable - weights


def tokens_in(room: float, model: ModelShape, *, gpus: int) -> int:
    """Return the tokens that a cache of so many bytes on each GPU holds, of requests of 8,192 tokens."""
    return math.floor(room * CONTEXT_TOKENS / model.kv_bytes_of(CONTEXT_TOKENS, shards=gpus))


def bounds_in(room: float, model: ModelShape, *, gpus: int) -> tuple[int, int]:
    """Return the least and the most tokens that it holds: all of them in layers with a window, or of one request."""
    every = replace(model, attention=tuple(replace(one, window=None) for one in model.attention))
    least, fixed = tokens_in(room, every, gpus=gpus), model.kv_bytes_of(0, shards=gpus)
    growing = model.kv_bytes_of(_LONG_TOKENS, shards=gpus) - fixed
    return least, math.floor((room - fixed) * _LONG_TOKENS / growing) if growing else least
