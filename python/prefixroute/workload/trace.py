"""Open a trace file of any known format as a workload."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from prefixroute.errors import ConfigError, TraceError
from prefixroute.workload.arrivals import Recorded
from prefixroute.workload.order import SessionFinder, in_order, requests_of
from prefixroute.workload.readers import bailian, gateway, lengths, mooncake, private, recorded
from prefixroute.workload.readers.lines import read_lines
from prefixroute.workload.readers.record import Format, Opened, Options, Record, Sample
from prefixroute.workload.request import Request
from prefixroute.workload.workload import Volatile, Workload

CHECK_BYTES = 64 * 1024 * 1024
"""Files up to this size on disk are read once in full before the first request is handed out."""

CHARACTERS_PER_TOKEN = 4
"""For places in a text that are shown to people."""

KEPT_BYTES = 64 * 1024 * 1024
"""A trace whose requests take no more than this is parsed once, and held."""
_BYTES_PER_REQUEST = 800

FORMATS: tuple[Format, ...] = (private, bailian, mooncake, recorded, lengths, gateway)
"""Known formats. The first that recognises a file's first line reads it."""


def read_trace(
    path: str | Path | Sequence[str | Path], options: Options | None = None, *, check: bool | None = None
) -> Workload:
    """Open a trace as a workload. Its format is recognised by its first line, gzip by its first bytes.

    Reading streams: memory does not grow with the file. A trace of up to 64 MiB is first read through to its end
    (``check``), so that a bad line is reported here and nothing is half-read; a larger one is read each time it is
    asked for, and its bad line is reported by :meth:`Workload.requests`, at the line: whoever consumes the stream
    discards what came before. A checked trace whose requests take up to 64 MiB is held and not parsed again.

    Args:
        path: the file, plain or gzip, or several that follow one another in time (a log that was rotated), all of the
            format of the first.
        options: what the file does not say of itself.
        check: read through first; decided by size unless given.

    Raises:
        TraceError: naming file and line.
        ConfigError: if an option is impossible.
    """
    paths = [Path(path)] if isinstance(path, str | Path) else [Path(one) for one in path]
    if not paths:
        raise ConfigError("a trace is one file or more, got none")
    settings = options or Options()
    sample = _sample(paths[0])
    opened = _format(sample, settings).open_file(sample, settings)
    workload = _workload(paths, opened, settings)
    if check is None:
        check = sum(one.stat().st_size for one in paths if one.exists()) <= CHECK_BYTES
    return _checked(workload) if check else workload


def _checked(workload: Workload) -> Workload:
    """Read a workload to its end, and keep its requests if they are small: several policies will ask for them."""
    kept: list[Request] = []
    count = size = 0
    for request in workload.requests():
        count += 1
        blocks = len(request.context) + (0 if request.context is request.prompt else len(request.prompt))
        size += _BYTES_PER_REQUEST + 8 * blocks
        if size <= KEPT_BYTES:
            kept.append(request)
        else:
            kept.clear()
    if size > KEPT_BYTES:
        return replace(workload, request_count=count)
    return replace(workload, request_count=count, source=lambda: iter(kept))


def _workload(paths: Sequence[Path], opened: Opened, settings: Options) -> Workload:
    window_s = opened.reorder_s if settings.reorder_s is None else settings.reorder_s
    if not 0 <= window_s < float("inf"):
        raise ConfigError(f"reorder_s must be a finite number of seconds, 0 or more, got {window_s}")
    infer = settings.infer_sessions and not opened.has_sessions
    name = paths[0].name if len(paths) == 1 else f"{paths[0].name} and {len(paths) - 1} more"

    def workload_of(records: Callable[[Path], Iterator[Record]]) -> Workload:
        def source() -> Iterator[Request]:
            files = ((path, records(path)) for path in paths)
            return requests_of(in_order(files, window_s), SessionFinder() if infer else None)

        return Workload(name, opened.block_size, source, None, opened.assumptions, _notes(opened, window_s, infer))

    workload = workload_of(opened.records)
    if opened.masked is None or opened.span is None:
        return workload
    tokens = opened.span.characters // CHARACTERS_PER_TOKEN
    masked = workload_of(opened.masked)
    return replace(workload, volatile=Volatile(opened.span.kind, tokens, opened.span.share, masked))


def _notes(opened: Opened, window_s: float, infer: bool) -> tuple[str, ...]:  # noqa: FBT001 - private
    notes = list(opened.notes)
    if window_s:
        notes.append(f"rows are put in order of arrival inside a window of {window_s:g} s")
    if infer:
        notes.append("no session key: sessions are inferred, a prompt that extends an earlier prompt continues it")
    return tuple(notes)


def _sample(path: Path) -> Sample:
    first = next(read_lines(path), None)
    if first is None:
        raise TraceError(f"{path}:1: the file holds no request")
    line, text = first
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    return Sample(path, line, text, fields if isinstance(fields, dict) else None)


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
