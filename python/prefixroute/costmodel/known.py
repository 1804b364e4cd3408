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
from prefixroute.shipped import shipped_table

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
_FIELDS = shipped_table("prefixroute.costmodel", "fields.toml")
_KNOWN = frozenset(_FIELDS["read"] + _FIELDS["unused"])


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
    if name in _KNOWN or _HARMLESS.search(name) or not _SPEAKS.search(name):
        return False
    return bool(value) and not isinstance(value, float)
