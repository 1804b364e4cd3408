"""One row of a trace file, and the checks of what its fields hold, with errors that name file and line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixroute.errors import TraceError
from prefixroute.validation import shown as shown_up_to
from prefixroute.workload.readers.source import LogFile

MOST = 2**53
"""The greatest whole number that every JSON reader keeps exact."""
ZONELESS = "times name no zone and are taken as UTC"
"""The note where :func:`is_zoneless`."""
MOST_TIME = 2.0**63
"""The greatest size of a time: nanoseconds since 1970 in 64 bits go to the year 2262."""
_SHOWN = 40
"""Characters of a wrong value that an error shows."""


class Row:
    """One JSON object of a file, and where it stands. Its methods take out one field each and check it."""

    __slots__ = ("fields", "file", "line")

    def __init__(self, fields: dict[str, Any], file: LogFile, line: int) -> None:
        """Hold the object's fields."""
        self.fields = fields
        self.file = file
        self.line = line

    def error(self, text: str) -> TraceError:
        """Return an error that names this row's file and line."""
        return TraceError(f"{self.file}:{self.line}: {text}")

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
        return None if value == "" else text_of(self, name, value)

    def sequence(self, name: str) -> list[Any]:
        """Return a list."""
        value = self._get(name)
        if not isinstance(value, list):
            raise self.error(f"{name} must be a list, got {shown(value)}")
        return value

    def inner(self, name: str) -> Row:
        """Return the fields of an object that is a field; none of anything else."""
        value = self.fields.get(name)
        return Row(value if isinstance(value, dict) else {}, self.file, self.line)

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


def objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; none of anything else."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def whole(row: Row, name: str, value: Any, *, least: int = 0, most: int = MOST) -> int:
    """Return a value of a row as a whole number, ``least`` to ``most``; ``5.0`` is one."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        beyond = type(value) is int and value > most
        bounds = f"{least} to {most}" if beyond or most < MOST else f"{least} or more"
        raise row.error(f"{name} must be a whole number, {bounds}, got {shown(value)}")
    return value


def text_of(row: Row, name: str, value: Any) -> str | None:
    """Return a value of a row that is a text, or None where there is none; numbers become their decimal text."""
    if value is None or isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    raise row.error(f"{name} must be text, got {shown(value)}")


def time_of(row: Row, name: str, value: Any, *, least: float = -MOST_TIME) -> float:
    """Return a value of a row as a time or duration, up to 2**63: what is made of several is finite too."""
    if type(value) not in {int, float} or not least <= value <= MOST_TIME:
        raise row.error(f"{name} must be a number, {'0' if least == 0 else '-2**63'} to 2**63, got {shown(value)}")
    return float(value)


def date_of(row: Row, name: str, text: str) -> float:
    """Return seconds since 1970 of a date with a time, which is UTC where it names no zone.

    The same on every machine.
    """
    moment = _moment(text)
    if moment is None:
        raise row.error(f"{name} must be a number or ISO 8601, got {shown(text)}")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def is_date(text: str) -> bool:
    """Return whether a text is a date with or without a time."""
    return _moment(text) is not None


def is_zoneless(text: str) -> bool:
    """Return whether a text is a date with a time that names no zone."""
    moment = _moment(text)
    return moment is not None and moment.tzinfo is None


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def shown(value: object) -> str:
    """Return a short text of a wrong value for an error.

    Less of it than of an argument, as what a log holds is private.
    """
    return shown_up_to(value, most=_SHOWN)
