"""Mooncake traces: one JSON object a line with ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

Ids name blocks of 512 tokens together with everything before them. The last block may be partial; an engine caches
full blocks only, so a partial last id is dropped. What the answers were is not in the file: a request's context is its
prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prefixroute.hashing import BlockHashes
from prefixroute.workload.readers.lines import Row, read_rows
from prefixroute.workload.request import Request
from prefixroute.workload.streams import mix

BLOCK_SIZE = 512


def recognises(fields: Mapping[str, Any]) -> bool:
    """Return whether a file whose first object this is looks like a Mooncake trace."""
    return {"timestamp", "input_length", "output_length", "hash_ids"} <= fields.keys() and "chat_id" not in fields


def read(path: Path, block_size: int = BLOCK_SIZE, *, keep_partial: bool = False) -> Iterator[Request]:
    """Yield the requests of a Mooncake trace, streaming.

    Args:
        path: the file.
        block_size: tokens an id.
        keep_partial: count a partial last block as a block, as figures published for these traces do.

    Raises:
        TraceError: at the first row that is not what the format says.
    """
    last = 0.0
    for row in read_rows(path):
        arrival = row.number("timestamp") / 1000
        if arrival < last:
            raise row.error(f"time goes back from {last * 1000:g} to {arrival * 1000:g} ms")
        last = arrival
        tokens = row.integer("input_length", least=1)
        prompt = full_blocks(row, tokens, block_size, keep_partial=keep_partial)
        yield Request(arrival, prompt, prompt, tokens, row.integer("output_length"))


def full_blocks(row: Row, tokens: int, block_size: int, *, keep_partial: bool = False) -> BlockHashes:
    """Return the full blocks of a row's ``hash_ids``, one id a block and perhaps one for a partial last block."""
    ids = row.ids("hash_ids")
    full = tokens // block_size
    if not full <= len(ids) <= full + (tokens % block_size > 0):
        raise row.error(
            f"{tokens} tokens in blocks of {block_size} need {-(-tokens // block_size)} hash_ids, got {len(ids)}"
        )
    kept = ids if keep_partial else ids[:full]
    return BlockHashes(mix(kept), token_count=max(tokens, len(kept) * block_size), block_size=block_size)
