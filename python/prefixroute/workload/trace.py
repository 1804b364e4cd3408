"""Open a trace file of any known format as a workload."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from prefixroute.errors import ConfigError, TraceError
from prefixroute.validation import check_choice, check_instance, shown
from prefixroute.workload.arrivals import Recorded
from prefixroute.workload.kept import keep
from prefixroute.workload.order import SessionFinder, in_order, placed
from prefixroute.workload.readers import bailian, bench, conversations, gateway, lengths, mooncake, private, recorded
from prefixroute.workload.readers.hints import field_map_for
from prefixroute.workload.readers.lines import begins_document, json_of, read_lines, read_rows, reason
from prefixroute.workload.readers.log_pass import Tally
from prefixroute.workload.readers.record import FirstRow, Format, OpenedLog, Options
from prefixroute.workload.readers.source import LogFile, log_files
from prefixroute.workload.request import Request
from prefixroute.workload.selection import selected
from prefixroute.workload.workload import Volatile, Workload

CHECK_BYTES = 64 * 1024 * 1024
"""Files up to this size on disk are read once in full before the first request is handed out."""

FIRST_LINES = 100
"""Lines among which one must be of a known format where bad ones are skipped."""

INFERRED: Final = (
    "where there is no session key: sessions are inferred, a prompt that extends an earlier prompt continues it"
)


def formats_of(*readers: Format) -> tuple[Format, ...]:
    """Return readers as they are.

    Args:
        readers: modules, or other objects with the names of :class:`Format`.

    Raises:
        ConfigError: one lacks a name, or two have one ``NAME``.
    """
    for reader in readers:
        lacking = [name for name in ("NAME", "recognises", "open_file") if not hasattr(reader, name)]
        if lacking:
            raise ConfigError(f"the reader {getattr(reader, '__name__', shown(reader))} lacks {', '.join(lacking)}")
    names = [reader.NAME for reader in readers]
    if len(set(names)) < len(names):
        raise ConfigError(f"readers must have names of their own, got {', '.join(names)}")
    return readers


FORMATS = formats_of(private, bailian, mooncake, recorded, bench, conversations, lengths, gateway)
"""Known formats. The first that recognises a file's first line reads it."""


def read_trace(
    path: str | Path | LogFile | Sequence[str | Path | LogFile],
    options: Options | None = None,
    *,
    check: bool | None = None,
    progress: Callable[[float], None] | None = None,
) -> Workload:
    """Open a trace as a workload. Its format is recognised by its first row, gzip and zstd by their first bytes.

    Reading streams: memory does not grow with the file, but for the first 2 million blocks of text of a log that
    reports prompt tokens, whose places are remembered at 130 bytes each. A trace of up to 64 MiB is first read
    through to its end (``check``), so that a bad line is reported here and nothing is half-read; its requests are
    then kept as arrays (:func:`~prefixroute.workload.keep`) and the file is not parsed again. A larger one is read
    each time it is asked for, and its bad line is reported by :meth:`Workload.requests`, at the line: whoever
    consumes the stream discards what came before.

    Args:
        path: the file, or several that follow one another in time (a log that was rotated), all of the format of the
            first. A pattern (``logs/*.jsonl.gz``) names those that match, in order of their names; ``-`` is standard
            input. What can be read once only is copied to a temporary file.
        options: what the file does not say of itself.
        check: read through first; decided by size unless given, and always so where bad lines are skipped.
        progress: told the share of the bytes read each time that the file is read.

    Returns:
        The workload, which reads the file when it is iterated.

    Raises:
        TraceError: naming file and line; or more lines are bad than may be skipped.
        ConfigError: if an option is impossible.
    """
    files = log_files(path)
    if not files:
        raise ConfigError("a trace is one file or more, got none")
    settings = options or Options()
    workload = _workload(files, _opened(files[0], settings), settings, progress)
    if check is None:
        check = sum(file.size for file in files) <= CHECK_BYTES
    return keep(workload) if check or settings.skip_bad else workload


def _workload(
    files: Sequence[LogFile], opened: OpenedLog, settings: Options, progress: Callable[[float], None] | None
) -> Workload:
    window_s = opened.reorder_s if settings.reorder_s is None else settings.reorder_s
    infer = settings.infer_sessions and not opened.has_sessions
    name = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
    tally = Tally()

    def source() -> Iterator[Request]:
        reading = settings.reading(progress=progress, files=files)
        records = opened.records(reading)
        located = ((file, selected(records(file), settings, reading)) for file in files)
        count = 0
        for request in placed(in_order(located, window_s, reading), SessionFinder() if infer else None):
            count += 1
            yield request
        reading.tell(tally)
        if not count:
            raise TraceError("; ".join([f"{files[0]}: the file holds no request", *reading.tally.notes]))

    return Workload(
        name,
        opened.block_size,
        source,
        None,
        opened.assumptions,
        _notes(opened, window_s, infer),
        opened.head_tokens,
        is_parsed=True,
        volatile=_volatile(opened),
        tally=tally,
        prompt_kind=opened.prompt_kind,
        inferred_sessions=infer or opened.inferred_sessions,
    )


def _volatile(opened: OpenedLog) -> Volatile | None:
    """Return what is volatile in the heads of prompts, in tokens."""
    span = opened.span
    if span is None:
        return None
    before, length, gain = (round(size / opened.bytes_per_token) for size in (span.characters, span.length, span.gain))
    return Volatile(span.kind, before, max(1, length), gain, span.share, span.example)


def _notes(opened: OpenedLog, window_s: float, infer: bool) -> tuple[str, ...]:  # noqa: FBT001 - private
    notes = list(opened.notes)
    if window_s:
        notes.append(f"rows are put in order of arrival inside a window of {window_s:g} s")
    if infer:
        notes.append(INFERRED)
    return tuple(notes)


def _opened(file: LogFile, options: Options) -> OpenedLog:
    """Open a file in the format that its first row is of, or the first row that is not bad.

    Raises:
        TraceError: no row is of a known format; the error of the first is raised.
    """
    wrong: TraceError | None = None
    for sample in itertools.islice(_samples(file, options), FIRST_LINES if options.skip_bad else 1):
        try:
            reader = _format(sample, options)
            opened = reader.open_file(sample, options)
        except TraceError as error:
            wrong = wrong or error
        else:
            check_instance(f"what open_file() of {reader.NAME} returns", opened, OpenedLog)
            return opened
    raise wrong or TraceError(f"{file}:1: the file holds no request")


def _samples(file: LogFile, options: Options) -> Iterator[FirstRow]:
    """Yield the first rows of a file: of JSON, or of a document; else lines as they are."""
    reading = options.reading()
    lines = read_lines(file, reading)
    for line, text in lines:
        if begins_document(text):
            lines.close()
            yield from (FirstRow(file, row.line, "", row.fields) for row in read_rows(file, options.reading()))
            return
        try:
            fields = json_of(text)
        except ValueError:
            fields = None
        yield FirstRow(file, line, text, fields if isinstance(fields, dict) else None)


def _format(sample: FirstRow, options: Options) -> Format:
    if options.format is not None:
        named = {known.NAME: known for known in FORMATS}
        check_choice("trace format", options.format, named)
        return named[options.format]
    if options.fields is not None:
        if sample.fields is None:
            where, start = f"{sample.file}:{sample.line}", sample.text.strip()[:60]
            raise TraceError(f"{where}: not JSON, and a field map reads lines of JSON alone: {start!r}")
        return gateway
    for known in FORMATS:
        if known.recognises(sample):
            return known
    raise _unknown(sample)


def _unknown(sample: FirstRow) -> TraceError:
    """Return the error of a row that no format recognises."""
    where, start = f"{sample.file}:{sample.line}", sample.text.strip()[:60]
    if sample.fields is not None:
        found = f"the fields {', '.join(sorted(sample.fields))[:200]}" if sample.fields else "an object without fields"
        return TraceError(f"{where}: no known trace format has {found}{field_map_for(sample.fields)}")
    if sample.text.lstrip().startswith("{"):
        try:
            json_of(sample.text)
        except ValueError as error:
            return TraceError(f"{where}: not JSON: {reason(error)}: {start!r}")
    return TraceError(
        f"{where}: neither JSON nor a known CSV header ({lengths.HEADERS}; see docs/traces.md): {start!r}"
    )


def read_arrivals(path: str | Path, options: Options | None = None) -> Recorded:
    """Return the arrival times of a trace, for a generator to use; all of them are held in memory.

    Args:
        path: of the trace.
        options: how to read it.

    Raises:
        TraceError: naming file and line.
        ConfigError: if there are fewer than two requests, or no time passes between them.
    """
    workload = read_trace(path, options, check=False)
    return Recorded([request.arrival_s for request in workload.requests()])
