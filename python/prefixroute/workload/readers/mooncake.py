"""Mooncake traces: one JSON object a line with ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

Ids name blocks of 512 tokens together with everything before them. The last block may be partial; an engine caches
full blocks only, so a partial last id is dropped. What the answers were is not in the file: a request's context is its
prompt.

Files that later tools write in this shape are read too: with ``session_id``; with ``delay`` (ms after the row before
in the session) in place of a time; with ``message_mode: delta``, where a row has the tokens and ids that are new in
its session; with rows that have no ids; and with ids that name blocks alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefixroute.draws import chain
from prefixroute.errors import TraceError
from prefixroute.hashing import BlockHashes
from prefixroute.limits import MAX_BLOCKS
from prefixroute.recent import Recent
from prefixroute.workload.readers.ids import UNCHAINED, are_prefixes, block_size_of, full_blocks, hashed, joined_ids
from prefixroute.workload.readers.lengths import MOST_TOKENS
from prefixroute.workload.readers.lines import read_rows
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.record import FirstRow, OpenedLog, Options, TraceRecord
from prefixroute.workload.readers.row import MOST, Row
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.request import Request
from prefixroute.workload.streams import chain_key
from prefixroute.workload.text import made_up

NAME = "mooncake"
BLOCK_SIZE: Final = 512
_FIRST_ROWS = 500
_OPEN_SESSIONS = 1_000_000
WITHOUT_IDS: Final = "requests have no hash_ids: their prompts are taken to be unlike any other"
DELTAS: Final = (
    "rows have what is new in their sessions: prompts are joined from them, with answers of the stated lengths between"
)
DELAYS: Final = "rows with a delay arrive that long after the row before them in their session"


def recognises(sample: FirstRow) -> bool:
    """Return whether the first row has the fields of a Mooncake trace."""
    timed = sample.has("timestamp") or sample.has("delay")
    return timed and sample.has("input_length", "output_length") and not sample.has("chat_id")


def open_file(sample: FirstRow, options: Options) -> OpenedLog:
    """Settle the block size, 512 unless the first rows, or the caller, say otherwise, and what the ids name."""
    surveyed = LogPass(skip_bad=MOST, line_bytes=options.line_bytes)  # the pass that follows says what is wrong
    rows = list(itertools.islice(read_rows(sample.file, surveyed), _FIRST_ROWS))
    with_ids = next((row for row in rows if row.fields.get("hash_ids")), None)
    size = options.block_size or (BLOCK_SIZE if with_ids is None else block_size_of(with_ids, BLOCK_SIZE))
    ids = (found for row in rows if (found := _ids(row)) is not None)
    deltas = any(row.fields.get("message_mode") == "delta" for row in rows)
    chained = not deltas and not are_prefixes(ids)
    notes = [note for note, said in ((UNCHAINED, chained), (DELTAS, deltas)) if said]
    if any("delay" in row.fields and "timestamp" not in row.fields for row in rows):
        notes.append(DELAYS)
    return OpenedLog(
        size,
        lambda reading: partial(read, block_size=size, chained=chained, reading=reading, last=Recent(_OPEN_SESSIONS)),
        has_sessions=any(row.fields.get("session_id") for row in rows),
        notes=tuple(notes),
    )


def _ids(row: Row) -> NDArray[np.uint64] | None:
    try:
        return row.ids("hash_ids") if "hash_ids" in row.fields else None
    except TraceError:
        return None  # the pass that follows says what is wrong


class _Turn(NamedTuple):
    """The last row of a session."""

    arrival_s: float
    prompt: BlockHashes
    output_tokens: int


def read(
    file: LogFile,
    block_size: int = BLOCK_SIZE,
    *,
    keep_partial: bool = False,
    chained: bool = False,
    reading: LogPass | None = None,
    last: Recent[str, _Turn] | None = None,
) -> Iterator[TraceRecord]:
    """Yield the requests of a Mooncake trace, streaming.

    Args:
        file: the file.
        block_size: tokens an id.
        keep_partial: count a partial last block as a block, as figures published for these traces do.
        chained: ids name blocks alone, not prefixes.
        reading: the pass that this is part of.
        last: the last row of each session in the files before; a session that is too old is forgotten.

    Raises:
        TraceError: at the first row that is not what the format says.
    """
    passing = reading or LogPass()
    turns: Recent[str, _Turn] = Recent(_OPEN_SESSIONS) if last is None else last

    def parse(row: Row) -> TraceRecord:
        session = row.text("session_id")
        before = None if session is None else turns.get(session)
        tokens, output = row.integer("input_length", least=1), row.integer("output_length")
        arrival = _arrival(row, before)
        if not row.fields.get("hash_ids"):
            row.integer("input_length", most=MOST_TOKENS)
            passing.tally.remarks[WITHOUT_IDS] += 1
            prompt = made_up(chain_key(row.line, file.name), tokens, block_size)
        elif row.fields.get("message_mode") == "delta":
            prompt = _joined(row, before, tokens, block_size)
        else:
            prompt = full_blocks(row, tokens, block_size, keep_partial=keep_partial, chained=chained)
        tokens = max(tokens, prompt.token_count) if row.fields.get("message_mode") == "delta" else tokens
        if session is not None:
            turns[session] = _Turn(arrival, prompt, output)
        return TraceRecord(row.line, Request(arrival, prompt, prompt, tokens, output, session=session))

    yield from passing.parsed(read_rows(file, passing), parse)


def _arrival(row: Row, before: _Turn | None) -> float:
    """Return when a row arrives, in seconds: at its time, or its delay after the row before in its session."""
    if row.fields.get("timestamp") is not None or "delay" not in row.fields:
        return row.time("timestamp") / 1000
    return (0.0 if before is None else before.arrival_s) + row.time("delay") / 1000


def _joined(row: Row, before: _Turn | None, tokens: int, block_size: int) -> BlockHashes:
    """Return the prompt that a row's new tokens make with what came before in its session.

    Prompt, answer, new tokens.
    """
    held = 0 if before is None else before.prompt.token_count + before.output_tokens
    kept = np.empty(0, np.uint64) if before is None else before.prompt.array
    total = held + tokens
    if total > MAX_BLOCKS * block_size:
        raise row.error(
            f"a prompt of {total} tokens has more blocks of {block_size} than the longest prompt, {MAX_BLOCKS}"
        )
    fresh = total // block_size - len(kept)
    ids = row.ids("hash_ids")
    if before is None:
        return hashed(ids[:fresh], total, block_size)
    key = int(joined_ids(ids, int(kept[-1]) if len(kept) else before.prompt.token_count)[-1])
    made: NDArray[np.uint64] = np.concatenate([kept, chain(key, len(kept), len(kept) + max(0, fresh))])
    return BlockHashes(made, token_count=total, block_size=block_size)
