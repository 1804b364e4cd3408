"""Layers without attention: the weights of their mixers and the state of fixed size that they keep for a request."""

from __future__ import annotations

from prefixroute.costmodel.fields import Fields
from prefixroute.costmodel.layers import STATE_BYTES

_CONVOLUTION_BYTES = 2
_USUAL_STATE_BYTES = 2
_GATES = 2
"""Numbers by which a head of linear attention decays and writes: two for each value head."""


def linear_attention(fields: Fields) -> tuple[int, float]:
    """Return the weights of a layer of gated linear attention, and the bytes of its state for a request.

    The state is a matrix for each value head, and the last inputs of a short convolution over keys, queries and values.
    """
    keys = fields.size("linear_num_key_heads") * fields.size("linear_key_head_dim")
    heads, size = fields.size("linear_num_value_heads"), fields.size("linear_value_head_dim")
    kernel = fields.size("linear_conv_kernel_dim", default=4)
    convolved = 2 * keys + heads * size
    hidden = fields.size("hidden_size")
    weights = hidden * (convolved + heads * size + _GATES * heads) + heads * size * hidden + convolved * kernel
    matrices = heads * size * fields.size("linear_key_head_dim") * _state_bytes(fields)
    return weights, matrices + (kernel - 1) * convolved * _CONVOLUTION_BYTES


def mamba(fields: Fields) -> tuple[int, float]:
    """Return the weights of a Mamba-2 layer, and the bytes of its state for a request."""
    heads = fields.size("mamba_num_heads", "mamba_n_heads")
    size = fields.size("mamba_head_dim", "mamba_d_head")
    state = fields.size("ssm_state_size", "mamba_d_state")
    groups = fields.size("n_groups", "mamba_n_groups", default=1)
    kernel = fields.size("conv_kernel", "mamba_d_conv", default=4)
    hidden, inner = fields.size("hidden_size"), heads * size
    convolved = inner + 2 * groups * state
    weights = hidden * (inner + convolved + heads) + inner * hidden + convolved * kernel
    kept = inner * state * _state_bytes(fields)
    return weights, kept + (kernel - 1) * convolved * _CONVOLUTION_BYTES


def _state_bytes(fields: Fields) -> int:
    """Return the bytes of a number of a recurrent state."""
    for name in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
        if fields.says(name):
            said = fields.word(name)
            if said not in STATE_BYTES:
                raise fields.error(name, f"one of {', '.join(STATE_BYTES)}")
            return STATE_BYTES[said]
    return _USUAL_STATE_BYTES
