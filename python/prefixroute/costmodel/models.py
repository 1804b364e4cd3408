"""The shape of a model as far as prefill, decoding and the KV cache cost: from ``models.toml`` or a ``config.json``."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from prefixroute.costmodel.storage import BF16_BYTES
from prefixroute.costmodel.transformer import TransformerConfig
from prefixroute.errors import ConfigError
from prefixroute.validation import check_float, check_int

WIDEST_BYTES = 8
_MOST = 1e24
"""Far above any model; seconds stay finite."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model costs time and memory.

    Attributes:
        name: what tables call it.
        parameters: all weights, embeddings included.
        active_parameters: weights that one token passes through (fewer than all in a mixture of experts).
        layers: layers with attention over the whole context.
        attention_width: mean of the widths of all queries and of all values of a layer; heads x head size where the
            two are equal.
        kv_values: numbers that the cache keeps for one token, over all layers.
        kv_shards: GPUs that the cache of one layer can be split over without copies: the KV heads, or 1 for a latent.
        weight_bytes: mean bytes of one weight (2 for bf16; a little above 1 for fp8, whose embeddings are bf16).
        kv_bytes: bytes of one number in the cache.
        source: where the shape is from.
        weight_source: what says how wide a weight is; empty where nothing does, and bf16 is assumed.
        notes: where the figures are an upper bound, and why.
    """

    name: str
    parameters: float
    active_parameters: float
    layers: int
    attention_width: float
    kv_values: int
    kv_shards: int
    source: str
    weight_bytes: float = BF16_BYTES
    kv_bytes: float = BF16_BYTES
    weight_source: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the figures.

        Raises:
            ConfigError: one is no number, or outside of what is possible.
        """
        for name in ("parameters", "active_parameters", "attention_width"):
            check_float(name, getattr(self, name), 1, _MOST)
        for name in ("layers", "kv_values", "kv_shards"):
            check_int(name, getattr(self, name), 1, _MOST)
        for name in ("weight_bytes", "kv_bytes"):
            check_float(name, getattr(self, name), 0, WIDEST_BYTES, above=True)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of cache that one token takes, over all layers and GPUs."""
        return self.kv_values * self.kv_bytes


@cache
def models() -> dict[str, ModelShape]:
    """Return the known models by name."""
    text = files("prefixroute.costmodel").joinpath("models.toml").read_text(encoding="utf-8")
    return {
        name: ModelShape(
            name=name,
            parameters=row["parameters"],
            active_parameters=row["parameters"],
            layers=row["layers"],
            attention_width=row["heads"] * row["head_dim"],
            kv_values=2 * row["layers"] * row["kv_heads"] * row["head_dim"],
            kv_shards=row["kv_heads"],
            source=row["source"],
            weight_source=f"bf16, {row['source']}",
        )
        for name, row in tomllib.loads(text).items()
    }


def find_model(name: str | Path) -> ModelShape:
    """Return a known model by name (case does not matter), or read the ``config.json`` that ``name`` is a path of.

    Raises:
        ConfigError: if it is neither; the message lists the known models.
    """
    if not isinstance(name, str | Path):
        raise ConfigError(f"model must be a name, the path of a config.json or a ModelShape, got {name!r}")
    for known, model in models().items():
        if known.lower() == str(name).lower():
            return model
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
    if path.suffix == ".json":
        return read_config(path)
    raise ConfigError(f"model must be one of {', '.join(models())} or the path of a config.json, got {str(name)!r}")


def read_config(path: str | Path, *, name: str | None = None) -> ModelShape:
    """Read the shape of any decoder from its Hugging Face ``config.json``.

    Dense models, grouped queries (GQA), of another number of KV heads in each layer too, mixtures of experts and latent
    attention (MLA) are understood; weights are counted from the shape. Layers with a sliding window count as full ones,
    with a note: an upper bound. The encoders of images and sound of a multimodal model are left out.

    Args:
        path: the file.
        name: what to call the model; the name of the file's folder unless given.

    Raises:
        ConfigError: if the file cannot be read, lacks a needed field or has one of the wrong type, has layers without
            attention (linear attention, state space), whose cache grows in another way, or parts that are not counted; or if the
            model is an encoder, which has no cache.
    """
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read a model's config.json from {path}: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"a model's config.json must hold one object, got {type(raw).__name__} in {path}")
    config = TransformerConfig(raw, str(path))
    return ModelShape(
        name=name or path.resolve().parent.name,
        parameters=config.parameters(active=False),
        active_parameters=config.parameters(active=True),
        layers=config.layers,
        attention_width=config.attention_width,
        kv_values=config.kv_values,
        kv_shards=config.kv_shards,
        source=f"{path.name} of {name or path.resolve().parent.name}",
        weight_bytes=config.weight_bytes,
        weight_source=config.weight_source,
        notes=config.notes,
    )
