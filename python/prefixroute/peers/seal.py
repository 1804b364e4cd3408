"""What routers of a fleet have in common: a fingerprint that tells strangers, and a key that frames are sealed with."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import NamedTuple

from prefixroute.errors import ConfigError
from prefixroute.peers.wire import PEER_VERSION, PeerSeal
from prefixroute.validation import check_instance

MIN_SECRET_BYTES, MAX_SECRET_BYTES = 16, 64
"""A shorter secret could be guessed; BLAKE2b takes no longer key."""
REFUSALS = ("version", "settings", "broken")
"""Why a frame is refused: its version, its block size, hash key or secret, or its bytes."""
_USUAL_BLOCK_SIZES = tuple(1 << power for power in range(13))
_FRAME = struct.Struct("<QBI")
"""How a frame begins: tag, version and fingerprint."""


def seal_of(block_size: int, hash_key: int, secret: str | bytes | None = None) -> PeerSeal:
    """Return the seal of routers with this block size, hash key and secret.

    The tag of a frame is a SipHash-2-4 under a key of 128 bits, which is BLAKE2b of all three. With a secret only who
    knows it can make a frame that is taken; without one whoever can find out ``hash_key`` can.

    Args:
        block_size: tokens of a block.
        hash_key: key of the block hashes.
        secret: 16 to 64 bytes that only the routers know, or text of so many bytes; ``None`` = none.

    Raises:
        ConfigError: the secret is none.
    """
    told = b"%d %d %d" % (PEER_VERSION, block_size, hash_key)
    key = _bytes_of(secret)
    fingerprint = blake2b(told, digest_size=4, key=key, person=b"prefixroute peer").digest()
    return PeerSeal(
        int.from_bytes(fingerprint, "little"),
        blake2b(told, digest_size=16, key=key, person=b"prefixroute tags").digest(),
    )


class Terms(NamedTuple):
    """What routers must have in common, in a form that can be stored and that names what differs.

    Attributes:
        version: of the messages between routers.
        block_size: tokens of a block.
        key_mark: a digest of the hash key.
        fingerprint: of all, the secret included.
    """

    version: int
    block_size: int
    key_mark: int
    fingerprint: int

    @classmethod
    def of(cls, block_size: int, hash_key: int, secret: str | bytes | None) -> Terms:
        """Return the terms of a router; raise :class:`ConfigError` for a secret that is none."""
        mark = blake2b(b"%d" % hash_key, digest_size=8, person=b"prefixroute hkey").digest()
        fingerprint = seal_of(block_size, hash_key, secret).fingerprint
        return cls(PEER_VERSION, block_size, int.from_bytes(mark, "little"), fingerprint)

    @classmethod
    def unpack(cls, data: bytes) -> Terms | None:
        """Return stored terms; ``None`` where the bytes hold none."""
        return cls(*_TERMS.unpack(data)) if len(data) == _TERMS.size else None

    def pack(self) -> bytes:
        """Return the terms as bytes to store."""
        return _TERMS.pack(*self)

    def differences(self, theirs: Terms) -> str:
        """Return in words what a router with other terms has otherwise; empty if nothing."""
        found = []
        if theirs.version != self.version:
            found.append(f"message version {theirs.version} there, {self.version} here")
        if theirs.block_size != self.block_size:
            found.append(f"block_size {theirs.block_size} there, {self.block_size} here")
        if theirs.key_mark != self.key_mark:
            found.append("another hash_key")
        if not found and theirs.fingerprint != self.fingerprint:
            found.append("another peer_secret")
        return "; ".join(found)


_TERMS = struct.Struct("<IIQI")


def refusal_of(frame: bytes, terms: Terms) -> tuple[str, str]:
    """Return why a frame of another router is refused: a word of :data:`REFUSALS`, and a sentence's end.

    Args:
        frame: as it came; its first bytes are enough.
        terms: of the router that has refused it.
    """
    if len(frame) < _FRAME.size:
        return "broken", "the message is too short"
    _, version, fingerprint = _FRAME.unpack_from(frame)
    if version != terms.version:
        return "version", f"its message version is {version}, this router's is {terms.version}"
    if fingerprint != terms.fingerprint:
        return "settings", "its block_size, hash_key or peer_secret is another"
    return "broken", "its bytes were altered on the way, or it was made without the peer_secret"


def block_size_of(frame: bytes, hash_key: int, secret: str | bytes | None) -> int | None:
    """Return the block size of a frame's sender, if that is a power of two and all else is equal here."""
    if len(frame) < _FRAME.size:
        return None
    fingerprint = _FRAME.unpack_from(frame)[2]
    return next(
        (size for size in _USUAL_BLOCK_SIZES if seal_of(size, hash_key, secret).fingerprint == fingerprint), None
    )


def _bytes_of(secret: str | bytes | None) -> bytes:
    if secret is None:
        return b""
    if not isinstance(secret, str):
        check_instance("peer_secret", secret, bytes)
    key = secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ConfigError(f"peer_secret must have {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, got {len(key)}")
    return key
