"""Routing keys: which ``prompt_cache_key`` a user gets, how many keys a rate needs, and what a prompt's own key is.

The mapping is documented, so that another program can compute it: it depends on no process, machine or Python version.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.providers.marks import is_marked, listed, unmarked
from prefixroute.validation import check_float, check_int, shown

MOST_SHARDS = 1_000_000
_JUMP = 2862933555777941757
_MASK = 2**64 - 1


def shard_of(user_id: str | int | bytes, shards: int) -> int:
    """Return the shard of a user, 0 to ``shards`` - 1, by jump consistent hashing.

    The 64-bit key is BLAKE2b with an 8-byte digest over the id's bytes (UTF-8 of a text, of an int its decimal text),
    read big-endian. Going from k to k + 1 shards moves 1 / (k + 1) of the users, all of them to the new shard. Source:
    Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", arXiv 1406.2294, 2014.

    Args:
        user_id: the user, not empty: what has no id must not share one shard with all others that have none.
        shards: how many there are, 1 to 1,000,000.

    Raises:
        ConfigError: an id that is empty or of another type, or an impossible number of shards.
    """
    check_int("shards", shards, 1, MOST_SHARDS)
    return jump_hash(int.from_bytes(blake2b(_bytes(user_id), digest_size=8).digest(), "big"), shards)


def jump_hash(key: int, buckets: int) -> int:
    """Return the bucket, 0 to ``buckets`` - 1, of a 64-bit key by jump consistent hashing, see :func:`shard_of`."""
    bucket, jump = -1, 0
    while jump < buckets:
        bucket = jump
        key = (key * _JUMP + 1) & _MASK
        jump = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket


def cache_key(user_id: str | int | bytes, shards: int, *, prefix: str = "shard") -> str:
    """Return the ``prompt_cache_key`` of a user: ``shard-3`` of 8 shards, the same everywhere and for ever.

    The number of shards is no part of the key: when it changes, users whose shard stays keep their cache.

    Args:
        user_id: as in :func:`shard_of`.
        shards: how many keys there are, see :func:`shards_for`.
        prefix: tells keys of one application or prompt from those of another.

    Raises:
        ConfigError: an argument is not allowed.
    """
    if not isinstance(prefix, str):
        raise ConfigError(f"prefix must be text, got {shown(prefix)}")
    return f"{prefix}-{shard_of(user_id, shards)}"


def shards_for(requests_per_minute: float, limit: float) -> int:
    """Return how many keys keep each at ``limit`` requests a minute on average: ceil(rate / limit), at least 1.

    Source: OpenAI's prompt caching guide for models before GPT-5.6, about 15 a minute for one head and key; 120 a
    minute need 8 keys. An average: bursts go over it, and the provider promises nothing.

    Args:
        requests_per_minute: of one prefix.
        limit: requests a minute that one key takes.

    Raises:
        ConfigError: a number is out of range.
    """
    check_float("requests_per_minute", requests_per_minute, 0, limit * MOST_SHARDS if limit > 0 else math.inf)
    check_float("the limit a minute", limit, 0, above=True)
    # A hair below a whole number is rounding of the division, not another key.
    return max(1, math.ceil(requests_per_minute / limit - 1e-9))


def prefix_key(body: Mapping[str, Any]) -> str:
    """Return a key of the part of a request that its calls share: 32 hexadecimal digits.

    That part ends with the last block that carries a ``cache_control`` or ``prompt_cache_breakpoint`` mark; of a body
    without marks it is the model, tools and system prompt. So two questions behind one system prompt have one key.
    Marks themselves change no key.

    Args:
        body: of a request of the Messages, chat completions or Responses API.

    Raises:
        ConfigError: ``body`` is no mapping.
    """
    if not isinstance(body, Mapping):
        raise ConfigError(f"a request's body must be a mapping, got {body!r:.80}")
    units: list[tuple[Any, bool]] = [(body.get("model"), False)]
    units += [(tool, True) for tool in listed(body.get("tools"))]
    units += [(block, True) for block in _blocks(body.get("system") or body.get("instructions"))]
    messages = listed(body.get("messages") or body.get("input"))
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else message
        units += [((role, block), role in ("system", "developer")) for block in _blocks(content)]
    marked = [at for at, (unit, _) in enumerate(units) if is_marked(unit[1] if isinstance(unit, tuple) else unit)]
    stable = units[: marked[-1] + 1] if marked else units[:1] + [unit for unit in units[1:] if unit[1]]
    digest = blake2b(digest_size=16)
    for unit, _ in stable:
        text = json.dumps(unmarked(unit), sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _bytes(user_id: str | int | bytes) -> bytes:
    if isinstance(user_id, int) and not isinstance(user_id, bool):
        return str(user_id).encode()
    if isinstance(user_id, str):
        user_id = user_id.encode("utf-8", "surrogatepass")
    if not isinstance(user_id, bytes) or not user_id:
        raise ConfigError(f"a user's id must be an int, or text or bytes that are not empty, got {shown(user_id)}")
    return user_id


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": block} if isinstance(block, str) else block for block in listed(content)]
