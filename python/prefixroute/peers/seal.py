"""What routers of a fleet have in common: a fingerprint that tells strangers, and a key that frames are sealed with."""

from __future__ import annotations

from hashlib import blake2b

from prefixroute.errors import ConfigError
from prefixroute.peers.wire import PEER_VERSION, PeerSeal
from prefixroute.validation import check_instance

MIN_SECRET_BYTES, MAX_SECRET_BYTES = 16, 64
"""A shorter secret could be guessed; BLAKE2b takes no longer key."""


def seal_of(block_size: int, hash_key: int, secret: str | bytes | None = None) -> PeerSeal:
    """Return the seal of routers with this block size, hash key and secret.

    The tag of a frame is a SipHash-2-4 under a key of 128 bits, which is BLAKE2b of all three. With a secret only who knows it
    can make a frame that is taken; without one whoever can find out ``hash_key`` can.

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


def _bytes_of(secret: str | bytes | None) -> bytes:
    if secret is None:
        return b""
    if not isinstance(secret, str):
        check_instance("peer_secret", secret, bytes)
    key = secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ConfigError(f"peer_secret must have {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, got {len(key)}")
    return key
