"""Frames of the commit feed: how each message is laid out in bytes. Pure functions; ``docs/design/peers.md`` has the table."""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from struct import Struct, error
from typing import Any, NamedTuple
from zlib import crc32

from prefixroute.errors import PeerError
from prefixroute.types import new_tuple

VERSION = 1
MAX_TEXT_BYTES, MAX_SECONDS = 4_096, 1e12
"""Bytes of an incarnation, and seconds that a suspension may have left, at most."""
MAX_FRAME_BYTES = 1 << 25
"""Bytes of a frame at most: the longest prompt, 4 Mi blocks of 8 bytes, fits a half of it."""


class Kind(IntEnum):
    """What a frame says."""

    BOOKED = 1
    STARTED = 2
    ENDED = 3
    BEAT = 4
    FLEET = 5
    CLEARED = 6
    BOUND = 7
    HELD = 8
    MISSING = 9
    CHAIN = 10
    HELLO = 11
    WELCOME = 12
    LEFT = 13


HEADER = Struct("<IBBIQQ")
"""Checksum of all that follows, version, kind, fingerprint, peer, sequence."""
_HEADER_BYTES = HEADER.size
BOOKED = Struct("<QI16sIIIQ")
"""Replica, incarnation, session (zeros = not bound), uncached tokens, prompt tokens, known blocks, hash of the last of them."""
STARTED = Struct("<Q")
"""The attempt: the sequence of its booking."""
ENDED = Struct("<QBIQ")
"""The attempt, how it ended, known blocks, hash of the last of them."""
OPEN = Struct("<QQIIIB")
"""One open attempt of a beat: attempt, replica, incarnation, uncached tokens, prompt tokens, whether it has started."""
FLEET = Struct("<QQQBd")
"""Replica, version, the router that made the change, state, seconds that a suspension has left (< 0: no end); the incarnation's text follows."""
CLEARED = Struct("<Q")
"""Replica; 0 = the weights have changed everywhere."""
BOUND = Struct("<16sQIf")
"""One binding: session, replica (0 = none), incarnation, seconds since it was used."""
HELD = Struct("<QIIQ")
"""Replica, incarnation, known blocks, hash of the last of them."""
MISSING = Struct("<QIQ")
"""The peer that is asked, known blocks, hash of the last of them."""

FIXED: dict[int, int] = {Kind.CLEARED: CLEARED.size, Kind.HELLO: 0, Kind.WELCOME: 0, Kind.LEFT: 0}
"""Bytes of the bodies that are of one length and not unpacked."""

NO_SESSION = bytes(16)
"""The name of no session; in a frame of bindings that of all."""

FINISHED, ABORTED, RETRACTED = range(3)
"""How an attempt ended: normally, after its first token, or before it, so that its predicted blocks go back."""


class Frame(NamedTuple):
    """A frame that belongs here.

    Attributes:
        kind: what it says.
        peer: number of the router that sent it.
        sequence: number of the message at that router, from 1.
        body: the bytes behind the header.
    """

    kind: int
    peer: int
    sequence: int
    body: bytes


def fingerprint(block_size: int, hash_key: int) -> int:
    """Return what routers must agree on to understand each other, in 32 bits that do not give the key away."""
    told = b"%d %d %d" % (VERSION, block_size, hash_key)
    return int.from_bytes(blake2b(told, digest_size=4, person=b"prefixroute peer").digest(), "little")


def frame(kind: int, mark: int, peer: int, sequence: int, body: bytes) -> bytes:
    """Return a frame.

    Args:
        kind: one of :class:`Kind`.
        mark: the feed's fingerprint.
        peer: number of the sending router.
        sequence: number of the message.
        body: packed by one of the structures of this module.
    """
    rest = HEADER.pack(0, VERSION, kind, mark, peer, sequence)[4:] + body
    return crc32(rest).to_bytes(4, "little") + rest


def read(data: bytes, mark: int) -> Frame:
    """Return a frame that was received.

    Args:
        data: its bytes.
        mark: the fingerprint of this router's feed.

    Raises:
        PeerError: no frame, a broken one, one of another version, or one of a stranger.
    """
    if len(data) > MAX_FRAME_BYTES:
        raise PeerError(f"a peer's frame must have at most {MAX_FRAME_BYTES:,} bytes, got {len(data):,}")
    try:
        checksum, version, kind, given, peer, sequence = HEADER.unpack_from(data)
    except error as problem:
        raise PeerError(f"a peer's frame must have at least {HEADER.size} bytes, got {len(data)}") from problem
    if version != VERSION:
        raise PeerError(f"a peer's frame must be of version {VERSION}, got {version}")
    if checksum != crc32(data[4:]):
        raise PeerError("a peer's frame is broken: its checksum is that of other bytes")
    if given != mark:
        raise PeerError(
            f"a peer's frame must have the fingerprint {mark:08x}, got {given:08x}: block_size and hash_key must be equal"
        )
    return new_tuple(Frame, (kind, peer, sequence, data[_HEADER_BYTES:]))  # type: ignore[no-any-return]


def rows(layout: Struct, body: bytes) -> list[tuple[Any, ...]]:
    """Return the rows of a body that is nothing but rows.

    Raises:
        PeerError: the last row is cut off.
    """
    if len(body) % layout.size:
        raise PeerError(f"a peer's frame must have rows of {layout.size} bytes, got {len(body)} bytes")
    return list(layout.iter_unpack(body))
