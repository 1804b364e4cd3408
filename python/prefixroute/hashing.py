"""Block hashes: the one language that prompts, the index and the simulated caches share.

A prompt is cut into blocks of ``block_size`` tokens; only full blocks count. The hash of a block covers the block and
every block before it, under a namespace, so that equal hashes at position *i* mean equal prefixes up to the end of
block *i*. Under the fixed key, which is the default, the values are the same in every process and on
every machine (``tests/golden/hash_v1.json`` pins them). An index has a key of its own: see
:attr:`PrefixIndex.hash_key`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prefixroute._core import BlockHashes, hash_blocks

__all__ = ["BlockHashes", "common_blocks", "hash_blocks"]


def common_blocks(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> int:
    """Return how many leading hashes two chains have in common.

    Args:
        one: block hashes of a prompt, shape (n,).
        other: those of another.
    """
    length = min(len(one), len(other))
    differ = one[:length] != other[:length]
    return int(differ.argmax()) if differ.any() else length
