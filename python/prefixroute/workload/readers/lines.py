"""Lines of a log, and the rows that are written on them: as JSON, one a line or in one document, or as CSV."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any

from prefixroute.errors import TraceError
from prefixroute.workload.readers.row import Row, shown
from prefixroute.workload.readers.source import ByteStream, LogFile

if TYPE_CHECKING:
    from prefixroute.workload.readers.log_pass import LogPass

LINE_BYTES = 64 * 1024 * 1024
"""The longest line that is read, and the longest element of a document, unless the caller says."""
_CHUNK = 1 << 20
"""Bytes of a document that are read at a time."""


def read_lines(file: LogFile, reading: LogPass) -> Generator[tuple[int, str], None, None]:
    """Yield (line number from 1, text) of each line that is not blank. One line is in memory at a time.

    Raises:
        TraceError: at packed data that ends early or is damaged, where nothing behind can be read; at a line that is
            too long; and at text that is not UTF-8.
    """
    most = reading.line_bytes
    with closing(ByteStream(file)) as stream:
        for number in count(1):
            try:
                line = stream.readline(most + 1)
                long = len(line) > most
                while line[-1:] not in {b"", b"\n"} and len(line) > most:  # the rest of a line that is too long
                    line = stream.readline(most + 1)
            except TraceError as error:
                raise TraceError(f"{file}:{number}: {error}") from error.__cause__
            if not line and not long:
                reading.end(file)
                return
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if not long and (not line or line.isspace()):
                continue
            reading.at(stream.tell())
            if long:
                reading.refuse(
                    number, TraceError(f"{file}:{number}: a line has more than {most:,} bytes: raise the limit")
                )
                continue
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                reading.refuse(number, TraceError(f"{file}:{number}: not UTF-8: {error.reason} at byte {error.start}"))
                continue
            yield number, text


_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


def json_of(text: str) -> Any:
    """Return what a text of JSON holds, with U+FFFD in place of each surrogate that is no half of a pair.

    Such a half is what is left of a character where a text was cut. JSON has it, UTF-8 has not: nothing that is read
    could be encoded, printed or hashed with it. All JSON of a trace comes through here.

    Raises:
        ValueError: it is not JSON, or is nested too deep.
    """
    try:
        value = json.loads(text)
        return _without_surrogates(value) if _ESCAPED_SURROGATE.search(text) else value
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def json_in(text: str, begin: str | tuple[str, ...] = ("{", "[")) -> Any:
    """Return the list or object that a text is the JSON of; None if it does not ``begin`` like one, or is none."""
    try:
        return json_of(text) if text.lstrip().startswith(begin) else None
    except ValueError:
        return None


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub(_REPLACEMENT, value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def read_rows(file: LogFile, reading: LogPass) -> Iterator[Row]:
    """Yield each JSON object of a file as a :class:`Row`: one a line, or the elements of a document that is a list.

    Raises:
        TraceError: at a line that is not one JSON object.
    """
    lines = read_lines(file, reading)
    first = next(lines, None)
    if first is None:
        return
    if begins_document(first[1]):
        lines.close()
        yield from _elements(file, reading)
        return
    yield from _row_of(file, reading, *first)
    for number, line in lines:
        yield from _row_of(file, reading, number, line)


def _row_of(file: LogFile, reading: LogPass, number: int, line: str) -> Iterator[Row]:
    try:
        fields = json_of(line)
    except ValueError as error:
        reading.refuse(number, TraceError(f"{file}:{number}: not JSON: {reason(error)}"))
        return
    if isinstance(fields, dict):
        yield Row(fields, file, number)
    else:
        reading.refuse(number, TraceError(f"{file}:{number}: must be a JSON object, got {shown(fields)}"))


def reason(error: ValueError) -> str:
    """Return in a few words why a text is not JSON, from the error of :func:`json_of`."""
    if isinstance(error, json.JSONDecodeError):
        place = min(error.pos, len(error.doc.rstrip()))  # what is missing at the end is missing on the last line
        return f"{error.msg.removesuffix(' at')} at column {place - error.doc.rfind(chr(10), 0, place)}"
    return "a number has too many digits" if "digits" in str(error) else str(error)


def begins_document(line: str) -> bool:
    """Return whether a file that begins like this is one JSON document: a list, or an object on several lines."""
    start = line.strip()
    return start.startswith("[") or start == "{"


def _elements(file: LogFile, reading: LogPass) -> Iterator[Row]:
    """Yield the objects of a document: the elements of its list, one in memory at a time, or the object that it is."""
    with closing(_DocumentText(file, reading)) as text:
        yield from _values(file, reading, text)
        reading.end(file)


def _values(file: LogFile, reading: LogPass, more: _DocumentText) -> Iterator[Row]:
    decoder = json.JSONDecoder()
    listed = more.peek() == "["
    if listed:
        more.skip()
    number = 0
    while more.peek() not in {"", "]"}:
        number += 1
        try:
            value = more.value(decoder)
        except ValueError as error:
            raise TraceError(f"{file}:{number}: not JSON: {reason(error)}") from None
        reading.at(more.position)
        if isinstance(value, dict):
            yield Row(value, file, number)
        else:
            reading.refuse(number, TraceError(f"{file}:{number}: must be a JSON object, got {shown(value)}"))
        if not listed:
            break
        if more.peek() == ",":
            more.skip()
        elif more.peek() != "]":
            raise TraceError(f"{file}:{number}: not JSON: the list ends early after this element")


class _DocumentText:
    """The text of a document, read as far as a value needs."""

    def __init__(self, file: LogFile, reading: LogPass) -> None:
        self._file, self._reading, self._stream = file, reading, ByteStream(file)
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text, self._at, self._ended = "", 0, False

    @property
    def position(self) -> int:
        """Bytes of the file that were read."""
        return self._stream.tell()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def peek(self) -> str:
        """Return the next character that is not blank, without passing it; nothing at the end."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if not self._grow(_CHUNK):
                return ""

    def skip(self) -> None:
        """Pass one character."""
        self._at += 1

    def value(self, decoder: json.JSONDecoder) -> Any:
        """Return the JSON value that begins here, and pass it.

        Raises:
            ValueError: there is none, or it is nested too deep or longer than a line may be.
        """
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._at)
            except RecursionError:
                raise ValueError("it is nested too deep") from None
            except json.JSONDecodeError:
                held = len(self._text) - self._at
                if held > self._reading.line_bytes:
                    raise ValueError(f"more than {self._reading.line_bytes:,} characters: raise the limit") from None
                if not self._grow(max(_CHUNK, held)):
                    raise
                continue
            escaped = _ESCAPED_SURROGATE.search(self._text, self._at, end)
            self._at = end
            return _without_surrogates(value) if escaped else value

    def _grow(self, size: int) -> bool:
        """Read on; return whether there was more."""
        grown = False
        while not self._ended and size > 0:
            try:
                data = self._stream.readline(size)
                text = self._decode(data, final=not data)
            except (TraceError, UnicodeDecodeError) as error:
                raise TraceError(f"{self._file}: {error}") from error
            self._ended = not data
            size -= len(data)
            grown = grown or bool(text)
            self._text, self._at = self._text[self._at :] + text, 0
        return grown


def cells_of(file: LogFile, line: int, text: str) -> list[str]:
    """Return the cells of one line of CSV.

    Raises:
        TraceError: at a line that is not CSV.
    """
    try:
        return next(csv.reader([text.strip()]), [])
    except csv.Error as error:
        raise TraceError(f"{file}:{line}: not CSV: {error}") from error


def read_table(file: LogFile, reading: LogPass) -> Iterator[Row]:
    """Yield each line of a CSV file after its header as a :class:`Row` of texts.

    Raises:
        TraceError: at a line that is not CSV.
    """
    header: list[str] | None = None
    for line, text in read_lines(file, reading):
        try:
            cells = cells_of(file, line, text)
        except TraceError as error:
            reading.refuse(line, error)
            continue
        if header is None:
            header = cells
        else:
            yield Row(dict(zip(header, cells, strict=False)), file, line)
