"""Open a trace file of any known format as a workload."""

from __future__ import annotations

from pathlib import Path

from prefixroute.errors import TraceError
from prefixroute.workload.readers import mooncake
from prefixroute.workload.readers.lines import read_rows
from prefixroute.workload.workload import Workload

CHECK_BYTES = 64 * 1024 * 1024
"""Files up to this size on disk are read once in full before the first request is handed out."""


def read_trace(path: str | Path, *, check: bool | None = None) -> Workload:
    """Open a trace as a workload.

    Reading streams: memory does not grow with the file. A file of up to 64 MiB is first read through to its end
    (``check``), so that a bad line is reported here and nothing is half-read; a larger one is read once, and its bad
    line is reported by :meth:`Workload.requests`, at the line: whoever consumes the stream discards what came before.

    Args:
        path: the file, plain or gzip.
        check: read through first; decided by size unless given.

    Raises:
        TraceError: naming file and line.
    """
    path = Path(path)
    first = next(read_rows(path), None)
    if first is None:
        raise TraceError(f"{path}:1: the file holds no request")
    if not mooncake.recognises(first.fields):
        raise first.error(f"no known trace format has the fields {', '.join(sorted(first.fields))}")
    workload = Workload(path.name, mooncake.BLOCK_SIZE, lambda: mooncake.read(path))
    if check is None:
        check = path.stat().st_size <= CHECK_BYTES
    if not check:
        return workload
    count = sum(1 for _ in workload.requests())
    return Workload(workload.name, workload.block_size, workload.source, count)
