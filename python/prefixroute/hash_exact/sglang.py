"""SGLang's page hashes: SHA-256 over the previous digest and the page's token ids, first 8 bytes, signed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from prefixroute.hash_exact.scheme import PLAIN, Content, HashScheme, NotReproducibleError, SchemeChoice
from prefixroute.validation import shown

_SALT_TAG = b"sglang-cache-salt-v1\0"
_EVENT_TAG = b"sglang-kv-event-namespace-v1"
_STORAGE_TAG = b"sglang-cache-namespace-v1"
_U32 = 1 << 32


@dataclass(frozen=True, slots=True)
class SglangHashes(HashScheme[bytes]):
    """The page hashes of SGLang 0.5.23, as its KV events publish them. A short last page is hashed too.

    Args:
        bigram: pages hold pairs of neighbouring tokens (EAGLE); a page of n needs n + 1 tokens.
        dynamo_format: the engine publishes its events in Dynamo's format, whose namespace covers the salt once more.
        extra_key: the request's ``extra_key``; with an adapter it holds a random id of the loaded adapter, which no
            event carries, so hashes of adapters cannot be computed outside of the engine. In the plain format it
            enters the hashes of adapters alone.
    """

    bigram: bool = False
    dynamo_format: bool = False
    extra_key: str | None = None

    partial_tail = True
    choices = {  # noqa: RUF012  # declared as a ClassVar by the base
        "bigram": SchemeChoice("look_ahead", (False, True), "pages hold pairs of tokens (EAGLE): {}"),
        "dynamo_format": SchemeChoice("format", (False, True), "events are in Dynamo's format: {}"),
    }
    root_inputs = ("extra_key",)
    hidden = ("salt", "extra_key")

    @property
    def look_ahead(self) -> int:  # type: ignore[override]  # a property where the base has a constant
        """One token for pairs."""
        return 1 if self.bigram else 0

    def root(self, content: Content = PLAIN) -> bytes:
        """Return the digest before the first page: empty, or that of the salt."""
        if content.salt is None:
            return b""
        return hashlib.sha256(_SALT_TAG + content.salt.encode()).digest()

    def step(self, state: bytes, tokens: Sequence[int], block: int, block_size: int, content: Content = PLAIN) -> bytes:
        """Return the digest of a page."""
        del block, block_size, content
        ids = [token for pair in pairwise(tokens) for token in pair] if self.bigram else tokens
        wide = max(ids, default=0) >= _U32
        packed = struct.pack(f"<{len(ids)}{'Q' if wide else 'I'}", *ids)
        return hashlib.sha256(state + (b"\xff" if wide else b"") + packed).digest()

    def published(self, state: bytes, content: Content = PLAIN) -> int:
        """Return the first 8 bytes, big-endian and signed, namespaced where the engine does so.

        Raises:
            NotReproducibleError: the page belongs to an adapter, and ``extra_key`` is not given.
        """
        plain = int.from_bytes(state[:8], "big", signed=True)
        if content.lora is not None and self.extra_key is None:
            raise NotReproducibleError(
                "lora", f"SGLang hashes a random id of adapter {shown(content.lora)}, which no event carries"
            )
        salt = content.salt if self.dynamo_format else None
        key = self.extra_key if self.dynamo_format or content.lora is not None else None
        return plain if key is None and salt is None else namespaced(plain, event_namespace(key, salt))


def namespaced(plain: int, namespace: bytes) -> int:
    """Return a plain page hash under a namespace.

    Args:
        plain: hash of the page, 64 bits.
        namespace: 32 bytes, e.g. of :func:`event_namespace`.
    """
    digest = hashlib.sha256(namespace + struct.pack(">q", plain)).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def event_namespace(extra_key: str | None, salt: str | None) -> bytes:
    """Return the namespace of KV events, 32 bytes.

    Args:
        extra_key: of the request; ``None`` = it has none.
        salt: of the request; ``None`` = it has none.
    """
    return _namespace(_EVENT_TAG, extra_key, salt)


def storage_namespace(extra_key: str | None, salt: str | None) -> bytes:
    """Return the namespace of SGLang's storage backends, 32 bytes.

    Args:
        extra_key: of the request; ``None`` = it has none.
        salt: of the request; ``None`` = it has none.
    """
    return _namespace(_STORAGE_TAG, extra_key, salt)


def _namespace(tag: bytes, *parts: str | None) -> bytes:
    digest = hashlib.sha256(tag)
    for part in parts:
        if part is None:
            digest.update(b"\0")
        else:
            text = part.encode()
            digest.update(b"\x01" + struct.pack("<Q", len(text)) + text)
    return digest.digest()
