"""Mooncake traces: one JSON object a line with ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

Ids name blocks of 512 tokens together with everything before them. The last block may be partial; an engine caches
full blocks only, so a partial last id is dropped. What the answers were is not in the file: a request's context is its
prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prefixroute.workload.readers.ids import block_size_of, full_blocks
from prefixroute.workload.readers.lines import Row, read_rows
from prefixroute.workload.readers.reading import Reading
from prefixroute.workload.readers.record import Opened, Options, Record, Sample

NAME = "mooncake"
BLOCK_SIZE = 512


def recognises(sample: Sample) -> bool:
    """Return whether the first row has the fields of a Mooncake trace."""
    fields = sample.fields or {}
    return {"timestamp", "input_length", "output_length", "hash_ids"} <= fields.keys() and "chat_id" not in fields


def open_file(sample: Sample, options: Options) -> Opened:
    """Settle the block size: 512, unless the first row, or the caller, says otherwise."""
    size = options.block_size or block_size_of(Row(sample.fields or {}, sample.path, sample.line), BLOCK_SIZE)
    return Opened(size, lambda path, reading: read(path, size, reading=reading), has_sessions=False)


def read(
    path: Path, block_size: int = BLOCK_SIZE, *, keep_partial: bool = False, reading: Reading | None = None
) -> Iterator[Record]:
    """Yield the requests of a Mooncake trace, streaming.

    Args:
        path: the file.
        block_size: tokens an id.
        keep_partial: count a partial last block as a block, as figures published for these traces do.
        reading: the pass that this is part of.

    Raises:
        TraceError: at the first row that is not what the format says.
    """
    reading = reading or Reading()

    def parse(row: Row) -> Record:
        arrival = row.time("timestamp") / 1000
        tokens = row.integer("input_length", least=1)
        prompt = full_blocks(row, tokens, block_size, keep_partial=keep_partial)
        return Record(row.line, arrival, prompt, prompt, tokens, row.integer("output_length"))

    yield from reading.parsed(read_rows(path, reading), parse)
