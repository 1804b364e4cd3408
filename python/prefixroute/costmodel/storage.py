"""How many bytes a weight takes, as a ``config.json`` says: its quantisation, else the type that weights are stored in."""

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


class Storage(NamedTuple):
    """Bytes of one weight, and what says so: empty where nothing does, and bf16 is assumed."""

    weight_bytes: float
    source: str
    note: str = ""


def storage(fields: Fields) -> Storage:
    """Return how weights are stored. A quantised model's embeddings, often kept in bf16, count like the rest.

    Raises:
        ConfigError: the quantisation is no object, or its bits are no number from 1 to 32.
    """
    quantised = fields.get("quantization_config")
    if quantised is None:
        stored = str(fields.get("dtype") or fields.get("torch_dtype") or "").removeprefix("torch.")
        return Storage(_BYTES[stored], f"{stored} in the config") if stored in _BYTES else Storage(BF16_BYTES, "")
    if not isinstance(quantised, dict):
        raise fields.error("quantization_config", "an object")
    bits = [*_bits(quantised)]
    for width in bits:
        if isinstance(width, bool) or not isinstance(width, int | float) or not 1 <= width <= 32:  # noqa: PLR2004
            raise fields.error("quantization_config", "an object whose bits are a number from 1 to 32")
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "no method")[:40]
    if not bits:
        return Storage(
            BF16_BYTES, "", f"quantization_config ({method}) has no width that is understood: 2 bytes a weight"
        )
    return Storage(max(bits) / 8, f"quantization_config ({method}) in the config, of embeddings too")


def _bits(quantised: dict[str, Any]) -> Iterator[Any]:
    """Yield what a quantisation says of the bits of weights: of several groups of weights all, of one first what is plainest."""
    for name in _BITS:
        if quantised.get(name) is not None:
            yield quantised[name]
            return
    groups = quantised.get("config_groups")
    weights = (
        [one.get("weights") for one in groups.values() if isinstance(one, dict)] if isinstance(groups, dict) else []
    )
    widths = [one["num_bits"] for one in weights if isinstance(one, dict) and one.get("num_bits") is not None]
    if widths:
        yield from widths
        return
    if quantised.get("load_in_4bit") is True or quantised.get("load_in_8bit") is True:
        yield 4 if quantised.get("load_in_4bit") is True else 8
        return
    told = " ".join(str(quantised.get(name, "")) for name in _WORDS).lower()
    if _FOUR.search(told) or _EIGHT.search(told):
        yield 4 if _FOUR.search(told) else 8
