"""A Hugging Face ``config.json`` of a decoder, read for its number of weights and the size of its KV cache.

Weights are counted matrix by matrix: embeddings, the projections of attention, feed-forward layers or experts with
their router. Norms and biases are left out: under 0.1 % of any model.
"""

from __future__ import annotations

from typing import Any

from prefixroute.errors import ConfigError

_WINDOWED = {"sliding_attention", "chunked_attention"}
_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "float8_e4m3fn": 1.0}


class TransformerConfig:
    """The fields of a ``config.json`` that count, under their many names."""

    def __init__(self, raw: dict[str, Any], path: str) -> None:
        """Take the parsed file; ``path`` names it in errors."""
        text = raw.get("text_config")
        self._raw: dict[str, Any] = {**raw, **text} if isinstance(text, dict) else raw
        self._path = path
        self.hidden = self._size("hidden_size", "n_embd", "d_model")
        self.layers = self._size("num_hidden_layers", "n_layer", "num_layers")
        self.heads = self._size("num_attention_heads", "n_head", "num_heads")
        self.kv_heads = self._size("num_key_value_heads", "num_kv_heads", default=self.heads)
        self.head_dim = self._size("head_dim", default=max(1, self.hidden // self.heads))
        self.latent = self._size("kv_lora_rank", default=0)
        self.notes = self._check_layers()

    def _size(self, *names: str, default: int | None = None) -> int:
        for name in names:
            value = self._raw.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0 or (value == 0 and default is None):
                raise ConfigError(f"{name} in {self._path} must be a positive whole number, got {value!r}")
            return value
        if default is None:
            raise ConfigError(f"{self._path} lacks {' or '.join(names)}")
        return default

    def _check_layers(self) -> tuple[str, ...]:
        kinds = self._raw.get("layer_types") or []
        other = sorted({str(kind) for kind in kinds} - _WINDOWED - {"full_attention"})
        if other or any(key.startswith(("mamba", "ssm_", "linear_")) for key in self._raw):
            raise ConfigError(
                f"{self._path} has layers without attention ({', '.join(other) or 'state space'}): not supported"
            )
        windowed = sum(kind in _WINDOWED for kind in kinds)
        return (f"{windowed} of {self.layers} layers have a window and count as full: upper bound",) if windowed else ()

    @property
    def _qk_dim(self) -> int:
        if not self.latent:
            return self.head_dim
        return self._size("qk_nope_head_dim") + self._size("qk_rope_head_dim")

    @property
    def _v_dim(self) -> int:
        return self._size("v_head_dim", default=self.head_dim) if self.latent else self.head_dim

    @property
    def attention_width(self) -> float:
        """Mean width of all queries and of all values of a layer."""
        return self.heads * (self._qk_dim + self._v_dim) / 2

    @property
    def kv_values(self) -> int:
        """Numbers cached for one token over all layers: keys and values, or one latent and one rotary key."""
        if self.latent:
            return self.layers * (self.latent + self._size("qk_rope_head_dim"))
        return 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def kv_shards(self) -> int:
        """GPUs that can share one layer's cache without copies."""
        return 1 if self.latent else self.kv_heads

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight as the file says it is stored; 2 where it says nothing."""
        quantised = self._raw.get("quantization_config")
        if isinstance(quantised, dict):
            bits = quantised.get("bits")
            if isinstance(bits, int) and bits > 0:
                return bits / 8
            if "fp8" in str(quantised.get("quant_method", "")):
                return 1.0
            if "mxfp4" in str(quantised.get("quant_method", "")):
                return 0.5
        stored = self._raw.get("dtype", self._raw.get("torch_dtype"))
        return _BYTES.get(str(stored), 2.0)

    def parameters(self, *, active: bool) -> int:
        """Count the weights: all of them, or those that one token passes through."""
        vocabulary = self._size("vocab_size")
        embeddings = vocabulary * self.hidden * (1 if self._raw.get("tie_word_embeddings") else 2)
        feed_forward = sum(self._feed_forward(layer, active=active) for layer in range(self.layers))
        return embeddings + self.layers * self._attention() + feed_forward

    def _attention(self) -> int:
        output = self.heads * self._v_dim * self.hidden
        queries = self.heads * self._qk_dim
        if not self.latent:
            return self.hidden * (queries + 2 * self.kv_heads * self.head_dim) + output
        low_rank = self._size("q_lora_rank", default=0)
        query = low_rank * (self.hidden + queries) if low_rank else self.hidden * queries
        down = self.hidden * (self.latent + self._size("qk_rope_head_dim"))
        up = self.latent * self.heads * (self._size("qk_nope_head_dim") + self._v_dim)
        return query + down + up + output

    def _feed_forward(self, layer: int, *, active: bool) -> int:
        experts = self._size("num_experts", "n_routed_experts", "num_local_experts", default=0)
        dense = self._gated(self._size("intermediate_size", "ffn_dim", default=4 * self.hidden))
        if experts < 2 or self._is_dense(layer):  # noqa: PLR2004 - one expert is a dense layer
            return dense
        width = self._size("moe_intermediate_size", default=self._size("intermediate_size"))
        used = self._size("num_experts_per_tok", "num_experts_per_token", "moe_topk") if active else experts
        shared = self._size("shared_expert_intermediate_size", default=0)
        shared = shared or self._size("n_shared_experts", "num_shared_experts", default=0) * width
        return self._gated(width) * used + self._gated(shared) + self.hidden * experts

    def _is_dense(self, layer: int) -> bool:
        if layer < self._size("first_k_dense_replace", default=0) or layer in (self._raw.get("mlp_only_layers") or []):
            return True
        step = self._size("decoder_sparse_step", "moe_layer_freq", default=1)
        return step > 1 and (layer + 1) % step != 0

    def _gated(self, width: int) -> int:
        plain = self._raw.get("model_type") in {"gpt2", "gpt_neox", "opt", "gptj", "phi", "starcoder2"}
        return (2 if plain else 3) * self.hidden * width
