"""The layers of a ``config.json``.

Which attend to everything, which have a window, which keep a state of fixed size.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from prefixroute.costmodel.fields import Fields
from prefixroute.costmodel.shape import Attention
from prefixroute.errors import ConfigError

FULL, WINDOWED, LINEAR, MAMBA, NONE = "full", "windowed", "linear", "mamba", "none"
_KINDS = {
    "full_attention": FULL, "attention": FULL, "sliding_attention": WINDOWED, "chunked_attention": WINDOWED,
    "deepseek_sparse_attention": FULL, "linear_attention": LINEAR, "mamba": MAMBA, "mamba2": MAMBA,
}  # fmt: skip
"""Kinds of layers as lists of layers name them."""
_LETTERS = {"*": FULL, "M": MAMBA, "-": NONE, "E": NONE}
"""Kinds of layers as a pattern writes them: attention, Mamba, a feed-forward layer, experts."""
PATTERN = "hybrid_override_pattern"
_LISTS_OF_LAYERS = ("layer_types", "block_types", "_block_types", "layers_block_type")
_EVERY_NTH_IS_FULL = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4, "llama4": 4, "llama4_text": 4}
"""Of models with windows that do not list their layers."""
_MULTI_QUERY = {"falcon", "gpt_bigcode", "RefinedWeb", "RefinedWebModel"}
"""Models with one KV head unless they say otherwise."""
_KV_HEADS_BY_LAYER = "num_key_value_heads_per_layer"
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num")
_INDEX_SCALE_BYTES = 4
"""Of the key of an index: numbers of 8 bits and one scale of 32 bits."""
_KEYS_ONLY = 2
_WORDS = {"attention": "*", "mamba": "M", "mlp": "-", "moe": "E"}
"""The same kinds, as a list of blocks names them."""
STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class AttentionHeads:
    """Heads of one kind of layer: how many, how many of keys and values, and their sizes."""

    heads: int
    kv_heads: int
    keys: int
    values: int

    @property
    def width(self) -> float:
        """Mean of the widths of all queries and of all values."""
        return self.heads * (self.keys + self.values) / 2

    @property
    def kv_values(self) -> int:
        """Numbers of all keys and values of a token."""
        return self.kv_heads * (self.keys + self.values)


def pattern_of(fields: Fields) -> str:
    """Return a letter for each layer of models whose layers are attention, Mamba or feed-forward.

    Empty where each is both.
    """
    blocks = fields.words("layers_block_type")
    if {"mlp", "moe"} & set(blocks) and set(blocks) <= set(_WORDS):
        return "".join(_WORDS[block] for block in blocks)
    return fields.word(PATTERN)


class _Like(NamedTuple):
    """What layers of attention have in common that are alike."""

    kind: str
    heads: AttentionHeads
    ratio: int
    shared: bool
    indexed: bool


class Layers:
    """Kind, heads and cache of each layer.

    Attributes:
        kinds: the kind of each layer, in order.
    """

    def __init__(self, fields: Fields, count: int) -> None:
        """Find the kind of each of ``count`` layers.

        Raises:
            ConfigError: a layer is of a kind that is not known, or a field is not what it must be.
        """
        self._fields = fields
        self._model = fields.word("model_type")
        self._count = count
        self.kinds = self._read_kinds()
        if len(self.kinds) != count:
            raise ConfigError(f"{fields.path} must list its {count} layers, got {len(self.kinds)}")
        if not {FULL, WINDOWED} & set(self.kinds):
            raise ConfigError(f"{fields.path} has no layer of attention, so no cache of prefixes: not supported")

    def _read_kinds(self) -> list[str]:
        fields, pattern = self._fields, pattern_of(self._fields)
        for name in () if pattern else _LISTS_OF_LAYERS:
            if kinds := fields.words(name):
                if unknown := sorted(set(kinds) - set(_KINDS)):
                    raise ConfigError(
                        f"{fields.path} has layers that are not known ({name}: {', '.join(unknown)}): not supported"
                    )
                return [_KINDS[kind] for kind in kinds]
        if pattern:
            if unknown := sorted(set(pattern) - set(_LETTERS)):
                raise ConfigError(
                    f"{fields.path} has layers that are not known ({PATTERN}: {', '.join(unknown)}): not supported"
                )
            return [_LETTERS[letter] for letter in pattern]
        if which := fields.numbers("hybrid_layer_pattern"):
            return [WINDOWED if windowed else FULL for windowed in which]
        if every := fields.size("full_attention_interval", default=0):
            return [LINEAR if (layer + 1) % every else FULL for layer in range(self._count)]
        return self._by_window()

    def _by_window(self) -> list[str]:
        """Return the kinds of layers that are all attention; which have a window follows from the model's type."""
        fields, count = self._fields, self._count
        longest = fields.size("max_position_embeddings", default=0)
        off = not fields.flag("use_sliding_window", default=True) or (longest and self._window() >= longest)
        if off or not self._window():
            return [FULL] * count
        if fields.says("use_sliding_window"):  # of the layers from that one on
            first = fields.size("max_window_layers", default=0)
            return [WINDOWED if layer >= first else FULL for layer in range(count)]
        nth = fields.size("sliding_window_pattern", default=_EVERY_NTH_IS_FULL.get(self._model, count + 1))
        return [WINDOWED if (layer + 1) % nth else FULL for layer in range(count)]

    def _window(self) -> int:
        return self._fields.size("sliding_window", "sliding_window_size", "attention_chunk_size", default=0)

    @property
    def latent(self) -> int:
        """Numbers of a latent of keys and values; 0 where there is none."""
        return self._fields.size("kv_lora_rank", default=0)

    def heads(self, layer: int) -> AttentionHeads:
        """Return the heads of a layer of attention."""
        fields = self._fields
        plain = self._plain_heads(layer)
        if self.latent:
            keys = fields.size("qk_nope_head_dim") + fields.size("qk_rope_head_dim")
            return AttentionHeads(plain.heads, 1, keys, fields.size("v_head_dim", default=plain.values))
        if self.kinds[layer] == WINDOWED:
            keys = fields.size("swa_head_dim", default=plain.keys)
            return AttentionHeads(
                fields.size("swa_num_attention_heads", default=plain.heads),
                fields.size("swa_num_key_value_heads", default=plain.kv_heads),
                keys,
                fields.size("swa_v_head_dim", default=plain.values if keys == plain.keys else keys),
            )
        wide = fields.size("global_head_dim", default=0)
        return AttentionHeads(
            plain.heads,
            fields.size("num_global_key_value_heads", default=plain.kv_heads),
            wide or plain.keys,
            wide or plain.values,
        )

    def _plain_heads(self, layer: int) -> AttentionHeads:
        fields = self._fields
        heads = fields.size("num_attention_heads", "n_head", "num_heads", "n_heads")
        hidden = fields.size("hidden_size", "n_embd", "d_model", "n_embed")
        size = fields.size("head_dim", "attention_head_dim", "kv_channels", default=max(1, hidden // heads))
        listed = fields.get(_KV_HEADS_BY_LAYER) is not None
        kv_heads = fields.sizes(_KV_HEADS_BY_LAYER, self._count)[layer] if listed else self._count_kv_heads(heads)
        values = fields.size("v_head_dim", default=size) if not self.latent else size
        return AttentionHeads(heads, kv_heads, size, values)

    def _count_kv_heads(self, heads: int) -> int:
        fields = self._fields
        one = fields.flag("multi_query", default=self._model in _MULTI_QUERY)
        if (one and not fields.flag("new_decoder_architecture")) or fields.get("attn_type") == "multiquery_attention":
            return 1
        return fields.size(*_KV_HEADS, "num_attention_groups", default=heads)

    def attention(self) -> tuple[Attention, ...]:
        """Return the layers of attention, like ones together, as they are kept in the cache."""
        shared = self._fields.size("num_kv_shared_layers", default=0)
        groups: Counter[_Like] = Counter()
        for layer, kind in enumerate(self.kinds):
            if kind in {FULL, WINDOWED}:
                reads = layer >= self._count - shared
                groups[_Like(kind, self.heads(layer), self._ratio(layer), reads, self._indexed(layer))] += 1
        return tuple(one for like, layers in groups.items() for one in self._group(layers, like))

    def _ratio(self, layer: int) -> int:
        """Return how many tokens share an entry of a layer that compresses; 0 where only the window is kept."""
        ratios = self._fields.numbers("compress_ratios")
        if not ratios:
            return 1
        if len(ratios) < self._count or min(ratios) < 0:
            raise self._fields.error("compress_ratios", f"a list of {self._count} numbers of 0 or more")
        return ratios[layer]

    def _indexed(self, layer: int) -> bool:
        """Return whether a layer keeps keys of an index, and does not use the picks of an earlier one."""
        types = self._fields.words("indexer_types")
        return self._fields.says("index_topk") and (len(types) <= layer or types[layer] != "shared")

    def _group(self, layers: int, like: _Like) -> list[Attention]:
        heads = like.heads
        if self._fields.says("compress_ratios"):
            return self._compressed(layers, like.ratio, heads)
        if self.latent:
            kv_values = self.latent + self._fields.size("qk_rope_head_dim")
            picked = self._fields.size("index_topk", default=0) or None
            index_bytes, index_width = self._index() if like.indexed else (0.0, 0.0)
            own = {"index_bytes": index_bytes, "index_width": index_width, "picked": picked}
            return [Attention(layers, heads.width, kv_values, 1, latent=True, **own)]  # type: ignore[arg-type]
        window = self._window() if like.kind == WINDOWED else None
        if like.kind == WINDOWED and not window:
            raise ConfigError(
                f"{self._fields.path} lacks sliding_window or attention_chunk_size: it has layers with a window"
            )
        return [Attention(layers, heads.width, heads.kv_values, heads.kv_heads, window=window, shared=like.shared)]

    def _compressed(self, layers: int, ratio: int, heads: AttentionHeads) -> list[Attention]:
        """Return layers that keep one entry, key and value in one, for ``ratio`` tokens, and a window of plain ones."""
        window = self._fields.size("sliding_window")
        kept = [Attention(layers, heads.heads * heads.keys, heads.keys, 1, latent=True, window=window)]
        if not ratio:
            return kept
        finest = ratio == min(one for one in self._fields.numbers("compress_ratios") if one)
        picked = self._fields.size("index_topk", default=0) if finest else 0
        index_bytes, index_width = self._index() if picked else (0.0, 0.0)
        entries = Attention(
            layers,
            heads.heads * heads.keys,
            heads.keys,
            1,
            entry_tokens=ratio,
            index_bytes=index_bytes,
            index_width=index_width,
            picked=picked or None,
        )
        return [*kept, entries]

    def _index(self) -> tuple[float, float]:
        """Return the bytes of an index key of a token, and half the width of the queries of the index."""
        size = self._fields.size("index_head_dim")
        heads = self._fields.size("index_n_heads", default=1)
        return float(size + _INDEX_SCALE_BYTES), heads * size / _KEYS_ONLY
