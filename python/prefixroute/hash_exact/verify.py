"""Compare an engine's published hashes with those computed from the token ids, and say why they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any, Literal

from prefixroute.errors import ConfigError, EventError
from prefixroute.extras import extra_module
from prefixroute.hash_exact.scheme import Content, HashScheme, Media, token_list
from prefixroute.hash_exact.sglang import SglangHashes
from prefixroute.hash_exact.vllm import ALGORITHMS, VllmHashes

Reason = Literal["algorithm", "seed", "legacy", "look_ahead", "block_size", "lora", "salt", "media", "tokenizer"]
COMMON_SEEDS = (None, "0", "1", "42")
"""Values of PYTHONHASHSEED that deployments use."""
_BATCH_FIELDS = 2
_U64 = 1 << 64


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """A store event of an engine, as far as hashes go.

    Attributes:
        hashes: the published integer of each block.
        parent: that of the block before the first; ``None`` = the first is the prompt's first.
        token_ids: token ids of all blocks.
        block_size: tokens in a block.
        contents: what else entered the hash of each block, placed as if the event began the prompt.
        after: look-ahead tokens of each block, where the engine gives them.
    """

    hashes: tuple[int, ...]
    parent: int | None
    token_ids: tuple[int, ...]
    block_size: int
    contents: tuple[Content, ...]
    after: tuple[tuple[int, ...], ...] = ()

    def block(self, number: int, look_ahead: int) -> tuple[int, ...]:
        """Return the tokens of a block and so many after it."""
        begin, end = number * self.block_size, (number + 1) * self.block_size
        if self.after:
            return self.token_ids[begin:end] + self.after[number][:look_ahead]
        return self.token_ids[begin : end + look_ahead]


@dataclass(frozen=True, slots=True)
class Verification:
    """What comparing hashes gave.

    Attributes:
        matched: blocks whose hash was reproduced.
        mismatched: blocks whose hash was not.
        unchecked: blocks behind an unknown parent, or without content.
        reason: the likely reason of the mismatch; ``None`` = everything that could be checked agrees.
        detail: the reason with its figures, for people.
        scheme: the scheme that does reproduce the hashes, if one was found.
    """

    matched: int = 0
    mismatched: int = 0
    unchecked: int = 0
    reason: Reason | None = None
    detail: str = ""
    scheme: HashScheme[Any] | None = field(default=None, repr=False)

    @property
    def agrees(self) -> bool:
        """Whether at least one block was reproduced and none was not."""
        return self.matched > 0 and self.mismatched == 0


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


_ARRAY_FIELDS = (
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
)


def _stored(fields: Mapping[str, Any], lora_path: str) -> StoredEvent:
    hashes = tuple(_as_int(value) for value in fields["block_hashes"])
    parent, lora, size = fields.get("parent_block_hash"), fields.get("lora_name"), int(fields["block_size"])
    tokens = [index(token[0] if isinstance(token, list) else token) for token in fields["token_ids"]]
    last = fields["token_ids"][-1]
    if isinstance(last, list):  # pairs of neighbours: the last one brings the token after the block
        tokens.append(index(last[-1]))
    keys = fields.get("extra_keys") or [None] * len(hashes)
    salt = fields.get("cache_salt")
    if not (isinstance(lora, str | None) and isinstance(salt, str | None)):
        raise TypeError(f"lora_name and cache_salt must be texts, got {lora!r} and {salt!r}")
    if size < 1 or len(keys) != len(hashes):
        raise ValueError(f"{len(hashes)} hashes, {len(keys)} extra keys, blocks of {size} tokens")
    contents = tuple(_content(extra, (lora, lora_path), salt, number, size) for number, extra in enumerate(keys))
    after = tuple(map(tuple, fields.get("lookahead_token_ids") or ()))
    return StoredEvent(hashes, None if parent is None else _as_int(parent), tuple(tokens), size, contents, after)


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
    return int.from_bytes(value[-8:], "big") if isinstance(value, bytes) else index(value) % _U64


def verify(
    events: Iterable[StoredEvent],
    scheme: HashScheme[Any],
    *,
    prompts: Iterable[Any] = (),
    block_size: int | None = None,
    content: Content | None = None,
) -> Verification:
    """Recompute an engine's hashes from the token ids of its own events, then compare its tokens with those of prompts.

    Args:
        events: what the engine stored, oldest first, see :func:`stored_events`.
        scheme: how the engine should hash.
        prompts: token ids of prompts that the engine has computed, as the router sees them.
        block_size: tokens in a block by the router; ``None`` = the events' own.
        content: adapter and salt of the prompts.

    Returns:
        The counts, and the likely reason if nothing or not everything matches.
    """
    events = list(events)
    found = _compare(events, scheme)
    if found.mismatched:
        return _explain(events, scheme, found)
    if found.matched and (reason := _prompt_reason(events, prompts, block_size, content)):
        return replace(found, reason=reason[0], detail=reason[1])
    return found


def _compare(events: Iterable[StoredEvent], scheme: HashScheme[Any], sub_size: int | None = None) -> Verification:
    """Count what a scheme reproduces; ``sub_size``: the chain runs over smaller blocks than events have."""
    known: dict[int, Any] = {}
    matched = mismatched = unchecked = 0
    for event in events:
        if event.parent is not None and event.parent not in known:
            unchecked += len(event.hashes)
            continue
        state = scheme.root(event.contents[0]) if event.parent is None else known[event.parent]
        for number, told in enumerate(event.hashes):
            tokens = event.block(number, scheme.look_ahead)
            if len(tokens) <= scheme.look_ahead or (number and len(tokens) < event.block_size):
                unchecked += 1
                continue
            try:
                state = _stepped(scheme, state, event, number, sub_size)
            except ConfigError:
                unchecked += 1
                break
            agrees = scheme.published(state, event.contents[number]) % _U64 == told
            matched, mismatched = matched + agrees, mismatched + (not agrees)
            known[told] = state
    return Verification(matched, mismatched, unchecked, scheme=scheme)


def _stepped(scheme: HashScheme[Any], state: Any, event: StoredEvent, number: int, sub_size: int | None) -> Any:
    """Add a block of an event, whole or in parts, to a chain."""
    tokens, content = event.block(number, scheme.look_ahead), event.contents[number]
    size = sub_size or event.block_size
    parts = max(1, (len(tokens) - scheme.look_ahead) // size)
    for part in range(parts):
        chunk = tokens[part * size : (part + 1) * size + scheme.look_ahead]
        state = scheme.step(state, chunk, number * parts + part, size, content)
    return state


def _explain(events: list[StoredEvent], scheme: HashScheme[Any], found: Verification) -> Verification:
    """Find what would have to be otherwise for the hashes to agree."""
    for reason, detail, other, sub_size in _alternatives(events, scheme):
        if _compare(events, other, sub_size).agrees:
            return replace(found, reason=reason, detail=detail, scheme=other)
    plain = [event for event in events if all(content == Content() for content in event.contents)]
    if plain and not _compare(plain, scheme).mismatched:
        return replace(found, **_special(events))
    return replace(
        found, reason="seed", detail="no known seed gives these hashes: is the root random in every process?"
    )


def _special(events: list[StoredEvent]) -> dict[str, Any]:
    """Name the kind of content without which everything agrees."""
    contents = [content for event in events for content in event.contents]
    if any(content.lora for content in contents):
        detail = "only blocks of an adapter differ: give the path (vLLM); SGLang hashes an id that no event carries"
        return {"reason": "lora", "detail": detail}
    if any(content.salt for content in contents):
        return {"reason": "salt", "detail": "only salted blocks differ"}
    return {"reason": "media", "detail": "only blocks with media or embeddings differ"}


def _alternatives(
    events: list[StoredEvent], scheme: HashScheme[Any]
) -> Iterator[tuple[Reason, str, HashScheme[Any], int | None]]:
    """Yield schemes that the engine may have used instead, likeliest first."""
    if isinstance(scheme, VllmHashes):
        yield from _vllm_alternatives(scheme)
    elif isinstance(scheme, SglangHashes):
        yield "look_ahead", "the engine hashes pairs (EAGLE)", replace(scheme, bigram=not scheme.bigram), None
        yield "salt", "the engine's event format is the other one", replace(scheme, dynamo_format=True), None
    size = max((event.block_size for event in events), default=1)
    for sub_size in (1, 8, 16, 32, 64, 128, 256):
        if sub_size < size and size % sub_size == 0:
            yield "block_size", f"the engine chains blocks of {sub_size}, its events have {size}", scheme, sub_size


def _vllm_alternatives(scheme: VllmHashes) -> Iterator[tuple[Reason, str, HashScheme[Any], int | None]]:
    seeds = [scheme.seed, *(seed for seed in COMMON_SEEDS if seed != scheme.seed)]
    algorithms = [scheme.algorithm, *(name for name in ALGORITHMS if name != scheme.algorithm)]
    for algorithm in algorithms:
        for seed in seeds:
            for legacy in (scheme.legacy, not scheme.legacy):
                try:
                    other = replace(scheme, algorithm=algorithm, seed=seed, legacy=legacy)
                except ConfigError:
                    continue  # a random root, or a library that is not installed
                if algorithm != scheme.algorithm:
                    yield "algorithm", f"the engine hashes with {algorithm}, PYTHONHASHSEED={seed}", other, None
                elif seed != scheme.seed:
                    yield "seed", f"the engine's PYTHONHASHSEED is {seed}", other, None
                elif legacy != scheme.legacy:
                    yield "legacy", f"the engine hashes with legacy={legacy}", other, None
    yield "look_ahead", "the engine hashes one token after each block", replace(scheme, look_ahead=1), None


def _prompt_reason(
    events: list[StoredEvent], prompts: Iterable[Any], block_size: int | None, content: Content | None
) -> tuple[Reason, str] | None:
    """Say why none of the prompts is among the blocks of an engine whose hashes are understood."""
    given = [token_list(prompt) for prompt in prompts]
    roots = [event for event in events if event.parent is None]
    if not given or not roots:
        return None
    sizes = sorted({event.block_size for event in roots})
    if block_size is not None and block_size not in sizes:
        return "block_size", f"the router has blocks of {block_size}, the engine of {', '.join(map(str, sizes))}"
    asked = content or Content()
    same = [(_shared(event.token_ids, prompt), event) for event in roots for prompt in given]
    whole = [event for shared, event in same if shared >= event.block_size]
    if not whole:
        longest = max(shared for shared, _ in same)
        return "tokenizer", f"no prompt's tokens are the engine's: at best they agree up to position {longest}"
    if not any(event.contents[0].lora == asked.lora for event in whole):
        return "lora", f"the engine stored these tokens under adapter {whole[0].contents[0].lora!r}, not {asked.lora!r}"
    if not any(event.contents[0].salt == asked.salt for event in whole):
        return "salt", f"the engine stored these tokens under salt {whole[0].contents[0].salt!r}, not {asked.salt!r}"
    return None


def _shared(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the length of the common start."""
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return min(len(left), len(right))
