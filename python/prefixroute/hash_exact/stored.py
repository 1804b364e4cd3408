"""What an engine's KV events say of the blocks that it stored, as far as hashes go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from prefixroute.errors import EventError
from prefixroute.extras import extra_module
from prefixroute.hash_exact.scheme import Content, Media

U64 = 1 << 64
_ARRAY_FIELDS = (
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """A store event of an engine, as far as hashes go.

    Attributes:
        hashes: the published integer of each block.
        parent: that of the block before the first; ``None`` = the first is the prompt's first.
        token_ids: token ids of all blocks. More than the hashes cover means that some blocks of the prompt were not
            stored (sliding windows, masks): which ones, only the hashes tell.
        block_size: tokens in a block.
        contents: what else entered the hash of each block, placed as if the event began the prompt.
        after: look-ahead tokens of each block, where the engine gives them.
        digests: the whole digest of each block, where the engine publishes bytes instead of integers.
        parent_digest: that of the parent.
        adapter: the adapter's name, or its number where the engine gives no name; ``None`` = the base model.
    """

    hashes: tuple[int, ...]
    parent: int | None
    token_ids: tuple[int, ...]
    block_size: int
    contents: tuple[Content, ...]
    after: tuple[tuple[int, ...], ...] = ()
    digests: tuple[bytes, ...] = ()
    parent_digest: bytes | None = None
    adapter: str | None = None

    @property
    def masked(self) -> bool:
        """Whether the tokens go on for a block or more after as many blocks as there are hashes."""
        return len(self.token_ids) >= (len(self.hashes) + 1) * self.block_size

    def block(self, number: int, look_ahead: int) -> tuple[int, ...]:
        """Return the tokens of a block and so many after it.

        Args:
            number: of the block, from 0.
            look_ahead: tokens behind it.
        """
        begin, end = number * self.block_size, (number + 1) * self.block_size
        if self.after and not self.masked:
            return self.token_ids[begin:end] + self.after[number][:look_ahead]
        return self.token_ids[begin : end + look_ahead]


def stored_events(payload: bytes, lora_path: str = "") -> Iterator[StoredEvent]:
    """Yield the store events of one KV-event batch.

    Args:
        payload: the msgpack payload of vLLM or SGLang, maps as well as the older arrays.
        lora_path: where the engine loaded its adapters from; events do not carry it.

    Raises:
        EventError: the payload is not a batch, or what one of its events says of blocks is malformed.
    """
    unpack = extra_module("msgpack", "hashes").unpackb
    try:
        events = list(unpack(payload, strict_map_key=False)[1])
    except Exception as error:
        raise EventError(f"not a KV-event batch: {error}") from error
    for number, event in enumerate(events):
        try:
            fields = event if isinstance(event, Mapping) else dict(zip(_ARRAY_FIELDS, event, strict=False))
            names_blocks = (
                fields.get("type") == "BlockStored" and fields.get("token_ids") and fields.get("block_hashes")
            )
            stored = _stored(fields, lora_path) if names_blocks else None
        except Exception as error:
            raise EventError(f"event {number} of a KV-event batch is malformed: {error!r}") from error
        if stored is not None:
            yield stored


def _stored(fields: Mapping[str, Any], lora_path: str) -> StoredEvent:
    told, parent = fields["block_hashes"], fields.get("parent_block_hash")
    lora, number, size = fields.get("lora_name"), fields.get("lora_id"), int(fields["block_size"])
    tokens = [index(token[0] if isinstance(token, list) else token) for token in fields["token_ids"]]
    last = fields["token_ids"][-1]
    if isinstance(last, list):  # pairs of neighbours: the last one brings the token after the block
        tokens.append(index(last[-1]))
    keys = fields.get("extra_keys") or [None] * len(told)
    salt = fields.get("cache_salt")
    if not (isinstance(lora, str | None) and isinstance(salt, str | None)):
        raise TypeError(f"lora_name and cache_salt must be texts, got {lora!r} and {salt!r}")
    if size < 1 or len(keys) != len(told):
        raise ValueError(f"{len(told)} hashes, {len(keys)} extra keys, blocks of {size} tokens")
    return StoredEvent(
        hashes=tuple(map(_as_int, told)),
        parent=None if parent is None else _as_int(parent),
        token_ids=tuple(tokens),
        block_size=size,
        contents=tuple(_content(extra, (lora, lora_path), salt, block, size) for block, extra in enumerate(keys)),
        after=tuple(map(tuple, fields.get("lookahead_token_ids") or ())),
        digests=tuple(told) if all(isinstance(value, bytes) for value in told) else (),
        parent_digest=parent if isinstance(parent, bytes) else None,
        adapter=str(number) if lora is None and isinstance(number, int) else lora,
    )


def _content(
    extra: Sequence[Any] | None, lora: tuple[str | None, str], salt: str | None, block: int, block_size: int
) -> Content:
    media: list[Media] = []
    embeds: list[tuple[int, bytes | str]] = []
    for position, key in enumerate(extra or ()):
        if isinstance(key, bytes):
            embeds.append((block, key))
        elif not isinstance(key, str):
            identifier, offset = key[:2]
            media.append(Media(str(identifier), block * block_size + index(offset), max(1, 1 - offset)))
        elif position > 0 or key != lora[0]:
            salt = key
    return Content(lora[0], lora[1] if lora[0] else "", salt, tuple(media), tuple(embeds))


def _as_int(value: int | bytes) -> int:
    """Return a published hash as an unsigned 64-bit integer; of a digest the last 8 bytes."""
    return int.from_bytes(value[-8:], "big") if isinstance(value, bytes) else index(value) % U64
