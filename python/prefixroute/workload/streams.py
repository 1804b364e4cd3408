"""Named random streams, and the keys of synthetic chains of block hashes.

The sources of everything a generator makes up.

A stream belongs to one part of one workload, so a part that is added draws from a stream of its own and moves no other
part's numbers. Chains stand for text that nobody needs to see: a block hash covers its block and every block before
it, so a conversation *is* a sequence of 64-bit numbers (:func:`prefixroute.draws.chain`), and each of its prompts is a
prefix of it.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from prefixroute.errors import ConfigError


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the random generator of the part ``name`` under ``seed`` (0 or more)."""
    if seed < 0:
        raise ConfigError(f"seed must be 0 or more, got {seed}")
    return np.random.default_rng([seed, *name.encode()])


def chain_key(seed: int, *parts: object) -> int:
    """Return the 64-bit key of a chain: equal for equal parts, in every process."""
    # Names of files that are not UTF-8 have surrogates in Python.
    named = "\x1f".join(str(part) for part in (seed, *parts))
    return int.from_bytes(blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
