"""Lines and JSON rows of a trace file, plain or gzip, with errors that name file and line."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from prefixroute.errors import TraceError

if TYPE_CHECKING:
    from prefixroute.workload.readers.reading import Reading

_GZIP_MAGIC = b"\x1f\x8b"
MOST = 2**53
"""The greatest whole number that every JSON reader keeps exact."""
ZONELESS = "times name no zone and are taken as UTC"
"""The note where :func:`is_zoneless`."""
_MOST_TIME = 2.0**63
"""The greatest size of a time: nanoseconds since 1970 in 64 bits go to the year 2262."""


def open_trace(path: Path) -> IO[bytes]:
    """Open a file for reading bytes; gzip is recognised by its first bytes, not by its name.

    Raises:
        TraceError: if there is no such file, or it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            zipped = stream.read(2) == _GZIP_MAGIC
        return cast("IO[bytes]", gzip.open(path)) if zipped else path.open("rb")
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_lines(path: Path, reading: Reading) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text) of each line that is not blank. One line is in memory at a time.

    Raises:
        TraceError: at a gzip stream that ends early or is damaged, where nothing behind can be read; and at text that is
            not UTF-8.
    """
    number = 0
    with open_trace(path) as stream:
        raw = stream.fileobj if isinstance(stream, gzip.GzipFile) else stream
        while True:
            number += 1
            try:
                line = stream.readline()
            except EOFError as error:
                raise TraceError(f"{path}:{number}: the gzip data ends early: the file is truncated") from error
            except (OSError, zlib.error) as error:
                raise TraceError(f"{path}:{number}: the gzip data is damaged: {error}") from error
            if not line:
                reading.end(raw.tell())
                return
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if not line or line.isspace():
                continue
            reading.at(raw.tell())
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                reading.refuse(number, TraceError(f"{path}:{number}: not UTF-8: {error.reason} at byte {error.start}"))
                continue
            yield number, text


class Row:
    """One JSON object of a file, and where it stands. Its methods take out one field each and check it."""

    __slots__ = ("fields", "line", "path")

    def __init__(self, fields: dict[str, Any], path: Path, line: int) -> None:
        """Hold the object's fields."""
        self.fields = fields
        self.path = path
        self.line = line

    def error(self, text: str) -> TraceError:
        """Return an error that names this row's file and line."""
        return TraceError(f"{self.path}:{self.line}: {text}")

    def _get(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise self.error(f"field {name!r} is missing") from None

    def integer(self, name: str, *, least: int = 0, most: int = MOST) -> int:
        """Return a whole number, ``least`` to ``most``."""
        return whole(self, name, self._get(name), least=least, most=most)

    def time(self, name: str) -> float:
        """Return a time, in whatever unit."""
        return time_of(self, name, self._get(name))

    def text(self, name: str) -> str | None:
        """Return a text, or None where the field is absent, null or empty; numbers become their decimal text."""
        value = self.fields.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, str):
            return value
        if type(value) is int:
            return str(value)
        raise self.error(f"{name} must be text, got {shown(value)}")

    def sequence(self, name: str) -> list[Any]:
        """Return a list."""
        value = self._get(name)
        if not isinstance(value, list):
            raise self.error(f"{name} must be a list, got {shown(value)}")
        return value

    def ids(self, name: str) -> NDArray[np.uint64]:
        """Return a list of whole numbers from 0 to 2**64 - 1."""
        value = self.sequence(name)
        if not value:
            return np.empty(0, np.uint64)
        try:
            numbers = np.array(value)
        except (ValueError, OverflowError):
            numbers = np.array(None)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or numbers.min() < 0:
            bad = next((at for at, item in enumerate(value) if type(item) is not int or not 0 <= item < 2**64), 0)
            raise self.error(f"{name}[{bad}] must be a whole number, 0 to 2**64 - 1, got {shown(value[bad])}")
        return numbers.astype(np.uint64)


def whole(row: Row, name: str, value: Any, *, least: int = 0, most: int = MOST) -> int:
    """Return a value of a row as a whole number, ``least`` to ``most``; ``5.0`` is one."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        beyond = type(value) is int and value > most
        bounds = f"{least} to {most}" if beyond or most < MOST else f"{least} or more"
        raise row.error(f"{name} must be a whole number, {bounds}, got {shown(value)}")
    return value


def time_of(row: Row, name: str, value: Any, *, least: float = -_MOST_TIME) -> float:
    """Return a value of a row as a time or duration, up to 2**63: what is made of several is finite too."""
    if type(value) not in {int, float} or not least <= value <= _MOST_TIME:
        raise row.error(f"{name} must be a number, {'0' if least == 0 else '-2**63'} to 2**63, got {shown(value)}")
    return float(value)


def date_of(row: Row, name: str, text: str) -> float:
    """Return seconds since 1970 of a date with a time, which is UTC where it names no zone: the same on every machine."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise row.error(f"{name} must be a number or ISO 8601, got {shown(text)}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def is_zoneless(text: str) -> bool:
    """Return whether a text is a date with a time that names no zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False


def shown(value: object) -> str:
    """Return a short text of a wrong value for an error."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."  # noqa: PLR2004 - what fits on a line


_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


def json_of(text: str) -> Any:
    """Return what a text of JSON holds, with U+FFFD in place of each surrogate that is no half of a pair.

    Such a half is what is left of a character where a text was cut. JSON has it, UTF-8 has not: nothing that is read could
    be encoded, printed or hashed with it. All JSON of a trace comes through here.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deep.
    """
    value = json.loads(text)
    return _without_surrogates(value) if _ESCAPED_SURROGATE.search(text) else value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub(_REPLACEMENT, value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def read_rows(path: Path, reading: Reading) -> Iterator[Row]:
    """Yield each line of a JSONL file as a :class:`Row`.

    Raises:
        TraceError: at a line that is not one JSON object.
    """
    for number, line in read_lines(path, reading):
        try:
            fields = json_of(line)
        except (ValueError, RecursionError) as error:
            reason = (
                f"{error.msg.removesuffix(' at')} at column {error.colno}"
                if isinstance(error, json.JSONDecodeError)
                else str(error)
            )
            reading.refuse(number, TraceError(f"{path}:{number}: not JSON: {reason}"))
            continue
        if isinstance(fields, dict):
            yield Row(fields, path, number)
        else:
            reading.refuse(number, TraceError(f"{path}:{number}: must be a JSON object, got {shown(fields)}"))


def cells_of(path: Path, line: int, text: str) -> list[str]:
    """Return the cells of one line of CSV.

    Raises:
        TraceError: at a line that is not CSV.
    """
    try:
        return next(csv.reader([text.strip()]), [])
    except csv.Error as error:
        raise TraceError(f"{path}:{line}: not CSV: {error}") from error


def read_table(path: Path, reading: Reading) -> Iterator[Row]:
    """Yield each line of a CSV file after its header as a :class:`Row` of texts.

    Raises:
        TraceError: at a line that is not CSV.
    """
    header: list[str] | None = None
    for line, text in read_lines(path, reading):
        try:
            cells = cells_of(path, line, text)
        except TraceError as error:
            reading.refuse(line, error)
            continue
        if header is None:
            header = cells
        else:
            yield Row(dict(zip(header, cells, strict=False)), path, line)
