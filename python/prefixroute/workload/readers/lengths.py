"""CSV files of arrivals and lengths: the Azure LLM traces and BurstGPT. They say nothing about prefixes.

Every prompt is taken to be unlike any other. Use such a file for its bursts and lengths, or lend its arrivals to a
generator with :func:`prefixroute.workload.read_arrivals`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from prefixroute.errors import TraceError
from prefixroute.workload.readers.kinds import FAILED
from prefixroute.workload.readers.lines import cells_of, read_table
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.record import FirstRow, OpenedLog, Options, TraceRecord
from prefixroute.workload.readers.row import ZONELESS, Row, date_of, is_zoneless, shown, time_of
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.request import Request
from prefixroute.workload.streams import chain_key
from prefixroute.workload.text import made_up

NAME = "lengths"
BLOCK_SIZE = 16
UNSHARED: Final = "the file says nothing about prefixes: every prompt is taken to be unlike any other"
MOST_TOKENS: Final = 10_000_000
"""Tokens of a prompt whose blocks are made up: a damaged length would make many."""


class _Columns(NamedTuple):
    time: str
    prompt: str
    output: str
    model: str | None = None
    session: str | None = None
    has_failures: bool = False
    """Whether a row without an answer is a request that failed."""


_LAYOUTS = (
    _Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    _Columns("Timestamp", "Request tokens", "Response tokens", "Model", "Session ID", has_failures=True),
)
HEADERS: Final = "; ".join(f"{row.time}, {row.prompt}, {row.output}" for row in _LAYOUTS)
"""The columns that each known layout needs, for errors."""


def _layout(sample: FirstRow) -> _Columns | None:
    try:
        names = set(cells_of(sample.file, sample.line, sample.text))
    except TraceError:
        return None
    return next((layout for layout in _LAYOUTS if {layout.time, layout.prompt, layout.output} <= names), None)


def recognises(sample: FirstRow) -> bool:
    """Return whether the first line is the header of one of the layouts."""
    return sample.fields is None and _layout(sample) is not None


def open_file(sample: FirstRow, options: Options) -> OpenedLog:
    """Settle the layout."""
    layout = _layout(sample)
    if layout is None:
        raise sample.row.error(f"the header has the columns of no known layout ({HEADERS})")
    size = options.block_size or BLOCK_SIZE
    notes = [UNSHARED]
    first = next(read_table(sample.file, LogPass(skip_bad=2**53)), None)
    if first is not None and is_zoneless(first.text(layout.time) or ""):
        notes.append(ZONELESS)
    return OpenedLog(
        size,
        lambda reading: lambda file: _read(file, layout, size, reading),
        has_sessions=True,
        notes=tuple(notes),
    )


def _read(file: LogFile, layout: _Columns, block_size: int, reading: LogPass) -> Iterator[TraceRecord]:
    def parse(row: Row) -> TraceRecord | None:
        output = _count(row, layout.output, least=0)
        if layout.has_failures and not output:
            reading.tally.left_out[FAILED] += 1
            return None
        tokens = _count(row, layout.prompt, least=1)
        # Named by file and line: two requests of equal length stay different, and each reading makes the same blocks.
        prompt = made_up(chain_key(row.line, file.name), tokens, block_size)
        session = row.text(layout.session) if layout.session else None
        model = row.text(layout.model) if layout.model else None
        request = Request(_seconds(row, layout.time), prompt, prompt, tokens, output, session=session, model=model)
        return TraceRecord(row.line, request)

    yield from reading.parsed(read_table(file, reading), parse)


def _count(row: Row, name: str, least: int) -> int:
    text = row.text(name)
    try:
        value = int(text or "")
    except ValueError:
        value = -1
    if not least <= value <= MOST_TOKENS:
        raise row.error(f"{name} must be a whole number, {least} to {MOST_TOKENS}, got {shown(text)}")
    return value


def _seconds(row: Row, name: str) -> float:
    text = row.text(name) or ""
    try:
        seconds = float(text)
    except ValueError:
        return date_of(row, name, text)
    return time_of(row, name, seconds)
