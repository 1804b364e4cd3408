"""A Hugging Face ``config.json`` of a decoder, read for its number of weights and the size of its KV cache.

Weights are counted matrix by matrix: embeddings, the projections of attention, feed-forward layers or experts with
their router. Norms and biases are left out: under 0.1 % of any model.
"""

from __future__ import annotations

from typing import Any

from prefixroute.costmodel.fields import Fields
from prefixroute.costmodel.storage import storage
from prefixroute.errors import ConfigError

_WINDOWED = {"sliding_attention", "chunked_attention"}
_ATTENTION = _WINDOWED | {"full_attention", "attention"}
_LISTS_OF_LAYERS = ("layer_types", "block_types", "_block_types", "layers_block_type")
_NO_ATTENTION = ("mamba", "ssm_", "linear_", "lru_", "conv_", "rwkv", "hybrid_", "attn_layer_", "full_attn_idxs")
"""How the names of fields begin that only models have with layers that are no attention."""
_UNREAD = {
    "is_encoder_decoder": "an encoder",
    "block_configs": "layers of unlike shapes",
    "use_cla": "layers that share a cache",
    "hidden_size_per_layer_input": "embeddings in each layer",
    "residual_moe": "a dense layer beside experts",
    "parallel_attn_mlp_res": "a dense layer beside experts",
    "zero_expert_num": "experts that compute nothing",
    "moe_layers_enum": "a list of layers with experts",
}
"""Fields of models that would be miscounted, and what they speak of."""
_KV_HEADS_BY_LAYER = "num_key_value_heads_per_layer"
_TWO_BLOCKS = "longcat"
_PLAIN = {
    "biogpt", "bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_neox_japanese", "gptj", "mpt",
    "nemotron", "opt", "persimmon", "phi", "phi-msft", "RefinedWeb", "RefinedWebModel", "starcoder2", "xglm",
}  # fmt: skip
"""Models whose feed-forward layers are two matrices, four times as wide as the model unless it says so."""
_PLAIN_ACTIVATIONS = {"relu2", "xielu"}
"""Activations that models have in place of a gate."""
_GATED = {"bitnet"}
"""Models that have such an activation and a gate too."""
_GENERATES = ("CausalLM", "ConditionalGeneration", "LMHeadModel", "ChatModel")
"""How the names of classes end that write text token by token."""
_ENCODES = ("MaskedLM", "PreTraining")
"""How those end that do not."""
_ENCODERS = {"electra", "ernie", "esm", "mpnet", "big_bird", "longformer", "nystromformer", "xlm"}
"""Models that are encoders, beside those with ``bert`` in their names."""
_MULTI_QUERY = {"falcon", "gpt_bigcode", "RefinedWeb", "RefinedWebModel"}
"""Models with one KV head unless they say otherwise."""
_HALVED = "qwen"
"""The model that states the width of both its gated matrices together."""
_TIED = (
    "bloom", "cohere", "ernie4_5", "falcon", "gemma", "gpt2", "gpt_bigcode", "gpt_neo", "mpt", "opt", "recurrent_gemma",
    "starcoder2",
)  # fmt: skip
"""How the names of models begin whose embeddings serve as output too unless they say otherwise."""
_UNTIED = ("gpt_neox",)
_EVERY_NTH_IS_FULL = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4, "llama4": 4, "llama4_text": 4}
"""Of models with windows that do not list their layers."""
MOST_LAYERS = 10_000


class TransformerConfig:
    """The fields of a ``config.json`` that count, under their many names."""

    def __init__(self, raw: dict[str, Any], path: str) -> None:
        """Take the parsed file; ``path`` names it in errors.

        Raises:
            ConfigError: a field is missing or is not what it must be, or the model has parts that would be miscounted.
        """
        self._fields = fields = Fields(raw, path)
        self._kind = fields.word("model_type")
        self._check_parts()
        self.hidden = fields.size("hidden_size", "n_embd", "d_model", "n_embed")
        self.layers = fields.size("num_hidden_layers", "n_layer", "num_layers", "n_layers")
        if self.layers > MOST_LAYERS:
            raise ConfigError(f"{path} must have at most {MOST_LAYERS:,} layers, got {self.layers}")
        self.heads = fields.size("num_attention_heads", "n_head", "num_heads", "n_heads")
        self.kv_heads = self._list_kv_heads()
        self.head_dim = fields.size("head_dim", "kv_channels", default=max(1, self.hidden // self.heads))
        self.latent = fields.size("kv_lora_rank", default=0)
        self._storage = storage(fields)
        self.weight_source = self._storage.source
        self.notes = tuple(filter(None, (self._window(), self._sparse(), self._storage.note)))

    def _check_parts(self) -> None:
        fields = self._fields
        other = {kind for name in _LISTS_OF_LAYERS for kind in fields.words(name)} - _ATTENTION
        other |= {name for name in fields if name.startswith(_NO_ATTENTION) and fields.says(name)}
        other |= set() if all(fields.numbers("attn_type_list")) else {"attn_type_list"}
        if other:
            raise ConfigError(f"{fields.path} has layers without attention ({', '.join(sorted(other))}): not supported")
        for name, what in _UNREAD.items():
            if fields.says(name):
                raise ConfigError(f"{fields.path} has {what} ({name}): not supported")
        if self._kind.startswith(_TWO_BLOCKS):
            raise ConfigError(
                f"{fields.path} has two blocks of attention a layer (model_type {self._kind}): not supported"
            )

        self._check_decoder()
        unlike = sorted(name for name in fields if name.endswith("_per_layer") and isinstance(fields.get(name), list))
        if other_lists := [name for name in unlike if name != _KV_HEADS_BY_LAYER]:
            raise ConfigError(f"{fields.path} has layers of unlike shapes ({', '.join(other_lists)}): not supported")

    def _check_decoder(self) -> None:
        """Refuse models that read a text at once: they have no cache of keys and values."""
        fields = self._fields
        classes = fields.words("architectures")
        if fields.flag("is_decoder") or any(name.endswith(_GENERATES) for name in classes):
            return
        said = next((f"architectures {name}" for name in classes if name.endswith(_ENCODES)), None)
        if said is None and ("bert" in self._kind or self._kind in _ENCODERS):
            said = f"model_type {self._kind}"
        if said is None and fields.get("is_decoder") is False:
            said = "is_decoder false"
        if said is not None:
            raise ConfigError(f"{fields.path} is of an encoder ({said}), which has no KV cache: not supported")

    def _list_kv_heads(self) -> list[int]:
        """Return the KV heads of each layer."""
        if self._fields.get(_KV_HEADS_BY_LAYER) is not None:
            return self._fields.sizes(_KV_HEADS_BY_LAYER, self.layers)
        return [self._count_kv_heads()] * self.layers

    def _count_kv_heads(self) -> int:
        fields = self._fields
        one = fields.flag("multi_query", default=self._kind in _MULTI_QUERY)
        if (one and not fields.flag("new_decoder_architecture")) or fields.get("attn_type") == "multiquery_attention":
            return 1
        names = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num")
        return fields.size(*names, "num_attention_groups", default=self.heads)

    def _window(self) -> str:
        """Return a note that counts the layers with a window, if there are any."""
        fields = self._fields
        if kinds := fields.words("layer_types"):
            windowed = sum(kind in _WINDOWED for kind in kinds)
        else:
            window = fields.size("sliding_window", "attention_chunk_size", default=0)
            longest = fields.size("max_position_embeddings", default=0)
            off = not fields.flag("use_sliding_window", default=True) or (longest and window >= longest)
            windowed = 0 if off or not window else self._windowed()
        return f"{windowed} of {self.layers} layers have a window and count as full: upper bound" if windowed else ""

    def _windowed(self) -> int:
        fields = self._fields
        if fields.says("use_sliding_window"):  # of the layers from that one on
            return max(0, self.layers - fields.size("max_window_layers", default=0))
        nth = fields.size("sliding_window_pattern", default=_EVERY_NTH_IS_FULL.get(self._kind, self.layers + 1))
        return self.layers - self.layers // nth

    def _sparse(self) -> str:
        sparse = self._fields.says("index_topk")
        return "tokens attend to those that an index picks and count as attending to all: upper bound" if sparse else ""

    @property
    def _qk_dim(self) -> int:
        if not self.latent:
            return self.head_dim
        return self._fields.size("qk_nope_head_dim") + self._fields.size("qk_rope_head_dim")

    @property
    def _v_dim(self) -> int:
        return self._fields.size("v_head_dim", default=self.head_dim) if self.latent else self.head_dim

    @property
    def attention_width(self) -> float:
        """Mean width of all queries and of all values of a layer."""
        return self.heads * (self._qk_dim + self._v_dim) / 2

    @property
    def kv_values(self) -> int:
        """Numbers cached for one token over all layers: keys and values, or one latent, one rotary key and one of an index."""
        if self.latent:
            index = self._fields.size("index_head_dim", default=0)
            return self.layers * (self.latent + self._fields.size("qk_rope_head_dim") + index)
        return 2 * sum(self.kv_heads) * self.head_dim

    @property
    def kv_shards(self) -> int:
        """GPUs that can share each layer's cache without copies."""
        return 1 if self.latent else min(self.kv_heads)

    @property
    def weight_bytes(self) -> float:
        """Mean bytes of a weight as it is stored."""
        stored, weights = self._storage, self.parameters(active=False)
        kept = self._embeddings() + (self._attention() if stored.keeps_attention else 0)
        return stored.quantised + (stored.kept - stored.quantised) * kept / weights

    def parameters(self, *, active: bool) -> int:
        """Count the weights: all of them, or those that one token passes through."""
        feed_forward = sum(self._feed_forward(layer, active=active) for layer in range(self.layers))
        return self._embeddings() + self._attention() + feed_forward

    def _embeddings(self) -> int:
        vocabulary = self._fields.size("vocab_size", "padded_vocab_size")
        usual = self._kind.startswith(_TIED) and not self._kind.startswith(_UNTIED)
        tied = self._fields.flag("tie_word_embeddings", default=usual)
        return vocabulary * self.hidden * (1 if tied else 2)

    def _attention(self) -> int:
        """Count the weights of attention in all layers."""
        fields, layers = self._fields, self.layers
        output = self.heads * self._v_dim * self.hidden
        queries = self.heads * self._qk_dim
        if not self.latent:
            return layers * (self.hidden * queries + output) + 2 * self.hidden * sum(self.kv_heads) * self.head_dim
        low_rank = fields.size("q_lora_rank", default=0)
        query = low_rank * (self.hidden + queries) if low_rank else self.hidden * queries
        down = self.hidden * (self.latent + fields.size("qk_rope_head_dim"))
        up = self.latent * self.heads * (fields.size("qk_nope_head_dim") + self._v_dim)
        return layers * (query + down + up + output)

    def _feed_forward(self, layer: int, *, active: bool) -> int:
        fields = self._fields
        names = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
        experts = fields.size(*names, default=0, layer=layer)
        if experts < 2 or self._is_dense(layer):  # noqa: PLR2004 - one expert is a dense layer
            return self._gated(self._dense_width(layer))
        width = self._expert_width(layer)
        picked = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k")
        used = fields.size(*picked, layer=layer) if active else experts
        return self._gated(width) * used + self._gated(self._shared_width(layer, width)) + self.hidden * experts

    def _dense_width(self, layer: int) -> int:
        names = ("intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
        width = self._fields.size(*names, default=4 * self.hidden if self._kind in _PLAIN else None, layer=layer)
        return width // 2 if self._kind == _HALVED else width

    def _expert_width(self, layer: int) -> int:
        names = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size")
        return self._fields.size(*names, layer=layer)

    def _shared_width(self, layer: int, width: int) -> int:
        """Return the width of the experts that every token passes through, all together."""
        fields = self._fields
        if fields.says("interleave_moe_layer_step"):  # Llama 4: one, and it does not say so
            return width
        names = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
        whole = fields.size("shared_expert_intermediate_size", "shared_intermediate_size", default=0)
        return whole or fields.size(*names, default=0, layer=layer) * width

    def _is_dense(self, layer: int) -> bool:
        fields = self._fields
        first = fields.size("first_k_dense_replace", "moe_layer_start_index", "moe_layer_num_skipped", default=0)
        if layer < first or layer in fields.numbers("mlp_only_layers"):
            return True
        if fields.get("moe_layer_end_index") not in (None, -1) and layer > fields.size(
            "moe_layer_end_index", default=0
        ):
            return True
        if fields.says("moe_layers"):
            return layer not in fields.numbers("moe_layers")
        if isinstance(fields.get("moe_layer_freq"), list):
            return not fields.size("moe_layer_freq", default=0, layer=layer)
        step = fields.size("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1)
        return (layer + 1) % step != 0 or layer % fields.size("moe_layer_freq", default=1) != 0

    def _gated(self, width: int) -> int:
        activation = self._fields.get("hidden_act")
        ungated = isinstance(activation, str) and activation in _PLAIN_ACTIVATIONS and self._kind not in _GATED
        plain = self._kind in _PLAIN or ungated
        return (2 if plain else 3) * self.hidden * width
