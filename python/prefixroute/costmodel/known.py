"""Fields of a ``config.json`` that may change the cache or the weights.

Those that are read, and those that are harmless.

A model of tomorrow says what is new about it in a new field. One whose name speaks of attention, caches, layers or
experts, and that nobody here has read about, is refused by name: a size that is silently wrong is worse than none.
"""

from __future__ import annotations

import re
from typing import Any

from prefixroute.costmodel.fields import Fields
from prefixroute.errors import ConfigError

_SPEAKS = re.compile(
    r"(^|_)(kv|swa|sliding|windows?|mamba\d?|ssm|linear|lora|latent|global|compress\w*|shared?|experts?|moe|mlp|ffn|attn|attention"
    r"|sparse|index\w*|hybrid|recurrent|lru|rwkv|cla|conv|states?|heads?|intermediate|layers?|cache|blocks?)(_|$)"
)
"""Words in the names of fields that size a cache or weights."""
_HARMLESS = re.compile(
    r"bias|dropout|eps|norm|rope|theta|token|init|coef|^mtp_|_act$|_func$|kernels|scal|sink|image|img|video|vision|audio|rotary"
    r"|pretraining|activation|output_hidden|output_attention|prun|checkpoint|loss|feature|encoder|decoder_start|nextn|tie_"
)
"""Words in the names of fields that change neither."""
_UNUSED = {
    "use_cache", "cache_implementation", "qk_head_dim", "num_hash_layers", "hidden_act", "num_reward_heads", "attn_implementation",
    "_attn_implementation", "use_bidirectional_attention", "moe_router_dtype", "moe_renormalize", "moe_shared_expert_overlap",
    "chunk_size_feed_forward", "add_cross_attention", "cross_attention_hidden_size", "num_expert_group", "hybrid_block_size",
    "index_share_for_mtp_iteration", "index_skip_topk_offset", "index_topk_freq", "index_topk_pattern", "attn_logit_softcapping",
    "attention_multiplier", "attention_k_eq_v", "use_moe_router_bias", "attn_pdrop", "attn_uses_sequence_id", "attention_type",
    "use_flash_attn", "head_dtype", "ignore_index", "attn_config", "ffn_config",
}  # fmt: skip
"""Fields that size neither, though their names might."""
_READ = {
    "num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_attention_heads", "n_head", "num_heads", "n_heads", "head_dim",
    "attention_head_dim", "kv_channels", "num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "attn_type",
    "num_key_value_heads_per_layer", "multi_query_attention", "kv_lora_rank", "q_lora_rank", "o_lora_rank", "v_head_dim",
    "qk_nope_head_dim", "num_attention_groups", "layer_types", "block_types", "_block_types", "layers_block_type",
    "hybrid_layer_pattern", "hybrid_override_pattern", "full_attention_interval", "attn_type_list", "sliding_window",
    "sliding_window_size", "sliding_window_pattern", "attention_chunk_size", "use_sliding_window", "max_window_layers",
    "swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim", "global_head_dim",
    "num_global_key_value_heads", "num_kv_shared_layers", "compress_ratios", "index_head_dim", "index_n_heads", "index_topk",
    "indexer_types", "attn_output_gate", "attention_output_gate", "linear_num_key_heads", "linear_num_value_heads",
    "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "mamba_num_heads", "mamba_n_heads", "mamba_head_dim",
    "mamba_d_head", "mamba_d_state", "ssm_state_size", "mamba_n_groups", "mamba_d_conv", "mamba_expand", "mamba_chunk_size",
    "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "conv_kernel", "intermediate_size", "intermediate_size_mlp",
    "dense_intermediate_size", "ffn_dim", "ffn_hidden_size", "num_experts", "n_routed_experts", "num_local_experts",
    "moe_num_experts", "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k",
    "top_k_experts", "moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size", "expert_dtype",
    "n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts", "shared_expert_intermediate_size",
    "shared_intermediate_size", "moe_shared_expert_intermediate_size", "moe_latent_size", "routed_expert_hidden_size",
    "first_k_dense_replace", "moe_layer_start_index", "moe_layer_num_skipped", "moe_layer_end_index", "moe_layer_interval",
    "moe_layers", "moe_layer_freq", "mlp_only_layers", "mlp_layer_types", "decoder_sparse_step", "interleave_moe_layer_step",
    "enable_moe_block", "use_double_wide_mlp", "hidden_size_per_layer_input", "vocab_size_per_layer_input", "mlp_hidden_act",
}  # fmt: skip
"""Fields of such names that are read."""


def check_known(fields: Fields) -> None:
    """Refuse a file with a field that may size the cache or the weights and is not known.

    Raises:
        ConfigError: there is one; the message names it.
    """
    unknown = sorted(name for name in fields if _sizes(name, fields.get(name)))
    if unknown:
        raise ConfigError(
            f"{fields.path} has fields that may change cache or weights and are not known: {', '.join(unknown)}"
        )


def _sizes(name: str, value: Any) -> bool:
    if name in _READ or name in _UNUSED or _HARMLESS.search(name) or not _SPEAKS.search(name):
        return False
    return bool(value) and not isinstance(value, float)
