"""Ids of blocks that a file uses in place of hashes: their block size, and the full ones among them as hashes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prefixroute.draws import scattered
from prefixroute.hashing import BlockHashes
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.workload.readers.lines import Row


def block_size_of(row: Row, usual: int) -> int:
    """Return the tokens a block has, from one row's ``input_length`` and number of ``hash_ids``.

    The usual size if it fits, else the power of two that does.

    Raises:
        TraceError: if none fits.
    """
    tokens, ids = row.integer("input_length", least=1), len(row.sequence("hash_ids"))
    for size in (usual, *(1 << power for power in range(MAX_BLOCK_SIZE.bit_length()))):
        if ids == -(-tokens // size):
            return size
    raise row.error(
        f"{ids} hash_ids for {tokens} tokens fit no block size that is a power of two up to {MAX_BLOCK_SIZE}: "
        "give block_size"
    )


def full_blocks(row: Row, tokens: int, block_size: int, *, keep_partial: bool = False) -> BlockHashes:
    """Return the full blocks of a row's ``hash_ids``, one id a block and perhaps one for a partial last block.

    Raises:
        TraceError: if there are too many ids, or too few.
    """
    ids = row.ids("hash_ids")
    full = tokens // block_size
    if not full <= len(ids) <= full + (tokens % block_size > 0):
        need = -(-tokens // block_size)
        raise row.error(f"{tokens} tokens in blocks of {block_size} need {need} hash_ids, got {len(ids)}")
    return hashed(ids if keep_partial else ids[:full], tokens, block_size)


def hashed(ids: NDArray[np.uint64], tokens: int, block_size: int) -> BlockHashes:
    """Return ids that are unique to a prefix as block hashes: equal ids are equal hashes, in every file."""
    return BlockHashes(scattered(ids), token_count=max(tokens, len(ids) * block_size), block_size=block_size)
