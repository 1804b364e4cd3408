"""Models by name, from ``models.toml``, or by the ``config.json`` that describes them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from prefixroute.costmodel.shape import ModelShape
from prefixroute.costmodel.transformer import TransformerConfig
from prefixroute.errors import ConfigError
from prefixroute.shipped import shipped_table
from prefixroute.validation import did_you_mean, shown

QUANTISED_APART = "hf_quant_config.json"
"""Where ModelOpt writes how a model is quantised."""


@cache
def models() -> dict[str, ModelShape]:
    """Return the known models by name."""
    return {
        name: shape(row["config"], "models.toml", name=name, source=row["source"], parameters=row.get("parameters"))
        for name, row in _table().items()
    }


def hub_names() -> dict[str, str]:
    """Return the names of the known models on the Hugging Face hub, by ours."""
    return {name: row["hub"] for name, row in _table().items()}


@cache
def _table() -> dict[str, dict[str, Any]]:
    return shipped_table("prefixroute.costmodel", "models.toml")


def find_model(name: str | Path) -> ModelShape:
    """Return a known model by name (case does not matter), or read the ``config.json`` that ``name`` is a path of.

    Args:
        name: e.g. ``Qwen3-8B``, or a path.

    Raises:
        ConfigError: if it is neither; the message lists the known models.
    """
    if not isinstance(name, str | Path):
        raise ConfigError(f"model must be a name, the path of a config.json or a ModelShape, got {shown(name)}")
    for known, model in models().items():
        if known.lower() == str(name).lower():
            return model
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
    if path.suffix == ".json":
        return read_config(path)
    allowed = f"one of {', '.join(models())} or the path of a config.json"
    raise ConfigError(f"model must be {allowed}, got {str(name)!r}{did_you_mean(name, models())}")


def read_config(path: str | Path, *, name: str | None = None) -> ModelShape:
    """Read the shape of any decoder from its Hugging Face ``config.json``.

    Dense models, grouped queries (GQA), of another number of KV heads in each layer too, mixtures of experts, latent
    attention (MLA), sparse attention by an index, layers with a window, compressed entries, layers that share keys and
    values, gated linear attention and Mamba-2 are understood; weights are counted from the shape. The encoders of
    images and sound of a multimodal model are left out.

    Args:
        path: the file. A ``hf_quant_config.json`` beside it, which ModelOpt writes, says how weights are quantised if
            the file does not.
        name: what to call the model; the name of the file's folder unless given.

    Returns:
        The shape.

    Raises:
        ConfigError: if the file cannot be read, lacks a needed field or has one of the wrong type, has parts that are
            not counted or a field that may change cache or weights and is not known; or if the model is an encoder,
            which has no cache.
    """
    path = Path(path)
    raw = _read(path)
    apart = path.with_name(QUANTISED_APART)
    if raw.get("quantization_config") is None and apart.is_file():
        raw = {**raw, "quantization_config": _read(apart).get("quantization")}
    called = name or path.resolve().parent.name
    return shape(raw, str(path), name=called, source=f"{path.name} of {called}")


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read a model's {path.name} from {path}: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"a model's {path.name} must hold one object, got {type(raw).__name__} in {path}")
    return raw


def shape(raw: dict[str, Any], path: str, *, name: str, source: str, parameters: float | None = None) -> ModelShape:
    """Return the shape that the fields of a ``config.json`` describe.

    Args:
        raw: the fields.
        path: names them in errors.
        name: what to call the model.
        source: where they are from.
        parameters: weights as a model card states them; counted unless given.

    Raises:
        ConfigError: see :func:`read_config`.
    """
    config = TransformerConfig(raw, path)
    counted, active = config.parameters(active=False), config.parameters(active=True)
    return ModelShape(
        name=name,
        parameters=counted if parameters is None else parameters,
        active_parameters=active if parameters is None else parameters * active / counted,
        layers=config.layers,
        hidden=config.hidden,
        attention=config.attention,
        source=source,
        head_parameters=config.head,
        embedding_parameters=config.embeddings,
        feed_forward_width=config.feed_forward_width,
        experts=config.experts,
        state_bytes=config.state_bytes,
        weight_format=config.weight_format,
        weight_bytes=config.weight_bytes,
        kv_bytes=config.storage.kv_bytes,
        weight_source=config.storage.source,
        kv_source=config.storage.kv_source,
        notes=config.notes,
    )
