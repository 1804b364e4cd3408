"""Hashes of other routers over XXH3 and XXH64.

Dynamo, Mooncake and SMG, llm-d, and the Gateway API's approximate scorer.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.hash_exact.scheme import COMMON_SEEDS, PLAIN, Content, HashScheme, NotReproducibleError, SchemeChoice
from prefixroute.hash_exact.vllm import cbor
from prefixroute.validation import shown

XXH3_SEED = 1337
"""Seed of Dynamo and SMG."""
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Xxh3Local(HashScheme[int]):
    """Dynamo's and SMG's hash of a block's content alone, which does not cover the blocks before it.

    Args:
        eagle: each block covers one token more (windows of block size + 1).
        seed: the scheme's seed.
    """

    eagle: bool = False
    seed: int = XXH3_SEED

    choices = {  # noqa: RUF012  # declared as a ClassVar by the base
        "eagle": SchemeChoice("look_ahead", (False, True), "a block covers one token more (EAGLE): {}"),
        "seed": SchemeChoice("seed", (XXH3_SEED, 0), "the scheme's seed is {}"),
    }
    root_inputs = ("seed",)

    @property
    def look_ahead(self) -> int:  # type: ignore[override]  # a property where the base has a constant
        """One token for EAGLE."""
        return 1 if self.eagle else 0

    def root(self, content: Content = PLAIN) -> int:
        """Return 0: nothing is chained."""
        del content
        return 0

    def step(self, state: int, tokens: Sequence[int], block: int, block_size: int, content: Content = PLAIN) -> int:
        """Return the hash of a block's token ids and media."""
        del state
        seed = self.seed
        if content.lora is not None:
            seed += _xxh3(content.lora.encode(), 0)
        if content.salt is not None:
            seed += _xxh3(content.salt.encode(), 1)
        packed = _u32(tokens)
        if content.media:
            packed += _u64(sorted(_number(item.identifier) for item in content.media_in(block, block_size)))
        return _xxh3(packed, seed & _MASK)

    def published(self, state: int, content: Content = PLAIN) -> int:
        """Return the hash itself."""
        del content
        return state


@dataclass(frozen=True, slots=True)
class Xxh3Sequence(HashScheme[tuple[int, ...]]):
    """Dynamo's sequence hash, the standard that Mooncake publishes with a seed of its own: a chain over local hashes.

    Args:
        local: the hash of a block's content; its seed is the chain's too.
    """

    local: Xxh3Local = Xxh3Local()

    choices = Xxh3Local.choices
    root_inputs = Xxh3Local.root_inputs

    @property
    def eagle(self) -> bool:
        """As the local hash."""
        return self.local.eagle

    @property
    def seed(self) -> int:
        """As the local hash."""
        return self.local.seed

    @property
    def look_ahead(self) -> int:  # type: ignore[override]  # a property where the base has a constant
        """As the local hash."""
        return self.local.look_ahead

    def _with(self, changed: Mapping[str, Any]) -> Self:
        return replace(self, local=replace(self.local, **changed))

    def resumed(self, published: int, digest: bytes | None) -> tuple[int, ...]:
        """Return the chain that ends there."""
        del digest
        return (published,)

    def root(self, content: Content = PLAIN) -> tuple[int, ...]:
        """Return the empty chain."""
        del content
        return ()

    def step(
        self, state: tuple[int, ...], tokens: Sequence[int], block: int, block_size: int, content: Content = PLAIN
    ) -> tuple[int, ...]:
        """Return the hash of the previous one and this block's, or of the block alone if it is the first."""
        local = self.local.step(0, tokens, block, block_size, content)
        return (_xxh3(_u64([*state, local]), self.local.seed) if state else local,)

    def published(self, state: tuple[int, ...], content: Content = PLAIN) -> int:
        """Return the hash itself."""
        del content
        return state[0]


class _PublishedChain(HashScheme[int]):
    """A chain whose state is the hash that is published, so that any published hash can be gone on from."""

    def resumed(self, published: int, digest: bytes | None) -> int:
        """Return the hash itself."""
        del digest
        return published

    def published(self, state: int, content: Content = PLAIN) -> int:
        """Return the hash itself."""
        del content
        return state


@dataclass(frozen=True, slots=True)
class _LlmdHashes(_PublishedChain):
    """What llm-d's schemes have in common."""

    model: str
    seed: str = ""

    choices = {"seed": SchemeChoice("seed", COMMON_SEEDS, "llm-d's hashSeed is {}")}  # noqa: RUF012  # a ClassVar of the base
    root_inputs = ("model", "seed")
    hidden = ("salt", "media")


@dataclass(frozen=True, slots=True)
class LlmdCborHashes(_LlmdHashes):
    """llm-d's first scheme: FNV-1a over canonical CBOR of (parent, token ids, extra keys).

    Args:
        model: name of the model, which enters the root.
        seed: llm-d's ``hashSeed``.
    """

    def root(self, content: Content = PLAIN) -> int:
        """Return the hash of seed and model."""
        del content
        return _fnv1a(cbor([_fnv1a(self.seed.encode()), None, self.model]))

    def step(self, state: int, tokens: Sequence[int], block: int, block_size: int, content: Content = PLAIN) -> int:
        """Return the hash of a block."""
        extra = [{"Hash": text} for text in _extra_texts(content, block, block_size)]
        return _fnv1a(cbor([state, list(tokens), extra or None]))


@dataclass(frozen=True, slots=True)
class LlmdXxh64Hashes(_LlmdHashes):
    """llm-d's second scheme: XXH64 over (parent, token ids, extra keys). Arguments as :class:`LlmdCborHashes`."""

    def root(self, content: Content = PLAIN) -> int:
        """Return the hash of seed and model."""
        del content
        return _xxh64(_u64([_xxh64(self.seed.encode())]) + _counted(self.model))

    def step(self, state: int, tokens: Sequence[int], block: int, block_size: int, content: Content = PLAIN) -> int:
        """Return the hash of a block."""
        extra = b"".join(map(_counted, _extra_texts(content, block, block_size)))
        return _xxh64(_u64([state]) + _u32(tokens) + extra)


@dataclass(frozen=True, slots=True)
class GatewayHashes(_PublishedChain):
    """The Gateway API inference extension's approximate prefix scorer. A short last block is hashed too.

    Args:
        model: name of the model, which enters the root beside the salt.
    """

    model: str

    partial_tail = True
    root_inputs = ("model", "salt")
    hidden = ("salt",)

    def root(self, content: Content = PLAIN) -> int:
        """Return the hash of model and salt."""
        return _xxh64((self.model + (content.salt or "")).encode())

    def step(self, state: int, tokens: Sequence[int], block: int, block_size: int, content: Content = PLAIN) -> int:
        """Return the hash of the block's own hash and the previous one."""
        del block, block_size, content
        return _xxh64(_u64([_xxh64(_u32(tokens)), state]))


def _extra_texts(content: Content, block: int, block_size: int) -> list[str]:
    texts = [str(item.identifier) for item in content.media_in(block, block_size)]
    if content.salt is not None and block == 0:
        texts.append(content.salt)
    return texts


def _number(identifier: str | int) -> int:
    if not isinstance(identifier, int):
        raise NotReproducibleError("media", f"this scheme names media by 64-bit integers, got {shown(identifier)}")
    return identifier


def _u32(tokens: Sequence[int]) -> bytes:
    try:
        return struct.pack(f"<{len(tokens)}I", *tokens)
    except struct.error as error:
        raise ConfigError(f"this scheme hashes token ids below 2**32, got {max(tokens)}") from error


def _u64(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def _counted(text: str) -> bytes:
    encoded = text.encode()
    return _u64([len(encoded)]) + encoded


def _fnv1a(data: bytes) -> int:
    value = 0xCBF2_9CE4_8422_2325
    for byte in data:
        value = (value ^ byte) * 0x100_0000_01B3 & _MASK
    return value


@lru_cache(maxsize=1)
def _xxhash() -> Any:
    return extra_module("xxhash", "hashes")


def _xxh3(data: bytes, seed: int) -> int:
    value: int = _xxhash().xxh3_64_intdigest(data, seed=seed)
    return value


def _xxh64(data: bytes) -> int:
    value: int = _xxhash().xxh64_intdigest(data)
    return value
