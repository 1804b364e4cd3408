"""SipHash-2-4 of many 64-bit numbers at once: the keyed hash of private traces.

A pseudo-random function (Aumasson and Bernstein, 2012): without the 128-bit key, nobody can tell which prompt a block
came from by hashing guesses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prefixroute.errors import ConfigError

KEY_BYTES = 16
_INITIAL = (0x736F_6D65_7073_6575, 0x646F_7261_6E64_6F6D, 0x6C79_6765_6E65_7261, 0x7465_6462_7974_6573)
_LENGTH_WORD = np.uint64(8 << 56)  # one message word of eight bytes
_FINAL = np.uint64(0xFF)


def siphash(numbers: NDArray[np.uint64], key: bytes) -> NDArray[np.uint64]:
    """Return SipHash-2-4 of each number as an eight-byte little-endian message.

    Args:
        numbers: shape (n,).
        key: 16 bytes.

    Raises:
        ConfigError: if the key has another length.
    """
    if len(key) != KEY_BYTES:
        raise ConfigError(f"key of a private trace must have {KEY_BYTES} bytes, got {len(key)}")
    k0, k1 = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    state = [
        np.full(len(numbers), word ^ half, np.uint64) for word, half in zip(_INITIAL, (k0, k1, k0, k1), strict=True)
    ]
    for word in (numbers, _LENGTH_WORD):
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= _FINAL
    _rounds(state, 4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _rounds(state: list[NDArray[np.uint64]], count: int) -> None:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 += v1
        v2 += v3
        v1[:], v3[:] = _rotated(v1, 13) ^ v0, _rotated(v3, 16) ^ v2
        v0[:] = _rotated(v0, 32)
        v2 += v1
        v0 += v3
        v1[:], v3[:] = _rotated(v1, 17) ^ v2, _rotated(v3, 21) ^ v0
        v2[:] = _rotated(v2, 32)


def _rotated(word: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))
