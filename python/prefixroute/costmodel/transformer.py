"""A Hugging Face ``config.json`` of a decoder, read for its number of weights and the size of its KV cache.

Weights are counted matrix by matrix: embeddings, the projections of attention, feed-forward layers or experts with
their router. Norms and biases are left out: under 0.1 % of any model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefixroute.costmodel.fields import Fields
from prefixroute.costmodel.known import check_known
from prefixroute.costmodel.layers import FULL, LINEAR, MAMBA, WINDOWED, Layers, pattern_of
from prefixroute.costmodel.shape import Experts
from prefixroute.costmodel.states import linear_attention, mamba
from prefixroute.costmodel.storage import expert_storage, storage
from prefixroute.errors import ConfigError

_UNREAD = {
    "is_encoder_decoder": "an encoder",
    "block_configs": "layers of unlike shapes",
    "use_cla": "layers that share a cache",
    "attn_layer_period": "layers of Mamba-1",
    "linear_attn_config": "layers of KDA",
    "attn_type_list": "a list of kinds of attention",
    "sparse_attention_config": "sparse attention by blocks",
    "lru_width": "recurrent layers",
    "conv_L_cache": "convolutions in place of attention",
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
_HALVED = "qwen"
"""The model that states the width of both its gated matrices together."""
_TIED = (
    "bloom", "cohere", "ernie4_5", "falcon", "gemma", "gpt2", "gpt_bigcode", "gpt_neo", "mpt", "opt", "recurrent_gemma",
    "starcoder2",
)  # fmt: skip
"""How the names of models begin whose embeddings serve as output too unless they say otherwise."""
_UNTIED = ("gpt_neox",)
_PICKED = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts",
)  # fmt: skip
_DENSE_WIDTH = (
    "intermediate_size_mlp", "dense_intermediate_size", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size",
)  # fmt: skip
_EXPERT_WIDTH = (
    "moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size",
)  # fmt: skip
_SHARED = ("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size")
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
        pattern = pattern_of(fields)
        self.layers = fields.size(
            "num_hidden_layers", "n_layer", "num_layers", "n_layers", default=len(pattern) or None
        )
        if self.layers > MOST_LAYERS:
            raise ConfigError(f"{path} must have at most {MOST_LAYERS:,} layers, got {self.layers}")
        self._layers = Layers(fields, self.layers)
        self._pattern = pattern
        self.attention = self._layers.attention()
        self.storage = storage(fields)
        self.notes = tuple(filter(None, (self._window(), self.storage.note)))

    def _check_parts(self) -> None:
        fields = self._fields
        for name, what in _UNREAD.items():
            told = not all(fields.numbers(name)) if name == "attn_type_list" else fields.says(name)
            if told:
                raise ConfigError(f"{fields.path} has {what} ({name}): not supported")
        if self._kind.startswith(_TWO_BLOCKS):
            raise ConfigError(
                f"{fields.path} has two blocks of attention a layer (model_type {self._kind}): not supported"
            )
        self._check_decoder()
        unlike = sorted(name for name in fields if name.endswith("_per_layer") and isinstance(fields.get(name), list))
        if other_lists := [name for name in unlike if name != _KV_HEADS_BY_LAYER]:
            raise ConfigError(f"{fields.path} has layers of unlike shapes ({', '.join(other_lists)}): not supported")
        check_known(fields)

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

    def _window(self) -> str:
        """Return a note on the layers with a window, if there are any."""
        windowed = sum(layers.layers for layers in self.attention if layers.window)
        plural = "s" if windowed != 1 else ""
        return (
            f"{windowed} layer{plural} of {self.layers} keep a window of tokens a request: engines that keep all of them hold fewer"
            if windowed
            else ""
        )

    @property
    def state_bytes(self) -> float:
        """Bytes of the state that layers without attention keep for a request."""
        return sum(mixer(self._fields)[1] * self._layers.kinds.count(kind) for kind, mixer in self._mixers())

    def _mixers(self) -> list[tuple[str, Callable[[Fields], tuple[int, float]]]]:
        known = {LINEAR: linear_attention, MAMBA: mamba}
        return [(kind, mixer) for kind, mixer in known.items() if kind in self._layers.kinds]

    @property
    def weight_bytes(self) -> float:
        """Mean bytes of a weight as it is stored."""
        stored, experts, weights = self.storage, self.experts, self.parameters(active=False)
        kept = self.embeddings + (self._mixing() if stored.keeps_attention else 0)
        other = weights - kept - (experts.stored if experts else 0)
        total = kept * stored.kept + other * stored.quantised
        return (total + (experts.stored * experts.weight_bytes if experts else 0)) / weights

    @property
    def weight_format(self) -> str:
        """Format of the weights outside of experts."""
        return "bf16" if self.experts and self.storage.keeps_attention else self.storage.weight_format

    @property
    def experts(self) -> Experts | None:
        """The layers of experts; None where there are none."""
        sizes = {
            (self._experts(layer), self._picked(layer), self._expert(layer))
            for layer in range(self.layers)
            if self._has_experts(layer)
        }
        if not sizes:
            return None
        if len(sizes) > 1:
            raise ConfigError(f"{self._fields.path} has layers of unlike experts: not supported")
        count, picked, parameters = sizes.pop()
        weight_format, weight_bytes = expert_storage(self._fields, self.storage)
        layers = sum(map(self._has_experts, range(self.layers)))
        return Experts(layers, count, picked, parameters, weight_format, weight_bytes)

    def parameters(self, *, active: bool) -> int:
        """Count the weights: all of them, or those that one token passes through."""
        feed_forward = sum(self._feed_forward(layer, active=active) for layer in range(self.layers))
        return self.embeddings + self._mixing() + feed_forward

    @property
    def head(self) -> int:
        """Weights of the output head."""
        return self._fields.size("vocab_size", "padded_vocab_size") * self.hidden

    @property
    def embeddings(self) -> int:
        """Weights of embeddings and output head, once where they are tied, and of embeddings that each layer adds."""
        usual = self._kind.startswith(_TIED) and not self._kind.startswith(_UNTIED)
        tied = self._fields.flag("tie_word_embeddings", default=usual)
        return self.head * (1 if tied else 2) + self._embeddings_of_layers()

    def _embeddings_of_layers(self) -> int:
        width = self._fields.size("hidden_size_per_layer_input", default=0)
        vocabulary = self._fields.size("vocab_size_per_layer_input", "vocab_size", "padded_vocab_size")
        return self.layers * width * vocabulary

    def _mixing(self) -> int:
        """Count the weights of attention, and of what layers have in its place."""
        other = sum(mixer(self._fields)[0] * self._layers.kinds.count(kind) for kind, mixer in self._mixers())
        return other + sum(
            self._attention(layer, own_keys=layer < self.layers - self._shared_layers)
            for layer, kind in enumerate(self._layers.kinds)
            if kind in {FULL, WINDOWED}
        )

    @property
    def _shared_layers(self) -> int:
        """How many layers, the last ones, read the keys and values of earlier ones."""
        return self._fields.size("num_kv_shared_layers", default=0)

    def _attention(self, layer: int, *, own_keys: bool) -> int:
        """Count the weights of attention in a layer."""
        fields, hidden, heads = self._fields, self.hidden, self._layers.heads(layer)
        queries, output = heads.heads * heads.keys, heads.heads * heads.values
        low_rank = fields.size("q_lora_rank", default=0)
        query = low_rank * (hidden + queries) if low_rank else hidden * queries
        if fields.says("attn_output_gate"):
            query += hidden * output
        if fields.says("compress_ratios"):  # one head, key and value in one; the output in groups of low rank
            groups, rank = fields.size("o_groups", default=1), fields.size("o_lora_rank", default=heads.values)
            return query + hidden * heads.keys + output * rank + groups * rank * hidden
        if latent := self._layers.latent:
            down = hidden * (latent + fields.size("qk_rope_head_dim"))
            up = latent * heads.heads * (fields.size("qk_nope_head_dim") + heads.values)
            return query + down + up + output * hidden + self._index_weights(low_rank)
        return query + output * hidden + (hidden * heads.kv_values if own_keys else 0)

    def _index_weights(self, low_rank: int) -> int:
        if not self._fields.says("index_topk"):
            return 0
        size, heads = self._fields.size("index_head_dim"), self._fields.size("index_n_heads", default=1)
        return low_rank * heads * size + self.hidden * (size + heads)

    @property
    def feed_forward_width(self) -> int:
        """Sum over the layers of the width of their feed-forward part, without the experts that are picked."""
        return sum(
            self._shared_width(layer) if self._has_experts(layer) else self._dense_width(layer)
            for layer in range(self.layers)
            if self._feeds_forward(layer)
        )

    def _feeds_forward(self, layer: int) -> bool:
        """Return whether a layer has a feed-forward part: each has, but in models that write a pattern of layers."""
        return not self._pattern or self._pattern[layer] in "-E"

    def _has_experts(self, layer: int) -> bool:
        if self._pattern:
            return self._pattern[layer] == "E"
        if kinds := self._fields.words("mlp_layer_types"):
            return len(kinds) > layer and kinds[layer] != "dense"
        return self._experts(layer) > 1 and not self._is_dense(layer)

    def _experts(self, layer: int) -> int:
        names = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
        return self._fields.size(*names, default=0, layer=layer)

    def _picked(self, layer: int) -> int:
        picked, count = self._fields.size(*_PICKED, layer=layer), self._experts(layer)
        if picked > count:
            raise ConfigError(
                f"a token picks at most all {count} experts of a layer in {self._fields.path}, got {picked}"
            )
        return picked

    def _feed_forward(self, layer: int, *, active: bool) -> int:
        if not self._feeds_forward(layer):
            return 0
        if not self._has_experts(layer):
            return self._gated(self._dense_width(layer))
        count = self._experts(layer)
        used = self._picked(layer) if active else count
        both = self._gated(self._dense_width(layer)) if self._fields.says("enable_moe_block") else 0
        narrowed = 2 * self.hidden * self._expert_input if self._expert_input != self.hidden else 0
        routed = self._expert(layer) * used + narrowed
        return routed + self._gated(self._shared_width(layer)) + both + self.hidden * count

    @property
    def _expert_input(self) -> int:
        """Width of what experts take: the model's, or that of a narrower latent."""
        return self._fields.size("moe_latent_size", "routed_expert_hidden_size", default=self.hidden)

    def _expert(self, layer: int) -> int:
        """Count the weights of an expert."""
        return self._gated(self._expert_width(layer)) * self._expert_input // self.hidden

    def _dense_width(self, layer: int) -> int:
        default = 4 * self.hidden if self._kind in _PLAIN else None
        width = self._fields.size(*_DENSE_WIDTH, default=default, layer=layer)
        if self._fields.says("use_double_wide_mlp") and layer >= self.layers - self._shared_layers:
            return 2 * width
        return width // 2 if self._kind == _HALVED else width

    def _expert_width(self, layer: int) -> int:
        return self._fields.size(*_EXPERT_WIDTH, layer=layer)

    def _shared_width(self, layer: int) -> int:
        """Return the width of the experts that every token passes through, all together."""
        fields, width = self._fields, self._expert_width(layer)
        if fields.says("interleave_moe_layer_step"):  # Llama 4: one, and it does not say so
            return width
        names = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
        whole = fields.size(*_SHARED, default=0)
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
        activation = self._fields.get("hidden_act") or self._fields.get("mlp_hidden_act")
        ungated = isinstance(activation, str) and activation in _PLAIN_ACTIVATIONS and self._kind not in _GATED
        plain = self._kind in _PLAIN or ungated
        return (2 if plain else 3) * self.hidden * width
