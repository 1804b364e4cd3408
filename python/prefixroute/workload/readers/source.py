"""Files that are read: plain, gzip or zstd, named by paths, patterns or ``-``.

What can be read once only is spooled.
"""

from __future__ import annotations

import atexit
import gzip
import importlib
import os
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from prefixroute.errors import ConfigError, TraceError
from prefixroute.extras import installing
from prefixroute.validation import shown

STDIN = "-"
"""The name of standard input."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PATTERN = frozenset("*?[")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file with the name that errors and tables call it by.

    Attributes:
        path: where its bytes are: a copy on disk, where the log came from a pipe.
        label: what it is called.
    """

    path: Path
    label: str

    def __str__(self) -> str:
        """Return what the file is called."""
        return self.label

    @property
    def name(self) -> str:
        """The last part of what it is called."""
        return Path(self.label).name

    @property
    def size(self) -> int:
        """Bytes on disk; 0 where there is no such file."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0


class ByteStream:
    """An open log: lines of bytes, unpacked on the way, and how far in the file on disk they are."""

    def __init__(self, file: LogFile) -> None:
        """Open a file; gzip and zstd are recognised by their first bytes, not by the name.

        Raises:
            TraceError: if there is no such file, or it cannot be read, or the library for zstd is missing.
        """
        self._file = file
        try:
            raw = file.path.open("rb")
        except OSError as error:
            raise TraceError(f"{file}: cannot be read: {error.strerror or error}") from error
        try:
            self._raw, self._lines = raw, _unpacked(file, raw)
        except BaseException:
            raw.close()
            raise

    def readline(self, most: int) -> bytes:
        """Return the next line with its end, or the first ``most`` bytes of it; nothing at the end of the file.

        Raises:
            TraceError: the packed data is damaged, or ends early. Nothing behind can be read.
        """
        try:
            return self._lines.readline(most)
        except EOFError as error:
            raise TraceError(f"{self._kind} data ends early: the file is truncated") from error
        except (OSError, zlib.error) as error:
            raise TraceError(f"{self._kind} data is damaged: {error}") from error
        except Exception as error:
            if type(error).__name__ != "ZstdError":  # of a library that may be missing
                raise
            raise TraceError(f"{self._kind} data is damaged: {error}") from error

    @property
    def _kind(self) -> str:
        return "the gzip" if isinstance(self._lines, gzip.GzipFile) else "the zstd"

    def tell(self) -> int:
        """Return the bytes of the file on disk that have been read."""
        return self._raw.tell()

    def close(self) -> None:
        """Close the file."""
        self._lines.close()
        self._raw.close()


def _unpacked(file: LogFile, raw: IO[bytes]) -> IO[bytes]:
    start = raw.read(len(_ZSTD))
    raw.seek(0)
    if start.startswith(_GZIP):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if start == _ZSTD:
        return cast("IO[bytes]", _zstd(file).ZstdFile(raw))
    return raw


def _zstd(file: LogFile) -> Any:
    """Return the standard library's module for zstd, which Python has from 3.14, or its backport."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return importlib.import_module(name)
    raise TraceError(f"{file} is packed with zstd, and reading it needs an extra: {installing('cli')}")


def log_files(named: str | Path | LogFile | Iterable[str | Path | LogFile]) -> list[LogFile]:
    """Return the files that paths, patterns (``logs/*.jsonl.gz``) and ``-`` name, in their order.

    A path that exists is a file, though it may look like a pattern. Standard input, a pipe and what else can be read
    once only is copied to a temporary file, which is removed when this process ends.

    Args:
        named: one name, a file that is open, or several of these.

    Raises:
        TraceError: a pattern fits no file, a pipe cannot be read, or a file is named twice: its requests would count
            double.
        ConfigError: one is neither a path nor a pattern.
    """
    if isinstance(named, bytes) or not isinstance(named, str | Path | LogFile | Iterable):
        raise ConfigError(f"a trace must be a path or several, got {shown(named)}")
    files: list[LogFile] = []
    for one in [named] if isinstance(named, str | Path | LogFile) else named:
        files += _files(one)
    twice = [label for label, count in Counter(map(_identity, files)).items() if count > 1]
    if twice:
        raise TraceError(f"{next(file for file in files if _identity(file) in twice)}: is named twice")
    return files


def _files(one: str | Path | LogFile) -> list[LogFile]:
    """Return the files that one name stands for."""
    if isinstance(one, LogFile):
        return [one]
    if not isinstance(one, str | Path) or "\0" in str(one):
        raise ConfigError(f"a trace must be a path or several, got {shown(one)}")
    path = Path(one)
    if str(one) == STDIN:
        if sys.stdin is None:
            raise TraceError("stdin: cannot be read: it is closed")
        return [_spooled(sys.stdin.buffer, "stdin")]
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("rb") as pipe:
            return [_spooled(pipe, str(one))]
    if _PATTERN & set(str(one)) and not os.path.lexists(one):
        return _matched(str(one))
    return [LogFile(path, str(one))]


def _identity(file: LogFile) -> object:
    """Return what two names of one file have in common; of a copy of a pipe, what it was called."""
    if file.label != str(file.path):
        return file.label
    try:
        found = file.path.stat()
    except OSError:
        return file.label
    return found.st_dev, found.st_ino


def _matched(pattern: str) -> list[LogFile]:
    root = Path(Path(pattern).anchor)
    found = sorted(path for path in root.glob(str(Path(pattern).relative_to(root))) if path.is_file())
    if not found:
        raise TraceError(f"no file matches {shown(pattern)}")
    return [LogFile(path, str(path)) for path in found]


def _spooled(pipe: IO[bytes], label: str) -> LogFile:
    handle, name = tempfile.mkstemp(prefix="prefixroute-")
    atexit.register(_remove, name, os.getpid())
    try:
        with os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(pipe, copy, _CHUNK)
    except OSError as error:
        raise TraceError(f"{label}: cannot be read: {error.strerror or error}") from error
    return LogFile(Path(name), label)


def _remove(name: str, owner: int) -> None:
    """Remove a temporary file, unless this is a fork of the process that made it."""
    if os.getpid() == owner:
        Path(name).unlink(missing_ok=True)
