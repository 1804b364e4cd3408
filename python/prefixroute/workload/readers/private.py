"""Our own trace format: keyed hashes, lengths and times, nothing that was said.

The first line is a header: ``{"prefixroute_trace": 1, "block_size": 16, "window": 8192, ...}``. Each further line is a
request::

    {"t": 12.25, "in": 8800, "out": 400, "back": 31, "keep": 537, "blocks": "<base64>", "session": "5f...", "cached": 8592}

``t`` is seconds from the start, ``in`` and ``out`` are tokens. The request's chain of block hashes (prompt and answer)
is the first ``keep`` of the chain ``back`` lines before, at most ``window``, and then ``blocks``: 64-bit numbers, little
endian, in base64. The prompt has the first ``full`` of them, ``in // block_size`` unless given. ``session`` and
``tenant`` are keyed hashes, ``model`` is plain, ``cached`` is what the engine reported; all four may be missing.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prefixroute.hashing import BlockHashes
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.workload.readers.lines import Row, read_rows
from prefixroute.workload.readers.reading import Reading
from prefixroute.workload.readers.record import Opened, Options, Record, Sample
from prefixroute.workload.request import cached_tokens

NAME = "private"
VERSION = 1
MARK = "prefixroute_trace"


def recognises(sample: Sample) -> bool:
    """Return whether the first line is a header of this format."""
    return MARK in (sample.fields or {})


def open_file(sample: Sample, options: Options) -> Opened:
    """Check the header."""
    header = Row(sample.fields or {}, sample.path, sample.line)
    size, _ = _settings(header, options.block_size)
    notes = tuple(str(note) for note in header.sequence("notes")) if "notes" in header.fields else ()
    return Opened(
        size,
        lambda path, reading: _read(path, size, reading),
        has_sessions=True,
        notes=notes,
    )


def _settings(header: Row, block_size: int | None) -> tuple[int, int]:
    """Return block size and window of a header whose version and block size are right."""
    if MARK not in header.fields or header.integer(MARK) != VERSION:
        raise header.error(f"version of a private trace must be {VERSION}, got {header.fields.get(MARK)}")
    size = header.integer("block_size", least=1, most=MAX_BLOCK_SIZE)
    if block_size not in {None, size}:
        raise header.error(f"the file has blocks of {size} tokens, not {block_size}")
    return size, header.integer("window", least=1)


def _read(path: Path, block_size: int, reading: Reading) -> Iterator[Record]:
    rows = read_rows(path, reading)
    header = next(rows, None)
    if header is None:
        return
    _, window = _settings(header, block_size)
    chains: deque[NDArray[np.uint64]] = deque(maxlen=window)
    placed = 0

    def parse(row: Row) -> Record:
        nonlocal placed
        while placed < reading.bad:  # a bad line keeps its place: later ones count back over it
            chains.append(np.empty(0, np.uint64))
            placed += 1
        tokens, output = row.integer("in", least=1), row.integer("out")
        chain = _chain(row, chains)
        full = row.integer("full") if "full" in row.fields else tokens // block_size
        if not full <= min(len(chain), tokens // block_size):
            raise row.error(f"a prompt of {tokens} tokens has {full} full blocks of {len(chain)} in the chain")
        chains.append(chain)
        held = max(cached_tokens(tokens, output), len(chain) * block_size)
        context = BlockHashes(chain, token_count=held, block_size=block_size)
        prompt = context.head(full, tokens)
        return Record(
            row.line,
            row.time("t"),
            prompt,
            context if len(chain) > full else prompt,
            tokens,
            output,
            row.text("session"),
            row.text("tenant"),
            row.text("model"),
            row.integer("cached", most=tokens) if "cached" in row.fields else None,
        )

    yield from reading.parsed(rows, parse)


def _chain(row: Row, chains: deque[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    kept = np.empty(0, np.uint64)
    if "back" in row.fields:
        back, keep = row.integer("back", least=1), row.integer("keep", least=1)
        if back > len(chains):
            raise row.error(f"goes back {back} lines where {len(chains)} are held")
        earlier = chains[-back]
        if keep > len(earlier):
            raise row.error(f"keeps {keep} blocks of a chain of {len(earlier)}")
        kept = earlier[:keep]
    text = row.text("blocks")
    if text is None:
        return kept
    return np.concatenate([kept, _decoded(row, text)])


def _decoded(row: Row, text: str) -> NDArray[np.uint64]:
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise row.error(f"blocks must be base64: {error}") from error
    if len(data) % 8:
        raise row.error(f"blocks must be 64-bit numbers, got {len(data)} bytes")
    return np.frombuffer(data, "<u8").astype(np.uint64)
