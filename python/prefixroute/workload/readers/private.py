"""Our own trace format: keyed hashes, lengths and times, nothing that was said.

The first line is a header: ``{"prefixroute_trace": 1, "block_size": 16, "window": 8192, ...}``. Each further line is a
request::

    {"t": 12.25, "in": 8800, "out": 400, "back": 31, "keep": 537, "blocks": "<base64>", "session": "5f...", "cached":
    8592}

``t`` is seconds from the start, ``in`` and ``out`` are tokens. The request's chain of block hashes (prompt and
answer) is the first ``keep`` of the chain ``back`` lines before, at most ``window``, and then ``blocks``: 64-bit
numbers, little endian, in base64. The prompt has the first ``full`` of them, ``in // block_size`` unless given.
``session``, ``tenant`` and ``user`` are keyed hashes, so is ``replica``, which served the request; ``model`` is plain,
``cached`` is what the engine reported; all six may be missing. ``inferred_sessions`` in the header is true where
``session`` was not in the log: a prompt that extends an earlier one continues its session.

Where prompts have a volatile head, the header says so (``volatile``, with ``kind``, ``tokens``, ``length``, ``gain``
and ``share``), and a row's ``masked`` has the chain without it: ``back``, ``keep``, ``blocks`` and ``full`` as above,
in terms of the masked chains of earlier lines. The masked chain of a line without it is the line's own chain.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from prefixroute.hashing import BlockHashes
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.types import EMPTY_ATTRS
from prefixroute.volatile import Span
from prefixroute.workload.readers.lines import read_rows
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.record import FirstRow, OpenedLog, Options, TraceRecord
from prefixroute.workload.readers.row import Row, shown
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.request import REPLICA, USER, Masked, Request, cached_tokens

NAME = "private"
VERSION = 1
MARK = "prefixroute_trace"


def recognises(sample: FirstRow) -> bool:
    """Return whether the first line is a header of this format."""
    return sample.has(MARK)


def open_file(sample: FirstRow, options: Options) -> OpenedLog:
    """Check the header."""
    header = sample.row
    size, _ = _settings(header, options.block_size)
    notes = tuple(str(note) for note in header.sequence("notes")) if "notes" in header.fields else ()
    return OpenedLog(
        size,
        lambda reading: lambda file: _read(file, size, reading),
        has_sessions=True,
        notes=notes,
        span=_span(header),
        head_tokens=header.integer("head") if "head" in header.fields else None,
        bytes_per_token=1.0,
        inferred_sessions=header.fields.get("inferred_sessions") is True,
    )


def _span(header: Row) -> Span | None:
    """Return what the header says of a volatile head: its figures are in tokens."""
    if header.fields.get("volatile") is None:
        return None
    row = header.inner("volatile")
    share = row.time("share")
    if not 0 <= share <= 1:
        raise header.error(f"share of a volatile head must be 0 to 1, got {share}")
    tokens, length, gain = (row.integer(name) for name in ("tokens", "length", "gain"))
    return Span(row.text("kind") or "text", tokens, length, gain, share)


def _settings(header: Row, block_size: int | None) -> tuple[int, int]:
    """Return block size and window of a header whose version and block size are right."""
    if MARK not in header.fields or header.integer(MARK) != VERSION:
        raise header.error(f"version of a private trace must be {VERSION}, got {shown(header.fields.get(MARK))}")
    size = header.integer("block_size", least=1, most=MAX_BLOCK_SIZE)
    if block_size not in {None, size}:
        raise header.error(f"the file has blocks of {size} tokens, not {block_size}")
    return size, header.integer("window", least=1)


class _HeldChains:
    """The chains of the last lines, which later ones refer to."""

    def __init__(self, window: int) -> None:
        self._chains: deque[NDArray[np.uint64]] = deque(maxlen=window)

    def add(self, chain: NDArray[np.uint64]) -> None:
        self._chains.append(chain)

    def chain(self, row: Row) -> NDArray[np.uint64]:
        """Return the chain that a row describes."""
        kept = np.empty(0, np.uint64)
        if "back" in row.fields:
            back, keep = row.integer("back", least=1), row.integer("keep", least=1)
            if back > len(self._chains):
                raise row.error(f"goes back {back} lines where {len(self._chains)} are held")
            earlier = self._chains[-back]
            if keep > len(earlier):
                raise row.error(f"keeps {keep} blocks of a chain of {len(earlier)}")
            kept = earlier[:keep]
        text = row.text("blocks")
        return kept if text is None else np.concatenate([kept, _decoded(row, text)])


def _masked(row: Row, chains: _HeldChains, chain: NDArray[np.uint64], size: int) -> Masked | None:
    """Return a row's blocks without what is volatile, and remember their chain; None where they are the row's own."""
    if row.fields.get("masked") is None:
        chains.add(chain)
        return None
    inner = row.inner("masked")
    without = chains.chain(inner)
    made = Masked(*_blocks(inner, without, row.integer("in", least=1), row.integer("out"), size))
    chains.add(without)
    return made


def _read(file: LogFile, block_size: int, reading: LogPass) -> Iterator[TraceRecord]:
    rows = read_rows(file, reading)
    header = next(rows, None)
    if header is None:
        return
    _, window = _settings(header, block_size)
    chains, masked = _HeldChains(window), _HeldChains(window)
    has_masked = header.fields.get("volatile") is not None
    placed = 0

    def parse(row: Row) -> TraceRecord:
        nonlocal placed
        while placed < reading.bad:  # a bad line keeps its place: later ones count back over it
            chains.add(np.empty(0, np.uint64))
            masked.add(np.empty(0, np.uint64))
            placed += 1
        tokens, output = row.integer("in", least=1), row.integer("out")
        chain = chains.chain(row)
        prompt, context = _blocks(row, chain, tokens, output, block_size)
        request = Request(
            row.time("t"),
            prompt,
            context,
            tokens,
            output,
            session=row.text("session"),
            tenant=row.text("tenant"),
            model=row.text("model"),
            reported_hit_tokens=row.integer("cached", most=tokens) if "cached" in row.fields else None,
            attrs={name: told for name in (USER, REPLICA) if (told := row.text(name))} or EMPTY_ATTRS,
            masked=_masked(row, masked, chain, block_size) if has_masked else None,
        )
        chains.add(chain)
        return TraceRecord(row.line, request)

    yield from reading.parsed(rows, parse)


def _blocks(
    row: Row, chain: NDArray[np.uint64], tokens: int, output: int, size: int
) -> tuple[BlockHashes, BlockHashes]:
    """Return prompt and context of a chain; the same object where the chain has nothing of the answer."""
    full = row.integer("full") if "full" in row.fields else tokens // size
    if not full <= min(len(chain), tokens // size):
        raise row.error(f"a prompt of {tokens} tokens has {full} full blocks of {len(chain)} in the chain")
    held = max(cached_tokens(tokens, output), len(chain) * size)
    context = BlockHashes(chain, token_count=held, block_size=size)
    prompt = context.head(full, tokens)
    return prompt, context if len(chain) > full else prompt


def _decoded(row: Row, text: str) -> NDArray[np.uint64]:
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise row.error(f"blocks must be base64: {error}") from error
    if len(data) % 8:
        raise row.error(f"blocks must be 64-bit numbers, got {len(data)} bytes")
    return np.frombuffer(data, "<u8").astype(np.uint64)
