"""Named random streams, and the keys of synthetic chains of block hashes: the sources of everything a generator makes up.

A stream belongs to one part of one workload, so a part that is added draws from a stream of its own and moves no other
part's numbers. Chains stand for text that nobody needs to see: a block hash covers its block and every block before
it, so a conversation *is* a sequence of 64-bit numbers (:func:`prefixroute.draws.chain`), and each of its prompts is a prefix of it.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from prefixroute.errors import ConfigError

_GOLDEN_GAMMA = 0x9E37_79B9_7F4A_7C15  # the odd step of Steele, Lea and Flood's SplitMix64
_MIX_1 = np.uint64(0xBF58_476D_1CE4_E5B9)
_MIX_2 = np.uint64(0x94D0_49BB_1331_11EB)


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the random generator of the part ``name`` under ``seed`` (0 or more)."""
    if seed < 0:
        raise ConfigError(f"seed must be 0 or more, got {seed}")
    return np.random.default_rng([seed, *name.encode()])


def mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers scattered by SplitMix64's finaliser: one to one, so distinct stay distinct."""
    z = numbers + np.uint64(_GOLDEN_GAMMA)
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


def chain_key(seed: int, *parts: object) -> int:
    """Return the 64-bit key of a chain: equal for equal parts, in every process."""
    named = "\x1f".join(str(part) for part in (seed, *parts))
    return int.from_bytes(blake2b(named.encode(), digest_size=8).digest(), "little")
