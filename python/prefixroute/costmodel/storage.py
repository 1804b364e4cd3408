"""How many bytes weights take, as a ``config.json`` says: by its quantisation, else by the type that they are stored in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from prefixroute.costmodel.fields import Fields

BF16_BYTES = 2.0
_BYTES = {
    "float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "float8_e4m3fn": 1.0, "float8_e5m2": 1.0, "int8": 1.0,
}  # fmt: skip
_BITS = ("bits", "w_bit", "nbits")
_WORDS = ("quant_method", "quant_algo", "quant_type", "format", "weights")
_FOUR = re.compile(r"(fp|int|nf|w)4(?!\d)|4bit")
_EIGHT = re.compile(r"(fp|int|w|float)8(?!\d)|8bit")
_SCALES = {"mxfp4": 8 / 32, "nvfp4": 8 / 16}
"""Bits a weight that the scales of a format add: one byte for so many weights."""
_KEPT = ("modules_to_not_convert", "ignore", "exclude_modules")
_ONE_LAYER = re.compile(r"layers\.\d")


class Storage(NamedTuple):
    """How weights are stored.

    Attributes:
        kept: bytes of a weight that is not quantised: of embeddings at least, which every method keeps.
        quantised: bytes of any other weight, its share of scales included.
        keeps_attention: whether the projections of attention are not quantised either.
        source: what says so; empty where nothing does, and bf16 is assumed.
        note: what of the quantisation is not understood.
    """

    kept: float
    quantised: float
    keeps_attention: bool
    source: str
    note: str = ""


def storage(fields: Fields) -> Storage:
    """Return how weights are stored.

    Raises:
        ConfigError: the quantisation is no object, or its bits are no number from 1 to 32.
    """
    stored = str(fields.get("dtype") or fields.get("torch_dtype") or "").removeprefix("torch.")
    kept = _BYTES.get(stored, BF16_BYTES)
    quantised = fields.get("quantization_config")
    if quantised is None:
        return Storage(kept, kept, keeps_attention=True, source=f"{stored} in the config" if stored in _BYTES else "")
    if not isinstance(quantised, dict):
        raise fields.error("quantization_config", "an object")
    bits = [*_bits(quantised)]
    for width in bits:
        if isinstance(width, bool) or not isinstance(width, int | float) or not 1 <= width <= 32:  # noqa: PLR2004
            raise fields.error("quantization_config", "an object whose bits are a number from 1 to 32")
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "no method")[:40]
    if not bits:
        note = f"quantization_config ({method}) has no width that is understood: 2 bytes a weight"
        return Storage(BF16_BYTES, BF16_BYTES, keeps_attention=True, source="", note=note)
    width = max(bits)
    source = f"quantization_config ({method}) in the config: {width:g} bits with scales, embeddings of {kept:g} bytes"
    return Storage(kept, (width + _scales(quantised, width)) / 8, _keeps_attention(quantised), source)


def _groups(quantised: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is said of each group of weights, in the form of compressed-tensors."""
    groups = quantised.get("config_groups")
    weights = (
        [one.get("weights") for one in groups.values() if isinstance(one, dict)] if isinstance(groups, dict) else []
    )
    return [one for one in weights if isinstance(one, dict)]


def _bits(quantised: dict[str, Any]) -> Iterator[Any]:
    """Yield what is said of the bits of weights: all where there are several groups, else what is said most plainly."""
    for name in _BITS:
        if quantised.get(name) is not None:
            yield quantised[name]
            return
    if widths := [one["num_bits"] for one in _groups(quantised) if one.get("num_bits") is not None]:
        yield from widths
        return
    if quantised.get("load_in_4bit") is True or quantised.get("load_in_8bit") is True:
        yield 4 if quantised.get("load_in_4bit") is True else 8
        return
    told = _told(quantised)
    if _FOUR.search(told) or _EIGHT.search(told):
        yield 4 if _FOUR.search(told) else 8


def _told(quantised: dict[str, Any]) -> str:
    return " ".join(str(quantised.get(name, "")) for name in _WORDS).lower()


def _scales(quantised: dict[str, Any], width: float) -> float:
    """Return the bits a weight that its scale takes, and its zero: known of block formats and of groups of a stated size."""
    for name, bits in _SCALES.items():
        if name in _told(quantised):
            return bits
    sizes = [one.get("group_size") for one in (quantised, *_groups(quantised))]
    known = [size for size in sizes if isinstance(size, int) and size > 1]
    return (16 + width) / min(known) if known else 0.0


def _keeps_attention(quantised: dict[str, Any]) -> bool:
    lists = [quantised[name] for name in _KEPT if isinstance(quantised.get(name), list)]
    return any("attn" in str(name) and not _ONE_LAYER.search(str(name)) for names in lists for name in names)
