"""Open a trace file of any known format as a workload."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from prefixroute.costmodel.assumption import Assumption
from prefixroute.errors import ConfigError, TraceError
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.validation import check_int
from prefixroute.workload.arrivals import Recorded
from prefixroute.workload.kept import keep
from prefixroute.workload.order import SessionFinder, in_order, requests_of
from prefixroute.workload.readers import bailian, gateway, lengths, mooncake, private, recorded
from prefixroute.workload.readers.lines import json_of, read_lines
from prefixroute.workload.readers.reading import Reading
from prefixroute.workload.readers.record import Format, Opened, Options, Record, Sample
from prefixroute.workload.request import Request
from prefixroute.workload.workload import Volatile, Workload

CHECK_BYTES = 64 * 1024 * 1024
"""Files up to this size on disk are read once in full before the first request is handed out."""

FIRST_LINES = 100
"""Lines among which one must be of a known format where bad ones are skipped."""

FORMATS: tuple[Format, ...] = (private, bailian, mooncake, recorded, lengths, gateway)
"""Known formats. The first that recognises a file's first line reads it."""


def read_trace(
    path: str | Path | Sequence[str | Path],
    options: Options | None = None,
    *,
    check: bool | None = None,
    progress: Callable[[float], None] | None = None,
) -> Workload:
    """Open a trace as a workload. Its format is recognised by its first line, gzip by its first bytes.

    Reading streams: memory does not grow with the file. A trace of up to 64 MiB is first read through to its end
    (``check``), so that a bad line is reported here and nothing is half-read; its requests are then kept as arrays
    (:func:`~prefixroute.workload.keep`) and the file is not parsed again. A larger one is read each time it is asked for, and
    its bad line is reported by :meth:`Workload.requests`, at the line: whoever consumes the stream discards what came before.

    Args:
        path: the file, plain or gzip, or several that follow one another in time (a log that was rotated), all of the
            format of the first.
        options: what the file does not say of itself.
        check: read through first; decided by size unless given, and always so where bad lines are skipped.
        progress: told the share of the bytes read while the trace is checked, or else each time that it is read.

    Raises:
        TraceError: naming file and line; or more than a tenth of the lines are bad, where these are skipped.
        ConfigError: if an option is impossible.
    """
    paths = [Path(path)] if isinstance(path, str | Path) else [Path(one) for one in path]
    if not paths:
        raise ConfigError("a trace is one file or more, got none")
    settings = options or Options()
    if settings.block_size is not None:
        check_int("block_size", settings.block_size, 1, MAX_BLOCK_SIZE)
    opened = _opened(paths[0], settings)
    if check is None:
        check = sum(one.stat().st_size for one in paths if one.exists()) <= CHECK_BYTES
    skip = settings.skip_bad_lines
    if not (check or skip):
        return _workload(paths, opened, settings, lambda: Reading(progress=progress, paths=paths))
    reading = Reading(skip_bad_lines=skip, progress=progress, paths=paths)
    again = _workload(paths, opened, settings, lambda: Reading(skip_bad_lines=skip))
    kept = keep(_workload(paths, opened, settings, lambda: reading))
    return _without_bad_lines(replace(kept, volatile=again.volatile), reading)


def _without_bad_lines(workload: Workload, reading: Reading) -> Workload:
    """Say on a workload that was read through which lines it is without."""
    skipped = reading.skipped()
    if skipped is None:
        return workload
    source = "left out as bad, as asked for"
    count = Assumption("skipped_lines", skipped.bad, f"of {skipped.lines} lines", source, assumed=False)
    return replace(
        workload,
        assumptions=(*workload.assumptions, count),
        notes=(*workload.notes, skipped.note),
        skipped=skipped,
    )


def _workload(paths: Sequence[Path], opened: Opened, settings: Options, begin: Callable[[], Reading]) -> Workload:
    window_s = opened.reorder_s if settings.reorder_s is None else settings.reorder_s
    if not 0 <= window_s < float("inf"):
        raise ConfigError(f"reorder_s must be a finite number of seconds, 0 or more, got {window_s}")
    infer = settings.infer_sessions and not opened.has_sessions
    name = paths[0].name if len(paths) == 1 else f"{paths[0].name} and {len(paths) - 1} more"

    def workload_of(records: Callable[[Path, Reading], Iterator[Record]]) -> Workload:
        def source() -> Iterator[Request]:
            reading = begin()
            files = ((path, records(path, reading)) for path in paths)
            return requests_of(in_order(files, window_s, reading), SessionFinder() if infer else None)

        notes = _notes(opened, window_s, infer)
        return Workload(
            name, opened.block_size, source, None, opened.assumptions, notes, opened.head_tokens, is_parsed=True
        )

    workload = workload_of(opened.records)
    if opened.masked is None or opened.span is None:
        return workload
    span = opened.span
    tokens = round(span.characters / opened.bytes_per_token)
    return replace(workload, volatile=Volatile(span.kind, tokens, span.share, workload_of(opened.masked)))


def _notes(opened: Opened, window_s: float, infer: bool) -> tuple[str, ...]:  # noqa: FBT001 - private
    notes = list(opened.notes)
    if window_s:
        notes.append(f"rows are put in order of arrival inside a window of {window_s:g} s")
    if infer:
        whose = "sessions of the others are" if opened.has_stray_keys else "no session key: sessions are"
        notes.append(f"{whose} inferred, a prompt that extends an earlier prompt continues it")
    return tuple(notes)


def _opened(path: Path, options: Options) -> Opened:
    """Open a file in the format that its first line is of, or the first line that is not bad.

    Raises:
        TraceError: no line is of a known format; the error of the first is raised.
    """
    lines = read_lines(path, Reading(skip_bad_lines=options.skip_bad_lines))
    wrong: TraceError | None = None
    for line, text in itertools.islice(lines, FIRST_LINES if options.skip_bad_lines else 1):
        try:
            fields = json_of(text)
        except (ValueError, RecursionError):
            fields = None
        sample = Sample(path, line, text, fields if isinstance(fields, dict) else None)
        try:
            return _format(sample, options).open_file(sample, options)
        except TraceError as error:
            wrong = wrong or error
    raise wrong or TraceError(f"{path}:1: the file holds no request")


def _format(sample: Sample, options: Options) -> Format:
    if options.format is not None:
        for known in FORMATS:
            if options.format == known.NAME:
                return known
        names = ", ".join(known.NAME for known in FORMATS)
        raise ConfigError(f"trace format must be one of {names}, got {options.format!r}")
    if options.fields is not None:
        return gateway
    for known in FORMATS:
        if known.recognises(sample):
            return known
    if sample.fields is not None:
        found = f"the fields {', '.join(sorted(sample.fields))[:200]}" if sample.fields else "an object without fields"
        raise TraceError(f"{sample.path}:{sample.line}: no known trace format has {found}")
    if sample.text.lstrip().startswith("["):
        raise TraceError(
            f"{sample.path}:{sample.line}: a JSON array; a trace has one object a line (jq -c '.[]' makes that)"
        )
    raise TraceError(f"{sample.path}:{sample.line}: neither JSON nor a known CSV header: {sample.text.strip()[:60]!r}")


def read_arrivals(path: str | Path, options: Options | None = None) -> Recorded:
    """Return the arrival times of a trace, for a generator to use; all of them are held in memory.

    Raises:
        TraceError: naming file and line.
        ConfigError: if there are fewer than two requests, or no time passes between them.
    """
    workload = read_trace(path, options, check=False)
    return Recorded([request.arrival_s for request in workload.requests()])
