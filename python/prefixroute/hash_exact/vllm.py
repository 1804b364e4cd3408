"""vLLM's block hashes: a digest of (parent digest, token ids, extra keys), pickled or in canonical CBOR."""

from __future__ import annotations

import hashlib
import pickle  # only written: hashes cover pickled bytes, nothing is ever loaded
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.hash_exact.scheme import COMMON_SEEDS, PLAIN, Content, HashScheme, NotReproducibleError, SchemeChoice
from prefixroute.validation import check_choice, check_int, shown

ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
"""Values of vLLM's ``--prefix-caching-hash-algo``."""
DEFAULT_SEED = "vllm-none-hash"
"""What the root digest covers under the sha256 algorithms without PYTHONHASHSEED (vLLM 0.33)."""
PICKLE_PROTOCOL = 5
"""``pickle.HIGHEST_PROTOCOL`` of every Python that vLLM runs on; a later protocol would change the bytes."""


@dataclass(frozen=True, slots=True)
class VllmHashes(HashScheme[bytes]):
    """The hashes of one vLLM configuration.

    Args:
        algorithm: one of :data:`ALGORITHMS`; vLLM's default is ``sha256``, which pickles.
        seed: the engine's PYTHONHASHSEED; ``None`` = not set.
        legacy: hash as releases did that neither tagged extra keys nor fixed the root. Without PYTHONHASHSEED their
            root was random in every process. The release of the change is not established, so it is stated here.
        look_ahead: tokens after a block that its hash covers (speculative decoding).

    Raises:
        ConfigError: the algorithm is unknown, or the root is random in every process and nobody else can compute it.
    """

    algorithm: str = "sha256"
    seed: str | None = None
    legacy: bool = False
    look_ahead: int = 0

    choices = {  # noqa: RUF012  # declared as a ClassVar by the base
        "algorithm": SchemeChoice("algorithm", ALGORITHMS, "the engine hashes with {}"),
        "seed": SchemeChoice("seed", (None, *COMMON_SEEDS), "its PYTHONHASHSEED is {}"),
        "legacy": SchemeChoice("legacy", (False, True), "it hashes with legacy={}"),
        "look_ahead": SchemeChoice("look_ahead", (0, 1), "a hash covers {} tokens after its block"),
    }
    root_inputs = ("seed",)

    _digest: Callable[[Any], bytes] = field(init=False, repr=False, compare=False)
    _root: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out the digest of the root."""
        check_choice("algorithm", self.algorithm, ALGORITHMS)
        if self.seed is not None and not isinstance(self.seed, str):
            raise ConfigError(f"seed must be the text of PYTHONHASHSEED, got {shown(self.seed)}")
        if self.seed is None and (self.legacy or self.algorithm.startswith("xxhash")):
            raise ConfigError(f"{self.algorithm} without PYTHONHASHSEED has a random root in every engine process")
        check_int("look_ahead", self.look_ahead, 0)
        object.__setattr__(self, "_digest", _digest_of(self.algorithm))
        object.__setattr__(self, "_root", self._digest(DEFAULT_SEED if self.seed is None else self.seed))

    def root(self, content: Content = PLAIN) -> bytes:
        """Return vLLM's NONE_HASH."""
        del content
        return self._root

    def step(self, state: bytes, tokens: Sequence[int], block: int, block_size: int, content: Content = PLAIN) -> bytes:
        """Return the digest of a block, 32 bytes under sha256, 16 under xxhash."""
        extra = self.extra_keys(block, block_size, content)
        if self.look_ahead:
            tokens, extra = tokens[: -self.look_ahead], (extra, *tokens[-self.look_ahead :])
        return self._digest((state, tuple(tokens), extra))

    def published(self, state: bytes, content: Content = PLAIN) -> int:
        """Return the last 8 bytes, big-endian: the integer in KV events."""
        del content
        return int.from_bytes(state[-8:], "big")

    def resumed(self, published: int, digest: bytes | None) -> bytes | None:
        """Return the digest, if the engine publishes whole digests."""
        del published
        return digest if digest is not None and len(digest) == len(self._root) else None

    def extra_keys(self, block: int, block_size: int, content: Content) -> tuple[Any, ...] | None:
        """Return a block's extra keys in vLLM's order: adapter, media, salt (first block only), prompt embeddings.

        Args:
            block: its number, from 0.
            block_size: tokens in a block.
            content: what the prompt has beside its token ids.

        Raises:
            NotReproducibleError: the path of the adapter is not given. Or an identifier is used twice in a block under
                a pickled algorithm: the bytes then depend on whether the engine held it as one object or two.
        """
        if content == PLAIN:
            return None
        keys: list[Any] = []
        if content.lora is not None:
            if not (self.legacy or content.lora_path):
                raise NotReproducibleError(
                    "lora", f"vLLM hashes the path of adapter {shown(content.lora)}, which no event carries: give it"
                )
            keys.append(content.lora if self.legacy else ("lora", content.lora, content.lora_path))
        for item in content.media_in(block, block_size):
            place = (item.identifier, item.first - block * block_size)
            keys.append(place if self.legacy else ("mm", *place))
        if content.salt is not None and block == 0:
            keys.append(content.salt if self.legacy else ("cache_salt", content.salt))
        for number, digest in content.embeds:
            if number == block:
                keys.append(digest if self.legacy else ("prompt_embeds", digest))
        if not self.algorithm.endswith("cbor"):
            _refuse_repeats(keys)
        return tuple(keys) or None


def _refuse_repeats(keys: list[Any]) -> None:
    texts = [
        part for key in keys for part in (key if isinstance(key, tuple) else (key,)) if isinstance(part, str | bytes)
    ]
    names = [text for text in texts if text not in _TAGS]
    for name in names:
        if names.count(name) > 1:
            raise NotReproducibleError(
                "media", f"{shown(name)} is used twice in one block: a pickled hash of it cannot be reproduced"
            )


_TAGS = frozenset({"lora", "mm", "cache_salt", "prompt_embeds"})


def _digest_of(algorithm: str) -> Callable[[Any], bytes]:
    """Return the function from a value to its digest."""
    encode = cbor if algorithm.endswith("cbor") else _pickled
    if algorithm.startswith("sha256"):
        return lambda value: hashlib.sha256(encode(value)).digest()
    xxh3_128: Callable[[bytes], bytes] = extra_module("xxhash", "hashes").xxh3_128_digest
    return lambda value: xxh3_128(encode(value))


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=PICKLE_PROTOCOL)


def cbor(value: Any) -> bytes:
    """Return a value in canonical CBOR."""
    encoded: bytes = extra_module("cbor2", "hashes").dumps(value, canonical=True)
    return encoded
