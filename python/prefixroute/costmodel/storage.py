"""How many bytes weights and cached numbers take, as a ``config.json`` says.

By its quantisation, else by the stored type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from prefixroute.costmodel.fields import Fields

BF16_BYTES = 2.0
FORMATS = ("bf16", "fp8", "fp4", "mxfp4", "int8", "int4")
"""Formats of weights. The first three are computed in where a GPU has units for them; the others are unpacked to
bf16."""
_BYTES = {
    "float32": 2.0, "bfloat16": 2.0, "float16": 2.0, "float8_e4m3fn": 1.0, "float8_e5m2": 1.0, "int8": 1.0,
}  # fmt: skip
_AS_LOADED = "float32 weights count 2 bytes: engines load them as 16 bits by default (--dtype auto)"
_BITS = ("bits", "w_bit", "nbits")
_WORDS = ("quant_method", "quant_algo", "quant_type", "format", "weights")
_FOUR = re.compile(r"(fp|int|nf|w)4(?!\d)|4bit")
_EIGHT = re.compile(r"(fp|int|w|float)8(?!\d)|8bit")
_INTEGER = ("gptq", "awq", "bitsandbytes", "int4", "int8", "w4a16", "w8a16", "pack-quantized", "gguf", "hqq", "marlin")
"""Words of methods whose weights are no floating-point numbers, or are computed in bf16 whatever they are."""
_SCALES = {"mxfp4": 8 / 32, "nvfp4": 8 / 16}
"""Bits a weight that the scales of a format add: one byte for so many weights."""
_KEPT = ("modules_to_not_convert", "ignore", "exclude_modules")
_ONE_LAYER = re.compile(r"layers\.\d")


class Storage(NamedTuple):
    """How weights and the cache are stored.

    Attributes:
        kept: bytes of a weight that is not quantised: of embeddings at least, which every method keeps.
        quantised: bytes of any other weight, its share of scales included.
        keeps_attention: whether the projections of attention are not quantised either.
        weight_format: one of :data:`FORMATS`, of what is quantised.
        source: what says so; empty where nothing does, and bf16 is assumed.
        kv_bytes: bytes of a number in the cache.
        kv_source: what says so; empty where nothing does, and bf16 is assumed.
        note: what is not as stored, or of the quantisation not understood.
    """

    kept: float
    quantised: float
    keeps_attention: bool
    weight_format: str
    source: str
    kv_bytes: float = BF16_BYTES
    kv_source: str = ""
    note: str = ""


def storage(fields: Fields) -> Storage:
    """Return how weights and the cache are stored.

    Raises:
        ConfigError: the quantisation is no object, or its bits are no number from 1 to 32.
    """
    stored = str(fields.get("dtype") or fields.get("torch_dtype") or "").removeprefix("torch.")
    kept = _BYTES.get(stored, BF16_BYTES)
    quantised = fields.get("quantization_config")
    note = _AS_LOADED if stored == "float32" else ""
    if quantised is None:
        source = f"{stored} in the config" if stored in _BYTES else ""
        plain = "fp8" if kept == 1 else "bf16"
        return Storage(kept, kept, keeps_attention=True, weight_format=plain, source=source, note=note)
    if not isinstance(quantised, dict):
        raise fields.error("quantization_config", "an object")
    kv_bytes, kv_source = _kv_bytes(quantised, fields)
    bits = [*_bits(quantised)]
    for width in bits:
        _check_bits(width, fields)
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "no method")[:40]
    if not bits:
        note = f"quantization_config ({method}) has no width that is understood: 2 bytes a weight"
        return Storage(BF16_BYTES, BF16_BYTES, True, "bf16", "", kv_bytes, kv_source, note)  # noqa: FBT003 - a tuple
    width = max(bits)
    return Storage(
        kept,
        (width + _scales(quantised, width)) / 8,
        keeps_attention=_keeps_attention(quantised),
        weight_format=_format(quantised, width),
        source=f"quantization_config ({method}) in the config: {width:g} bits with scales, embeddings of {kept:g} bytes",
        kv_bytes=kv_bytes,
        kv_source=kv_source,
        note=note,
    )


def expert_storage(fields: Fields, stored: Storage) -> tuple[str, float]:
    """Return format and bytes of the weights of experts.

    As ``expert_dtype`` says, else as other weights that are quantised.

    Raises:
        ConfigError: an ``expert_dtype`` that is not known.
    """
    said = fields.word("expert_dtype")
    if not said:
        return stored.weight_format, stored.quantised
    known = {"fp4": ("fp4", (4 + _SCALES["mxfp4"]) / 8), "fp8": ("fp8", 1.0), "bf16": ("bf16", 2.0)}
    known["bfloat16"] = known["bf16"]
    if said not in known:
        raise fields.error("expert_dtype", f"one of {', '.join(known)}")
    return known[said]


def _check_bits(width: Any, fields: Fields) -> None:
    if isinstance(width, bool) or not isinstance(width, int | float) or not 1 <= width <= 32:  # noqa: PLR2004
        raise fields.error("quantization_config", "an object whose bits are a number from 1 to 32")


def _format(quantised: dict[str, Any], width: float) -> str:
    told = _told(quantised)
    floating = "fp" in told or "float" in told or any(one.get("type") == "float" for one in _groups(quantised))
    if any(word in told for word in _INTEGER) and not floating:
        return "int4" if width < 8 else "int8"  # noqa: PLR2004 - bits
    if any(one.get("type") == "int" for one in _groups(quantised)):
        return "int4" if width < 8 else "int8"  # noqa: PLR2004 - bits
    if width < 8:  # noqa: PLR2004 - bits
        return "mxfp4" if "mxfp4" in told else "fp4"
    return "fp8" if width < 16 else "bf16"  # noqa: PLR2004 - bits


def _kv_bytes(quantised: dict[str, Any], fields: Fields) -> tuple[float, str]:
    """Return the bytes of a number in the cache and what says so: as compressed-tensors and ModelOpt write it."""
    scheme = quantised.get("kv_cache_scheme")
    if isinstance(scheme, dict) and scheme.get("num_bits") is not None:
        _check_bits(scheme["num_bits"], fields)
        return scheme["num_bits"] / 8, f"kv_cache_scheme in the config: {scheme['num_bits']:g} bits"
    told = str(scheme or quantised.get("kv_cache_quant_algo") or "").lower()
    if told and _EIGHT.search(told):
        return 1.0, f"{told} for the cache in the config"
    if told and _FOUR.search(told):
        return 0.5 + 1 / 16, f"{told} for the cache in the config"
    return BF16_BYTES, ""


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
    """Return the bits a weight that its scale takes, and its zero.

    Known of block formats and of groups of a stated size.
    """
    for name, bits in _SCALES.items():
        if name in _told(quantised):
            return bits
    sizes = [one.get("group_size") for one in (quantised, *_groups(quantised))]
    known = [size for size in sizes if isinstance(size, int) and size > 1]
    return (16 + width) / min(known) if known else 0.0


def _keeps_attention(quantised: dict[str, Any]) -> bool:
    lists = [quantised[name] for name in _KEPT if isinstance(quantised.get(name), list)]
    return any("attn" in str(name) and not _ONE_LAYER.search(str(name)) for names in lists for name in names)
