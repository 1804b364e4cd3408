"""Limits and defaults that hold everywhere: index, router, hashing, traces and commands. The compiled core owns each.

Attributes:
    BYTES_PER_TOKEN: bytes of text that count as one token until calibrated.
    FIXED_HASH_KEY: the key of content hashes that is the same everywhere: that of `hash_blocks`, traces and golden
        vectors.
    MAX_BLOCKS: blocks of a prompt or of a store event.
    MAX_BLOCK_SIZE: tokens of a block; the least is 1.
    MAX_NAME_BYTES: bytes of a replica's name in UTF-8.
    MAX_PAYLOAD_BYTES: bytes of a batch of events.
    MAX_REPLICAS: replicas at once.
    PROVISIONAL_S: seconds that belief lasts by default at a replica that sends events, unless they confirm it.
    REMEMBERED_BATCHES: applied batches of a replica whose content is remembered, to tell a repeated batch from a
        restart.
"""

from __future__ import annotations

from prefixroute._core import (
    BYTES_PER_TOKEN,
    FIXED_HASH_KEY,
    MAX_BLOCK_SIZE,
    MAX_BLOCKS,
    MAX_NAME_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_REPLICAS,
    PROVISIONAL_S,
    REMEMBERED_BATCHES,
)

__all__ = [
    "BYTES_PER_TOKEN",
    "FIXED_HASH_KEY",
    "MAX_BLOCKS",
    "MAX_BLOCK_SIZE",
    "MAX_NAME_BYTES",
    "MAX_PAYLOAD_BYTES",
    "MAX_REPLICAS",
    "PROVISIONAL_S",
    "REMEMBERED_BATCHES",
]
