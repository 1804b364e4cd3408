"""Bailian traces (Qwen, Alibaba Cloud).

Mooncake's idea with 16-token blocks, seconds, and turns that name their parent.

Special tokens of an answer are stripped on the next turn, and an answer replaces the padding of the last block, so the
last block of a turn often does not match the next one. That is in the data, as it is in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from prefixroute.recent import Recent
from prefixroute.types import EMPTY_ATTRS
from prefixroute.workload.readers.ids import block_size_of, full_blocks
from prefixroute.workload.readers.lines import read_rows
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.record import FirstRow, OpenedLog, Options, TraceRecord
from prefixroute.workload.readers.row import Row
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.request import Request

NAME = "bailian"
BLOCK_SIZE = 16
_OPEN_CHATS = 1_000_000


def recognises(sample: FirstRow) -> bool:
    """Return whether the first row has the fields of a Bailian trace."""
    return sample.has("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids")


def open_file(sample: FirstRow, options: Options) -> OpenedLog:
    """Settle the block size: 16, unless the first row, or the caller, says otherwise."""
    size = options.block_size or block_size_of(sample.row, BLOCK_SIZE)
    return OpenedLog(
        size,
        lambda reading: partial(_read, reading=reading, block_size=size, roots=Recent(_OPEN_CHATS)),
        has_sessions=True,
    )


def _read(file: LogFile, reading: LogPass, block_size: int, roots: Recent[int, int]) -> Iterator[TraceRecord]:
    """Yield the requests of a Bailian trace; a session is named by the ``chat_id`` of its first turn.

    The last million chats are remembered, as ``roots``; a turn whose parent is not among them begins a session.

    Raises:
        TraceError: at the first row that is not what the format says.
    """

    def parse(row: Row) -> TraceRecord:
        tokens = row.integer("input_length", least=1)
        chat, parent = row.integer("chat_id", least=-1), row.integer("parent_chat_id", least=-1)
        root = roots.get(parent, chat)
        if parent in roots:
            roots[parent] = root
        roots[chat] = root
        prompt = full_blocks(row, tokens, block_size)
        kind = row.text("type")
        request = Request(
            row.time("timestamp"),
            prompt,
            prompt,
            tokens,
            row.integer("output_length"),
            session=str(root),
            attrs={"type": kind} if kind else EMPTY_ATTRS,
        )
        return TraceRecord(row.line, request)

    yield from reading.parsed(read_rows(file, reading), parse)
