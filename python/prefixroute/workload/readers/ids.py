"""Ids of blocks that a file uses in place of hashes: their block size, and the full ones among them as hashes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prefixroute.draws import scattered
from prefixroute.hashing import BlockHashes
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.workload.readers.row import Row

UNCHAINED: Final = (
    "block ids follow different ids in different rows: they name blocks alone, not the prefixes that end there, and are joined "
    "with what stands before them"
)
_FEW = 0.02
"""Share of places up to which an id may follow another than it did before: damage, not a rule."""
_ODD = np.uint64(0x9E3779B97F4A7C15)


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


def are_prefixes(rows: Iterable[NDArray[np.uint64]]) -> bool:
    """Return whether equal ids follow equal ids, as they do where each names a block with everything before it."""
    before: dict[int, int] = {}
    places = broken = 0
    for row in rows:
        earlier = -1
        for name in row.tolist():
            places += 1
            broken += before.setdefault(name, earlier) != earlier
            earlier = name
    return broken <= _FEW * places


def full_blocks(
    row: Row, tokens: int, block_size: int, *, keep_partial: bool = False, chained: bool = False
) -> BlockHashes:
    """Return the full blocks of a row's ``hash_ids``, one id a block and perhaps one for a partial last block.

    ``chained``: ids name blocks alone; a hash is made of all ids up to it.

    Raises:
        TraceError: if there are too many ids, or too few.
    """
    ids = row.ids("hash_ids")
    full = tokens // block_size
    if not full <= len(ids) <= full + (tokens % block_size > 0):
        need = -(-tokens // block_size)
        raise row.error(f"{tokens} tokens in blocks of {block_size} need {need} hash_ids, got {len(ids)}")
    ids = ids if keep_partial else ids[:full]
    return hashed(joined_ids(ids) if chained else ids, tokens, block_size)


def joined_ids(ids: NDArray[np.uint64], before: int = 0) -> NDArray[np.uint64]:
    """Return for each id a number that is made of it and of all before it, in their order.

    Args:
        ids: of blocks.
        before: the number of the block before the first, or 0.
    """
    places = np.arange(1, 2 * len(ids) + 1, 2, dtype=np.uint64)
    with np.errstate(over="ignore"):
        return np.uint64(before) + np.cumsum(scattered(ids) * (places * _ODD | np.uint64(1)), dtype=np.uint64)


def hashed(ids: NDArray[np.uint64], tokens: int, block_size: int) -> BlockHashes:
    """Return ids that are unique to a prefix as block hashes: equal ids are equal hashes, in every file."""
    return BlockHashes(scattered(ids), token_count=max(tokens, len(ids) * block_size), block_size=block_size)
